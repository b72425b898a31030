//! Operations of an eager framework as fragments of graphs, each known by a number.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::graph::{Graph, GroupId, Node, NodeId, Op};
use sweeper_program::Role;
use sweeper_program::tensor::Dtype;

/// The number of a [`Definition`] in one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Kind(pub u32);

impl Kind {
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One operation of an eager framework: the nodes that one call of it computes, with dtypes and
/// concrete shapes. It is a graph whose given tensors are the operands, by position, and whose
/// results are those of the operation, by position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    graph: Graph,
    is_backward: bool,
}

impl Definition {
    /// The operation that a graph computes. Names of its inputs and results do not matter, their
    /// order does.
    pub fn new(graph: &Graph) -> Self {
        let nodes: Vec<NodeId> = graph.ids().collect();
        let given: Vec<NodeId> = graph.given().iter().map(|given| given.node).collect();
        let results: Vec<NodeId> = graph.outputs().iter().map(|output| output.node).collect();
        Definition::part(graph, &nodes, given, &results)
    }

    /// The operation of some nodes of a graph, ascending, which read `operands` and no other node
    /// outside.
    pub(super) fn part(
        graph: &Graph,
        nodes: &[NodeId],
        operands: Vec<NodeId>,
        results: &[NodeId],
    ) -> Self {
        let mut own = Graph::new();
        let mut stands_for = BTreeMap::new();
        for (position, &operand) in operands.iter().enumerate() {
            let node = graph.node(operand);
            let input = input(&mut own, position.to_string(), node, Role::Input);
            stands_for.insert(operand, input);
        }
        copy(graph, nodes, (&mut own, None), &mut stands_for);
        for (position, result) in results.iter().enumerate() {
            own.output(position.to_string(), stands_for[result], Role::Output);
        }
        Definition {
            graph: own,
            is_backward: false,
        }
    }

    /// Says that the operation is one of a backward pass, or of a step after it, as a framework's
    /// automatic differentiation knows. A compiler may keep or compute again what a backward pass
    /// reads, and does not merge it with equal operations before it.
    #[must_use]
    pub fn backward(mut self) -> Self {
        self.is_backward = true;
        self
    }

    /// Whether the operation is one of a backward pass.
    pub fn is_backward(&self) -> bool {
        self.is_backward
    }

    /// The graph of the operation: its given tensors are the operands, its outputs the results.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// How many operands there are.
    pub fn operands(&self) -> usize {
        self.graph.given().len()
    }

    /// How many results there are.
    pub fn results(&self) -> usize {
        self.graph.outputs().len()
    }

    /// Shape and type of an operand.
    pub fn operand(&self, position: usize) -> (&[usize], Dtype) {
        let node = self.graph.node(self.graph.given()[position].node);
        (&node.shape, node.dtype)
    }

    /// Shape and type of a result.
    pub fn result(&self, position: usize) -> (&[usize], Dtype) {
        let node = self.graph.node(self.graph.outputs()[position].node);
        (&node.shape, node.dtype)
    }

    /// Whether the operation only reads an operand in another way: an eager framework launches
    /// nothing for it.
    pub fn is_view(&self) -> bool {
        let is_free =
            |node: &Node| node.op.is_view() || matches!(node.op, Op::Input(_) | Op::Constant(_));
        self.graph.nodes().iter().all(is_free)
    }

    /// The operation in words, such as `layernorm` or `add`.
    pub fn name(&self) -> String {
        match self.graph.groups().first() {
            Some(group) => group.clone(),
            None => {
                let last = self.graph.outputs().last();
                last.map_or_else(String::new, |output| {
                    self.graph.node(output.node).op.name().to_owned()
                })
            }
        }
    }

    /// A digest that equal definitions have in all streams and runs.
    pub fn digest(&self) -> [u8; 32] {
        self.family_digest(|extent| extent)
    }

    /// A digest that definitions have in common whose extents have equal canonical ones, and that
    /// are equal otherwise.
    pub fn family_digest(&self, canonical: impl Fn(usize) -> usize) -> [u8; 32] {
        Sha256::digest(self.text(&canonical)).into()
    }

