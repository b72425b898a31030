//! Barriers: readers of one are computed after its second operand, and apart from readers of its
//! first.

use super::{POLICIES, Policy, cuda, plan_on};
use crate::fuse::order::launches;
use crate::fuse::plan::Plan;
use crate::graph::{Graph, NodeId, Unary};
use sweeper_program::Role;
use sweeper_program::tensor::Dtype;
use sweeper_program::workload::{Phase, Target};

/// Asserts that all kernels are launched, each once, and those behind barriers in their order.
pub(super) fn assert_in_order(plan: &Plan, what: &str) {
    let mut done = vec![];
    for launch in launches(plan) {
        done.extend(&launch);
        for at in launch {
            let members = plan.clusters[at].members();
            let awaited = members.iter().flat_map(|&task| &plan.awaited[task]);
            let mut homes = awaited.filter_map(|&task| plan.home(task));
            assert!(homes.all(|home| done.contains(&home)), "{what}");
        }
    }
    done.sort_unstable();
    assert_eq!(done, plan.kernels(), "{what}");
}

fn input(graph: &mut Graph, name: &str) -> NodeId {
    graph
        .input(name, &[64, 64], Dtype::F32, Role::Input)
        .unwrap()
}

/// `tanh x`, and `tanh x` once more after a product of it.
#[test]
fn what_is_computed_again_is_not_computed_early() {
    let mut graph = Graph::new();
    let [x, w] = ["x", "w"].map(|name| input(&mut graph, name));
    let once = graph.unary(Unary::Tanh, x).unwrap();
    let product = graph.matmul(once, w).unwrap();
    assert_eq!(graph.unary(Unary::Tanh, x).unwrap(), once);
    let later = graph.barrier(x, product).unwrap();
    let again = graph.unary(Unary::Tanh, later).unwrap();
    assert_ne!(again, once);
    for (name, node) in [("product", product), ("again", again)] {
        graph.output(name, node, Role::Output);
    }
    for (policy, target) in POLICIES.into_iter().zip([Target::Cpu, cuda(), cuda()]) {
        let plan = plan_on(&target, &graph, None, Phase::Forward, policy);
        let kernels = launches(&plan).concat();
        let nodes = |&at: &usize| -> Vec<NodeId> {
            let tasks = plan.clusters[at].tasks.iter();
            tasks.map(|&task| plan.tasks[task].node).collect()
        };
        // The barrier itself is not a kernel.
        let found: Vec<Vec<NodeId>> = kernels.iter().map(nodes).collect();
        assert_eq!(found, [[once], [product], [again]], "{policy:?}");
    }
}

/// Two values behind barriers, of which one is after the other: no launch has both.
#[test]
fn what_is_behind_barriers_is_not_fused_horizontally() {
    let mut graph = Graph::new();
    let [x, y, z] = ["x", "y", "z"].map(|name| input(&mut graph, name));
    let first = graph.unary(Unary::Tanh, x).unwrap();
    graph.output("first", first, Role::Output);
    for (name, of) in [("together", y), ("apart", graph.barrier(z, first).unwrap())] {
        let of = graph.unary(Unary::Sin, of).unwrap();
        graph.output(name, of, Role::Output);
    }
    let plan = plan_on(&cuda(), &graph, None, Phase::Forward, Policy::Compiled);
    let launches = launches(&plan);
    assert_eq!(launches.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    assert_in_order(&plan, "horizontal");
}
