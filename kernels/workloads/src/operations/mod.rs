//! The operations of the operations guide, and two more: `layernorm`, `rmsnorm`, `softmax`, `gelu`,
//! `swish`, `mse`, `cross_entropy`.
//!
//! Each is a small graph ([`build`]) with an oracle of its own, written by hand ([`oracle`]), and a
//! tolerance that follows from rounding ([`judge`]); all else is [`crate::graph_problem`].

mod sizes;
mod build;
mod oracle;
mod judge;
mod problem;

use self::problem::Operation;
use self::sizes::{Kind, Sizes};
use crate::graph_problem::{self, GraphProblem};
use sweeper_program::parameters::Parameters;
use sweeper_program::tensor::Dtype;
use sweeper_program::workload::{
    ParameterError, ParameterInfo, Problem, ShorthandFlag, TensorInfo, Workload, WorkloadInfo,
    axis_flag, size, tensor, word,
};

/// A workload that is one operation.
pub struct OperationWorkload {
    kind: Kind,
    info: &'static WorkloadInfo,
}

impl Workload for OperationWorkload {
    fn info(&self) -> &'static WorkloadInfo {
        self.info
    }

    fn problem(
        &self,
        parameters: &Parameters,
        _dtype: Dtype,
    ) -> Result<Box<dyn Problem>, ParameterError> {
        let resolved = self.info.resolve(parameters)?;
        let size = |name: &str| {
            let value = resolved.get(name).and_then(|value| value.as_int());
            value.map_or(1, |value| value as usize)
        };
        let kind = match resolved.get("form").and_then(|form| form.as_text()) {
            Some("tanh") => Kind::GeluTanh,
            _ => self.kind,
        };
        let sizes = Sizes {
            batch: size("batch"),
            sequence: size("sequence"),
            dimension: size("dimension"),
        };
        let name = self.info.name;
        Ok(Box::new(GraphProblem::new(Operation {
            name,
            kind,
            sizes,
        })?))
    }
}

const BATCH: ParameterInfo = size("batch", 1 << 24, None, "sequences");
const SEQUENCE: ParameterInfo = size("sequence", 1 << 24, None, "positions of a sequence");
const DIMENSION: ParameterInfo = size("dimension", 1 << 20, None, "elements of a position");
const SIZES: &[ParameterInfo] = &[BATCH, SEQUENCE, DIMENSION];

const FORM: ParameterInfo = word(
    "form",
    &[("erf", &["exact", "none"]), ("tanh", &["approximate"])],
    "erf",
    "gelu by the error function, or the approximation by the hyperbolic tangent",
);

/// Powers of two up to where a row of f32 fills the registers of a block of threads, and the widths
/// of models between them; beyond, the next power of two.
const BUCKETS: &[(&str, &[u64])] = &[(
    "dimension",
    &[
        8, 16, 32, 64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384,
    ],
)];

const FULL: &str = "(batch, sequence, dimension)";

const X: TensorInfo = tensor("x", FULL, "what the operation is applied to");
const GAMMA: TensorInfo = tensor("gamma", "(dimension)", "gain");
const BETA: TensorInfo = tensor("beta", "(dimension)", "bias");
const GRAD_OUT: TensorInfo = tensor("grad_out", FULL, "incoming gradient of the backward pass");
const GRAD_LOSS: TensorInfo = tensor("grad_out", "()", "incoming gradient of the backward pass");
const OUT: TensorInfo = tensor("out", FULL, "result");
const LOSS: TensorInfo = tensor("out", "()", "result");
const GRAD_X: TensorInfo = tensor("grad_x", FULL, "gradient by x");
const GRAD_GAMMA: TensorInfo = tensor("grad_gamma", "(dimension)", "gradient by gamma");
const GRAD_BETA: TensorInfo = tensor("grad_beta", "(dimension)", "gradient by beta");
const TARGET: TensorInfo = tensor("target", FULL, "what x should be");
const LABELS: TensorInfo = TensorInfo {
    name: "labels",
    shape: "(batch, sequence)",
    dtype: Dtype::I64,
    about: "classes, from 0 on",
};

