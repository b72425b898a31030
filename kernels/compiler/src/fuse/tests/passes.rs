//! Single passes on graphs made for them.

use super::{POLICIES, cuda, plan, plan_on};
use crate::fuse::{Policy, Request, Watcher, passes, program};
use crate::graph::{Binary, Convolution, Graph, NodeId, Op, Reduction, Unary, differentiate};
use sweeper_program::tensor::Dtype;
use sweeper_program::workload::{Phase, Refusal, Target};
use sweeper_program::{Kernel, Precision, Program, Role, Step};

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
        by_library: false,
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
    let (graph, backward) = layernorm(&[8, 8, 64]);
    let program = program(&request(&graph, Some(backward), Phase::Backward)).unwrap();
    assert_eq!(saved_bytes(&program), 2 * 8 * 8 * 4);
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
fn what_is_one_number_of_a_row_is_not_added_up() {
    let sums = |graph: &Graph, backward| {
        let plan = plan(graph, backward, Phase::Backward, Policy::Compiled);
        let tasks = plan.tasks.iter().map(|task| plan.graph.node(task.node));
        let sums = tasks.filter(|node| {
            matches!(
                node.op,
                Op::Reduce {
                    reduction: Reduction::Sum,
                    ..
                }
            ) && node.elements() == 6
        });
        sums.count()
    };
    // The sum of exponentials stays, the forward pass's.
    let mut graph = Graph::new();
    let x = given(&mut graph, "x", &[6, 9], Role::Input);
    let labels = graph
        .input("labels_6", &[6], Dtype::I64, Role::Input)
        .unwrap();
    let loss = graph.cross_entropy(x, labels).unwrap();
    let backward = differentiate(&mut graph, &[(loss, None)], &[x]).unwrap();
    graph.output("grad_x", backward.gradients[0], Role::Gradient);
    assert_eq!(sums(&graph, Some(backward.from)), 1);
    let inputs = super::random::inputs(&graph, 1);
    let made = plan(
        &graph,
        Some(backward.from),
        Phase::Backward,
        Policy::Compiled,
    );
    super::check(&graph, &inputs, &made, "one hot");
}

