//! The rules `attention`: a product, a softmax over its rows and a product with the values are one
//! operation, and so are their gradients: kernels that never have the scores in memory.
//!
//! Found by structure. Scores may be scaled before or after they are masked; a mask that hides keys
//! behind a query's own position makes the attention causal. Gradients are found as the chain rule
//! writes them through these nodes ([`crate::graph::differentiate`]). Whatever part of a graph does
//! not fit stays as it is, and computes the weights again.

mod by_library;
mod by_rows;
mod call;
mod cpu;
mod cuda;
mod hopper;
mod mma;
mod packed;

pub(super) use by_library::{Fused, is_matrix};
pub(super) use call::{Call, MATRICES, Stored, merge, takes};
pub(super) use packed::{Packed, Packing, pack};

use self::call::Kernels;
use super::Request;
use super::rewrite::{Whole, apply};
use crate::graph::pattern::Pattern::{self, Any, Named, Of};
use crate::graph::pattern::{BROADCAST, DIV, Kind, MUL, Match, Rule, SUB, SUM, TRANSPOSE, Var};
use crate::graph::{Attention, AttentionPart, Binary, Graph, Node, NodeId, Op, Reduction, Unary};
use sweeper_program::workload::{Refusal, Target};

const SCORES: Var = Var(0);
const EXPONENTIALS: Var = Var(1);
const WEIGHTS: Var = Var(2);
const VALUES: Var = Var(3);
const GRAD_OUT: Var = Var(4);
const GRAD_WEIGHTS: Var = Var(5);
const LEFT: Var = Var(6);
const RIGHT: Var = Var(7);

const MATMUL: Kind = |op| *op == Op::Matmul;
const EXP: Kind = |op| *op == Op::Unary(Unary::Exp);
const MAX: Kind = |op| {
    let max = Reduction::Max;
    matches!(op, Op::Reduce { reduction, .. } if *reduction == max)
};

/// softmax(scores)
const SOFTMAX: Pattern = Named(
    WEIGHTS,
    &Of(
        DIV,
        &[
            Named(
                EXPONENTIALS,
                &Of(
                    EXP,
                    &[Of(
                        SUB,
                        &[Any(SCORES), Of(BROADCAST, &[Of(MAX, &[Any(SCORES)])])],
                    )],
                ),
            ),
            Of(BROADCAST, &[Of(SUM, &[Any(EXPONENTIALS)])]),
        ],
    ),
);

/// grad_out v^T
const OF_WEIGHTS: Pattern = Named(
    GRAD_WEIGHTS,
    &Of(MATMUL, &[Any(GRAD_OUT), Of(TRANSPOSE, &[Any(VALUES)])]),
);

/// weights (g - sum(g weights)): the gradient by the scores, where g is that by the weights.
const OF_SCORES: Pattern = Of(
    MUL,
    &[
        SOFTMAX,
        Of(
            SUB,
            &[
                OF_WEIGHTS,
                Of(
                    BROADCAST,
                    &[Of(SUM, &[Of(MUL, &[Any(GRAD_WEIGHTS), Any(WEIGHTS)])])],
                ),
            ],
        ),
    ],
);

/// The rules for kernels of ours, with the columns of queries, keys and values that they have at
/// most, and whether they take sums of rows as two numbers; or, as [`BY_LIBRARY`], for a library.
struct Rules<const WIDEST: usize, const SPLITS: bool>;

impl<const WIDEST: usize, const SPLITS: bool> Rules<WIDEST, SPLITS> {
    const ALL: &'static [Rule] = &[
        Rule {
            from: Of(MATMUL, &[SOFTMAX, Any(VALUES)]),
            to: forward::<WIDEST, SPLITS>,
        },
        Rule {
            from: Of(MATMUL, &[Of(TRANSPOSE, &[SOFTMAX]), Any(GRAD_OUT)]),
            to: grad_v::<WIDEST, SPLITS>,
        },
        Rule {
            from: Of(MATMUL, &[Of(TRANSPOSE, &[Any(LEFT)]), Any(RIGHT)]),
            to: |graph, node, found| {
                let factors = [found[LEFT], found[RIGHT]];
                grad::<WIDEST, SPLITS>(graph, node, factors, AttentionPart::GradK)
            },
        },
        Rule {
            from: Of(MATMUL, &[Any(LEFT), Any(RIGHT)]),
            to: |graph, node, found| {
                let factors = [found[LEFT], found[RIGHT]];
                grad::<WIDEST, SPLITS>(graph, node, factors, AttentionPart::GradQ)
            },
        },
    ];
}

