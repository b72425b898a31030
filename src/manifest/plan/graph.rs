//! The plan as a graph of tasks and their dependencies.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::graph::{DiGraph, NodeIndex};

use super::Plan;

/// One step of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Compile the kernel at this position of [`Plan::kernels`].
    Compile(u32),
    /// Measure the block at this position of [`Plan::blocks`].
    Measure(u32),
    /// All blocks of the case at this position of the manifest are measured.
    CaseDone(u16),
    /// Write the tables and exports of a run. Plots are `sweeper report`'s.
    Tables,
}

/// The graph of a plan: an edge leads from a step to one that waits for it.
pub fn graph(plan: &Plan<'_>) -> DiGraph<Step, ()> {
    let mut graph = DiGraph::new();
    let kernels: Vec<NodeIndex> = (0..plan.kernels.len() as u32)
        .map(|kernel| graph.add_node(Step::Compile(kernel)))
        .collect();
    let cases: Vec<NodeIndex> = (0..plan.manifest().cases.len() as u16)
        .map(|case| graph.add_node(Step::CaseDone(case)))
        .collect();
    for (number, block) in plan.blocks.iter().enumerate() {
        let measure = graph.add_node(Step::Measure(number as u32));
        let all = plan.kernels_of(block, block.points.iter().copied());
        let uses: BTreeSet<NodeIndex> = all.map(|kernel| kernels[kernel as usize]).collect();
        let mut of_cases: BTreeMap<u16, ()> = BTreeMap::new();
        for point in block
            .points
            .iter()
            .map(|&index| &plan.points[index as usize])
        {
            of_cases.insert(point.point.case, ());
        }
        for kernel in uses {
            graph.add_edge(kernel, measure, ());
        }
        for case in of_cases.into_keys() {
            graph.add_edge(measure, cases[usize::from(case)], ());
            for &needed in &plan.manifest().cases[usize::from(case)].needs {
                graph.add_edge(cases[needed], measure, ());
            }
        }
    }
    let tables = graph.add_node(Step::Tables);
    for &case in &cases {
        graph.add_edge(case, tables, ());
    }
    graph
}
