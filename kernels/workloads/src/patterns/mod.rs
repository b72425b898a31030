//! The fusion patterns of the calibration guide: `matmul`, `linear`, `conv`, `attention`, unfused
//! against fused.
//!
//! `primitive` and `eager` compute a pattern operation by operation; `compiled` fuses it, `library`
//! makes it one call where there is one. A pattern is a graph ([`build`]) whose value is the oracle
//! ([`crate::graph_oracle`]). All are forward passes, as at inference.

mod build;
mod pattern;

use self::pattern::{Attention, Conv, Kind, Linear, Pattern};
use crate::graph_problem::{self, GraphProblem};
use sweeper_program::Precision;
use sweeper_program::parameters::{Parameters, Value};
use sweeper_program::tensor::Dtype;
use sweeper_program::workload::{
    DefaultValue, ParameterError, ParameterInfo, Phase, Problem, Workload, WorkloadInfo, size,
    tensor, word,
};

/// A workload that is one pattern.
pub struct PatternWorkload {
    info: &'static WorkloadInfo,
    /// What it is, of resolved parameters.
    kind: fn(&Resolved) -> Result<Kind, ParameterError>,
}

/// Parameters of which each has its value.
struct Resolved(Parameters);

impl Resolved {
    fn size(&self, name: &str) -> usize {
        let value = self.0.get(name).and_then(Value::as_int);
        value.map_or(1, |value| value as usize)
    }

    fn word(&self, name: &str) -> &str {
        self.0.get(name).and_then(Value::as_text).unwrap_or("")
    }
}

impl Workload for PatternWorkload {
    fn info(&self) -> &'static WorkloadInfo {
        self.info
    }

    fn problem(
        &self,
        parameters: &Parameters,
        _dtype: Dtype,
    ) -> Result<Box<dyn Problem>, ParameterError> {
        let resolved = Resolved(self.info.resolve(parameters)?);
        let pattern = Pattern {
            name: self.info.name,
            kind: (self.kind)(&resolved)?,
        };
        Ok(Box::new(GraphProblem::new(pattern)?))
    }
}

const M: ParameterInfo = size("m", 1 << 24, None, "rows of the first factor");
const K: ParameterInfo = size("k", 1 << 20, None, "terms of each inner product");
const N: ParameterInfo = size("n", 1 << 20, None, "columns of the result");

const PLAIN: WorkloadInfo = WorkloadInfo {
    phases: &[Phase::Forward],
    ..graph_problem::PLAIN
};

/// `matmul`
pub static MATMUL: PatternWorkload = PatternWorkload {
    kind: |given| {
        Ok(Kind::Matmul {
            m: given.size("m"),
            k: given.size("k"),
            n: given.size("n"),
            precision: match given.word("precision") {
                "tf32" => Precision::Tf32,
                "bf16" => Precision::Bf16,
                _ => Precision::F32,
            },
        })
    },
    info: &WorkloadInfo {
        name: "matmul",
        about: "product of two matrices",
        formula: "out = a b",
        parameters: &[
            M,
            K,
            N,
            word(
                "precision",
                &[("f32", &[]), ("tf32", &[]), ("bf16", &[])],
                "f32",
                "in what the product is computed, on GPUs tf32 and bf16 too: with bf16 the factors are rounded before, untimed",
            ),
        ],
        inputs: &[
            tensor("a", "(m, k)", "first factor"),
            tensor("b", "(k, n)", "second factor"),
        ],
        outputs: &[tensor("out", "(m, n)", "product")],
        ..PLAIN
    },
};

/// `linear`
pub static LINEAR: PatternWorkload = PatternWorkload {
    kind: |given| {
        Ok(Kind::Linear {
            m: given.size("m"),
            k: given.size("k"),
            n: given.size("n"),
            pattern: match given.word("pattern") {
                "bias_relu" => Linear::BiasRelu,
                "bias_gelu" => Linear::BiasGelu,
                "bias_gelu_tanh" => Linear::BiasGeluTanh,
                _ => Linear::Bias,
            },
        })
    },
    info: &WorkloadInfo {
        name: "linear",
        about: "a linear layer with its bias and an activation",
        formula: "y = x w^T + b\n\
                  bias: out = y; bias_relu: out = max(y, 0)\n\
                  bias_gelu:      out = y (1 + erf(y / sqrt(2))) / 2\n\
                  bias_gelu_tanh: out = y (1 + tanh(sqrt(2 / pi) (y + 0.044715 y^3))) / 2",
        parameters: &[
            M,
            K,
            N,
            word(
                "pattern",
                &[
                    ("bias", &["Linear_Bias"]),
                    ("bias_relu", &["Linear_Bias_ReLU"]),
                    ("bias_gelu", &["Linear_Bias_GELU"]),
                    ("bias_gelu_tanh", &[]),
                ],
                "bias",
                "what follows the product",
            ),
        ],
        inputs: &[
            tensor("x", "(m, k)", "what the layer is applied to"),
            tensor("w", "(n, k)", "weights"),
            tensor("b", "(n)", "biases"),
        ],
        outputs: &[tensor("out", "(m, n)", "result")],
        ..PLAIN
    },
};