/// Whether the target has kernels of attention in the precision of products.
pub(super) fn has_kernels(request: &Request<'_>) -> bool {
    Kernels::of(request).is_some()
}

/// Makes attentions of the graph's products and softmaxes.
///
/// # Errors
/// An attention for a library that has none for the request.
pub(super) fn recognize(whole: &Whole, request: &Request<'_>) -> Result<Whole, Refusal> {
    if request.by_library {
        let (whole, _) = apply(
            &whole.graph,
            whole.boundary,
            Rules::<BY_LIBRARY, false>::ALL,
        );
        by_library::check(&whole.graph, request)?;
        return Ok(whole);
    }
    let kernels = Kernels::of(request);
    let rules = match (kernels, request.target) {
        (Some(Kernels::Cuda), Target::Cuda { arch }) if !cuda::has_room_for_wide(arch) => {
            Rules::<{ cuda::COLUMNS }, true>::ALL
        }
        (Some(Kernels::Cuda | Kernels::Cpu), _) => Rules::<{ 2 * cuda::COLUMNS }, true>::ALL,
        _ => Rules::<{ 2 * cuda::COLUMNS }, false>::ALL,
    };
    let (whole, _) = apply(&whole.graph, whole.boundary, rules);
    Ok(match kernels.is_some_and(Kernels::are_on_tensor_cores) {
        true => by_rows::by_rows(&whole),
        false => whole,
    })
}

/// In place of a number of columns: a library has limits of its own.
const BY_LIBRARY: usize = usize::MAX;

/// The scores of a softmax, by the operands of their product.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Scores {
    q: NodeId,
    k: NodeId,
    scale: f64,
    is_causal: bool,
    by_library: bool,
    splits_sums: bool,
}

impl Scores {
    /// `scale q k^T`, maybe masked.
    fn of(graph: &Graph, scores: NodeId, widest: usize, splits_sums: bool) -> Option<Scores> {
        let (products, scale, is_causal) = unscaled(graph, scores, HIDDEN)?;
        let node = graph.node(products);
        let (Op::Matmul, &[q, turned]) = (&node.op, &node.operands[..]) else {
            return None;
        };
        let k = turned_back(graph, turned)?;
        let is_short = graph.node(q).shape.last() <= Some(&widest);
        let is_square = node.shape.last_chunk::<2>().is_some_and(|[s, t]| s == t);
        (is_short && scale > 0.0 && (!is_causal || is_square)).then_some(Scores {
            q,
            k,
            scale,
            is_causal,
            by_library: widest == BY_LIBRARY,
            splits_sums,
        })
    }

    fn op(&self, part: AttentionPart) -> Op {
        Op::Attention(Attention {
            part,
            scale: self.scale,
            is_causal: self.is_causal,
            is_by_rows: false,
            takes_out: self.by_library && part > AttentionPart::LogSumExp,
            splits_sums: self.splits_sums,
        })
    }
}

/// Scores at least so far below others have no weight in f32.
const HIDDEN: f64 = -1e9;

/// Scores, or their gradient, without factors and a mask: the node, the product of the factors, and
/// whether there was a mask. Hidden elements are `hidden` or less.
fn unscaled(graph: &Graph, mut id: NodeId, hidden: f64) -> Option<(NodeId, f64, bool)> {
    let (mut scale, mut is_masked) = (1.0, false);
    loop {
        let node = graph.node(id);
        let number = |at: usize| graph.number(node.operands[at]);
        id = match node.op {
            Op::Binary(Binary::Mul) if number(1).is_some() => {
                scale *= number(1)?;
                node.operands[0]
            }
            Op::Binary(Binary::Mul) if number(0).is_some() => {
                scale *= number(0)?;
                node.operands[1]
            }
            Op::Binary(Binary::Div) if number(1).is_some() => {
                scale /= number(1)?;
                node.operands[0]
            }
            Op::Select => {
                let is_hidden = |at: usize| number(at).is_some_and(|number| number <= hidden);
                is_masked = true;
                match causal(graph, node.operands[0])? {
                    Shown::Where if is_hidden(2) => node.operands[1],
                    Shown::WhereNot if is_hidden(1) => node.operands[2],
                    _ => return None,
                }
            }
            _ => return Some((id, scale, is_masked)),
        };
    }
}

