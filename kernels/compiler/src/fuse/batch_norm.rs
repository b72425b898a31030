//! The rules `fold_batch_norm`: scales and shifts of a convolution's channels that depend on
//! parameters alone move into its weights and a bias.
//!
//! Found by structure: a convolution, then additions, subtractions, products and quotients with one
//! number a channel, made from parameters and constants. They leave the convolution with other
//! weights, and one addition; weights and bias are computed once, in the program's prologue.

use std::collections::BTreeSet;

use super::rewrite::{Whole, apply};
use crate::graph::pattern::Pattern::{self, Any, Named, Of, OfParameters, UsedOnce};
use crate::graph::pattern::{A, ADD, B, BROADCAST, C, DIV, Kind, MUL, Match, Rule, SUB, X, Y};
use crate::graph::{Binary, Graph, NodeId, Op, Unary};

const CONV: Kind = |op| matches!(op, Op::Conv2d(_));

/// `y`, the convolution of `x` with `a`.
const PRODUCT: Pattern = UsedOnce(&Named(Y, &Of(CONV, &[Any(X), OfParameters(&Any(A))])));
/// `y + b`
const SHIFTED: Pattern = UsedOnce(&Of(
    ADD,
    &[PRODUCT, Of(BROADCAST, &[OfParameters(&Any(B))])],
));
/// `c`
const CHANNEL: Pattern = Of(BROADCAST, &[OfParameters(&Any(C))]);

const RULES: &[Rule] = &[
    Rule {
        from: Of(MUL, &[PRODUCT, CHANNEL]),
        to: |graph, _, found| scaled(graph, found, Binary::Mul),
    },
    Rule {
        from: Of(DIV, &[PRODUCT, CHANNEL]),
        to: |graph, _, found| scaled(graph, found, Binary::Div),
    },
    // (y + b) c = y c + b c
    Rule {
        from: Of(MUL, &[SHIFTED, CHANNEL]),
        to: |graph, _, found| scaled_and_shifted(graph, found, Binary::Mul),
    },
    Rule {
        from: Of(DIV, &[SHIFTED, CHANNEL]),
        to: |graph, _, found| scaled_and_shifted(graph, found, Binary::Div),
    },
    // (y + b) + c = y + (b + c)
    Rule {
        from: Of(ADD, &[SHIFTED, CHANNEL]),
        to: |graph, _, found| {
            let shift = graph.add(found[B], found[C]).ok()?;
            graph.add(found[Y], shift).ok()
        },
    },
    Rule {
        from: Of(SUB, &[SHIFTED, CHANNEL]),
        to: |graph, _, found| {
            let shift = graph.sub(found[B], found[C]).ok()?;
            graph.add(found[Y], shift).ok()
        },
    },
    // y - c = y + (-c)
    Rule {
        from: Of(SUB, &[PRODUCT, CHANNEL]),
        to: |graph, _, found| {
            let shift = is_by_channel(graph, found[C]).then_some(found[C])?;
            let shift = graph.unary(Unary::Neg, shift).ok()?;
            graph.add(found[Y], shift).ok()
        },
    },
];

/// Folds batch norms into weights.
pub(super) fn fold_batch_norm(whole: &Whole) -> Whole {
    let (mut folded, of_parameters) = apply(&whole.graph, whole.boundary, RULES);
    folded.setup = before(&folded.graph, of_parameters);
    folded
}

/// Whether a tensor has one number a channel.
fn is_by_channel(graph: &Graph, id: NodeId) -> bool {
    let shape = &graph.node(id).shape;
    shape.len() == 4 && (0..4).all(|dim| dim == 1 || shape[dim] == 1)
}

/// The convolution with weights that are scaled by one number a channel.
fn scaled(graph: &mut Graph, found: &Match, binary: Binary) -> Option<NodeId> {
    let channels = graph.node(found[A]).shape[0];
    let scale = is_by_channel(graph, found[C]).then_some(found[C])?;
    let scale = graph.broadcast(scale, &[1, channels, 1, 1]).ok()?;
    let scale = graph.reshape(scale, &[channels, 1, 1, 1]).ok()?;
    let weights = graph.binary(binary, found[A], scale).ok()?;
    let mut product = graph.node(found[Y]).clone();
    product.operands = vec![found[X], weights];
    Some(graph.append(product, None))
}

/// `y c + b c`, or of quotients.
fn scaled_and_shifted(graph: &mut Graph, found: &Match, binary: Binary) -> Option<NodeId> {
    let product = scaled(graph, found, binary)?;
    let shift = is_by_channel(graph, found[B]).then_some(found[B])?;
    let shift = graph.binary(binary, shift, found[C]).ok()?;
    graph.add(product, shift).ok()
}

/// Nodes, and all that they are made from.
fn before(graph: &Graph, nodes: Vec<NodeId>) -> BTreeSet<NodeId> {
    let mut found = BTreeSet::new();
    let mut open = nodes;
    while let Some(id) = open.pop() {
        if found.insert(id) {
            open.extend(&graph.node(id).operands);
        }
    }
    found
}
