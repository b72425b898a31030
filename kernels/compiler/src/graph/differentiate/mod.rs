//! The backward pass: gradients by the chain rule, from the results to the nodes that they depend
//! on.
//!
//! Gradients are written the way a good library writes them: from tensors that the forward pass
//! must keep anyway (a softmax's result, a layer norm's row statistics), recomputing values that
//! cost less time than memory. Layers have a rule as a whole ([`layer`]), all other nodes one by
//! operation ([`rules`]).
//!
//! At points where a function has no derivative one is chosen: 0 for `|x|` at 0; for the maximum
//! and the minimum of two equal operands, the second operand has the whole gradient (so `max(x, 0)`
//! has 0 at 0, as in frameworks); equal greatest elements of a reduction share it. Comparisons,
//! casts and indices have no gradient.

mod layer;
mod rules;
mod terms;

use std::collections::BTreeMap;

pub(super) use layer::{GELU_CUBIC, Layer};

use super::op::Op;
use super::{Graph, GraphError, GroupId, NodeId};
use sweeper_program::tensor::Dtype;

/// The nodes that [`differentiate`] added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backward {
    /// The first node of the backward pass: nodes before it are the forward pass.
    pub from: NodeId,
    /// Gradients, in the order of `by`; zeros by a node that no result depends on.
    pub gradients: Vec<NodeId>,
}

/// Adds the backward pass: gradients of the sum of `<node, seed>` over `of`, by each of `by`. A
/// seed has its node's shape; without one it is all ones.
///
/// Nodes for a forward node in a group are in one group of their own, called `<name>_backward`;
/// other nodes are in no group, and neither are sums of gradients from several users.
///
/// # Errors
/// A seed of another shape; nodes that are not [`Dtype::F32`].
pub fn differentiate(
    graph: &mut Graph,
    of: &[(NodeId, Option<NodeId>)],
    by: &[NodeId],
) -> Result<Backward, GraphError> {
    for &(node, seed) in of {
        check_seed(graph, node, seed)?;
    }
    for &node in by {
        check_type(graph, node)?;
    }
    let from = graph.begin_pass();
    graph.simplifies = true;
    let gradients = gradients(graph, from, of, by);
    graph.simplifies = false;
    Ok(Backward {
        from,
        gradients: gradients?,
    })
}

/// The gradients of [`differentiate`], of nodes before `from`.
fn gradients(
    graph: &mut Graph,
    from: NodeId,
    of: &[(NodeId, Option<NodeId>)],
    by: &[NodeId],
) -> Result<Vec<NodeId>, GraphError> {
    let mut pass = Pass {
        is_needed: depending(graph, by),
        gradients: vec![None; from.index()],
        groups: BTreeMap::new(),
        graph,
    };
    for &(node, seed) in of {
        let seed = match seed {
            Some(seed) => seed,
            None => pass.graph.filled_like(1.0, node)?,
        };
        pass.give(node, seed)?;
    }
    for node in (0..from.0).rev().map(NodeId) {
        pass.visit(node)?;
    }
    let found = std::mem::take(&mut pass.gradients);
    let gradient = |&node: &NodeId| match found[node.index()] {
        Some(gradient) => Ok(gradient),
        None => graph.filled_like(0.0, node),
    };
    by.iter().map(gradient).collect()
}

/// The forward nodes, before `from`, whose values the backward pass reads and that must be kept for
/// it. Given tensors and numbers are there anyway; a view is kept as the node that it views. Where
/// the graph has results, only nodes that they need are counted.
pub fn saved(graph: &Graph, from: NodeId) -> Vec<NodeId> {
    let needed = match graph.outputs().is_empty() {
        true => vec![true; graph.nodes().len()],
        false => graph.needed(),
    };
    let mut saved: Vec<NodeId> = graph
        .ids()
        .filter(|&id| id >= from && needed[id.index()])
        .flat_map(|id| graph.node(id).sources().iter().copied())
        .filter(|&operand| operand < from)
        .map(|operand| graph.viewed(operand))
        .filter(|&operand| {
            let op = &graph.node(operand).op;
            !matches!(op, Op::Input(_) | Op::Constant(_) | Op::Iota { .. })
        })
        .collect();
    saved.sort_unstable();
    saved.dedup();
    saved
}