/// Whether a causal mask is set where keys are shown, or where they are hidden.
enum Shown {
    Where,
    WhereNot,
}

/// Recognizes `key <= query` and `query < key`, of positions along the last two dimensions.
fn causal(graph: &Graph, mut mask: NodeId) -> Option<Shown> {
    // Leading dimensions share one square of queries and keys.
    let square = |id: NodeId| graph.node(id).shape.last_chunk::<2>().copied();
    while matches!(graph.node(mask).op, Op::Broadcast | Op::Reshape) {
        let of = graph.node(mask).operands[0];
        square(of).filter(|&extents| Some(extents) == square(mask))?;
        mask = of;
    }
    let node = graph.node(mask);
    let rank = node.shape.len();
    let &[a, b] = &node.operands[..] else {
        return None;
    };
    let [a, b] = [index_along(graph, a)?, index_along(graph, b)?];
    let (query, key) = (rank.checked_sub(2)?, rank - 1);
    match (&node.op, a == key && b == query, a == query && b == key) {
        (Op::Binary(Binary::LessEqual), true, _) => Some(Shown::Where),
        (Op::Binary(Binary::Less), _, true) => Some(Shown::WhereNot),
        _ => None,
    }
}

/// The dimension of a node along which its elements are their own index, from 0 on.
fn index_along(graph: &Graph, id: NodeId) -> Option<usize> {
    let node = graph.node(id);
    match &node.op {
        Op::Iota { dim } => Some(*dim),
        Op::Cast(_) => index_along(graph, node.operands[0]),
        Op::Broadcast => {
            let along = index_along(graph, node.operands[0])?;
            let before = &graph.node(node.operands[0]).shape;
            (before[along] == node.shape[along]).then_some(along)
        }
        Op::Reshape => {
            let before = &graph.node(node.operands[0]).shape;
            let along = index_along(graph, node.operands[0])?;
            let long = |shape: &[usize]| -> Vec<usize> {
                (0..shape.len()).filter(|&dim| shape[dim] > 1).collect()
            };
            let (old, new) = (long(before), long(&node.shape));
            let extents = |shape: &[usize], dims: &[usize]| -> Vec<usize> {
                dims.iter().map(|&dim| shape[dim]).collect()
            };
            let is_padded = extents(before, &old) == extents(&node.shape, &new);
            let at = old.iter().position(|&dim| dim == along)?;
            is_padded.then(|| new[at])
        }
        _ => None,
    }
}

/// The operand of a transposition of the last two dimensions.
fn turned_back(graph: &Graph, id: NodeId) -> Option<NodeId> {
    let node = graph.node(id);
    let Op::Transpose { order } = &node.op else {
        return None;
    };
    let rank = order.len();
    let mut exchanged: Vec<usize> = (0..rank).collect();
    exchanged.swap(rank.checked_sub(2)?, rank - 1);
    (*order == exchanged).then(|| node.operands[0])
}

/// The scores of a softmax over the last dimension.
fn scores_of<const WIDEST: usize, const SPLITS: bool>(
    graph: &Graph,
    found: &Match,
) -> Option<Scores> {
    let exponentials = graph.node(found[EXPONENTIALS]);
    let last = exponentials.shape.len().checked_sub(1)?;
    let is_over_rows = |id: NodeId| {
        let reduced = graph.node(graph.node(id).operands[0]);
        matches!(&reduced.op, Op::Reduce { dims, .. } if *dims == [last])
    };
    let below = graph.node(exponentials.operands[0]);
    let weights = graph.node(found[WEIGHTS]);
    let is_softmax = is_over_rows(below.operands[1]) && is_over_rows(weights.operands[1]);
    Scores::of(graph, found[SCORES], WIDEST, SPLITS).filter(|_| is_softmax)
}

