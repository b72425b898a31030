//! Plans of all policies compute the value of the graph.

mod barrier;
mod bf16;
mod concatenate;
mod in_place;
mod pairs;
mod interpret;
mod passes;
mod random;

use proptest::prelude::*;

use super::plan::Plan;
use super::{Policy, Request, Watcher, passes};
use crate::graph::{Binary, Graph, NodeId, Op, Reduction, Unary, differentiate, evaluate};
use sweeper_program::tensor::{Dtype, Tensor, Tensors};
use sweeper_program::workload::{Phase, Target};
use sweeper_program::{Precision, Role, check};

const POLICIES: [Policy; 3] = [Policy::Primitive, Policy::Eager, Policy::Compiled];

fn plan(graph: &Graph, backward: Option<NodeId>, phase: Phase, policy: Policy) -> Plan {
    plan_on(&Target::Cpu, graph, backward, phase, policy)
}

fn plan_on(
    target: &Target,
    graph: &Graph,
    backward: Option<NodeId>,
    phase: Phase,
    policy: Policy,
) -> Plan {
    let request = Request {
        graph,
        backward,
        phase,
        policy,
        target,
        canonical: &[],
        precision: Precision::F32,
        by_library: false,
    };
    passes(&request, Watcher::default()).unwrap_or_else(|refusal| panic!("{policy:?}: {refusal}"))
}

fn cuda() -> Target {
    Target::Cuda {
        arch: "sm_90a".to_owned(),
    }
}

/// Whether an element jumps where inputs change by less than they are rounded: the derivative of
/// an absolute value near zero, say, for which roundings decide between two right values.
fn jumps(graph: &Graph, inputs: &Tensors, (name, at): (&str, usize), expected: f64) -> bool {
    (1..8u32).any(|round| {
        let mut moved = inputs.clone();
        for tensor in moved.values_mut().filter(|one| one.dtype() == Dtype::F32) {
            let values = check::as_f64(tensor).into_owned().into_iter().zip(0u32..);
            let values = values.map(|(value, element)| {
                let by = f64::from((element * 31 + round * 17) % 7) - 3.0;
                (value + by * 2e-7) as f32
            });
            *tensor = Tensor::f32(tensor.shape().to_vec(), values.collect());
        }
        let values = evaluate(graph, &moved).unwrap();
        let value = check::elements(&values[name]).nth(at).unwrap();
        (value - expected).abs() > 1e-4 * (1.0 + expected.abs())
    })
}

/// Checks that a plan's kernels yield the values of the graph's nodes.
fn check(graph: &Graph, inputs: &Tensors, plan: &Plan, what: &str) {
    let expected = evaluate(graph, inputs).unwrap();
    barrier::assert_in_order(plan, what);
    for (name, found) in interpret::interpret(plan, inputs) {
        let expected = check::elements(&expected[&name]);
        for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
            let close = (found - expected).abs() <= 1e-4 * (1.0 + expected.abs());
            assert!(
                close || jumps(graph, inputs, (&name, at), expected),
                "{what}: {name}[{at}] is {found}, not {expected}\n{graph}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn all_policies_mean_what_the_graph_means(seed in any::<u64>(), size in 1usize..24) {
        let graph = random::graph(seed, size);
        let inputs = random::inputs(&graph, seed);
        for policy in POLICIES {
            let plan = plan(&graph, None, Phase::Forward, policy);
            check(&graph, &inputs, &plan, &format!("{policy:?} of {seed} {size}"));
        }
    }

    #[test]
    fn all_policies_mean_what_gradients_mean(seed in any::<u64>(), size in 1usize..16) {
        let (graph, backward) = random::with_gradients(random::graph(seed, size));
        let inputs = random::inputs(&graph, seed);
        for (policy, phase) in POLICIES.into_iter().flat_map(|policy| {
            [Phase::Backward, Phase::Both].map(|phase| (policy, phase))
        }) {
            let plan = plan(&graph, Some(backward), phase, policy);
            check(&graph, &inputs, &plan, &format!("{policy:?} {phase} of {seed} {size}"));
        }
    }

    /// Nothing reads a given tensor after its next value has taken its memory.
    #[test]
    fn updates_in_place_mean_what_graphs_mean(seed in any::<u64>(), size in 1usize..16) {
        let graph = random::with_updates(random::graph(seed, size), seed);
        let inputs = random::inputs(&graph, seed);
        for target in [Target::Cpu, cuda()] {
            for policy in POLICIES {
                let plan = plan_on(&target, &graph, None, Phase::Forward, policy);
                check(&graph, &inputs, &plan, &format!("{policy:?} of {seed} {size} on {target:?}"));
            }
        }
    }

    /// Totals are added up in the launches that leave their parts there.
    #[test]
    fn plans_for_gpus_mean_what_graphs_mean(seed in any::<u64>(), size in 1usize..16) {
        let (graph, backward) = random::with_gradients(random::graph(seed, size));
        let inputs = random::inputs(&graph, seed);
        for phase in Phase::ALL {
            let plan = plan_on(&cuda(), &graph, Some(backward), phase, Policy::Compiled);
            check(&graph, &inputs, &plan, &format!("{phase} on a GPU of {seed} {size}"));
        }
    }
}