fn check_type(graph: &Graph, operand: NodeId) -> Result<(), GraphError> {
    match graph.node(operand).dtype {
        Dtype::F32 => Ok(()),
        found => Err(GraphError::Type {
            op: "gradient",
            node: graph.next(),
            operand,
            found,
            expected: Dtype::F32,
        }),
    }
}

fn check_seed(graph: &Graph, node: NodeId, seed: Option<NodeId>) -> Result<(), GraphError> {
    check_type(graph, node)?;
    let Some(seed) = seed else {
        return Ok(());
    };
    check_type(graph, seed)?;
    let [one, other] = [node, seed].map(|node| graph.node(node).shape.clone());
    match one == other {
        true => Ok(()),
        false => Err(GraphError::Shapes {
            op: "gradient",
            node: graph.next(),
            one,
            other,
            reason: "a seed has the shape of what it is for".to_owned(),
        }),
    }
}

/// For each node, whether it depends on any of `by` through real numbers.
fn depending(graph: &Graph, by: &[NodeId]) -> Vec<bool> {
    let mut depends = vec![false; graph.nodes().len()];
    for id in graph.ids() {
        let node = graph.node(id);
        let mut operands = node.sources().iter();
        depends[id.index()] = by.contains(&id)
            || node.dtype == Dtype::F32 && operands.any(|operand| depends[operand.index()]);
    }
    depends
}

/// The pass on its way from the last node to the first.
struct Pass<'a> {
    graph: &'a mut Graph,
    /// For each forward node, whether its gradient is needed.
    is_needed: Vec<bool>,
    /// For each forward node, the gradient as far as it is known.
    gradients: Vec<Option<NodeId>>,
    /// The groups of the backward pass, by the groups of the forward pass.
    groups: BTreeMap<GroupId, GroupId>,
}

impl Pass<'_> {
    fn is_needed(&self, node: NodeId) -> bool {
        self.is_needed[node.index()]
    }

    /// Adds to the gradient of a node.
    fn give(&mut self, node: NodeId, gradient: NodeId) -> Result<(), GraphError> {
        debug_assert_eq!(self.graph.node(node).shape, self.graph.node(gradient).shape);
        if !self.is_needed(node) {
            return Ok(());
        }
        let sum = match self.gradients[node.index()] {
            None => gradient,
            Some(held) => {
                let [one, other] = [held, gradient].map(|node| self.graph.node(node).group);
                let open = self.graph.open;
                self.graph.open = one.filter(|_| one == other);
                let sum = self.graph.add(held, gradient);
                self.graph.open = open;
                sum?
            }
        };
        self.gradients[node.index()] = Some(sum);
        Ok(())
    }

    /// Passes the gradient of a node, which is complete, on to the node's operands.
    fn visit(&mut self, node: NodeId) -> Result<(), GraphError> {
        let Some(gradient) = self.gradients[node.index()] else {
            return Ok(());
        };
        self.graph.open = self.group_of(node);
        let visited = match self.graph.layers.get(&node).cloned() {
            Some(layer) => self.visit_layer(&layer, node, gradient),
            None => self.visit_node(node, gradient),
        };
        self.graph.open = None;
        visited
    }

    /// The group of the backward pass for a forward node.
    fn group_of(&mut self, node: NodeId) -> Option<GroupId> {
        let forward = self.graph.node(node).group?;
        let groups = &mut self.graph.groups;
        Some(*self.groups.entry(forward).or_insert_with(|| {
            let name = format!("{}_backward", groups[forward.0 as usize]);
            groups.push(name);
            GroupId(groups.len() as u32 - 1)
        }))
    }
}

#[cfg(test)]
mod tests;
