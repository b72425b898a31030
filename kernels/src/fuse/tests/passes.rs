//! What single passes do, on graphs made for them.

use super::{POLICIES, plan};
use crate::fuse::{Policy, Request, program};
use crate::graph::{Convolution, Graph, NodeId, Reduction, Unary, differentiate};
use crate::program::{Kernel, Precision, Program, Role};
use crate::tensor::Dtype;
use crate::workload::{Phase, Refusal, Target};

fn given(graph: &mut Graph, name: &str, shape: &[usize], role: Role) -> NodeId {
    graph.input(name, shape, Dtype::F32, role).unwrap()
}

fn request<'a>(graph: &'a Graph, backward: Option<NodeId>, phase: Phase) -> Request<'a> {
    Request {
        graph,
        backward,
        phase,
        policy: Policy::Compiled,
        target: &Target::Cpu,
        canonical: &[],
        precision: Precision::F32,
    }
}

/// A layer norm and its gradients.
fn layernorm(shape: &[usize]) -> (Graph, NodeId) {
    let mut graph = Graph::new();
    let last = shape[shape.len() - 1];
    let x = given(&mut graph, "x", shape, Role::Input);
    let gamma = given(&mut graph, "gamma", &[last], Role::Parameter);
    let beta = given(&mut graph, "beta", &[last], Role::Parameter);
    let out = graph.layernorm(x, gamma, beta, 1e-5).unwrap();
    graph.output("out", out, Role::Output);
    let seed = given(&mut graph, "grad_out", shape, Role::Input);
    let by = [x, gamma, beta];
    let backward = differentiate(&mut graph, &[(out, Some(seed))], &by).unwrap();
    for (at, gradient) in backward.gradients.into_iter().enumerate() {
        graph.output(format!("grad{at}"), gradient, Role::Gradient);
    }
    (graph, backward.from)
}

fn saved_bytes(program: &Program) -> u64 {
    let bytes = program.memory_by_role();
    bytes.get(&Role::Saved).copied().unwrap_or(0)
}

#[test]
fn only_rows_are_kept_for_the_backward_pass() {
    let (graph, backward) = layernorm(&[4, 8, 64]);
    let program = program(&request(&graph, Some(backward), Phase::Backward)).unwrap();
    assert_eq!(saved_bytes(&program), 2 * 4 * 8 * 4);
    let mut graph = Graph::new();
    let x = given(&mut graph, "x", &[16, 16], Role::Input);
    let out = graph.gelu_tanh(x).unwrap();
    let seed = given(&mut graph, "grad_out", &[16, 16], Role::Input);
    let backward = differentiate(&mut graph, &[(out, Some(seed))], &[x]).unwrap();
    graph.output("grad_x", backward.gradients[0], Role::Gradient);
    let program = super::super::program(&request(&graph, Some(backward.from), Phase::Backward));
    let program = program.unwrap();
    assert_eq!(saved_bytes(&program), 0);
    assert!(program.prologue.is_empty(), "{:?}", program.prologue);
}

#[test]
fn kernels_do_not_depend_on_sizes() {
    let sources = |shape: &[usize]| {
        let (graph, backward) = layernorm(shape);
        let program = program(&request(&graph, Some(backward), Phase::Both)).unwrap();
        let sources = program.compiled().cloned();
        sources.collect::<Vec<_>>()
    };
    assert_eq!(sources(&[4, 8, 20]), sources(&[7, 3, 333]));
}

#[test]
fn views_that_can_not_be_read_are_copied() {
    let mut graph = Graph::new();
    let x = given(&mut graph, "x", &[6, 8], Role::Input);
    let across = graph.transpose(x, &[1, 0]).unwrap();
    // Neither rows nor columns of the result lie within one column of `x`.
    let mixed = graph.reshape(across, &[12, 4]).unwrap();
    let out = graph.reduce(Reduction::Sum, mixed, &[1]).unwrap();
    let plain = graph.unary(Unary::Exp, across).unwrap();
    graph.output("out", out, Role::Output);
    graph.output("plain", plain, Role::Output);
    let plan = plan(&graph, None, Phase::Forward, Policy::Primitive);
    assert_eq!(plan.kept, [mixed].into());
}

#[test]
fn what_parameters_alone_decide_is_computed_once() {
    let mut graph = Graph::new();
    let x = given(&mut graph, "x", &[2, 3, 8, 8], Role::Input);
    let w = given(&mut graph, "w", &[4, 3, 3, 3], Role::Parameter);
    let scale = given(&mut graph, "scale", &[4, 1, 1], Role::Parameter);
    let shift = given(&mut graph, "shift", &[4, 1, 1], Role::Parameter);
    let convolution = Convolution {
        stride: 1,
        padding: 1,
    };
    let out = graph.conv2d(x, w, convolution).unwrap();
    let out = graph.mul(out, scale).unwrap();
    let out = graph.add(out, shift).unwrap();
    graph.output("out", out, Role::Output);
    let made = program(&request(&graph, None, Phase::Forward)).unwrap();
    assert_eq!((made.prologue.len(), made.steps.len()), (1, 2));
    let cuda = Target::Cuda {
        arch: "sm_90a".to_owned(),
    };
    let request = Request {
        target: &cuda,
        ..request(&graph, None, Phase::Forward)
    };
    let made = program(&request).unwrap();
    assert_eq!((made.prologue.len(), made.steps.len()), (1, 1));
    let bias = |kernel: &Kernel| match kernel {
        Kernel::Library(crate::program::Library::Conv2d(call)) => call.has_bias,
        _ => false,
    };
    assert!(made.kernels.iter().any(bias));
}

#[test]
fn what_can_not_be_done_is_refused() {
    let mut graph = Graph::new();
    let x = given(&mut graph, "x", &[4, 4], Role::Input);
    let out = graph.matmul(x, x).unwrap();
    graph.output("out", out, Role::Output);
    let bf16 = Request {
        precision: Precision::Bf16,
        ..request(&graph, None, Phase::Forward)
    };
    let reason = "products in bf16 are computed on GPUs only".to_owned();
    assert_eq!(program(&bf16), Err(Refusal::Unavailable(reason)));
    let reason = "the graph has no backward pass".to_owned();
    let refused = program(&request(&graph, None, Phase::Backward));
    assert_eq!(refused, Err(Refusal::Undefined(reason)));
}

#[test]
fn results_may_be_anything() {
    let mut graph = Graph::new();
    let x = given(&mut graph, "x", &[4, 6], Role::Input);
    let across = graph.transpose(x, &[1, 0]).unwrap();
    let number = graph.constant(3.0);
    let numbers = graph.broadcast(number, &[5]).unwrap();
    let flat = graph.reshape(x, &[24]).unwrap();
    let twice = graph.scale(x, 3.0).unwrap();
    for (at, node) in [x, across, numbers, flat, twice, twice]
        .into_iter()
        .enumerate()
    {
        graph.output(format!("out{at}"), node, Role::Output);
    }
    let inputs = super::random::inputs(&graph, 1);
    for policy in POLICIES {
        let plan = plan(&graph, None, Phase::Forward, policy);
        super::check(&graph, &inputs, &plan, "results");
        let request = Request {
            policy,
            ..request(&graph, None, Phase::Forward)
        };
        program(&request).unwrap().validate().unwrap();
    }
}
