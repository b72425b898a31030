//! The bodies of loops of the compilation guide, which asks when compiling one pays:
//! `matmul_chain`, `mlp`, `attention_block`, `mixed`.
//!
//! They are small on purpose: what an eager loop spends on them is mostly launches. Each is a graph
//! ([`build`]) whose value is the oracle ([`crate::graph_oracle`]).

mod build;
mod body;

use self::body::{Body, Kind, Loss};
use crate::graph_problem::{GraphProblem, PLAIN};
use sweeper_program::parameters::{Parameters, Value};
use sweeper_program::tensor::Dtype;
use sweeper_program::workload::{
    self, DefaultValue, ParameterError, ParameterInfo, ParameterKind, Phase, Problem, TensorInfo,
    Workload, WorkloadInfo, tensor, word,
};

/// A workload that is the body of a loop.
pub struct BodyWorkload {
    info: &'static WorkloadInfo,
    /// What it is, of resolved parameters.
    kind: fn(&Resolved) -> Kind,
}

/// Parameters of which each has its value.
struct Resolved(Parameters);

impl Resolved {
    fn size(&self, name: &str) -> usize {
        let value = self.0.get(name).and_then(Value::as_int);
        value.map_or(1, |value| value as usize)
    }

    fn number(&self, name: &str) -> f64 {
        match self.0.get(name) {
            Some(Value::Float(value)) => *value,
            _ => 0.0,
        }
    }

    fn is(&self, name: &str, word: &str) -> bool {
        self.0.get(name).and_then(Value::as_text) == Some(word)
    }
}

impl Workload for BodyWorkload {
    fn info(&self) -> &'static WorkloadInfo {
        self.info
    }

    fn problem(
        &self,
        parameters: &Parameters,
        _dtype: Dtype,
    ) -> Result<Box<dyn Problem>, ParameterError> {
        let resolved = Resolved(self.info.resolve(parameters)?);
        let body = Body {
            name: self.info.name,
            kind: (self.kind)(&resolved),
        };
        Ok(Box::new(GraphProblem::new(body)?))
    }
}

/// A whole number from 1 on, of which the compilation guide has one.
const fn size(name: &'static str, default: i64, max: i64, about: &'static str) -> ParameterInfo {
    workload::size(name, max, Some(DefaultValue::Int(default)), about)
}

/// The greatest extent of a matrix.
const MOST: i64 = 1 << 20;

/// Powers of two to where a row of f32 fills the registers of a block of threads; beyond, the next
/// one.
const ROWS: &[u64] = &[16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];

const SQUARE: &str = "(size, size)";

/// `matmul_chain`
pub static MATMUL_CHAIN: BodyWorkload = BodyWorkload {
    kind: |given| Kind::MatmulChain {
        size: given.size("size"),
        depth: given.size("depth"),
    },
    info: &WorkloadInfo {
        name: "matmul_chain",
        about: "products of square matrices, one after the other",
        formula: "out = x w1 w2 ... wN, N being the depth, from left to right",
        parameters: &[
            size("size", 64, MOST, "rows and columns of each matrix"),
            size("depth", 3, 64, "products"),
        ],
        inputs: &[
            tensor("x", SQUARE, "the first factor"),
            tensor("wN", SQUARE, "the others: w1, w2, and so on"),
            tensor("grad_out", SQUARE, "incoming gradient of the backward pass"),
        ],
        outputs: &[
            tensor("out", SQUARE, "result"),
            tensor("grad_x", SQUARE, "gradient by x"),
            tensor("grad_wN", SQUARE, "gradient by w1, w2, and so on"),
        ],
        ..PLAIN
    },
};

const LOSS: ParameterInfo = word(
    "loss",
    &[("mse", &[]), ("cross_entropy", &[])],
    "mse",
    "mean squared error of the outputs, or cross entropy of labels",
);

const RATE: ParameterInfo = ParameterInfo {
    name: "rate",
    kind: ParameterKind::Float { min: 0.0, max: 1e3 },
    default: Some(DefaultValue::Float(0.01)),
    about: "learning rate",
};