const FLAGS: &[ShorthandFlag] = &[
    axis_flag(
        &["--batch", "--batch-sizes"],
        "batch",
        "batch sizes of operations",
    ),
    axis_flag(
        &["--sequence", "--sequence-lengths"],
        "sequence",
        "sequence lengths of operations",
    ),
    axis_flag(
        &["--dimension", "--tensor-dimensions"],
        "dimension",
        "dimensions of operations",
    ),
];

/// An elementwise operation of three sizes; others differ in some fields.
const PLAIN: WorkloadInfo = WorkloadInfo {
    parameters: SIZES,
    inputs: &[X, GRAD_OUT],
    outputs: &[OUT, GRAD_X],
    buckets: BUCKETS,
    flags: FLAGS,
    ..graph_problem::PLAIN
};

/// `layernorm`
pub static LAYERNORM: OperationWorkload = OperationWorkload {
    kind: Kind::LayerNorm,
    info: &WorkloadInfo {
        name: "layernorm",
        about: "normalises each position to mean 0 and variance 1, with gain and bias",
        formula: "out = gamma (x - mean(x)) / sqrt(var(x) + 1e-5) + beta\n\
                  mean and variance over the last dimension, the variance biased",
        inputs: &[X, GAMMA, BETA, GRAD_OUT],
        outputs: &[OUT, GRAD_X, GRAD_GAMMA, GRAD_BETA],
        ..PLAIN
    },
};

/// `rmsnorm`
pub static RMSNORM: OperationWorkload = OperationWorkload {
    kind: Kind::RmsNorm,
    info: &WorkloadInfo {
        name: "rmsnorm",
        about: "normalises each position to root mean square 1, with gain",
        formula: "out = gamma x / sqrt(mean(x^2) + 1e-5)\nmean over the last dimension",
        inputs: &[X, GAMMA, GRAD_OUT],
        outputs: &[OUT, GRAD_X, GRAD_GAMMA],
        ..PLAIN
    },
};

/// `softmax`
pub static SOFTMAX: OperationWorkload = OperationWorkload {
    kind: Kind::Softmax,
    info: &WorkloadInfo {
        name: "softmax",
        about: "weights of each position that sum to 1",
        formula: "out = e^x / sum(e^x)\nsum over the last dimension",
        ..PLAIN
    },
};

/// `gelu`
pub static GELU: OperationWorkload = OperationWorkload {
    kind: Kind::GeluErf,
    info: &WorkloadInfo {
        name: "gelu",
        about: "x times the normal distribution's function of x",
        formula: "erf:  out = x (1 + erf(x / sqrt(2))) / 2\n\
                  tanh: out = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2",
        parameters: &[BATCH, SEQUENCE, DIMENSION, FORM],
        ..PLAIN
    },
};

/// `swish`
pub static SWISH: OperationWorkload = OperationWorkload {
    kind: Kind::Swish,
    info: &WorkloadInfo {
        name: "swish",
        about: "x times the logistic function of x",
        formula: "out = x / (1 + e^-x)",
        ..PLAIN
    },
};

/// `mse`
pub static MSE: OperationWorkload = OperationWorkload {
    kind: Kind::Mse,
    info: &WorkloadInfo {
        name: "mse",
        about: "mean squared error",
        formula: "out = mean((x - target)^2)\nmean over everything",
        inputs: &[X, TARGET, GRAD_LOSS],
        outputs: &[LOSS, GRAD_X],
        ..PLAIN
    },
};

/// `cross_entropy`
pub static CROSS_ENTROPY: OperationWorkload = OperationWorkload {
    kind: Kind::CrossEntropy,
    info: &WorkloadInfo {
        name: "cross_entropy",
        about: "mean negative logarithm of the weights that a softmax gives labels",
        formula: "out = mean(ln sum(e^x) - x[label])\n\
                  sum over the last dimension, mean over batch and sequence",
        inputs: &[X, LABELS, GRAD_LOSS],
        outputs: &[LOSS, GRAD_X],
        ..PLAIN
    },
};

#[cfg(test)]
mod tests;
