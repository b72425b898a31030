//! `transformer`: a language model of the compiled-against-vanilla guide, its forward pass, its
//! gradients, and a whole training step.
//!
//! It is a graph whose value is the oracle ([`crate::graph_oracle`]). Tensors have the names of the
//! guide's files.

mod adamw;
mod checkpoint;
mod model;
mod sizes;
#[cfg(test)]
pub(crate) mod tests;

use crate::graph_builder::Builder;
use crate::graph_oracle::Evaluated;
use crate::graph_problem::{self, BACKENDS, Built, PLAIN};
use crate::graph_workload::GraphWorkload;
use adamw::{AdamW, State};
use checkpoint::Checkpoint;
use model::Model;
use sizes::Sizes;
use sweeper_compiler::graph::{Backward, GraphError};
use sweeper_program::inputs::Stream;
use sweeper_program::parameters::Parameters;
use sweeper_program::tensor::Dtype;
use sweeper_program::workload::{
    DefaultValue, DerivedSize, Formula, ParameterError, ParameterInfo, ParameterKind, Phase,
    Presentation, ShorthandFlag, TensorInfo, TensorSpec, WorkloadInfo, axis_flag, size, tensor,
    word,
};
use sweeper_program::{Precision, Role};

/// A width or a count that a named size sets.
const fn custom(name: &'static str, max: i64, about: &'static str) -> ParameterInfo {
    ParameterInfo {
        name,
        kind: ParameterKind::Int { min: 0, max },
        default: Some(DefaultValue::Int(0)),
        about,
    }
}

/// A hyperparameter of AdamW.
const fn number(
    name: &'static str,
    [default, max]: [f64; 2],
    about: &'static str,
) -> ParameterInfo {
    ParameterInfo {
        name,
        kind: ParameterKind::Float { min: 0.0, max },
        default: Some(DefaultValue::Float(default)),
        about,
    }
}

/// A decay below 1 of a moment: with 1 nothing new would come in.
const MOST_BETA: f64 = 1.0 - 1e-9;

const PARAMETERS: &[ParameterInfo] = &[
    word(
        "size",
        &[
            ("custom", &[]),
            ("small", &[]),
            ("medium", &[]),
            ("large", &[]),
            ("xl", &[]),
            ("2.7B", &[]),
        ],
        "custom",
        "a model of the guide, which sets d_model, d_ff, layers and heads, or custom",
    ),
    size("batch", 1 << 20, Some(DefaultValue::Int(4)), "sequences"),
    size("context", 1 << 20, None, "positions of a sequence"),
    size(
        "vocabulary",
        1 << 31,
        Some(DefaultValue::Int(10_000)),
        "tokens that there are",
    ),
    custom("d_model", 1 << 20, "width; 0 is what size says"),
    custom(
        "d_ff",
        1 << 20,
        "inner width of the feed-forward networks; 0 is what size says",
    ),
    custom("layers", 1 << 10, "blocks; 0 is what size says"),
    custom("heads", 1 << 10, "heads of attention; 0 is what size says"),
    word(
        "precision",
        &[("f32", &[]), ("tf32", &[]), ("bf16", &[])],
        "f32",
        "in what products are computed, on GPUs tf32 and bf16 too: with bf16 their factors and \
         products between operations are that in memory, and weights stay f32",
    ),
    word(
        "loss",
        &[("sum", &[]), ("cross_entropy", &[])],
        "sum",
        "what gradients are of: the sum of the logits, or the mean cross entropy of labels",
    ),
    word(
        "checkpoint",
        &[("none", &[]), ("layer", &[])],
        "none",
        "what the backward pass computes again: none, or the values of each layer from its input, \
         in less memory",
    ),
    number("rate", [1e-4, 1e3], "learning rate"),
    number("beta1", [0.9, MOST_BETA], "decay of the first moment"),
    number("beta2", [0.999, MOST_BETA], "decay of the second moment"),
    number("eps", [1e-8, 1.0], "added to the root of the second moment"),
    number("weight_decay", [0.01, 1e3], "decoupled weight decay"),
    size(
        "step_count",
        1 << 30,
        Some(DefaultValue::Int(1)),
        "number of the step, from 1 on, by which moments are corrected",
    ),
];

/// As the attention guide has them.
const FLAGS: &[ShorthandFlag] = &[
    axis_flag(&["--model-size"], "size", "sizes of Transformers"),
    axis_flag(
        &["--context-length"],
        "context",
        "positions of a Transformer's sequences",
    ),
];

const SQUARE: &str = "(d_model, d_model)";

/// Tokens by sequences.
const fn tokens(name: &'static str, about: &'static str) -> TensorInfo {
    TensorInfo {
        name,
        shape: "(batch, context)",
        dtype: Dtype::I64,
        about,
    }
}

