//! A graph from the operations of a path alone.

use std::collections::BTreeMap;

use super::definition::{copy, input};
use super::path::{Path, Reference};
use super::repeats::Repeat;
use crate::graph::{Graph, GroupId, NodeId};
use sweeper_program::Role;

/// A path as a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct PathGraph {
    /// The computation of one iteration. Results that are carried are next values of what came
    /// through their slots ([`Graph::update`]).
    pub graph: Graph,
    /// The first node of the backward pass, where the definitions of operations say that there is
    /// one.
    pub backward: Option<NodeId>,
    /// For each slot, the name of the input.
    pub inputs: Vec<String>,
    /// For each result, the name of the output.
    pub outputs: Vec<String>,
}

impl Path {
    /// The graph of one iteration.
    pub fn graph(&self) -> PathGraph {
        self.grouped(Graph::new(), |_| None)
    }

    /// The graph of one iteration in which each repetition of some parts is a group:
    /// [`crate::fuse::Policy::Eager`] fuses within parts, and leaves all else as it runs operation
    /// by operation.
    pub fn graph_by_parts(&self, repeats: &[Repeat]) -> PathGraph {
        let mut graph = Graph::new();
        let mut groups = vec![None; self.operations().len()];
        for operations in repeats.iter().flat_map(|repeat| repeat.repetitions()) {
            groups[operations].fill(Some(graph.new_group("part")));
        }
        self.grouped(graph, |operation| groups[operation])
    }

    /// The graph of one iteration, added to a graph without nodes. Operations with a group of its
    /// are parts of that one.
    fn grouped(&self, mut graph: Graph, group: impl Fn(usize) -> Option<GroupId>) -> PathGraph {
        let mut values: BTreeMap<Reference, NodeId> = BTreeMap::new();
        let mut backward = None;
        for (position, operation) in (0u32..).zip(self.operations()) {
            let part = operation.definition.graph();
            if backward.is_none() && operation.definition.is_backward() {
                backward = Some(graph.begin_pass());
            }
            let mut stands_for = BTreeMap::new();
            for (given, reference) in part.given().iter().zip(&operation.operands) {
                let value = *values.entry(*reference).or_insert_with(|| {
                    let Reference::Slot(slot) = *reference else {
                        unreachable!("operands are made before they are read");
                    };
                    let role = self.slots()[slot as usize].role;
                    input(&mut graph, slot_name(slot), part.node(given.node), role)
                });
                stands_for.insert(given.node, value);
            }
            let nodes: Vec<NodeId> = part.ids().collect();
            let group = group(position as usize);
            copy(part, &nodes, (&mut graph, group), &mut stands_for);
            for (result, output) in (0..).zip(part.outputs()) {
                let own = Reference::Made {
                    operation: position,
                    result,
                };
                values.insert(own, stands_for[&output.node]);
            }
        }
        let mut outputs = vec![];
        for (position, result) in self.results().iter().enumerate() {
            let own = Reference::Made {
                operation: result.operation,
                result: result.result,
            };
            let (name, node) = (format!("result{position}"), values[&own]);
            match result.carried {
                Some(slot) => {
                    let role = self.slots()[slot as usize].role;
                    let given = values[&Reference::Slot(slot)];
                    graph.update(name.clone(), node, given, role);
                }
                None => graph.output(name.clone(), node, Role::Output),
            }
            outputs.push(name);
        }
        PathGraph {
            graph,
            backward,
            inputs: (0..self.slots().len() as u32).map(slot_name).collect(),
            outputs,
        }
    }
}

fn slot_name(slot: u32) -> String {
    format!("slot{slot}")
}
