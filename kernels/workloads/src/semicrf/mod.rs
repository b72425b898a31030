//! `semicrf`: the semi-Markov conditional random field, a dynamic programme over labelled segments.
//!
//! Reading order: [`sizes`] holds one problem's numbers and words, [`problem`] is the contract,
//! [`generate`] makes inputs, [`oracle`] is the right answer and [`judge`] compares with it. Each
//! other module is a backend: [`streaming`] goes operation by operation,
//! [`reference`](mod@reference) is the fused algorithm in Rust, `compiled` turns the C sources in
//! this folder into programs, and `cuda` does it for NVIDIA GPUs.

pub mod sizes;
pub mod problem;
pub mod generate;
pub mod oracle;
pub mod judge;
pub mod compiled;
mod cuda;
pub mod streaming;
pub mod reference;
pub mod floor;

use problem::SemiCrfProblem;
use sizes::Sizes;
use sweeper_program::parameters::Parameters;
use sweeper_program::tensor::Dtype;
use sweeper_program::workload::{
    Amount, BackendInfo, ComparedWord, DefaultValue, DerivedSize, FlagTarget, Formula,
    ParameterError, Phase, Presentation, Problem, PublishedSampling, ShorthandFlag, TensorInfo,
    Workload, WorkloadInfo, axis_flag, size, tensor, word,
};

/// The workload.
pub struct SemiCrf;

static INFO: WorkloadInfo = WorkloadInfo {
    name: "semicrf",
    about: "semi-Markov CRF: sums over all segmentations of a sequence into labelled segments",
    formula: "\
beta[0, c] = 0;  beta[n, dst] = (+) over k, src of beta[n-k, src] (x) edge(n-k, k, dst, src)
value = (+) over c of beta[end, c], with a free start label
log:     (+) logsumexp, (x) +;  max: (+) max, (x) +
entropy: pairs (l, h), (x) adds both, (+) gives L = logsumexp l and H = sum p h - sum p (l - L),
         p = exp(l - L); the results are log Z and the entropy of the segmentations in nats
materialized: edge(n, k, dst, src) is a tensor over n < T-1; the end is at length-1
decomposed:   edge(t, k, dst, src) = S[t+k, dst] - S[t, dst] + duration_bias[k, dst]
              + transition[src, dst] (or [k, src, dst]); the end is at length
durations:    k = 1..K-1 held at index k (1 at index 0 if K = 1), or k = 1..K held at index k-1
backward:     gradients of the sum over the batch of log Z, of the best score (the indicator of one
              best segmentation), or of log Z + entropy",
    parameters: &[
        size("T", sizes::MAX_T, None, "positions of a sequence"),
        size("K", sizes::MAX_K, None, "extent of the duration axis"),
        size("C", sizes::MAX_C, None, "labels"),
        size(
            "B",
            sizes::MAX_B,
            Some(DefaultValue::Int(4)),
            "sequences of a batch",
        ),
        word(
            "semiring",
            &[
                ("log", &["LogSemiring"]),
                ("max", &["MaxSemiring"]),
                ("entropy", &["EntropySemiring"]),
            ],
            "log",
            "what (+) and (x) are",
        ),
        word(
            "potentials",
            &[("materialized", &["materialised"]), ("decomposed", &[])],
            "materialized",
            "whether scores of edges are a tensor, or sums of parts",
        ),
        word(
            "lengths",
            &[("full", &[]), ("random", &[])],
            "full",
            "whether generated sequences are all T long, or from T/2 to T with the first one full",
        ),
        word(
            "durations",
            &[("1..K-1", &[]), ("1..K", &[])],
            "1..K-1",
            "which durations the duration axis holds",
        ),
        word(
            "transition",
            &[("fixed", &[]), ("per_duration", &[])],
            "fixed",
            "whether the transition depends on the duration; decomposed potentials only",
        ),
    ],
    backends: &[
        BackendInfo {
            name: "streaming",
            aliases: &["linear_scan_streaming"],
            about: "a scan over positions, one operation at a time",
            by_default: true,
        },
        BackendInfo {
            name: "fused",
            aliases: &["triton"],
            about: "one compiled kernel a pass",
            by_default: true,
        },
        BackendInfo {
            name: "fused_reference",
            aliases: &["triton_pytorch"],
            about: "the fused algorithm in plain Rust, one function a pass; CPU only",
            by_default: true,
        },
        BackendInfo {
            name: "fused_checkpointing",
            aliases: &["triton_checkpointing"],
            about: "one compiled kernel a pass; the backward pass recomputes from checkpoints",
            by_default: true,
        },
    ],
    phases: &Phase::ALL,
    dtypes: &[Dtype::F32],
    inputs: &[
        tensor(
            "edge",
            "(B, T-1, K, C, C)",
            "materialized: score of (position, duration, destination, source)",
        ),
        tensor(
            "cum_scores",
            "(B, T+1, C)",
            "decomposed: cumulative zero-centred scores, 0 at position 0",
        ),
        tensor(
            "transition",
            "(C, C) or (K, C, C)",
            "decomposed: score of (source, destination), for each duration if per_duration",
        ),
        tensor(
            "duration_bias",
            "(K, C)",
            "decomposed: score of a duration, by destination",
        ),
        TensorInfo {
            name: "lengths",
            shape: "(B)",
            dtype: Dtype::I64,
            about: "length of each sequence, from 1 to T",
        },
    ],
    outputs: &[
        tensor("value", "(B)", "forward: log Z, or the best score"),
        tensor(
            "entropy",
            "(B)",
            "forward, entropy semiring: entropy in nats",
        ),
        tensor("grad_edge", "(B, T-1, K, C, C)", "backward, materialized"),
        tensor("grad_cum_scores", "(B, T+1, C)", "backward, decomposed"),
        tensor(
            "grad_transition",
            "(C, C) or (K, C, C)",
            "backward, decomposed",
        ),
        tensor("grad_duration_bias", "(K, C)", "backward, decomposed"),
    ],
    buckets: &[
        ("T", &[64, 128, 256, 512, 1024, 2048]),
        ("C", &[16, 32, 64]),
    ],
    presentation: Some(&PRESENTATION),
    published: Some(&PUBLISHED),
    flags: FLAGS,
};

