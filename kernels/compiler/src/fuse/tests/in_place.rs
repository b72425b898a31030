//! Results that take the memory of the tensors that they update.

use super::{POLICIES, check, cuda, plan_on, random};
use crate::fuse::{Policy, Request, program};
use crate::graph::{Graph, GraphError, NodeId, Reduction, Unary};
use sweeper_program::tensor::Dtype;
use sweeper_program::workload::{Phase, Target};
use sweeper_program::{Arg, Binding, Precision, Program, Role, Step};

/// The program of a graph with the given tensors `w` (6 x 6) and `g` (6 x 6), and `after.w`, the
/// next value of `w` that `add` yields.
fn updating(
    policy: Policy,
    target: &Target,
    add: impl Fn(&mut Graph, [NodeId; 2]) -> Result<NodeId, GraphError>,
) -> Program {
    let mut graph = Graph::new();
    let [w, g] = ["w", "g"].map(|name| {
        let given = graph.input(name, &[6, 6], Dtype::F32, Role::Parameter);
        given.unwrap()
    });
    let after = add(&mut graph, [w, g]).unwrap();
    graph.update("after.w", after, w, Role::Parameter);
    let request = Request {
        graph: &graph,
        backward: None,
        phase: Phase::Forward,
        policy,
        target,
        canonical: &[],
        precision: Precision::F32,
        by_library: false,
    };
    program(&request).unwrap()
}

/// Whether `after.w` is where `w` was; the bytes of all memory tell the same.
fn is_in_place(program: &Program) -> bool {
    let mut buffers = program.buffers.iter();
    let w = buffers.find(|buffer| buffer.name == "w").unwrap();
    let is_updated = matches!(&w.binding, Binding::Updated { result } if result == "after.w");
    let has_own = program
        .buffers
        .iter()
        .any(|buffer| buffer.name == "after.w");
    assert_ne!(is_updated, has_own);
    is_updated
}

/// Whether a program of each policy and target updates `w` in place.
fn all_in_place(add: impl Fn(&mut Graph, [NodeId; 2]) -> Result<NodeId, GraphError>) -> Vec<bool> {
    let targets = [Target::Cpu, cuda()];
    let each = targets
        .iter()
        .flat_map(|target| POLICIES.map(|policy| is_in_place(&updating(policy, target, &add))));
    let mut each: Vec<bool> = each.collect();
    each.dedup();
    each
}

/// `w - g / 2`
fn step(graph: &mut Graph, [w, g]: [NodeId; 2]) -> Result<NodeId, GraphError> {
    let half = graph.scale(g, 0.5)?;
    graph.sub(w, half)
}

#[test]
fn an_elementwise_next_value_takes_the_memory() {
    assert_eq!(all_in_place(step), [true]);
    let program = updating(Policy::Compiled, &Target::Cpu, step);
    assert_eq!(program.memory_bytes(), 2 * 36 * 4);
}

#[test]
fn what_reads_the_tensor_runs_before_or_keeps_its_memory() {
    // A product that needs no next value runs before, one that needs it would run after.
    let product_of_old = |graph: &mut Graph, [w, g]: [NodeId; 2]| {
        let product = graph.matmul(g, w)?;
        graph.output("product", product, Role::Output);
        step(graph, [w, g])
    };
    assert_eq!(all_in_place(product_of_old), [true]);
    let product_of_both = |graph: &mut Graph, [w, g]: [NodeId; 2]| {
        let after = step(graph, [w, g])?;
        let product = graph.matmul(after, w)?;
        graph.output("product", product, Role::Output);
        Ok(after)
    };
    assert_eq!(all_in_place(product_of_both), [false]);
    // The step has the lower number: without the memory in common it would run first.
    let later = |graph: &mut Graph, [w, g]: [NodeId; 2]| {
        let after = step(graph, [w, g])?;
        let product = graph.matmul(g, w)?;
        graph.output("product", product, Role::Output);
        Ok(after)
    };
    let program = updating(Policy::Compiled, &cuda(), later);
    assert!(is_in_place(&program));
    assert!(position(&program, "product").unwrap() < position(&program, "w").unwrap());
}

/// The first step that writes a buffer.
fn position(program: &Program, name: &str) -> Option<usize> {
    let writes = |step: &Step| match step {
        Step::Launch { args, .. } => args.iter().any(|arg| match arg {
            Arg::Write(view) => program.buffers[view.buffer.0].name == name,
            _ => false,
        }),
        _ => false,
    };
    program.steps.iter().position(writes)
}

/// What is updated frees what the step alone reads.
#[test]
fn updates_run_as_soon_as_they_can() {
    let later = |graph: &mut Graph, [w, g]: [NodeId; 2]| {
        let square = graph.matmul(g, g)?;
        graph.output("square", square, Role::Output);
        step(graph, [w, g])
    };
    for target in [Target::Cpu, cuda()] {
        let program = updating(Policy::Compiled, &target, later);
        assert!(position(&program, "w").unwrap() < position(&program, "square").unwrap());
    }
}

#[test]
fn other_elements_than_those_that_are_stored_keep_the_memory() {
    // One kernel that reads elements which other iterations store.
    let turned = |graph: &mut Graph, [w, g]: [NodeId; 2]| {
        let turned = graph.transpose(w, &[1, 0])?;
        graph.add(turned, g)
    };
    assert_eq!(all_in_place(turned), [false]);
    let first_row = |graph: &mut Graph, [w, g]: [NodeId; 2]| {
        let row = graph.slice(w, 0, 0, 1, 1)?;
        let rows = graph.broadcast(row, &[6, 6])?;
        let sum = graph.add(rows, w)?;
        graph.add(sum, g)
    };
    let program = updating(Policy::Compiled, &cuda(), first_row);
    assert!(!is_in_place(&program));
}

#[test]
fn a_tensor_that_is_a_result_keeps_its_memory() {
    let kept = |graph: &mut Graph, [w, g]: [NodeId; 2]| {
        graph.output("before", w, Role::Output);
        step(graph, [w, g])
    };
    assert_eq!(all_in_place(kept), [false]);
}

/// A kernel can't run between two that share a launch: after the one that reads the tensor that it
/// updates, and before the one that updates a tensor that it reads.
#[test]
fn nothing_runs_within_a_launch() {
    let mut graph = Graph::new();
    let [total, x] = [("total", 1), ("x", 64)].map(|(name, extent)| {
        let given = graph.input(name, &[extent, extent], Dtype::F32, Role::Parameter);
        given.unwrap()
    });
    let row = graph.slice(x, 0, 0, 1, 1).unwrap();
    let squares = graph.mul(row, row).unwrap();
    let sum = graph.reduce(Reduction::Sum, squares, &[0, 1]).unwrap();
    let scaled = graph.mul(x, total).unwrap();
    let next = graph.unary(Unary::Sin, scaled).unwrap();
    graph.update("after.total", sum, total, Role::Parameter);
    graph.update("after.x", next, x, Role::Parameter);
    let plan = plan_on(&cuda(), &graph, None, Phase::Forward, Policy::Compiled);
    assert_eq!(plan.single_passes.len(), 1);
    assert_eq!(plan.in_place.len(), 1);
    check(&graph, &random::inputs(&graph, 3), &plan, "two updates");
}