pub(crate) static WORKLOAD: GraphWorkload<Transformer> = GraphWorkload {
    info: &WorkloadInfo {
        name: "transformer",
        about: "a language model of decoder blocks: forward, gradients, and a training step",
        formula: "x = token_embeddings[input_ids]\n\
                  each layer: x += attention(rmsnorm(x)); x += swiglu(rmsnorm(x))\n\
                  logits = lm_head rmsnorm(x)\n\
                  rmsnorm(x) = gain x / sqrt(mean(x^2) + 1e-5)\n\
                  attention: causal, scale 1 / sqrt(d_model / heads); q and k of each head are \
                  turned\n\
                  \x20 by position / 10000^(2i heads / d_model), elements 2i and 2i + 1\n\
                  swiglu(x) = w2 (silu(w1 x) * w3 x); linear layers have no biases\n\
                  forward is the logits, both also grad.NAME of each parameter by the loss\n\
                  step is after.NAME of each parameter and its moments by AdamW",
        parameters: PARAMETERS,
        backends: BACKENDS,
        phases: &[Phase::Forward, Phase::Both, Phase::Step],
        inputs: &[
            tokens("input_ids", "tokens, from 0 on"),
            tokens(
                "labels",
                "with loss = cross_entropy: the token after each, from 0 on",
            ),
            tensor(
                "token_embeddings.weight",
                "(vocabulary, d_model)",
                "a row a token",
            ),
            tensor("layers.N.ln1.weight", "(d_model)", "gain before attention"),
            tensor("layers.N.attn.q_proj.weight", SQUARE, "of queries"),
            tensor("layers.N.attn.k_proj.weight", SQUARE, "of keys"),
            tensor("layers.N.attn.v_proj.weight", SQUARE, "of values"),
            tensor("layers.N.attn.output_proj.weight", SQUARE, "of the result"),
            tensor(
                "layers.N.ln2.weight",
                "(d_model)",
                "gain before the feed-forward network",
            ),
            tensor("layers.N.ffn.w1.weight", "(d_ff, d_model)", "of the gate"),
            tensor("layers.N.ffn.w2.weight", "(d_model, d_ff)", "of the result"),
            tensor("layers.N.ffn.w3.weight", "(d_ff, d_model)", "of the values"),
            tensor("ln_final.weight", "(d_model)", "gain after all layers"),
            tensor("lm_head.weight", "(vocabulary, d_model)", "a row a token"),
            tensor("moment1.NAME", "of NAME", "mean of a parameter's gradients"),
            tensor("moment2.NAME", "of NAME", "mean of their squares"),
        ],
        outputs: &[
            tensor(
                "logits",
                "(batch, context, vocabulary)",
                "in the phases forward and both: a number a token",
            ),
            tensor("grad.NAME", "of NAME", "in the phase both: gradient"),
            tensor(
                "after.NAME",
                "of NAME",
                "in the phase step: a parameter, moment1.NAME or moment2.NAME after it",
            ),
        ],
        buckets: &[("context", CONTEXTS)],
        presentation: Some(&PRESENTATION),
        flags: FLAGS,
        ..PLAIN
    },
    computation: |given| {
        Ok(Transformer {
            sizes: Sizes::new(given)?,
            precision: given.precision(),
            loss: match given.word("loss") {
                "cross_entropy" => Loss::CrossEntropy,
                _ => Loss::Sum,
            },
            checkpoint: match given.word("checkpoint") {
                "layer" => Checkpoint::Layer,
                _ => Checkpoint::None,
            },
            optimizer: AdamW::new(given),
        })
    },
};

static PRESENTATION: Presentation = Presentation {
    sizes: &["size", "context", "parameters"],
    derived: &[DerivedSize {
        name: "parameters",
        factors: &["size", "vocabulary", "d_model", "d_ff", "layers", "heads"],
        formula: Formula::Computed(|parameters| {
            Some(model_size(parameters).ok()?.parameters as f64)
        }),
        label: "parameters",
        about: "Number of parameters",
    }],
    leading_axis: "context",
    second_axis: "parameters",
    compared: None,
    work: None,
    memory: None,
};

/// Powers of two to where a row of scores fills the registers of a block of threads.
const CONTEXTS: &[u64] = &[16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];

/// The loss whose gradients are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// The sum of all logits.
    Sum,
    /// The mean over positions of the negative logarithm of the label's probability.
    CrossEntropy,
}

/// The size of a model, as tables have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelSize {
    /// Width.
    pub d_model: usize,
    /// Blocks.
    pub layers: usize,
    /// Numbers that the model would learn.
    pub parameters: usize,
}

/// The size of the model that parameters of this workload ask for.
///
/// # Errors
/// The first parameter that is unknown, missing or out of bounds.
pub fn model_size(parameters: &Parameters) -> Result<ModelSize, ParameterError> {
    let Transformer { sizes, .. } = WORKLOAD.at(parameters)?;
    Ok(ModelSize {
        d_model: sizes.d_model(),
        layers: sizes.layers,
        parameters: sizes.parameters(),
    })
}