/// A position has K C states: its scan keeps them, and its cost depends on them most.
static PRESENTATION: Presentation = Presentation {
    sizes: &["T", "K", "C", "KC"],
    derived: &[DerivedSize {
        name: "KC",
        factors: &["K", "C"],
        formula: Formula::Product,
        label: "K·C",
        about: "Number of states",
    }],
    leading_axis: "KC",
    second_axis: "T",
    compared: Some(ComparedWord {
        name: "semiring",
        reference: "log",
        is_capitalized: true,
    }),
    work: Some(Amount {
        unit: "positions",
        factors: &["B", "T"],
    }),
    memory: Some(Amount {
        unit: "state",
        factors: &["T", "KC"],
    }),
};

static PUBLISHED: PublishedSampling = PublishedSampling {
    sizes: ["T", "K", "C"],
    buckets: [
        ("T", &[64, 128, 256, 512, 1024, 2048]),
        ("KC", &[12, 24, 48, 72, 96, 144, 192, 288]),
    ],
};

const FLAGS: &[ShorthandFlag] = &[
    axis_flag(&["--T"], "T", "sequence lengths"),
    axis_flag(&["--K"], "K", "maximum segment lengths"),
    axis_flag(&["--C"], "C", "numbers of labels"),
    axis_flag(&["--B"], "B", "batch sizes"),
    axis_flag(&["--semirings"], "semiring", "semirings: Log, Max, Entropy"),
    ShorthandFlag {
        names: &["--use-compile"],
        sets: FlagTarget::Backend {
            from: "fused_checkpointing",
            to: "fused",
        },
        about: "use the fused backend instead of the checkpointing one",
    },
    ShorthandFlag {
        names: &["--no-use-compile"],
        sets: FlagTarget::Backend {
            from: "fused",
            to: "fused_checkpointing",
        },
        about: "use the checkpointing backend instead of the fused one",
    },
];

impl Workload for SemiCrf {
    fn info(&self) -> &'static WorkloadInfo {
        &INFO
    }

    fn problem(
        &self,
        parameters: &Parameters,
        _dtype: Dtype,
    ) -> Result<Box<dyn Problem>, ParameterError> {
        let sizes = Sizes::new(&INFO.resolve(parameters)?)?;
        Ok(Box::new(SemiCrfProblem { sizes }))
    }
}
