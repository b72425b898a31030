//! Tensors with the elements of each pair exchanged.

use super::{POLICIES, check, cuda, plan_on};
use crate::fuse::Policy;
use crate::graph::{Graph, NodeId};
use sweeper_program::Role;
use sweeper_program::inputs::InputKey;
use sweeper_program::tensor::{Dtype, Tensor};
use sweeper_program::workload::{Phase, Target};

/// The elements of the last dimension, from `x`, each pair of them exchanged.
fn exchanged(graph: &mut Graph, x: NodeId) -> NodeId {
    let last = graph.node(x).shape.len() - 1;
    let extent = graph.node(x).shape[last];
    let mut moved = |from: usize| {
        let part = graph.slice(x, last, from, 2, extent / 2).unwrap();
        graph.unslice(part, last, 1 - from, 2, extent).unwrap()
    };
    let (second, first) = (moved(1), moved(0));
    graph.add(second, first).unwrap()
}

/// `x a + exchanged(f(x) b)` of rows, where `b` may lie across.
fn turned(is_across: bool) -> Graph {
    let mut graph = Graph::new();
    let [x, a] = ["x", "a"].map(|name| {
        let given = graph.input(name, &[3, 5, 8], Dtype::F32, Role::Input);
        given.unwrap()
    });
    let b = match is_across {
        true => {
            let b = graph.input("b", &[8, 5], Dtype::F32, Role::Input).unwrap();
            graph.transpose(b, &[1, 0]).unwrap()
        }
        false => graph.input("b", &[5, 8], Dtype::F32, Role::Input).unwrap(),
    };
    let along = graph.mul(x, a).unwrap();
    let scaled = graph.mul(x, b).unwrap();
    let across = exchanged(&mut graph, scaled);
    let out = graph.add(along, across).unwrap();
    graph.output("out", out, Role::Output);
    graph
}

#[test]
fn pairs_mean_what_their_views_mean() {
    for is_across in [false, true] {
        let graph = turned(is_across);
        let given = graph.given().iter().map(|given| graph.node(given.node));
        let inputs = given.zip(["x", "a", "b"]).map(|(node, name)| {
            let values = InputKey([1; 32]).stream(name).normal(node.elements(), 1.0);
            (name.to_owned(), Tensor::f32(node.shape.clone(), values))
        });
        let inputs = inputs.collect();
        for target in [Target::Cpu, cuda()] {
            for policy in POLICIES {
                let plan = plan_on(&target, &graph, None, Phase::Forward, policy);
                check(&graph, &inputs, &plan, &format!("{policy:?} {is_across}"));
            }
        }
    }
}

/// One kernel loads each tensor twice, one of them exchanged, and looks nothing up.
#[test]
fn pairs_are_exchanged_where_they_are_columns() {
    for (is_across, is_exchanged) in [(false, true), (true, false)] {
        let graph = turned(is_across);
        let plan = plan_on(&cuda(), &graph, None, Phase::Forward, Policy::Compiled);
        let kernels = plan.kernels();
        assert_eq!(kernels.len(), 1);
        let cluster = &plan.clusters[kernels[0]];
        let outputs = plan.outputs(&cluster.tasks, &kernels);
        let loops = plan.loops(&cluster.members(), &outputs).unwrap();
        let mut operands = loops.nest.operands.iter();
        assert_eq!(operands.any(|operand| operand.swaps_pairs), is_exchanged);
        let mut memory = loops.memory.iter();
        assert_eq!(memory.all(|memory| memory.index_step == 0), is_exchanged);
    }
}
