//! The rules `algebra`: less work for an equal value, found by structure. An eager framework
//! computes all of it.

use crate::graph::pattern::Pattern::{Any, Is, Named, Of};
use crate::graph::pattern::{A, B, BROADCAST, Kind, Rule, SUM, X};
use crate::graph::{Binary, Op};

const SELECT: Kind = |op| *op == Op::Select;
const EQUAL: Kind = |op| *op == Op::Binary(Binary::Equal);
const IOTA: Kind = |op| matches!(op, Op::Iota { .. });

pub(super) const RULES: &[Rule] = &[Rule {
    // sum(select(iota == index, x, 0)) = x, along one dimension in which index and x don't vary:
    // one term is not zero. The gradient of a choice by index (of a loss: the right class) is such
    // a tensor, and a softmax before the choice needs its sum. The index is assumed to be a place
    // of the dimension: a choice by any other index has no gradient.
    from: Of(
        SUM,
        &[Of(
            SELECT,
            &[
                Of(EQUAL, &[Named(A, &Of(IOTA, &[])), Of(BROADCAST, &[Any(B)])]),
                Of(BROADCAST, &[Any(X)]),
                Is(0.0),
            ],
        )],
    ),
    to: |graph, node, found| {
        let (Op::Reduce { dims, .. }, Op::Iota { dim }) = (&node.op, &graph.node(found[A]).op)
        else {
            return None;
        };
        let is_constant = |id| graph.node(id).shape[*dim] == 1;
        let is_one_hot = *dims == [*dim] && is_constant(found[B]) && is_constant(found[X]);
        is_one_hot
            .then(|| graph.broadcast(found[X], &node.shape))?
            .ok()
    },
}];
