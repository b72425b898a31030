//! Factors of products as parts of concatenations.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::fuse::plan::Plan;
use crate::graph::{AttentionPart, NodeId, Op};
use sweeper_program::ADJACENT_ALIGNMENT;
use sweeper_program::tensor::Dtype;

/// Elements of which parts are multiples, so that rows of all of them begin at a multiple of 16
/// bytes, in f32 and in bf16.
const VECTOR: usize = 8;

/// A factor that can lie anywhere in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Factor {
    /// The matrix in memory: the factor or its transpose.
    pub core: NodeId,
    /// Whether the factor is the transpose.
    pub is_turned: bool,
    /// The node whose memory it is.
    pub base: NodeId,
    /// Whether it is a given tensor.
    pub is_given: bool,
    /// Extents of the matrix in memory.
    shape: [usize; 2],
}

/// Matrices one after another along a dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Concatenation {
    pub cores: Vec<NodeId>,
    pub bases: Vec<NodeId>,
    pub dim: usize,
    shapes: Vec<[usize; 2]>,
}

/// Neighbouring parts of a concatenation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// The concatenation, by position.
    pub at: usize,
    /// Positions of its parts.
    pub parts: Range<usize>,
}

/// Concatenations, each matrix in one at most.
#[derive(Clone, Debug, Default)]
pub(super) struct Concatenations {
    pub all: Vec<Concatenation>,
    /// The concatenation of each matrix.
    of: BTreeMap<NodeId, usize>,
}

impl Factor {
    /// The factor that an operand of a product is.
    pub(super) fn of(plan: &Plan, operand: NodeId) -> Option<Factor> {
        let node = plan.graph.node(operand);
        let is_turned = matches!(&node.op, Op::Transpose { order } if order[..] == [1, 0])
            && !plan.kept.contains(&operand);
        let core = if is_turned { node.operands[0] } else { operand };
        let shape = <[usize; 2]>::try_from(plan.graph.node(core).shape.as_slice()).ok()?;
        let base = plan.base(core);
        let held = plan.graph.node(base);
        let is_given = matches!(held.op, Op::Input(_));
        let is_stored_anywhere =
            plan.value(base).is_some_and(|task| !plan.is_result[task]) && stores_anywhere(&held.op);
        let is_whole = plan.unreshaped(core) == base && held.dtype == Dtype::F32;
        (is_whole && (is_given || is_stored_anywhere)).then_some(Factor {
            core,
            is_turned,
            base,
            is_given,
            shape,
        })
    }
}

/// Whether the kernel of an operation stores rows where it is asked to: a generated one does, and
/// attention for its gradient by values, whose rows of all heads are beside each other. Other calls
/// and reductions do not.
fn stores_anywhere(op: &Op) -> bool {
    match op {
        Op::Attention(attention) => attention.is_by_rows && attention.part == AttentionPart::GradV,
        Op::Unslice { .. } => true,
        _ => op.is_elementwise() || op.is_view(),
    }
}

impl Concatenations {
    /// The concatenation of several factors along their own dimension `along`: a new one, or
    /// neighbours in one that is there; none if it would be in the way of another one.
    pub(super) fn place(&mut self, factors: &[Factor], along: usize) -> Option<Stretch> {
        let first = factors.first()?;
        let are_alike = factors
            .iter()
            .all(|factor| (factor.is_given, factor.is_turned) == (first.is_given, first.is_turned));
        let dim = if first.is_turned { 1 - along } else { along };
        let found = Concatenation {
            cores: factors.iter().map(|factor| factor.core).collect(),
            bases: factors.iter().map(|factor| factor.base).collect(),
            shapes: factors.iter().map(|factor| factor.shape).collect(),
            dim,
        };
        if factors.len() < 2 || !are_alike || !factors.iter().all(|factor| fits(factor, dim)) {
            return None;
        }
        let held: Vec<Option<usize>> = found
            .bases
            .iter()
            .map(|base| self.of.get(base).copied())
            .collect();
        if let Some(at) = held[0] {
            let is_same = held.iter().all(|&other| other == Some(at));
            let parts = self.all[at].parts_of(&found).filter(|_| is_same)?;
            return Some(Stretch { at, parts });
        }
        let mut bases = found.bases.clone();
        bases.sort_unstable();
        bases.dedup();
        if bases.len() < factors.len() || held.iter().any(Option::is_some) {
            return None;
        }
        let at = self.all.len();
        let parts = 0..factors.len();
        self.of.extend(bases.into_iter().map(|base| (base, at)));
        self.all.push(found);
        Some(Stretch { at, parts })
    }

    /// The memory of the matrices of a stretch, in their order.
    pub(super) fn bases(&self, stretch: &Stretch) -> &[NodeId] {
        &self.all[stretch.at].bases[stretch.parts.clone()]
    }
}

impl Concatenation {
    /// Positions of the parts of another one, if they are neighbours here.
    fn parts_of(&self, other: &Concatenation) -> Option<Range<usize>> {
        let position = |(base, shape): (&NodeId, &[usize; 2])| {
            let at = self.bases.iter().position(|held| held == base)?;
            (self.shapes[at] == *shape).then_some(at)
        };
        let parts = other.bases.iter().zip(&other.shapes);
        let mut parts = parts.map(position).collect::<Option<Vec<usize>>>()?;
        parts.sort_unstable();
        let are_neighbours = parts.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        (self.dim == other.dim && are_neighbours).then(|| parts[0]..parts[0] + parts.len())
    }
}

/// Whether a matrix can be part of a concatenation along `dim`. Given tensors are not spread.
fn fits(factor: &Factor, dim: usize) -> bool {
    let bytes = Dtype::F32.size_bytes() * factor.shape[0] * factor.shape[1];
    match dim {
        0 => bytes.is_multiple_of(ADJACENT_ALIGNMENT),
        _ => !factor.is_given && factor.shape[1].is_multiple_of(VECTOR),
    }
}
