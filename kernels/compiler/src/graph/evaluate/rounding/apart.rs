//! Sums of a product's elements with weights, which programs take in two ways.

use crate::graph::op::{Binary, Op, Reduction};
use crate::graph::{Graph, Node, NodeId};

use super::is_product;

/// The graph with each product whose elements are summed with weights once more, for that sum
/// alone, and the node in the place of each.
///
/// A program may put the weights into the product: the gradients of attention need the sum of a
/// row's weights times their gradients, and take it from the row's result (Dao et al.,
/// "FlashAttention", 2022, section 3.1). Rounding then moves the sum otherwise than the elements
/// that it is subtracted from: terms that cancel in one program leave their rounding in another.
/// The second product has factors of its own, which are rounded once more.
pub(in crate::graph) fn with_sums_apart(graph: &Graph) -> (Graph, Vec<NodeId>) {
    graph.copied(|copy, id, mut node| {
        // Equal nodes of two passes stay two.
        copy.begin_pass();
        if let Some(weighted) = weighted(copy, &node) {
            node.operands[0] = product_apart(copy, weighted);
        }
        copy.append(node, graph.role_of(id))
    })
}

/// The product of weights and of a product's elements, if a node is its sum.
fn weighted(graph: &Graph, node: &Node) -> Option<NodeId> {
    let is_sum = matches!(
        &node.op,
        Op::Reduce {
            reduction: Reduction::Sum,
            ..
        }
    );
    let operand = *node.operands.first().filter(|_| is_sum)?;
    let weighted = graph.node(operand);
    let mut factors = weighted.operands.iter().map(|&factor| graph.node(factor));
    let is_weighted = weighted.op == Op::Binary(Binary::Mul) && factors.any(is_product);
    is_weighted.then_some(operand)
}

/// A node once more, in which products are computed again from factors of their own.
fn product_apart(graph: &mut Graph, weighted: NodeId) -> NodeId {
    let again = |graph: &mut Graph, id: NodeId, operand: &dyn Fn(&mut Graph, NodeId) -> NodeId| {
        let mut node = graph.node(id).clone();
        for held in &mut node.operands {
            *held = operand(graph, *held);
        }
        graph.append(node, None)
    };
    let apart = |graph: &mut Graph, factor: NodeId| {
        let node = Node {
            op: Op::Barrier,
            operands: vec![factor, factor],
            ..graph.node(factor).clone()
        };
        graph.append(node, None)
    };
    again(
        graph,
        weighted,
        &|graph, factor| match is_product(graph.node(factor)) {
            true => again(graph, factor, &apart),
            false => factor,
        },
    )
}
