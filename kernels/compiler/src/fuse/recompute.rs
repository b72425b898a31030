//! The pass `recompute`: the backward pass recomputes values that the forward pass would otherwise
//! store for it, where that takes no more reading: elementwise functions of given tensors, of
//! values that are kept anyway, and of small ones.

use std::collections::{BTreeMap, BTreeSet};

use super::rewrite::{Whole, rewritten};
use crate::graph::{Graph, NodeId, Op};

/// A value with so many times fewer elements is small, and is kept.
const SMALL: usize = 8;

/// So many times the elements of a value may be read to make it again: writing and reading it costs
/// two.
const MOST_READ: usize = 2;

/// Makes values again in the backward pass.
pub(super) fn recompute(whole: &Whole) -> Whole {
    let Some(boundary) = whole.boundary else {
        return whole.clone();
    };
    let again = Recompute::new(&whole.graph, boundary).nodes();
    let old = &whole.graph;
    let mut copies: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    // Copies are made of old nodes: where their operands are now is noted as they are passed.
    let mut now: Vec<NodeId> = Vec::new();
    rewritten(old, whole.boundary, |graph, id, mut node| {
        if id >= boundary {
            for (slot, &operand) in node.operands.iter_mut().zip(&old.node(id).operands) {
                if operand < boundary && again.contains(&operand) {
                    *slot = copied(old, graph, &again, operand, &now, &mut copies);
                }
            }
        }
        let new = graph.append(node, old.role_of(id));
        now.push(new);
        new
    })
}

/// A copy of an old node, and of the earlier nodes that are made again.
fn copied(
    old: &Graph,
    graph: &mut Graph,
    again: &BTreeSet<NodeId>,
    id: NodeId,
    now: &[NodeId],
    copies: &mut BTreeMap<NodeId, NodeId>,
) -> NodeId {
    if let Some(&copy) = copies.get(&id) {
        return copy;
    }
    if !again.contains(&id) {
        return now[id.index()];
    }
    let mut node = old.node(id).clone();
    for operand in &mut node.operands {
        *operand = copied(old, graph, again, *operand, now, copies);
    }
    let copy = graph.append(node, None);
    copies.insert(id, copy);
    copy
}

/// Values of the forward pass that the backward pass reads.
struct Recompute<'a> {
    graph: &'a Graph,
    boundary: NodeId,
    users: Vec<Vec<NodeId>>,
    /// Forward nodes that the backward pass reads from memory, views resolved.
    saved: BTreeSet<NodeId>,
}

impl<'a> Recompute<'a> {
    fn new(graph: &'a Graph, boundary: NodeId) -> Self {
        let mut recompute = Recompute {
            graph,
            boundary,
            users: graph.users(),
            saved: BTreeSet::new(),
        };
        let needed = graph.needed();
        for id in graph
            .ids()
            .filter(|&id| id >= boundary && needed[id.index()])
        {
            for &operand in graph
                .node(id)
                .sources()
                .iter()
                .filter(|&&held| held < boundary)
            {
                let base = graph.viewed(operand);
                recompute
                    .saved
                    .extend(recompute.is_computed(base).then_some(base));
            }
        }
        recompute
    }

    fn is_computed(&self, id: NodeId) -> bool {
        !matches!(
            self.graph.node(id).op,
            Op::Input(_) | Op::Constant(_) | Op::Iota { .. }
        )
    }

    /// All nodes that are recomputed, latest first, so that the values kept for them are known.
    fn nodes(mut self) -> BTreeSet<NodeId> {
        let mut again = BTreeSet::new();
        for id in self.saved.clone().into_iter().rev() {
            if let Some((through, leaves)) = self.again(id) {
                self.saved.remove(&id);
                self.saved.extend(leaves);
                again.extend(through);
            }
        }
        // Views of recomputed nodes are recomputed, too.
        for id in self.graph.ids().filter(|&id| id < self.boundary) {
            if self.graph.node(id).op.is_view() && again.contains(&self.graph.viewed(id)) {
                again.insert(id);
            }
        }
        again
    }

    /// The nodes between a value and its leaves, and the leaves; none if the value is kept.
    fn again(&self, id: NodeId) -> Option<(BTreeSet<NodeId>, BTreeSet<NodeId>)> {
        let is_result = self
            .graph
            .outputs()
            .iter()
            .any(|output| self.graph.viewed(output.node) == id);
        if !self.graph.node(id).op.is_elementwise() || is_result || self.is_read_by_call(id) {
            return None;
        }
        let elements = self.graph.node(id).elements();
        let (mut through, mut leaves) = (BTreeSet::new(), BTreeSet::new());
        let (mut read, mut kept) = (0, 0);
        let mut open = vec![id];
        while let Some(at) = open.pop() {
            let node = self.graph.node(at);
            let is_small = self.is_computed(at) && node.elements() * SMALL <= elements;
            let is_kept = at != id && self.saved.contains(&at);
            let stops = matches!(node.op, Op::Input(_)) || is_small || is_kept;
            if stops {
                if leaves.insert(at) {
                    read += node.elements();
                    kept += node.elements() * usize::from(is_small && !is_kept);
                }
                continue;
            }
            if !(node.op.is_elementwise() || node.op.is_view() || !self.is_computed(at)) {
                return None;
            }
            if through.insert(at) {
                open.extend(&node.operands);
            }
        }
        leaves.retain(|&leaf| self.is_computed(leaf));
        let is_worth_it = read <= MOST_READ * elements && kept < elements;
        is_worth_it.then_some((through, leaves))
    }

    /// Whether a library call of the backward pass reads the value, and so needs it in memory.
    fn is_read_by_call(&self, id: NodeId) -> bool {
        let mut users = self.users[id.index()].iter();
        users.any(|&user| {
            let node = self.graph.node(user);
            match node.op {
                Op::Matmul | Op::ScatterAdd | Op::Attention(_) => user >= self.boundary,
                Op::Conv2d(_) | Op::Conv2dGradX(_) | Op::Conv2dGradW(_) => user >= self.boundary,
                _ => node.op.is_view() && self.is_read_by_call(user),
            }
        })
    }
}
