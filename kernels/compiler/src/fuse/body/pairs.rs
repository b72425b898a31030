//! Pairs of columns exchanged: a tensor whose last dimension has its elements 2i and 2i + 1 in the
//! places of each other, as rotary positions have it.
//!
//! As the graph has it, such a tensor is the sum of its elements with odd indices in the places of
//! the even ones and of those with even indices in the places of the odd ones: four views, each
//! with a look-up and a mask. A kernel that goes along the dimension by its columns loads both
//! elements anyway, and exchanges them.

use super::super::access::{Coordinate, Misfit, Place};
use super::Builder;
use crate::graph::{Binary, NodeId, Op};
use crate::nest::ValueId;
use sweeper_program::tensor::Dtype;

impl Builder<'_> {
    /// The value of a node that is another one with pairs of columns exchanged; none where it is
    /// not, or where the other one is not loaded by columns.
    pub(super) fn swapped(&mut self, id: NodeId, place: &Place) -> Result<Option<ValueId>, Misfit> {
        let Some(x) = self.swapped_pairs(id) else {
            return Ok(None);
        };
        let Some(columns) = self.loops().checked_sub(1) else {
            return Ok(None);
        };
        let is_by_columns = place.last() == Some(&Coordinate::axis(columns, 1));
        if self.swaps_pairs || !is_by_columns || !self.extents[columns].is_multiple_of(2) {
            return Ok(None);
        }
        let before = self.clone();
        self.swaps_pairs = true;
        let found = self.value(x, place);
        self.swaps_pairs = false;
        match found {
            Ok(value) => Ok(Some(value)),
            Err(Misfit::Impossible) => {
                *self = before;
                Ok(None)
            }
            Err(misfit) => Err(misfit),
        }
    }

    /// The tensor that a node is with the pairs of its last dimension exchanged, if this kernel
    /// computes all on the way.
    fn swapped_pairs(&self, id: NodeId) -> Option<NodeId> {
        let graph = &self.plan.graph;
        let node = graph.node(id);
        let (Op::Binary(Binary::Add), &[one, other]) = (&node.op, &node.operands[..]) else {
            return None;
        };
        let last = node.shape.len().checked_sub(1)?;
        // The index at which elements are put, and the tensor that they are of.
        let moved = |id: NodeId| {
            let (to, from) = (
                graph.node(id),
                graph.node(*graph.node(id).operands.first()?),
            );
            let x = *from.operands.first()?;
            let is_own = self.has(self.plan.value(id)) && !self.plan.kept.contains(&to.operands[0]);
            match (&to.op, &from.op) {
                (
                    &Op::Unslice {
                        dim,
                        start,
                        step: 2,
                    },
                    &Op::Slice {
                        dim: of,
                        start: first,
                        step: 2,
                    },
                ) if dim == last && of == last && start + first == 1 && is_own => Some((start, x)),
                _ => None,
            }
        };
        let ((start, x), (start_of_other, of_other)) = (moved(one)?, moved(other)?);
        let is_whole = graph.node(x).shape == node.shape && graph.node(x).dtype == Dtype::F32;
        (x == of_other && start != start_of_other && is_whole).then_some(x)
    }

    /// Whether a load at these steps has to exchange pairs of columns, if values are those of the
    /// other column.
    pub(super) fn are_pairs_of(
        &self,
        at: &Coordinate,
        index: Option<ValueId>,
        dtype: Dtype,
    ) -> Result<bool, Misfit> {
        if !self.swaps_pairs {
            return Ok(false);
        }
        // A last axis there is: what is exchanged has columns.
        match at.step(self.loops() - 1) {
            _ if index.is_some() => Err(Misfit::Impossible),
            0 => Ok(false),
            1 if dtype != Dtype::I64 => Ok(true),
            _ => Err(Misfit::Impossible),
        }
    }
}