    /// Equal for definitions alone that are equal but for extents with equal canonical ones.
    pub(super) fn text(&self, canonical: &dyn Fn(usize) -> usize) -> String {
        let Definition { graph, is_backward } = self;
        let mut nodes = graph.nodes().to_vec();
        for extent in nodes.iter_mut().flat_map(|node| &mut node.shape) {
            *extent = canonical(*extent);
        }
        let groups = format!("{:?}", graph.groups());
        format!("{is_backward} {nodes:?} {groups} {:?}", graph.outputs())
    }
}

/// Adds a given tensor with the shape and type of a node.
pub(super) fn input(into: &mut Graph, name: String, like: &Node, role: Role) -> NodeId {
    let node = Node {
        op: Op::Input(name),
        operands: vec![],
        shape: like.shape.clone(),
        dtype: like.dtype,
        group: None,
    };
    into.append(node, Some(role))
}

/// Adds nodes of a graph to another one, operands as `stands_for` has them, where the new nodes
/// are entered: to a group of that graph, or else each group becomes a new one.
pub(super) fn copy(
    from: &Graph,
    nodes: &[NodeId],
    (into, whole): (&mut Graph, Option<GroupId>),
    stands_for: &mut BTreeMap<NodeId, NodeId>,
) {
    let mut groups: BTreeMap<GroupId, GroupId> = BTreeMap::new();
    for &id in nodes {
        if stands_for.contains_key(&id) {
            continue;
        }
        let mut node = from.node(id).clone();
        for operand in &mut node.operands {
            *operand = stands_for[operand];
        }
        let own = node.group.filter(|_| whole.is_none()).map(|group| {
            let name = &from.groups()[group.0 as usize];
            *groups.entry(group).or_insert_with(|| into.new_group(name))
        });
        node.group = whole.or(own);
        let new = into.append(node, None);
        stands_for.insert(id, new);
    }
}

/// All definitions of a stream.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    all: Vec<Arc<Definition>>,
    by_text: BTreeMap<String, Kind>,
}

impl Definitions {
    /// The kind of a definition: one for all equal ones.
    pub(super) fn intern(&mut self, definition: &Definition) -> Kind {
        let next = Kind(self.all.len() as u32);
        let text = definition.text(&|extent| extent);
        let kind = *self.by_text.entry(text).or_insert(next);
        if kind == next {
            self.all.push(Arc::new(definition.clone()));
        }
        kind
    }

    /// # Panics
    /// If the kind is one of another stream.
    pub(super) fn get(&self, kind: Kind) -> &Arc<Definition> {
        &self.all[kind.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Unary;

    fn scaled(factor: f64, shape: &[usize], name: &str) -> Definition {
        let mut graph = Graph::new();
        let x = graph.input(name, shape, Dtype::F32, Role::Input).unwrap();
        let y = graph.scale(x, factor).unwrap();
        graph.output(name, y, Role::Output);
        Definition::new(&graph)
    }

    #[test]
    fn equal_definitions_have_one_kind() {
        let mut definitions = Definitions::default();
        let first = definitions.intern(&scaled(2.0, &[3], "x"));
        assert_eq!(definitions.intern(&scaled(2.0, &[3], "other")), first);
        let others = [
            scaled(3.0, &[3], "x"),
            scaled(2.0, &[4], "x"),
            scaled(0.0, &[3], "x"),
            scaled(-0.0, &[3], "x"),
            scaled(2.0, &[3], "x").backward(),
        ];
        let mut kinds = vec![first];
        kinds.extend(others.map(|other| definitions.intern(&other)));
        let distinct: std::collections::BTreeSet<Kind> = kinds.iter().copied().collect();
        assert_eq!(distinct.len(), kinds.len());
    }

    #[test]
    fn a_definition_knows_its_tensors() {
        let mut graph = Graph::new();
        let x = graph.input("x", &[2, 3], Dtype::F32, Role::Input).unwrap();
        let turned = graph.transpose_last(x).unwrap();
        graph.output("y", turned, Role::Output);
        let view = Definition::new(&graph);
        assert!(view.is_view());
        assert_eq!(view.operand(0), (&[2, 3][..], Dtype::F32));
        assert_eq!(view.result(0), (&[3, 2][..], Dtype::F32));
        let exp = graph.unary(Unary::Exp, turned).unwrap();
        graph.output("z", exp, Role::Output);
        let both = Definition::new(&graph);
        assert_eq!((both.operands(), both.results()), (1, 2));
        assert!(!both.is_view());
        assert_eq!(both.name(), "exp");
    }
}
