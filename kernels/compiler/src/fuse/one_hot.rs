//! The pass `sums_of_one_hot`: a sum whose terms are zero at all indices but one is its term at
//! that index.
//!
//! The gradient of a choice by index (of a loss: the right class) is such a tensor, and a softmax
//! before the choice asks for its sum. Found by structure: a sum over one dimension of a selection
//! between something that does not vary along it and zero, by whether the place along it is an
//! index that does not vary along it. The index is taken to be a place of the dimension: a choice
//! by any other has no gradient.

use super::rewrite::{Whole, rewritten};
use crate::graph::{Binary, Graph, Node, NodeId, Op, Reduction};

/// Replaces sums that have one nonzero term.
pub(super) fn sums_of_one_hot(whole: &Whole) -> Whole {
    let old = &whole.graph;
    rewritten(whole, |graph, id, node| {
        let value = value_of_one_hot(graph, &node);
        let value = value.and_then(|value| graph.broadcast(value, &node.shape).ok());
        value.unwrap_or_else(|| graph.append(node, old.role_of(id)))
    })
}

/// The only nonzero term of a sum, if its operand is such a selection.
fn value_of_one_hot(graph: &Graph, sum: &Node) -> Option<NodeId> {
    let Op::Reduce { reduction, dims } = &sum.op else {
        return None;
    };
    let (Reduction::Sum, &[dim]) = (reduction, &dims[..]) else {
        return None;
    };
    let select = graph.node(sum.operands[0]);
    let (Op::Select, &[mask, value, zero]) = (&select.op, &select.operands[..]) else {
        return None;
    };
    let mask = graph.node(mask);
    let (Op::Binary(Binary::Equal), &[a, b]) = (&mask.op, &mask.operands[..]) else {
        return None;
    };
    let is_place =
        |id: NodeId| matches!(graph.node(id).op, Op::Iota { dim: along } if along == dim);
    let is_one = |id: NodeId| before_broadcast(graph, id, dim).is_some();
    let is_one_hot = is_place(a) && is_one(b) || is_place(b) && is_one(a);
    let is_zero = graph.number(zero) == Some(0.0);
    let value = before_broadcast(graph, value, dim)?;
    (is_one_hot && is_zero).then_some(value)
}

/// The operand of a broadcast along a dimension, if a tensor has its extent there by it alone.
fn before_broadcast(graph: &Graph, id: NodeId, dim: usize) -> Option<NodeId> {
    let node = graph.node(id);
    if node.op != Op::Broadcast {
        return None;
    }
    let x = node.operands[0];
    (graph.node(x).shape.get(dim) == Some(&1)).then_some(x)
}
