//! Results of attention with the rows of all heads beside each other, (.., rows, heads, columns),
//! where readers exchange heads and rows: kernels write the rows there, and no copy is needed.

use std::collections::BTreeSet;

use crate::fuse::rewrite::{Whole, rewritten};
use crate::graph::{Attention, AttentionPart, NodeId, Op};

/// Has attentions whose readers exchange heads and rows yield them so.
pub(super) fn by_rows(whole: &Whole) -> Whole {
    let old = &whole.graph;
    let is_matrix = |id: NodeId| match old.node(id).op {
        Op::Attention(attention) => attention.part != AttentionPart::LogSumExp,
        _ => false,
    };
    let exchanged = old.ids().filter_map(|id| {
        let node = old.node(id);
        let operand = *node.operands.first()?;
        (is_exchange(&node.op) && is_matrix(operand)).then_some(operand)
    });
    let exchanged: BTreeSet<NodeId> = exchanged.collect();
    rewritten(old, whole.boundary, |graph, id, mut node| {
        match node.op {
            Op::Attention(attention) if exchanged.contains(&id) => {
                let mut beside = node.clone();
                beside.op = Op::Attention(Attention {
                    is_by_rows: true,
                    ..attention
                });
                let rank = beside.shape.len();
                beside.shape.swap(rank - 3, rank - 2);
                node.operands = vec![graph.append(beside, None)];
                let order = exchange(rank);
                node.op = Op::Transpose { order };
            }
            Op::Transpose { .. } if is_exchange(&node.op) => {
                let inner = graph.node(node.operands[0]);
                if is_exchange(&inner.op) {
                    return inner.operands[0];
                }
            }
            _ => {}
        }
        graph.append(node, old.role_of(id))
    })
}

/// The order of dimensions in which heads and rows are exchanged.
fn exchange(rank: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rank).collect();
    order.swap(rank - 3, rank - 2);
    order
}

fn is_exchange(op: &Op) -> bool {
    matches!(op, Op::Transpose { order } if order.len() > 2 && *order == exchange(order.len()))
}
