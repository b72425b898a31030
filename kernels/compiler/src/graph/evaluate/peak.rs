//! The memory that an evaluation takes, without doing it.

use super::{uses, with_sums_apart};
use crate::graph::{Graph, NodeId, Op};

/// Bytes of an element while graphs are evaluated: f64 or i64.
const ELEMENT_BYTES: u64 = 8;

/// The most bytes that values hold at one time while `wanted` are evaluated, with rounding or
/// without: nodes in their order, each value freed after its last use, with one value more for the
/// exact one beside the rounded one. A reshaped value counts as a copy: it is one where elements do
/// not lie in a row.
pub fn peak_bytes(graph: &Graph, wanted: &[NodeId]) -> u64 {
    let (graph, stands_for) = with_sums_apart(graph);
    let graph = &graph;
    let wanted: Vec<NodeId> = wanted.iter().map(|node| stands_for[node.index()]).collect();
    let mut uses = uses(graph, &wanted);
    let mut memory = Memory {
        owners: vec![0; graph.nodes().len()],
        holders: vec![0; graph.nodes().len()],
        held: 0,
    };
    let mut peak = 0;
    for id in graph.ids() {
        if uses[id.index()] == 0 {
            continue;
        }
        let node = graph.node(id);
        let own = ELEMENT_BYTES * node.elements() as u64;
        let owner = match (&node.op, node.operands.first()) {
            (op, Some(base)) if op.is_view() && !matches!(op, Op::Reshape) => {
                memory.owners[base.index()]
            }
            _ => id.index(),
        };
        memory.hold(id, owner, graph);
        peak = peak.max(memory.held + own);
        for operand in node.sources() {
            uses[operand.index()] -= 1;
            if uses[operand.index()] == 0 {
                memory.free(*operand, graph);
            }
        }
    }
    peak
}

/// Which values are held, and in whose memory.
struct Memory {
    /// The node in whose memory each node's value lies: views share that of their operand.
    owners: Vec<usize>,
    /// How many values lie in the memory of each node.
    holders: Vec<u32>,
    /// Bytes of all values that are held.
    held: u64,
}

impl Memory {
    fn hold(&mut self, id: NodeId, owner: usize, graph: &Graph) {
        self.owners[id.index()] = owner;
        if self.holders[owner] == 0 {
            self.held += bytes(graph, owner);
        }
        self.holders[owner] += 1;
    }

    fn free(&mut self, id: NodeId, graph: &Graph) {
        let owner = self.owners[id.index()];
        self.holders[owner] -= 1;
        if self.holders[owner] == 0 {
            self.held -= bytes(graph, owner);
        }
    }
}

fn bytes(graph: &Graph, index: usize) -> u64 {
    ELEMENT_BYTES * graph.nodes()[index].elements() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Unary;
    use sweeper_program::Role;
    use sweeper_program::tensor::Dtype;

    /// A value of a thousand elements.
    const BYTES: u64 = 8 * 1000;

    fn input(graph: &mut Graph, name: &str) -> NodeId {
        graph
            .input(name, &[10, 100], Dtype::F32, Role::Input)
            .unwrap()
    }

    #[test]
    fn values_of_a_chain_are_freed() {
        let mut graph = Graph::default();
        let mut last = input(&mut graph, "x");
        for _ in 0..20 {
            last = graph.unary(Unary::Exp, last).unwrap();
        }
        // The operand, the value, and the exact value beside the rounded one.
        assert_eq!(peak_bytes(&graph, &[last]), 3 * BYTES);
    }

    #[test]
    fn what_is_read_later_is_held_and_views_share_it() {
        let mut graph = Graph::default();
        let x = input(&mut graph, "x");
        let turned = graph.transpose_last(x).unwrap();
        let mut last = graph.unary(Unary::Exp, turned).unwrap();
        last = graph.unary(Unary::Tanh, last).unwrap();
        let back = graph.transpose_last(last).unwrap();
        let sum = graph.add(back, x).unwrap();
        // `x`, which is read at the end, and as above.
        assert_eq!(peak_bytes(&graph, &[sum]), 4 * BYTES);
        let unused = graph.unary(Unary::Exp, sum).unwrap();
        assert_eq!(peak_bytes(&graph, &[sum]), 4 * BYTES);
        assert_eq!(peak_bytes(&graph, &[sum, unused]), 4 * BYTES);
    }
}
