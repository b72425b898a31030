//! `conv`

use super::{PLAIN, product};
use crate::graph_builder::{Added, Builder};
use crate::graph_oracle::Evaluated;
use crate::graph_problem::Built;
use crate::graph_workload::{Given, GraphWorkload};
use sweeper_compiler::graph::{Convolution, GraphError, NodeId, Unary};
use sweeper_program::workload::{
    DefaultValue, ParameterError, Phase, WorkloadInfo, size, tensor, word,
};

/// Added to variances.
const EPS: f64 = 1e-5;

pub(crate) static WORKLOAD: GraphWorkload<Conv> = GraphWorkload {
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
    computation,
};

/// What follows a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// `max(y, 0)`
    Relu,
    /// A batch norm with given statistics.
    BatchNorm,
    /// The batch norm and `max(y, 0)`.
    BatchNormRelu,
}

/// Square pictures and kernels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conv {
    pub(super) batch: usize,
    /// Channels of pictures and of results.
    pub(super) channels: [usize; 2],
    pub(super) size: usize,
    pub(super) kernel: usize,
    pub(super) after: After,
}

fn computation(given: &Given) -> Result<Conv, ParameterError> {
    let kernel = given.size("kernel");
    if kernel.is_multiple_of(2) {
        return Err(ParameterError::Value {
            name: "kernel".to_owned(),
            value: kernel.to_string(),
            expected: "the picture keeps its size only with an odd number".to_owned(),
        });
    }
    Ok(Conv {
        batch: given.size("batch"),
        channels: [given.size("channels_in"), given.size("channels_out")],
        size: given.size("size"),
        kernel,
        after: match given.word("pattern") {
            "bn" => After::BatchNorm,
            "bn_relu" => After::BatchNormRelu,
            _ => After::Relu,
        },
    })
}

impl Evaluated for Conv {
    fn shown_inputs(&self) -> &'static [&'static str] {
        &["x"]
    }

    fn build(&self) -> Result<Built, GraphError> {
        let [channels_in, channels_out] = self.channels;
        let (size, kernel) = (self.size, self.kernel);
        let mut builder = Builder::default();
        let x = builder.operand("x", &[self.batch, channels_in, size, size])?;
        let w = builder.parameter("w", &[channels_out, channels_in, kernel, kernel])?;
        let window = Convolution {
            stride: 1,
            padding: kernel / 2,
        };
        let mut out = builder.graph.conv2d(x, w, window)?;
        if self.after != After::Relu {
            out = batch_norm(&mut builder, out, channels_out)?;
        }
        if self.after != After::BatchNorm {
            out = builder.graph.relu(out)?;
        }
        Ok(builder.forward_alone(out))
    }

    fn flops(&self, _phase: Phase) -> Option<f64> {
        let [channels_in, channels_out] = self.channels;
        let terms = product(&[self.kernel, self.kernel, channels_in]);
        Some(2.0 * terms * product(&[self.batch, channels_out, self.size, self.size]))
    }

    fn parts(&mut self) -> Option<&mut usize> {
        Some(&mut self.batch)
    }

    /// Pictures stay larger than kernels, which keep their size.
    fn shrinkable(&mut self) -> Vec<&mut usize> {
        let [channels_in, channels_out] = &mut self.channels;
        let mut extents = vec![&mut self.batch, channels_in, channels_out];
        if self.size / 2 > self.kernel {
            extents.push(&mut self.size);
        }
        extents
    }

    fn is_never_negative(&self, name: &str) -> bool {
        name == "var"
    }
}

/// A batch norm of inference, one kernel of an eager framework.
fn batch_norm(builder: &mut Builder, y: NodeId, channels: usize) -> Added {
    let mut given = [y; 4];
    for (node, name) in given.iter_mut().zip(["gamma", "beta", "mean", "var"]) {
        let channel = builder.parameter(name, &[channels])?;
        *node = builder.graph.reshape(channel, &[channels, 1, 1])?;
    }
    let [gamma, beta, mean, var] = given;
    builder.graph.group("batch_norm", |graph| {
        let eps = graph.constant(EPS);
        let var = graph.add(var, eps)?;
        let scale = graph.unary(Unary::Rsqrt, var)?;
        let centred = graph.sub(y, mean)?;
        let normal = graph.mul(centred, scale)?;
        let scaled = graph.mul(normal, gamma)?;
        graph.add(scaled, beta)
    })
}