/// `conv`
pub static CONV: PatternWorkload = PatternWorkload {
    kind: |given| {
        let kernel = given.size("kernel");
        if kernel % 2 == 0 {
            return Err(ParameterError::Value {
                name: "kernel".to_owned(),
                value: kernel.to_string(),
                expected: "the picture keeps its size only with an odd number".to_owned(),
            });
        }
        Ok(Kind::Conv {
            batch: given.size("batch"),
            channels: [given.size("channels_in"), given.size("channels_out")],
            size: given.size("size"),
            kernel,
            pattern: match given.word("pattern") {
                "bn" => Conv::BatchNorm,
                "bn_relu" => Conv::BatchNormRelu,
                _ => Conv::Relu,
            },
        })
    },
    info: &WorkloadInfo {
        name: "conv",
        about: "a convolution with a batch norm of inference and ReLU",
        formula: "y = x * w, cross-correlation with as many zeros around as keep the size\n\
                  z = gamma (y - mean) / sqrt(var + 1e-5) + beta, for each channel\n\
                  relu: out = max(y, 0); bn: out = z; bn_relu: out = max(z, 0)",
        parameters: &[
            size("batch", 1 << 16, None, "pictures"),
            size("channels_in", 1 << 14, None, "channels of a picture"),
            size("channels_out", 1 << 14, None, "channels of the result"),
            size("size", 1 << 14, None, "height and width of a picture"),
            size(
                "kernel",
                31,
                Some(DefaultValue::Int(3)),
                "height and width of the kernel, odd",
            ),
            word(
                "pattern",
                &[
                    ("relu", &["Conv2d_ReLU"]),
                    ("bn", &["Conv2d_BatchNorm"]),
                    ("bn_relu", &["Conv2d_BatchNorm_ReLU"]),
                ],
                "relu",
                "what follows the convolution",
            ),
        ],
        inputs: &[
            tensor("x", "(batch, channels_in, size, size)", "pictures"),
            tensor(
                "w",
                "(channels_out, channels_in, kernel, kernel)",
                "kernels",
            ),
            tensor("gamma", "(channels_out)", "with bn: gain"),
            tensor("beta", "(channels_out)", "with bn: bias"),
            tensor("mean", "(channels_out)", "with bn: mean of a channel"),
            tensor("var", "(channels_out)", "with bn: variance of a channel"),
        ],
        outputs: &[tensor("out", "(batch, channels_out, size, size)", "result")],
        ..PLAIN
    },
};

const POSITIONS: &str = "(batch, sequence, dimension)";

/// `attention`
pub static ATTENTION: PatternWorkload = PatternWorkload {
    kind: |given| {
        Ok(Kind::Attention {
            batch: given.size("batch"),
            sequence: given.size("sequence"),
            dimension: given.size("dimension"),
            pattern: match given.word("pattern") {
                "scores" => Attention::Scores,
                "weights" => Attention::Weights,
                _ => Attention::Full,
            },
        })
    },
    info: &WorkloadInfo {
        name: "attention",
        about: "attention of one head, or its first steps",
        formula: "scores:  out = q k^T / sqrt(dimension)\n\
                  weights: out = softmax(scores), over each row\n\
                  full:    out = weights v",
        parameters: &[
            size("batch", 1 << 16, None, "sequences"),
            size("sequence", 1 << 20, None, "positions"),
            size("dimension", 1 << 16, None, "elements of a position"),
            word(
                "pattern",
                &[
                    ("scores", &["QK^T", "Q_KT"]),
                    ("weights", &["QK^T_Softmax", "Q_KT_Softmax"]),
                    ("full", &["FullAttention", "sdpa"]),
                ],
                "full",
                "how much of it",
            ),
        ],
        inputs: &[
            tensor("q", POSITIONS, "queries"),
            tensor("k", POSITIONS, "keys"),
            tensor("v", POSITIONS, "with full: values"),
        ],
        outputs: &[tensor(
            "out",
            "(batch, sequence, sequence), or of q",
            "result",
        )],
        // Powers of two to where a row of f32 fills the registers of a block of threads.
        buckets: &[(
            "sequence",
            &[16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384],
        )],
        ..PLAIN
    },
};

#[cfg(test)]
mod tests;