/// A model, a batch, and the optimizer of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transformer {
    sizes: Sizes,
    precision: Precision,
    loss: Loss,
    checkpoint: Checkpoint,
    optimizer: AdamW,
}

impl Transformer {
    /// Adds the gradients of the builder's parameters as results, and a step of them.
    fn with_step(&self, builder: Builder, backward: Backward) -> Result<Built, GraphError> {
        let Builder { mut graph, by } = builder;
        for ((name, parameter), gradient) in by.into_iter().zip(backward.gradients) {
            graph.output(format!("grad.{name}"), gradient, Role::Gradient);
            let shape = graph.node(parameter).shape.clone();
            let [first, second] = [1, 2].map(|at| format!("moment{at}.{name}"));
            let mut moment = |name| graph.input(name, &shape, Dtype::F32, Role::Optimizer);
            let before = State {
                parameter,
                moment1: moment(&first)?,
                moment2: moment(&second)?,
            };
            let after = self.optimizer.step(&mut graph, before, gradient)?;
            let mut update = |name: &str, after, before, role| {
                graph.update(format!("after.{name}"), after, before, role);
            };
            update(&name, after.parameter, parameter, Role::Parameter);
            update(&first, after.moment1, before.moment1, Role::Optimizer);
            update(&second, after.moment2, before.moment2, Role::Optimizer);
        }
        Ok(Built {
            graph,
            backward: Some(backward.from),
        })
    }
}

impl Evaluated for Transformer {
    fn build(&self) -> Result<Built, GraphError> {
        let mut builder = Builder::default();
        let tokens = [self.sizes.batch, self.sizes.context];
        let ids = builder
            .graph
            .input("input_ids", &tokens, Dtype::I64, Role::Input)?;
        let mut model = Model::new(self.sizes, builder, ids)?;
        let logits = model.logits;
        let graph = &mut model.builder.graph;
        graph.output("logits", logits, Role::Output);
        let loss = match self.loss {
            Loss::Sum => logits,
            Loss::CrossEntropy => {
                let labels = graph.input("labels", &tokens, Dtype::I64, Role::Input)?;
                graph.cross_entropy(logits, labels)?
            }
        };
        let backward = model.differentiate(loss, self.checkpoint)?;
        self.with_step(model.builder, backward)
    }

    /// Those of the model without checkpoints: operations of a repeated layer count once.
    fn flops(&self, phase: Phase) -> Option<f64> {
        if self.checkpoint == Checkpoint::None {
            return None;
        }
        let plain = Transformer {
            checkpoint: Checkpoint::None,
            ..*self
        };
        let built = Evaluated::build(&plain).ok()?;
        Some(graph_problem::flops(&built, phase))
    }

    /// Rows of scores, which are reduced.
    fn extents(&self) -> Vec<(usize, &'static str)> {
        vec![(self.sizes.context, "context")]
    }

    fn fixed_extents(&self) -> Vec<usize> {
        let Sizes {
            d_head, vocabulary, ..
        } = self.sizes;
        // Elements are turned in pairs.
        vec![self.sizes.d_model(), d_head, vocabulary, 2]
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    /// Moments as after gradients of about 1; weights by which values stay as large as they are.
    fn elements(&self, spec: &TensorSpec, stream: &Stream) -> Vec<f32> {
        let len = spec.shape.iter().product();
        match spec.name.as_str() {
            name if name.starts_with("moment1.") => stream.normal(len, 0.1),
            // Far from 0: where a moment and a gradient are both near it, rounding decides the
            // update of an element, and that element decides the error of its tensor.
            name if name.starts_with("moment2.") => stream.uniform(len, 0.005, 0.015),
            "token_embeddings.weight" => stream.normal(len, 1.0),
            _ => match spec.shape[..] {
                [_, from] => stream.normal(len, 1.0 / (from as f32).sqrt()),
                _ => stream.uniform(len, 0.5, 1.5),
            },
        }
    }

    /// Rows of tokens, whose norms have another eps to show each, and of what makes scores and
    /// logits, so that some are as far apart as exponentials can't take.
    fn shown_inputs(&self) -> &'static [&'static str] {
        &[
            "token_embeddings.weight",
            "layers.0.attn.q_proj.weight",
            "lm_head.weight",
        ]
    }

    fn classes(&self) -> usize {
        self.sizes.vocabulary
    }

    fn reduce(&mut self) -> Option<()> {
        self.sizes.reduce()
    }

    fn shrink(&mut self) -> Option<()> {
        self.sizes.shrink()
    }

    fn begins_at_zero(&self, name: &str) -> bool {
        name.starts_with("moment")
    }

    fn is_never_negative(&self, name: &str) -> bool {
        name.starts_with("moment2.")
    }
}
