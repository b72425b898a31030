//! Adding nodes: equal nodes are one, and arithmetic that does nothing is left out where it is
//! asked for.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::discriminant;

use super::op::Op;
use super::simplify;
use super::{Given, Graph, Node, NodeId};
use sweeper_program::Role;

impl Graph {
    /// The id of the next node.
    pub(crate) fn next(&self) -> NodeId {
        NodeId(self.nodes.len() as u32)
    }

    /// Adds a node that the caller knows to be well-formed, or finds an equal node in the same
    /// group and pass; `role` is the role of a given tensor.
    pub(crate) fn append(&mut self, node: Node, role: Option<Role>) -> NodeId {
        if self.simplifies
            && let Some(simpler) = simplify::simpler(self, &node)
        {
            return simpler;
        }
        let same = self.by_hash.entry(hash(&node)).or_default();
        let mut candidates = same.iter().rev().take_while(|id| **id >= self.pass);
        if let Some(&equal) = candidates.find(|id| is_equal(&self.nodes[id.index()], &node)) {
            return equal;
        }
        let id = NodeId(self.nodes.len() as u32);
        same.push(id);
        self.is_of_parameters.push(match node.op {
            Op::Input(_) => role == Some(Role::Parameter),
            _ => {
                let mut operands = node.operands.iter();
                operands.all(|operand| self.is_of_parameters[operand.index()])
            }
        });
        self.nodes.push(node);
        if let Some(role) = role {
            self.given.push(Given { node: id, role });
        }
        id
    }

    /// The first node that satisfies `is`, of any pass.
    pub(crate) fn find_node(&self, is: impl Fn(&Node) -> bool) -> Option<NodeId> {
        self.ids().find(|&id| is(self.node(id)))
    }

    /// Begins a pass: later nodes are not found among the nodes before it. A backward pass that
    /// computes a value again does so on purpose.
    pub(crate) fn begin_pass(&mut self) -> NodeId {
        self.pass = self.next();
        self.pass
    }

    /// Whether a node depends on parameters and constants alone: it has one value in all calls.
    pub(crate) fn is_of_parameters(&self, id: NodeId) -> bool {
        self.is_of_parameters[id.index()]
    }

    /// A graph without nodes and with the groups of this one.
    pub(crate) fn emptied(&self) -> Graph {
        Graph {
            groups: self.groups.clone(),
            ..Graph::default()
        }
    }

    /// A copy whose nodes `add` adds: it gets each node of this graph in turn, with operands that
    /// are nodes of the copy, and yields the node in its place. Also the places of all nodes.
    pub(crate) fn copied(
        &self,
        mut add: impl FnMut(&mut Graph, NodeId, Node) -> NodeId,
    ) -> (Graph, Vec<NodeId>) {
        let mut copy = self.emptied();
        let mut stands_for: Vec<NodeId> = Vec::new();
        for id in self.ids() {
            let mut node = self.node(id).clone();
            for operand in &mut node.operands {
                *operand = stands_for[operand.index()];
            }
            let new = add(&mut copy, id, node);
            stands_for.push(new);
        }
        for output in self.outputs() {
            let node = stands_for[output.node.index()];
            match output.updates {
                None => copy.output(output.name.clone(), node, output.role),
                Some(given) => {
                    let given = stands_for[given.index()];
                    copy.update(output.name.clone(), node, given, output.role);
                }
            }
        }
        (copy, stands_for)
    }

    /// The role of a given tensor's memory.
    pub(crate) fn role_of(&self, id: NodeId) -> Option<Role> {
        // In the order of nodes, as they were added.
        let at = self.given.binary_search_by_key(&id, |given| given.node);
        at.ok().map(|at| self.given[at].role)
    }
}

/// A number that equal nodes share, and hardly any others.
fn hash(node: &Node) -> u64 {
    let mut hasher = DefaultHasher::new();
    (
        discriminant(&node.op),
        &node.operands,
        &node.shape,
        node.group,
    )
        .hash(&mut hasher);
    match &node.op {
        Op::Input(name) => name.hash(&mut hasher),
        Op::Constant(number) => number.to_bits().hash(&mut hasher),
        _ => {}
    }
    hasher.finish()
}

/// Equal in every bit: 0 and -0 are different numbers.
fn is_equal(a: &Node, b: &Node) -> bool {
    let is_same_number = match (&a.op, &b.op) {
        (Op::Constant(a), Op::Constant(b)) => a.to_bits() == b.to_bits(),
        _ => true,
    };
    is_same_number && a == b
}

#[cfg(test)]
mod tests {
    use super::super::GraphError;
    use super::*;
    use sweeper_program::tensor::Dtype;

    fn with_input() -> Result<(Graph, NodeId), GraphError> {
        let mut graph = Graph::new();
        let x = graph.input("x", &[2, 3], Dtype::F32, Role::Input)?;
        Ok((graph, x))
    }

    #[test]
    fn equal_nodes_are_one() {
        let (mut graph, x) = with_input().unwrap();
        let once = graph.scale(x, 0.5).unwrap();
        let nodes = graph.nodes().len();
        assert_eq!(graph.scale(x, 0.5).unwrap(), once);
        assert_eq!(graph.nodes().len(), nodes);
        assert_ne!(graph.scale(x, 0.25).unwrap(), once);
        // Another order of operands is another node, and so is another shape.
        let [a, b] = [graph.mul(x, once), graph.mul(once, x)].map(Result::unwrap);
        assert_ne!(a, b);
        let [a, b] = [[6, 1], [1, 6]].map(|shape| graph.reshape(x, &shape).unwrap());
        assert_ne!(a, b);
        assert_ne!(graph.constant(0.0), graph.constant(-0.0));
    }

    /// Kernels of an eager framework stay apart, and so do passes.
    #[test]
    fn groups_and_passes_share_nothing() {
        let (mut graph, x) = with_input().unwrap();
        let square = |graph: &mut Graph| graph.mul(x, x).unwrap();
        let alone = square(&mut graph);
        let grouped = graph.group("a", square);
        assert_ne!(alone, grouped);
        assert_ne!(graph.group("a", square), grouped);
        assert_eq!(square(&mut graph), alone);
        graph.begin_pass();
        assert_ne!(square(&mut graph), alone);
    }

    #[test]
    fn what_depends_on_parameters_alone_is_known() {
        let (mut graph, x) = with_input().unwrap();
        let w = graph.input("w", &[3], Dtype::F32, Role::Parameter).unwrap();
        let scaled = graph.scale(w, 2.0).unwrap();
        let product = graph.mul(x, scaled).unwrap();
        let found = [x, w, scaled, product].map(|id| graph.is_of_parameters(id));
        assert_eq!(found, [false, true, true, false]);
    }
}
