//! One pattern of one size.

use super::build;
use crate::graph_oracle::{Evaluated, halve_greatest};
use crate::graph_problem::Built;
use sweeper_compiler::graph::GraphError;
use sweeper_program::Precision;
use sweeper_program::inputs::Stream;
use sweeper_program::workload::{Phase, TensorSpec};

/// What follows the product of a linear layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Linear {
    /// The bias.
    Bias,
    /// The bias and `max(y, 0)`.
    BiasRelu,
    /// The bias and GELU by the error function.
    BiasGelu,
    /// The bias and GELU by the hyperbolic tangent.
    BiasGeluTanh,
}

/// What follows a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conv {
    /// `max(y, 0)`
    Relu,
    /// A batch norm with given statistics.
    BatchNorm,
    /// The batch norm and `max(y, 0)`.
    BatchNormRelu,
}

/// How much of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attention {
    /// Scaled products of queries and keys.
    Scores,
    /// Their softmax.
    Weights,
    /// Values, weighted.
    Full,
}

/// A pattern and its sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// (m, k) by (k, n).
    Matmul {
        m: usize,
        k: usize,
        n: usize,
        precision: Precision,
    },
    /// (m, k) by (n, k) transposed.
    Linear {
        m: usize,
        k: usize,
        n: usize,
        pattern: Linear,
    },
    /// Square pictures and kernels; channels of pictures and of results.
    Conv {
        batch: usize,
        channels: [usize; 2],
        size: usize,
        kernel: usize,
        pattern: Conv,
    },
    /// One head.
    Attention {
        batch: usize,
        sequence: usize,
        dimension: usize,
        pattern: Attention,
    },
}

/// A pattern of a workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern {
    /// The workload's name.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
}

fn product(extents: &[usize]) -> f64 {
    extents.iter().map(|&extent| extent as f64).product()
}

impl Evaluated for Pattern {
    fn name(&self) -> &'static str {
        self.name
    }

    fn build(&self) -> Result<Built, GraphError> {
        let (graph, out) = match self.kind {
            Kind::Matmul { m, k, n, .. } => build::matmul(m, k, n),
            Kind::Linear { m, k, n, pattern } => build::linear([m, k, n], pattern),
            Kind::Conv {
                batch,
                channels,
                size,
                kernel,
                pattern,
            } => build::conv(batch, channels, size, kernel, pattern),
            Kind::Attention {
                batch,
                sequence,
                dimension,
                pattern,
            } => build::attention([batch, sequence, dimension], pattern),
        }?;
        Ok(build::built(graph, out))
    }

    /// Extents of rows that are reduced.
    fn extents(&self) -> Vec<(usize, &'static str)> {
        match self.kind {
            Kind::Attention { sequence, .. } => vec![(sequence, "sequence")],
            _ => vec![],
        }
    }

    fn precision(&self) -> Precision {
        match self.kind {
            Kind::Matmul { precision, .. } => precision,
            _ => Precision::F32,
        }
    }

    /// As the calibration guide counts them: a product is two for each term, a GELU is 8, scaling
    /// and softmax 6.
    fn flops(&self, _phase: Phase) -> Option<f64> {
        Some(match self.kind {
            Kind::Matmul { m, k, n, .. } => 2.0 * product(&[m, k, n]),
            Kind::Linear { m, k, n, pattern } => {
                let each = match pattern {
                    Linear::Bias | Linear::BiasRelu => 1.0,
                    Linear::BiasGelu | Linear::BiasGeluTanh => 9.0,
                };
                2.0 * product(&[m, k, n]) + each * product(&[m, n])
            }
            Kind::Conv {
                batch,
                channels: [channels_in, channels_out],
                size,
                kernel,
                ..
            } => {
                let terms = product(&[kernel, kernel, channels_in]);
                2.0 * terms * product(&[batch, channels_out, size, size])
            }
            Kind::Attention {
                batch,
                sequence,
                dimension,
                pattern,
            } => {
                let (products, each) = match pattern {
                    Attention::Scores => (1.0, 1.0),
                    Attention::Weights => (1.0, 6.0),
                    Attention::Full => (2.0, 6.0),
                };
                let scores = product(&[batch, sequence, sequence]);
                scores * (2.0 * products * dimension as f64 + each)
            }
        })
    }

    /// Results of weights are as large as what they are applied to; scores after scaling, too.
    /// Gains and variances lie around 1.
    fn elements(&self, spec: &TensorSpec, stream: &Stream) -> Vec<f32> {
        let len = spec.shape.iter().product();
        let deviation = match spec.name.as_str() {
            "gamma" | "var" => return stream.uniform(len, 0.5, 1.5),
            "w" => 1.0 / (product(&spec.shape[1..]) as f32).sqrt(),
            _ => 1.0,
        };
        stream.normal(len, deviation)
    }

    fn parts(&self) -> usize {
        match self.kind {
            Kind::Matmul { m, .. } | Kind::Linear { m, .. } => m,
            Kind::Conv { batch, .. } | Kind::Attention { batch, .. } => batch,
        }
    }

    fn with_parts(&self, parts: usize) -> Self {
        let mut smaller = *self;
        match &mut smaller.kind {
            Kind::Matmul { m, .. } | Kind::Linear { m, .. } => *m = parts,
            Kind::Conv { batch, .. } | Kind::Attention { batch, .. } => *batch = parts,
        }
        smaller
    }

    /// Pictures stay larger than kernels: those are not halved.
    fn halved(&self) -> Option<Self> {
        let mut smaller = *self;
        let is_smaller = match &mut smaller.kind {
            Kind::Matmul { m, k, n, .. } | Kind::Linear { m, k, n, .. } => {
                halve_greatest([m, k, n])
            }
            Kind::Conv {
                batch,
                channels: [channels_in, channels_out],
                size,
                kernel,
                ..
            } => {
                let mut extents = vec![batch, channels_in, channels_out];
                if *size / 2 > *kernel {
                    extents.push(size);
                }
                halve_greatest(extents)
            }
            Kind::Attention {
                batch,
                sequence,
                dimension,
                ..
            } => halve_greatest([batch, sequence, dimension]),
        };
        is_smaller.then_some(smaller)
    }

    fn not_negative(&self) -> &'static [&'static str] {
        &["var"]
    }
}
