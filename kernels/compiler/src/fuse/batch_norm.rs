//! The pass `fold_batch_norm`: scales and shifts of a convolution's channels that depend on
//! parameters alone move into its weights and a bias.
//!
//! Found by structure: a convolution, then additions, subtractions, products and quotients with one
//! number a channel, made from parameters and constants. What is left is the convolution with other
//! weights, and one addition; weights and bias are computed once, in the program's prologue.

use std::collections::{BTreeMap, BTreeSet};

use super::rewrite::{Whole, rewritten};
use crate::graph::{Binary, Graph, Node, NodeId, Op, Unary};
use sweeper_program::Role;

/// A convolution and what follows it.
struct Fold {
    conv: NodeId,
    /// Operations on each channel in order: the operation, its other operand, and whether the
    /// channel is the first one.
    steps: Vec<(Binary, NodeId, bool)>,
}

/// Folds batch norms into weights.
pub(super) fn fold_batch_norm(whole: &Whole) -> Whole {
    let folds = folds(&whole.graph);
    let old = &whole.graph;
    // Where old nodes are in the new graph, for what a fold is made from.
    let mut now: Vec<NodeId> = Vec::new();
    let mut roots = Vec::new();
    let mut folded = rewritten(whole, |graph, id, node| {
        let new = match folds.get(&id) {
            Some(fold) => folded(old, graph, fold, &now, &mut roots),
            None => None,
        };
        let new = new.unwrap_or_else(|| graph.append(node, old.role_of(id)));
        now.push(new);
        new
    });
    folded.setup = before(&folded.graph, roots);
    folded
}

/// For each node that ends a chain that can be folded, the chain.
fn folds(graph: &Graph) -> BTreeMap<NodeId, Fold> {
    let of_parameters = of_parameters(graph);
    let users = graph.users();
    let is_result = |id: NodeId| graph.outputs().iter().any(|output| output.node == id);
    let mut folds = BTreeMap::new();
    for conv in graph.ids() {
        let node = graph.node(conv);
        if !matches!(node.op, Op::Conv2d(_)) || !of_parameters[node.operands[1].index()] {
            continue;
        }
        let (mut end, mut steps) = (conv, Vec::new());
        while let [user] = users[end.index()][..]
            && !is_result(end)
            && let Some(step) = step(graph, &of_parameters, end, user)
        {
            steps.push(step);
            end = user;
        }
        // An addition alone is what would be left.
        let scales =
            |(binary, ..): &(Binary, NodeId, bool)| matches!(binary, Binary::Mul | Binary::Div);
        if steps.iter().any(scales) {
            folds.insert(end, Fold { conv, steps });
        }
    }
    folds
}

/// For each node, whether it depends on parameters and constants alone.
fn of_parameters(graph: &Graph) -> Vec<bool> {
    let mut found: Vec<bool> = Vec::new();
    for id in graph.ids() {
        let node = graph.node(id);
        found.push(match &node.op {
            Op::Input(_) => graph.role_of(id) == Some(Role::Parameter),
            _ => node.operands.iter().all(|operand| found[operand.index()]),
        });
    }
    found
}

/// The operation of `user` on each channel of `x`, if it has no other.
fn step(
    graph: &Graph,
    of_parameters: &[bool],
    x: NodeId,
    user: NodeId,
) -> Option<(Binary, NodeId, bool)> {
    let node = graph.node(user);
    let Op::Binary(binary) = node.op else {
        return None;
    };
    let is_first = node.operands[0] == x;
    let other = node.operands[usize::from(is_first)];
    let is_affine = matches!(binary, Binary::Add | Binary::Sub | Binary::Mul)
        || (binary == Binary::Div && is_first);
    if !is_affine || other == x || !of_parameters[other.index()] {
        return None;
    }
    let broadcast = graph.node(other);
    let by_channel = match broadcast.op {
        Op::Broadcast => broadcast.operands[0],
        _ => return None,
    };
    let shape = &graph.node(by_channel).shape;
    let is_by_channel = shape.len() == 4 && (0..4).all(|dim| dim == 1 || shape[dim] == 1);
    is_by_channel.then_some((binary, by_channel, is_first))
}

/// The convolution with other weights, and its bias. None if shapes don't fit after all.
fn folded(
    old: &Graph,
    graph: &mut Graph,
    fold: &Fold,
    now: &[NodeId],
    roots: &mut Vec<NodeId>,
) -> Option<NodeId> {
    let mut scale = graph.constant(1.0);
    let mut shift: Option<NodeId> = None;
    for &(binary, other, is_first) in &fold.steps {
        let other = now[other.index()];
        shift = match (binary, shift) {
            (Binary::Add, None) => Some(other),
            (Binary::Add, Some(shift)) => Some(graph.add(shift, other).ok()?),
            (Binary::Sub, None) if is_first => Some(graph.unary(Unary::Neg, other).ok()?),
            (Binary::Sub, None) => Some(other),
            (Binary::Sub, Some(shift)) if is_first => Some(graph.sub(shift, other).ok()?),
            (Binary::Sub, Some(shift)) => Some(graph.sub(other, shift).ok()?),
            (binary, Some(shift)) => Some(graph.binary(binary, shift, other).ok()?),
            (_, None) => None,
        };
        scale = match binary {
            Binary::Add => scale,
            Binary::Sub if is_first => scale,
            Binary::Sub => graph.unary(Unary::Neg, scale).ok()?,
            binary => graph.binary(binary, scale, other).ok()?,
        };
    }
    let conv = old.node(fold.conv);
    let [x, w] = [conv.operands[0], conv.operands[1]].map(|id| now[id.index()]);
    let channels = graph.node(w).shape[0];
    let scale = graph.broadcast(scale, &[1, channels, 1, 1]).ok()?;
    let scale = graph.reshape(scale, &[channels, 1, 1, 1]).ok()?;
    let weights = graph.mul(w, scale).ok()?;
    let convolution = Node {
        operands: vec![x, weights],
        ..conv.clone()
    };
    let convolution = graph.append(convolution, None);
    roots.push(weights);
    roots.extend(shift);
    match shift {
        Some(shift) => graph.add(convolution, shift).ok(),
        None => Some(convolution),
    }
}

/// All nodes that some nodes are made from, and those.
fn before(graph: &Graph, roots: Vec<NodeId>) -> BTreeSet<NodeId> {
    let mut found = BTreeSet::new();
    let mut open = roots;
    while let Some(id) = open.pop() {
        if found.insert(id) {
            open.extend(&graph.node(id).operands);
        }
    }
    found
}