/// Adds a value of an attention.
fn add(
    graph: &mut Graph,
    scores: &Scores,
    part: AttentionPart,
    like: &Node,
    operands: &[NodeId],
) -> NodeId {
    let node = Node {
        op: scores.op(part),
        operands: operands.to_vec(),
        ..like.clone()
    };
    graph.append(node, None)
}

/// Weighted values; and, for gradients, the logarithms of rows' sums.
fn forward<const WIDEST: usize, const SPLITS: bool>(
    graph: &mut Graph,
    node: &Node,
    found: &Match,
) -> Option<NodeId> {
    let scores = scores_of::<WIDEST, SPLITS>(graph, found)?;
    let Scores { q, k, .. } = scores;
    let is_short = *node.shape.last()? <= WIDEST;
    if !is_short {
        return None;
    }
    let mut row = node.clone();
    *row.shape.last_mut()? = if SPLITS { 2 } else { 1 };
    add(graph, &scores, AttentionPart::LogSumExp, &row, &[q, k]);
    let operands = [q, k, found[VALUES]];
    Some(add(graph, &scores, AttentionPart::Out, node, &operands))
}

/// An attention of the forward pass: the results that gradients are computed from.
struct Forward {
    v: NodeId,
    out: NodeId,
    log_sum_exp: NodeId,
}

impl Forward {
    /// The attention with these scores, and these values if they are known.
    fn of(graph: &Graph, scores: &Scores, v: Option<NodeId>) -> Option<Forward> {
        let find = |part: AttentionPart, is: &dyn Fn(&[NodeId]) -> bool| {
            let op = scores.op(part);
            graph.find_node(|node| node.op == op && is(&node.operands))
        };
        let with = [scores.q, scores.k];
        let is_out =
            |operands: &[NodeId]| operands[..2] == with && v.is_none_or(|v| operands[2] == v);
        let out = find(AttentionPart::Out, &is_out)?;
        Some(Forward {
            v: graph.node(out).operands[2],
            out,
            log_sum_exp: find(AttentionPart::LogSumExp, &|operands| operands == with)?,
        })
    }
}

/// `weights^T grad_out`
fn grad_v<const WIDEST: usize, const SPLITS: bool>(
    graph: &mut Graph,
    node: &Node,
    found: &Match,
) -> Option<NodeId> {
    turned_back(graph, node.operands[0])?;
    let scores = scores_of::<WIDEST, SPLITS>(graph, found)?;
    let forward = Forward::of(graph, &scores, None)?;
    add_gradient(
        graph,
        node,
        &scores,
        &forward,
        found[GRAD_OUT],
        AttentionPart::GradV,
    )
}

/// The gradient by the scores times `k`, or its transpose times `q`.
fn grad<const WIDEST: usize, const SPLITS: bool>(
    graph: &mut Graph,
    node: &Node,
    [of_products, factor]: [NodeId; 2],
    part: AttentionPart,
) -> Option<NodeId> {
    if part == AttentionPart::GradK {
        turned_back(graph, node.operands[0])?;
    }
    let (of_scores, scale, _) = unscaled(graph, of_products, 0.0)?;
    let found = OF_SCORES.find(graph, of_scores)?;
    let scores = scores_of::<WIDEST, SPLITS>(graph, &found)?;
    turned_back(graph, graph.node(found[GRAD_WEIGHTS]).operands[1])?;
    let other = match part {
        AttentionPart::GradK => scores.q,
        _ => scores.k,
    };
    if other != factor || scale != scores.scale {
        return None;
    }
    let forward = Forward::of(graph, &scores, Some(found[VALUES]))?;
    add_gradient(graph, node, &scores, &forward, found[GRAD_OUT], part)
}

fn add_gradient(
    graph: &mut Graph,
    node: &Node,
    scores: &Scores,
    forward: &Forward,
    grad_out: NodeId,
    part: AttentionPart,
) -> Option<NodeId> {
    let of_rows = match scores.by_library {
        true => forward.out,
        false => {
            let products = graph.mul(grad_out, forward.out).ok()?;
            let last = graph.node(products).shape.len().checked_sub(1)?;
            graph.reduce(Reduction::Sum, products, &[last]).ok()?
        }
    };
    let operands = [
        scores.q,
        scores.k,
        forward.v,
        grad_out,
        forward.log_sum_exp,
        of_rows,
    ];
    Some(add(graph, scores, part, node, &operands))
}
