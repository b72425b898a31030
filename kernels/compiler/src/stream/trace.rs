//! The other way round: the operations that an eager framework runs for a graph.

use std::collections::{BTreeMap, BTreeSet};

use super::definition::Definition;
use crate::graph::{Graph, NodeId, Op};

/// One operation of an eager framework, by nodes of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The operation.
    pub definition: Definition,
    /// The nodes that it reads: given tensors, or results of earlier calls.
    pub operands: Vec<NodeId>,
    /// The nodes whose values it makes.
    pub results: Vec<NodeId>,
}

/// The operations that an eager framework runs for the values of some nodes, in order: one for each
/// group, and one for each node without a group. `backward` is the first node of the backward pass.
///
/// Numbers, indices, and views of them are parts of the operations that read them. Views of other
/// values are operations: a dispatcher is told of them, and launches nothing
/// ([`Definition::is_view`]).
pub fn trace(graph: &Graph, wanted: &[NodeId], backward: Option<NodeId>) -> Vec<Call> {
    trace_in_order(graph, wanted, backward, &|_| 0)
}

/// As [`trace`]: of the operations that can come next, the one whose nodes have the least `rank`.
pub(crate) fn trace_in_order(
    graph: &Graph,
    wanted: &[NodeId],
    backward: Option<NodeId>,
    rank: &dyn Fn(NodeId) -> usize,
) -> Vec<Call> {
    let tracing = Tracing::new(graph, wanted);
    let mut calls = vec![];
    for unit in tracing.units(rank) {
        let (definition, operands, results) = tracing.call(&unit);
        let is_backward = backward.is_some_and(|first| unit[unit.len() - 1] >= first);
        calls.push(Call {
            definition: match is_backward {
                true => definition.backward(),
                false => definition,
            },
            operands,
            results,
        });
    }
    calls
}

/// For each node, whether one of `wanted` is it, is computed from it or comes after it.
fn needed(graph: &Graph, wanted: &[NodeId]) -> Vec<bool> {
    let mut needed = vec![false; graph.nodes().len()];
    for node in wanted {
        needed[node.index()] = true;
    }
    for id in graph.ids().rev() {
        if needed[id.index()] {
            for operand in &graph.node(id).operands {
                needed[operand.index()] = true;
            }
        }
    }
    needed
}

struct Tracing<'a> {
    graph: &'a Graph,
    users: Vec<Vec<NodeId>>,
    needed: Vec<bool>,
    wanted: BTreeSet<NodeId>,
    /// For each node, whether it has no operation of its own, but is part of those that read it.
    is_part: Vec<bool>,
}

impl<'a> Tracing<'a> {
    fn new(graph: &'a Graph, wanted: &[NodeId]) -> Self {
        let mut is_part: Vec<bool> = vec![];
        let set: BTreeSet<NodeId> = wanted.iter().copied().collect();
        for id in graph.ids() {
            let node = graph.node(id);
            let mut sources = node.sources().iter();
            is_part.push(
                node.group.is_none()
                    && !set.contains(&id)
                    && match node.op {
                        Op::Constant(_) | Op::Iota { .. } => true,
                        Op::Barrier => false,
                        _ => node.op.is_view() && sources.all(|source| is_part[source.index()]),
                    },
            );
        }
        Tracing {
            graph,
            users: graph.users(),
            needed: needed(graph, wanted),
            wanted: set,
            is_part,
        }
    }

    fn is_traced(&self, id: NodeId) -> bool {
        let is_given = matches!(self.graph.node(id).op, Op::Input(_));
        self.needed[id.index()] && !self.is_part[id.index()] && !is_given
    }

    /// Nodes by operation, ascending, in an order in which they can run: the first of those that
    /// can comes next.
    fn units(&self, rank: &dyn Fn(NodeId) -> usize) -> Vec<Vec<NodeId>> {
        let mut of_group: BTreeMap<_, Vec<NodeId>> = BTreeMap::new();
        let mut units: Vec<Vec<NodeId>> = vec![];
        for id in self.graph.ids().filter(|&id| self.is_traced(id)) {
            match self.graph.node(id).group {
                Some(group) => of_group.entry(group).or_default().push(id),
                None => units.push(vec![id]),
            }
        }
        units.extend(of_group.into_values());
        units.sort_unstable_by_key(|unit| unit[0]);
        self.ordered(&units, rank).unwrap_or_else(|| {
            // Some group reads what is computed from it.
            let nodes = self.graph.ids().filter(|&id| self.is_traced(id));
            nodes.map(|id| vec![id]).collect()
        })
    }

    /// Units in an order in which they can run, if there is one.
    fn ordered(
        &self,
        units: &[Vec<NodeId>],
        rank: &dyn Fn(NodeId) -> usize,
    ) -> Option<Vec<Vec<NodeId>>> {
        let mut unit_of: BTreeMap<NodeId, usize> = BTreeMap::new();
        for (position, unit) in units.iter().enumerate() {
            unit_of.extend(unit.iter().map(|id| (*id, position)));
        }
        let mut waits = vec![0; units.len()];
        let mut readers = vec![BTreeSet::new(); units.len()];
        for (position, unit) in units.iter().enumerate() {
            let operands = unit.iter().flat_map(|&id| &self.graph.node(id).operands);
            let sources = operands.filter_map(|operand| unit_of.get(operand));
            for &source in sources.filter(|source| **source != position) {
                waits[position] += usize::from(readers[source].insert(position));
            }
        }
        let ranks = units
            .iter()
            .map(|unit| unit.iter().map(|&id| rank(id)).max());
        let ranks: Vec<Option<usize>> = ranks.collect();
        let all = 0..units.len();
        let ready = all.filter(|&unit| waits[unit] == 0);
        let mut ready: BTreeSet<_> = ready.map(|unit| (ranks[unit], unit)).collect();
        let mut order = vec![];
        while let Some((_, position)) = ready.pop_first() {
            order.push(units[position].clone());
            for &reader in &readers[position] {
                waits[reader] -= 1;
                if waits[reader] == 0 {
                    ready.insert((ranks[reader], reader));
                }
            }
        }
        (order.len() == units.len()).then_some(order)
    }

    /// The definition of some nodes as one operation, with operands and results.
    fn call(&self, unit: &[NodeId]) -> (Definition, Vec<NodeId>, Vec<NodeId>) {
        let mut nodes: BTreeSet<NodeId> = unit.iter().copied().collect();
        let mut operands = vec![];
        let mut open: Vec<NodeId> = unit.to_vec();
        let mut at = 0;
        while at < open.len() {
            let node = open[at];
            at += 1;
            for &operand in &self.graph.node(node).operands {
                if nodes.contains(&operand) || operands.contains(&operand) {
                    continue;
                }
                match self.is_part[operand.index()] {
                    true => {
                        nodes.insert(operand);
                        open.push(operand);
                    }
                    false => operands.push(operand),
                }
            }
        }
        let is_result = |id: &&NodeId| {
            let users = &self.users[id.index()];
            let mut outside = users.iter().filter(|user| !nodes.contains(user));
            self.wanted.contains(*id) || outside.any(|user| self.needed[user.index()])
        };
        let results: Vec<NodeId> = unit.iter().filter(is_result).copied().collect();
        let nodes: Vec<NodeId> = nodes.into_iter().collect();
        let definition = Definition::part(self.graph, &nodes, operands.clone(), &results);
        (definition, operands, results)
    }
}
