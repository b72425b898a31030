//! Nodes whose memory is part of a concatenation ([`Op::Concat`]): columns, or all rows of a
//! matrix.

use std::collections::BTreeMap;

use super::access::{self, Coordinate, Misfit};
use super::plan::Plan;
use crate::graph::{NodeId, Op};

/// Where the elements of a node lie in a concatenation: in runs of consecutive ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The concatenation.
    pub whole: NodeId,
    /// The first element there.
    pub start: usize,
    /// Elements of a run.
    pub run: usize,
    /// From one run to the next.
    pub step: usize,
    /// Elements in all.
    elements: usize,
}

impl Part {
    /// Elements from the first to the last.
    pub(super) fn span(&self) -> usize {
        (self.elements / self.run - 1) * self.step + self.run
    }

    /// Where an element of the node lies, counted from the node's first one. `extents` are those of
    /// the axes that the position depends on.
    ///
    /// # Errors
    /// A position that is not stepped through there.
    pub(super) fn position(
        &self,
        position: &Coordinate,
        extents: &[usize],
    ) -> Result<Coordinate, Misfit> {
        if self.step == self.run {
            return Ok(position.clone());
        }
        let shape = [self.elements / self.run, self.run];
        let place = access::split(position, &shape, extents)?;
        Ok(place[0].times(self.step).plus(&place[1]))
    }
}

impl Plan {
    /// Views that are parts of a concatenation are copied there.
    pub(super) fn keep_parts(&mut self) {
        for id in self.concatenations() {
            for operand in self.graph.node(id).operands.clone() {
                if self.graph.node(self.unreshaped(operand)).op.is_view() {
                    self.kept.insert(operand);
                }
            }
        }
    }

    /// Concatenations that are read.
    pub(super) fn concatenations(&self) -> Vec<NodeId> {
        let live = self.live();
        let is_one =
            |id: &NodeId| live[id.index()] && matches!(self.graph.node(*id).op, Op::Concat { .. });
        self.graph.ids().filter(is_one).collect()
    }

    /// Where the parts of concatenations lie.
    pub(super) fn find_parts(&self) -> BTreeMap<NodeId, Part> {
        let mut parts = BTreeMap::new();
        for whole in self.concatenations() {
            let node = self.graph.node(whole);
            let Op::Concat { dim } = node.op else {
                continue;
            };
            let inner = |shape: &[usize]| shape[dim..].iter().product::<usize>();
            let mut start = 0;
            for &operand in &node.operands {
                let part = self.graph.node(operand);
                let run = inner(&part.shape);
                let lies = Part {
                    whole,
                    start,
                    run,
                    step: inner(&node.shape),
                    elements: part.elements(),
                };
                // One run has no next one.
                let step = if run == lies.elements { run } else { lies.step };
                parts.insert(self.base(operand), Part { step, ..lies });
                start += run;
            }
        }
        parts
    }

    /// Elements from the first to the last of a node in memory.
    pub(super) fn span(&self, id: NodeId) -> usize {
        let part = self.parts.get(&id);
        part.map_or_else(|| self.graph.node(id).elements(), Part::span)
    }

    /// Whether a node is a given tensor, or a concatenation of such.
    pub(super) fn is_given(&self, id: NodeId) -> bool {
        let bases = self.bases(id);
        let mut nodes = bases.iter().map(|&base| self.graph.node(base));
        nodes.all(|node| matches!(node.op, Op::Input(_)))
    }

    /// The nodes in whose memory a node is read: one, but for a concatenation.
    pub(super) fn bases(&self, id: NodeId) -> Vec<NodeId> {
        let base = self.base(id);
        let node = self.graph.node(base);
        match node.op {
            Op::Concat { .. } => {
                let operands = node.operands.iter();
                operands.map(|&operand| self.base(operand)).collect()
            }
            _ => vec![base],
        }
    }
}
