//! The values that are bf16 in memory where products are computed in it.
//!
//! One declaration for both sides: kernels may store these values so, and no others but factors of
//! products; and evaluations that round ([`super::Rounding`]) round them once more, so that the
//! tolerance follows.

use super::{AttentionPart, Graph, NodeId, Op};
use sweeper_program::Precision;

/// Whether a value may be bf16 in memory: a product of matrices that is not a result of the graph,
/// as frameworks have it between operations. Logits and gradients by parameters are results. Sums,
/// statistics and functions of such values are f32.
pub(crate) fn may_be_bf16(graph: &Graph, id: NodeId, precision: Precision) -> bool {
    let is_product = match graph.node(id).op {
        Op::Matmul => true,
        Op::Attention(attention) => match attention.part {
            AttentionPart::GradQ | AttentionPart::GradK | AttentionPart::GradV => true,
            // Gradients subtract the sum of the result times its gradient from each score of a row:
            // a rounded result would give all scores of the row one error, which does not average
            // out. Products have a copy in bf16.
            AttentionPart::Out => false,
            AttentionPart::LogSumExp => false,
        },
        _ => false,
    };
    let is_result = || {
        let outputs = graph.outputs().iter();
        outputs
            .map(|output| viewed(graph, output.node))
            .any(|node| node == id)
    };
    precision == Precision::Bf16 && is_product && !is_result()
}

/// The node that a node is a view of.
fn viewed(graph: &Graph, mut id: NodeId) -> NodeId {
    while graph.node(id).op.is_view() {
        id = graph.node(id).operands[0];
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use sweeper_program::Role;
    use sweeper_program::tensor::Dtype;

    #[test]
    fn products_between_operations_are_bf16() {
        let mut graph = Graph::new();
        let square = |graph: &mut Graph, name| graph.input(name, &[4, 4], Dtype::F32, Role::Input);
        let a = square(&mut graph, "a").unwrap();
        let inner = graph.matmul(a, a).unwrap();
        let sum = graph.add(inner, a).unwrap();
        let outer = graph.matmul(sum, a).unwrap();
        let turned = graph.transpose_last(outer).unwrap();
        graph.output("out", turned, Role::Output);
        let in_bf16 = |precision| -> Vec<NodeId> {
            let ids = graph.ids();
            ids.filter(|&id| may_be_bf16(&graph, id, precision))
                .collect()
        };
        assert_eq!(in_bf16(Precision::Bf16), [inner]);
        assert_eq!(in_bf16(Precision::Tf32), []);
        assert_eq!(in_bf16(Precision::F32), []);
    }
}