/// `mlp`
pub static MLP: BodyWorkload = BodyWorkload {
    kind: |given| Kind::Mlp {
        batch: given.size("batch"),
        widths: ["input", "hidden1", "hidden2", "output"].map(|name| given.size(name)),
        loss: match given.is("loss", "cross_entropy") {
            true => Loss::CrossEntropy,
            false => Loss::SquaredError,
        },
        rate: given.number("rate"),
    },
    info: &WorkloadInfo {
        name: "mlp",
        about: "a training step of three layers with ReLU between them, by gradient descent",
        formula: "h1 = relu(x w1^T + b1); h2 = relu(h1 w2^T + b2); y = h2 w3^T + b3\n\
                  loss: mse = mean((y - target)^2) over everything\n\
                  \x20     cross_entropy = mean(ln sum(e^y) - y[label]) over the batch\n\
                  after.p = p - rate d loss / d p, for each of w1, b1, w2, b2, w3, b3\n\
                  forward is the loss alone, both is the whole step",
        parameters: &[
            size("batch", 16, 1 << 24, "rows of x"),
            size("input", 32, MOST, "columns of x"),
            size("hidden1", 64, MOST, "width of the first layer"),
            size("hidden2", 32, MOST, "width of the second layer"),
            size("output", 10, MOST, "width of the third layer, classes"),
            LOSS,
            RATE,
        ],
        phases: &[Phase::Forward, Phase::Both],
        inputs: &[
            tensor("x", "(batch, input)", "what the first layer is applied to"),
            tensor("w1", "(hidden1, input)", "weights of the first layer"),
            tensor("b1", "(hidden1)", "biases of the first layer"),
            tensor("w2", "(hidden2, hidden1)", "weights of the second layer"),
            tensor("b2", "(hidden2)", "biases of the second layer"),
            tensor("w3", "(output, hidden2)", "weights of the third layer"),
            tensor("b3", "(output)", "biases of the third layer"),
            tensor(
                "target",
                "(batch, output)",
                "with loss = mse: what y should be",
            ),
            TensorInfo {
                name: "labels",
                shape: "(batch)",
                dtype: Dtype::I64,
                about: "with loss = cross_entropy: classes, from 0 on",
            },
        ],
        outputs: &[
            tensor("loss", "()", "before the step"),
            tensor("after.w1", "(hidden1, input)", "w1 after the step"),
            tensor("after.b1", "(hidden1)", "b1 after the step"),
            tensor("after.w2", "(hidden2, hidden1)", "w2 after the step"),
            tensor("after.b2", "(hidden2)", "b2 after the step"),
            tensor("after.w3", "(output, hidden2)", "w3 after the step"),
            tensor("after.b3", "(output)", "b3 after the step"),
        ],
        buckets: &[("output", ROWS)],
        ..PLAIN
    },
};

const SEQUENCE: &str = "(sequence, dimension)";
const PROJECTION: &str = "(dimension, dimension)";

/// `attention_block`
pub static ATTENTION_BLOCK: BodyWorkload = BodyWorkload {
    kind: |given| Kind::AttentionBlock {
        sequence: given.size("sequence"),
        dimension: given.size("dimension"),
    },
    info: &WorkloadInfo {
        name: "attention_block",
        about: "attention of one head over a sequence, with its four projections",
        formula: "q = x wq^T; k = x wk^T; v = x wv^T\n\
                  out = softmax(q k^T / sqrt(dimension)) v wo^T\n\
                  softmax over each row",
        parameters: &[
            size("sequence", 64, MOST, "positions"),
            size("dimension", 64, MOST, "elements of a position"),
        ],
        inputs: &[
            tensor("x", SEQUENCE, "the sequence"),
            tensor("wq", PROJECTION, "weights of queries"),
            tensor("wk", PROJECTION, "weights of keys"),
            tensor("wv", PROJECTION, "weights of values"),
            tensor("wo", PROJECTION, "weights of the result"),
            tensor(
                "grad_out",
                SEQUENCE,
                "incoming gradient of the backward pass",
            ),
        ],
        outputs: &[
            tensor("out", SEQUENCE, "result"),
            tensor("grad_x", SEQUENCE, "gradient by x"),
            tensor("grad_wq", PROJECTION, "gradient by wq"),
            tensor("grad_wk", PROJECTION, "gradient by wk"),
            tensor("grad_wv", PROJECTION, "gradient by wv"),
            tensor("grad_wo", PROJECTION, "gradient by wo"),
        ],
        buckets: &[("sequence", ROWS)],
        ..PLAIN
    },
};

/// `mixed`
pub static MIXED: BodyWorkload = BodyWorkload {
    kind: |given| Kind::Mixed {
        size: given.size("size"),
    },
    info: &WorkloadInfo {
        name: "mixed",
        about: "sums, products, an activation, a matrix product, a softmax and a layer norm",
        formula: "h = relu(a + b) b\n\
                  p = softmax(h w), over each row\n\
                  z = a + p\n\
                  out = gamma (z - mean(z)) / sqrt(var(z) + 1e-5) + beta, over each row",
        parameters: &[size("size", 32, MOST, "rows and columns of each matrix")],
        inputs: &[
            tensor("a", SQUARE, "first operand"),
            tensor("b", SQUARE, "second operand"),
            tensor("w", SQUARE, "factor of the matrix product"),
            tensor("gamma", "(size)", "gain"),
            tensor("beta", "(size)", "bias"),
            tensor("grad_out", SQUARE, "incoming gradient of the backward pass"),
        ],
        outputs: &[
            tensor("out", SQUARE, "result"),
            tensor("grad_a", SQUARE, "gradient by a"),
            tensor("grad_b", SQUARE, "gradient by b"),
            tensor("grad_w", SQUARE, "gradient by w"),
            tensor("grad_gamma", "(size)", "gradient by gamma"),
            tensor("grad_beta", "(size)", "gradient by beta"),
        ],
        buckets: &[("size", ROWS)],
        ..PLAIN
    },
};

#[cfg(test)]
mod tests;