#[test]
fn what_is_no_one_hot_is_added_up() {
    // Values that vary along the sum; something else than zero; a choice along another dimension.
    for varies in 0..3 {
        let mut graph = Graph::new();
        let x = given(
            &mut graph,
            "x",
            &[6, if varies == 0 { 9 } else { 1 }],
            Role::Input,
        );
        let x = graph.broadcast(x, &[6, 9]).unwrap();
        let labels = graph
            .input("labels_6", &[6, 1], Dtype::I64, Role::Input)
            .unwrap();
        let places = graph.iota(&[6, 9], usize::from(varies != 2)).unwrap();
        let mask = graph.binary(Binary::Equal, places, labels).unwrap();
        let other = graph.constant(if varies == 1 { 1.0 } else { 0.0 });
        let chosen = graph.select(mask, x, other).unwrap();
        let out = graph.reduce(Reduction::Sum, chosen, &[1]).unwrap();
        graph.output("out", out, Role::Output);
        let made = plan(&graph, None, Phase::Forward, Policy::Compiled);
        let mut tasks = made.tasks.iter().map(|task| &made.graph.node(task.node).op);
        assert!(tasks.any(|op| matches!(op, Op::Reduce { .. })), "{varies}");
        let inputs = super::random::inputs(&graph, 1);
        super::check(&graph, &inputs, &made, "no one hot");
    }
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
    let cuda = cuda();
    let request = Request {
        target: &cuda,
        ..request(&graph, None, Phase::Forward)
    };
    let made = program(&request).unwrap();
    assert_eq!((made.prologue.len(), made.steps.len()), (1, 1));
    let bias = |kernel: &Kernel| match kernel {
        Kernel::Library(sweeper_program::Library::Conv2d(call)) => call.has_bias,
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

/// A graph of updates of parameters of all sizes by given gradients.
fn updates(count: usize) -> Graph {
    let mut graph = Graph::new();
    for at in 0..count {
        let shape = [1 + at % 3, 2 + at * at];
        let parameter = given(&mut graph, &format!("w{at}"), &shape, Role::Parameter);
        let gradient = given(&mut graph, &format!("g{at}"), &shape, Role::Input);
        let step = graph.scale(gradient, 0.1 + at as f64).unwrap();
        let after = graph.sub(parameter, step).unwrap();
        graph.output(format!("after{at}"), after, Role::Parameter);
    }
    graph
}

#[test]
fn updates_of_all_parameters_share_launches() {
    let graph = updates(60);
    let inputs = super::random::inputs(&graph, 3);
    super::check(
        &graph,
        &inputs,
        &plan(&graph, None, Phase::Forward, Policy::Compiled),
        "updates",
    );
    for target in [Target::Cpu, cuda()] {
        let of = |policy| {
            let request = Request {
                target: &target,
                policy,
                ..request(&graph, None, Phase::Forward)
            };
            program(&request).unwrap()
        };
        let compiled = of(Policy::Compiled);
        assert_eq!(compiled.steps.len(), 3);
        // One text for kernels with equal counts; the last group is smaller.
        let names: Vec<&str> = compiled.kernels.iter().map(Kernel::name).collect();
        assert!(names.len() <= 2, "{names:?}");
        for step in &compiled.steps {
            let Step::Launch { args, .. } = step else {
                panic!("{step:?}")
            };
            assert!(args.len() * 8 <= 4096, "{} arguments", args.len());
        }
        assert_eq!(of(Policy::Eager).steps.len(), 120);
    }
}

#[test]
fn what_is_waited_for_is_packed_with_nothing_later() {
    let mut graph = Graph::new();
    let x = given(&mut graph, "x", &[6, 8], Role::Input);
    let y = given(&mut graph, "y", &[3, 7], Role::Input);
    let first = graph.unary(Unary::Exp, x).unwrap();
    let turned = graph.transpose_last(first).unwrap();
    let product = graph.matmul(first, turned).unwrap();
    let last = graph.unary(Unary::Tanh, product).unwrap();
    let other = graph.unary(Unary::Sin, y).unwrap();
    graph.output("last", last, Role::Output);
    graph.output("other", other, Role::Output);
    let plan = plan(&graph, None, Phase::Forward, Policy::Compiled);
    let nodes = |at: &usize| {
        let tasks = plan.clusters[*at].tasks.iter();
        tasks.map(|&task| plan.tasks[task].node).collect::<Vec<_>>()
    };
    let groups = plan.horizontal.iter();
    let groups: Vec<Vec<_>> = groups
        .map(|group| group.kernels.iter().map(nodes).collect())
        .collect();
    assert_eq!(groups, [[[first], [other]]]);
    let inputs = super::random::inputs(&graph, 1);
    super::check(&graph, &inputs, &plan, "packs");
}

/// Gradients of 16 MiB each: two of them stay in a GPU's cache, none in a CPU's.
#[test]
fn what_no_cache_holds_is_not_kept_waiting() {
    let mut graph = Graph::new();
    for at in 0..4 {
        let [x, y] = ["x", "y"].map(|name| {
            let shape = [2048, 2048];
            given(&mut graph, &format!("{name}{at}"), &shape, Role::Input)
        });
        let product = graph.matmul(x, y).unwrap();
        let step = graph.scale(product, 0.1).unwrap();
        let after = graph.sub(x, step).unwrap();
        graph.output(format!("after{at}"), after, Role::Parameter);
    }
    let packs = |target: &Target| {
        let request = Request {
            target,
            ..request(&graph, None, Phase::Forward)
        };
        let plan = passes(&request, Watcher::default()).unwrap();
        let groups = plan.horizontal.iter();
        groups.map(|group| group.kernels.len()).collect::<Vec<_>>()
    };
    assert_eq!(packs(&cuda()), [2, 2]);
    assert_eq!(packs(&Target::Cpu), [0; 0]);
}

/// Nodes by kernel, for each total of a plan on a GPU.
fn totals(graph: &Graph, backward: Option<NodeId>, phase: Phase) -> Vec<[Vec<NodeId>; 2]> {
    let plan = plan_on(&cuda(), graph, backward, phase, Policy::Compiled);
    super::check(graph, &super::random::inputs(graph, 1), &plan, "totals");
    let nodes = |at: usize| {
        let tasks = plan.clusters[at].tasks.iter();
        tasks.map(|&task| plan.tasks[task].node).collect()
    };
    plan.single_passes
        .iter()
        .map(|total| total.map(nodes))
        .collect()
}

#[test]
fn totals_are_added_up_in_the_launch_that_leaves_their_parts() {
    let mut graph = Graph::new();
    let x = given(&mut graph, "x", &[6, 8], Role::Input);
    let y = given(&mut graph, "y", &[6, 8], Role::Input);
    let apart = graph.sub(x, y).unwrap();
    let square = graph.mul(apart, apart).unwrap();
    let sum = graph.reduce(Reduction::Sum, square, &[0, 1]).unwrap();
    let most = graph.reduce(Reduction::Max, apart, &[0, 1]).unwrap();
    let ratio = graph.binary(crate::graph::Binary::Sub, sum, most).unwrap();
    graph.output("square", square, Role::Output);
    graph.output("ratio", ratio, Role::Output);
    graph.output("most", most, Role::Output);
    assert_eq!(
        totals(&graph, None, Phase::Forward),
        [[vec![apart, square, sum, most], vec![sum, most, ratio]]]
    );
    let launches = |policy, target: &Target| {
        let request = Request {
            target,
            policy,
            ..request(&graph, None, Phase::Forward)
        };
        program(&request).unwrap().totals().launches
    };
    assert_eq!(launches(Policy::Compiled, &cuda()), 1);
    assert_eq!(launches(Policy::Compiled, &Target::Cpu), 2);
    assert_eq!(launches(Policy::Primitive, &cuda()), 7);
}

/// A full reduction of `x`, a kernel that needs it, and values that the second kernel needs of the
/// first one or of one after it.
#[test]
fn what_else_a_total_needs_has_to_be_there_before() {
    let mut graph = Graph::new();
    let x = given(&mut graph, "x", &[6, 8], Role::Input);
    let sine = graph.unary(Unary::Sin, x).unwrap();
    let sum = graph.reduce(Reduction::Sum, sine, &[0, 1]).unwrap();
    // A product needs all of `sine`, and the second kernel an element of the product.
    let turned = graph.transpose_last(sine).unwrap();
    let product = graph.matmul(sine, turned).unwrap();
    let corner = graph.slice(product, 0, 0, 1, 1).unwrap();
    let corner = graph.slice(corner, 1, 0, 1, 1).unwrap();
    let corner = graph.reshape(corner, &[]).unwrap();
    let both = graph.mul(sum, corner).unwrap();
    graph.output("both", both, Role::Output);
    assert_eq!(totals(&graph, None, Phase::Forward), [[[]; 2]; 0]);
    // An element of a value that the first kernel writes for others.
    let mut graph = Graph::new();
    let x = given(&mut graph, "x", &[6, 8], Role::Input);
    let rows = graph.reduce(Reduction::Max, x, &[1]).unwrap();
    let apart = graph.unary(Unary::Sin, rows).unwrap();
    let sum = graph.reduce(Reduction::Sum, apart, &[0]).unwrap();
    let first = graph.slice(rows, 0, 0, 1, 1).unwrap();
    let first = graph.reshape(first, &[]).unwrap();
    let both = graph.mul(sum, first).unwrap();
    graph.output("rows", rows, Role::Output);
    graph.output("both", both, Role::Output);
    assert_eq!(totals(&graph, None, Phase::Forward), [[[]; 2]; 0]);
}

#[test]
fn sums_over_rows_are_no_totals() {
    let (graph, backward) = layernorm(&[8, 8, 64]);
    assert_eq!(totals(&graph, Some(backward), Phase::Both), [[[]; 2]; 0]);
}

/// The second kernel of a full reduction needs an exponential, and the tangent a value of the first
/// kernel: in one launch they would wait for the reduction, and it for them.
#[test]
fn packs_do_not_wait_for_totals_that_wait_for_them() {
    let mut graph = Graph::new();
    let x = given(&mut graph, "x", &[6, 8], Role::Input);
    let y = given(&mut graph, "y", &[3, 7], Role::Input);
    let power = graph.unary(Unary::Exp, y).unwrap();
    let corner = graph.slice(power, 0, 0, 1, 1).unwrap();
    let corner = graph.slice(corner, 1, 0, 1, 1).unwrap();
    let sine = graph.unary(Unary::Sin, x).unwrap();
    let sum = graph.reduce(Reduction::Sum, sine, &[0, 1]).unwrap();
    let both = graph.mul(sum, corner).unwrap();
    let turned = graph.transpose_last(sine).unwrap();
    let product = graph.matmul(sine, turned).unwrap();
    let last = graph.unary(Unary::Tanh, product).unwrap();
    for (name, node) in [("power", power), ("both", both), ("last", last)] {
        graph.output(name, node, Role::Output);
    }
    assert_eq!(
        totals(&graph, None, Phase::Forward),
        [[vec![sine, sum], vec![sum, both]]]
    );
    let plan = plan_on(&cuda(), &graph, None, Phase::Forward, Policy::Compiled);
    assert_eq!(plan.horizontal, []);
}
