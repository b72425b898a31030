//! One body of one size.

use super::build;
use crate::graph_oracle::{Evaluated, halve_greatest};
use crate::graph_problem::Built;
use sweeper_compiler::graph::GraphError;
use sweeper_program::inputs::Stream;
use sweeper_program::workload::TensorSpec;

/// What a training step minimises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// Mean of squared differences.
    SquaredError,
    /// Mean of what the labels' logarithms lack.
    CrossEntropy,
}

/// A body and its sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// Products of `size` by `size` matrices.
    MatmulChain { size: usize, depth: usize },
    /// A training step of layers from one of `widths` to the next.
    Mlp {
        batch: usize,
        widths: [usize; 4],
        loss: Loss,
        rate: f64,
    },
    /// Attention with its projections.
    AttentionBlock { sequence: usize, dimension: usize },
    /// Operations of many kinds on `size` by `size` matrices.
    Mixed { size: usize },
}

/// The body of a loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body {
    /// The workload's name.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
}

impl Evaluated for Body {
    fn name(&self) -> &'static str {
        self.name
    }

    fn build(&self) -> Result<Built, GraphError> {
        match self.kind {
            Kind::MatmulChain { size, depth } => build::matmul_chain(size, depth),
            Kind::Mlp {
                batch,
                widths,
                loss,
                rate,
            } => build::mlp(batch, widths, loss, rate),
            Kind::AttentionBlock {
                sequence,
                dimension,
            } => build::attention_block(sequence, dimension),
            Kind::Mixed { size } => build::mixed(size),
        }
    }

    /// Extents of rows that are reduced.
    fn extents(&self) -> Vec<(usize, &'static str)> {
        match self.kind {
            Kind::MatmulChain { .. } => vec![],
            Kind::Mlp { widths, .. } => vec![(widths[3], "output")],
            Kind::AttentionBlock { sequence, .. } => vec![(sequence, "sequence")],
            Kind::Mixed { size } => vec![(size, "size")],
        }
    }

    /// Weights keep the size of what they are applied to; gains lie around 1.
    fn elements(&self, spec: &TensorSpec, stream: &Stream) -> Vec<f32> {
        let len = spec.shape.iter().product();
        let columns = spec.shape.last().copied().unwrap_or(1);
        match spec.name.as_str() {
            "gamma" => stream.uniform(len, 0.5, 1.5),
            name if name.starts_with('w') => stream.normal(len, 1.0 / (columns as f32).sqrt()),
            "b1" | "b2" | "b3" => stream.normal(len, 0.1),
            _ => stream.normal(len, 1.0),
        }
    }

    fn classes(&self) -> usize {
        match self.kind {
            Kind::Mlp { widths, .. } => widths[3],
            _ => 1,
        }
    }

    fn parts(&self) -> usize {
        match self.kind {
            Kind::MatmulChain { depth, .. } => depth,
            Kind::Mlp { batch, .. } => batch,
            Kind::AttentionBlock { .. } | Kind::Mixed { .. } => 1,
        }
    }

    fn with_parts(&self, parts: usize) -> Self {
        let mut smaller = *self;
        match &mut smaller.kind {
            Kind::MatmulChain { depth, .. } => *depth = parts,
            Kind::Mlp { batch, .. } => *batch = parts,
            Kind::AttentionBlock { .. } | Kind::Mixed { .. } => {}
        }
        smaller
    }

    fn halved(&self) -> Option<Self> {
        let mut smaller = *self;
        let is_smaller = match &mut smaller.kind {
            Kind::MatmulChain { size, .. } | Kind::Mixed { size } => halve_greatest([size]),
            Kind::Mlp { batch, widths, .. } => halve_greatest(widths.iter_mut().chain([batch])),
            Kind::AttentionBlock {
                sequence,
                dimension,
            } => halve_greatest([sequence, dimension]),
        };
        is_smaller.then_some(smaller)
    }
}
