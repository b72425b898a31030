//! Programs of graphs: the effect of passes, and the agreement of results on devices with the
//! graph's value.

use std::path::Path;

use sweeper_compiler::fuse::{Policy, Request, explain, program};
use sweeper_compiler::graph::{
    Binary, Graph, NodeId, Op, Reduction, Unary, differentiate, evaluate,
};
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Dtype, Phase, Precision, Program, Role, Target, Tensor, Tensors, check};

/// Known operations and models.
mod graphs;
/// Random graphs, as the fuser's own tests make them.
#[path = "../../../kernels/compiler/src/fuse/tests/random.rs"]
mod random;

use crate::shim::{self, Mode};
use graphs::Named;

const POLICIES: [(Policy, &str); 3] = [
    (Policy::Primitive, "primitive"),
    (Policy::Eager, "eager"),
    (Policy::Compiled, "compiled"),
];

fn request<'a>(named: &'a Named, phase: Phase, policy: Policy, target: &'a Target) -> Request<'a> {
    Request {
        graph: &named.graph,
        backward: named.backward,
        phase,
        policy,
        target,
        canonical: &[],
        precision: Precision::F32,
        by_library: false,
    }
}

fn made(named: &Named, phase: Phase, policy: Policy, target: &Target) -> Program {
    let request = request(named, phase, policy, target);
    program(&request).unwrap_or_else(|refusal| panic!("{} {policy:?}: {refusal}", named.name))
}

fn cuda() -> Target {
    Target::Cuda {
        arch: "sm_90a".to_owned(),
    }
}

/// Names and shapes of a program's results.
fn specs(graph: &Graph, program: &Program) -> Vec<TensorSpec> {
    let is_result = |name: &str| {
        let mut buffers = program.buffers.iter();
        buffers.any(|buffer| buffer.result() == Some(name))
    };
    let outputs = graph
        .outputs()
        .iter()
        .filter(|output| is_result(&output.name));
    outputs
        .map(|output| TensorSpec {
            name: output.name.clone(),
            dtype: graph.node(output.node).dtype,
            shape: graph.node(output.node).shape.clone(),
        })
        .collect()
}

fn run_on_cpu(graph: &Graph, program: Program, inputs: &Tensors, threads: usize) -> Tensors {
    let specs = specs(graph, &program);
    crate::conformance::run_on_cpu(program, inputs, &specs, threads, 1)
}

fn check_outputs(found: &Tensors, expected: &Tensors, what: &str) {
    assert!(!found.is_empty(), "{what}: no results");
    for (name, found) in found {
        let expected: Vec<f64> = check::elements(&expected[name]).collect();
        let largest = expected
            .iter()
            .fold(1.0, |most: f64, value| most.max(value.abs()));
        for (at, (found, expected)) in check::elements(found).zip(expected).enumerate() {
            let close = (found - expected).abs() <= 2e-4 * largest;
            assert!(close, "{what}: {name}[{at}] is {found}, not {expected}");
        }
    }
}

/// Inputs; inputs with a name that asks for it are positive.
fn inputs_of(graph: &Graph) -> Tensors {
    let mut inputs = random::inputs(graph, 5);
    for (name, tensor) in &mut inputs {
        if let Some(values) = tensor.as_f32().filter(|_| name.starts_with("positive")) {
            let values = values.iter().map(|value| value.abs() + 0.5).collect();
            *tensor = Tensor::f32(tensor.shape(), values);
        }
    }
    inputs
}

#[test]
fn known_operations_are_right_on_a_cpu() {
    for named in graphs::all() {
        let inputs = inputs_of(&named.graph);
        let expected = evaluate(&named.graph, &inputs).unwrap();
        for (policy, word) in POLICIES {
            for &phase in named.phases() {
                let program = made(&named, phase, policy, &Target::Cpu);
                let found = run_on_cpu(&named.graph, program, &inputs, 2);
                check_outputs(&found, &expected, &format!("{} {word} {phase}", named.name));
            }
        }
    }
}

#[test]
fn random_graphs_are_right_on_a_cpu() {
    for seed in 0..6 {
        let (graph, backward) = random::with_gradients(random::graph(seed, 6));
        let inputs = random::inputs(&graph, seed);
        let expected = evaluate(&graph, &inputs).unwrap();
        let named = Named {
            name: "random",
            graph,
            backward: Some(backward),
        };
        for (policy, word) in POLICIES {
            let program = made(&named, Phase::Both, policy, &Target::Cpu);
            let found = run_on_cpu(&named.graph, program, &inputs, 1);
            check_outputs(&found, &expected, &format!("seed {seed} {word}"));
        }
    }
}

#[test]
fn known_operations_are_right_in_cuda() {
    if !shim::is_here() {
        return;
    }
    let target = cuda();
    for named in graphs::all() {
        let inputs = inputs_of(&named.graph);
        let expected = evaluate(&named.graph, &inputs).unwrap();
        let policies: &[Policy] = match named.name {
            "layernorm" | "mlp_step" => &[Policy::Eager, Policy::Compiled],
            _ => &[Policy::Compiled],
        };
        for &policy in policies {
            let phase = named.phases()[named.phases().len() - 1];
            let program = made(&named, phase, policy, &target);
            let specs = specs(&named.graph, &program);
            let found = shim::run(&program, &inputs, &specs, Mode::Fast);
            check_outputs(&found, &expected, &format!("{} {policy:?}", named.name));
        }
    }
}

/// Random graphs with next values of given tensors, which take their memory where they may.
#[test]
fn random_updates_in_place_are_right() {
    let mut seen = 0;
    for seed in 0..12 {
        let graph = random::with_updates(random::graph(seed, 6), seed);
        let inputs = random::inputs(&graph, seed);
        let expected = evaluate(&graph, &inputs).unwrap();
        let named = Named {
            name: "random",
            graph,
            backward: None,
        };
        let program = |target| made(&named, Phase::Forward, Policy::Compiled, target);
        let of_cpu = program(&Target::Cpu);
        seen += of_cpu.updated().count();
        let found = run_on_cpu(&named.graph, of_cpu, &inputs, 1);
        check_outputs(&found, &expected, &format!("seed {seed}"));
        if seed < 4 && shim::is_here() {
            let program = program(&cuda());
            let specs = specs(&named.graph, &program);
            let found = shim::run(&program, &inputs, &specs, Mode::Fast);
            check_outputs(&found, &expected, &format!("seed {seed} in CUDA"));
        }
    }
    assert!(seen > 4, "{seen} tensors were updated in place");
}

/// Graphs with full reductions, until enough of them were tried.
#[test]
fn random_graphs_with_totals_are_right_in_cuda() {
    if !shim::is_here() {
        return;
    }
    let mut seen = 0;
    for seed in 0.. {
        let (graph, backward) = random::with_gradients(random::graph(seed, 5));
        let named = Named {
            name: "random",
            graph,
            backward: Some(backward),
        };
        let program = made(&named, Phase::Both, Policy::Compiled, &cuda());
        if totals(&program) == 0 {
            continue;
        }
        let inputs = random::inputs(&named.graph, seed);
        let expected = evaluate(&named.graph, &inputs).unwrap();
        let specs = specs(&named.graph, &program);
        let found = shim::run(&program, &inputs, &specs, Mode::Fast);
        check_outputs(&found, &expected, &format!("seed {seed}"));
        seen += 1;
        if seen == 4 {
            return;
        }
    }
}

/// Kernels whose last block adds up a total.
fn totals(program: &Program) -> usize {
    let kernels = program.kernels.iter();
    kernels
        .filter(|kernel| kernel.name().starts_with("single_pass_"))
        .count()
}

#[test]
fn totals_are_one_launch_on_gpus() {
    let totals_of = |named: Named, policy, phase| {
        let program = made(&named, phase, policy, &cuda());
        (program.totals().launches, totals(&program))
    };
    let forward = |named, policy| totals_of(named, policy, Phase::Forward);
    for named in [graphs::mse, graphs::cross_entropy, graphs::norms] {
        assert_eq!(forward(named(), Policy::Compiled), (1, 1));
        let (launches, totals) = forward(named(), Policy::Eager);
        assert!(launches > 1 && totals == 0, "{launches} {totals}");
    }
    let both = totals_of(graphs::mse(), Policy::Compiled, Phase::Both);
    assert_eq!(both, (1, 1));
    // Parts of sums over rows have columns.
    let both = totals_of(graphs::layernorm(), Policy::Compiled, Phase::Both);
    assert_eq!(both, (2, 0));
}

#[test]
fn passes_for_gpus_are_explained() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/fuse");
    let mut differences = Vec::new();
    for named in [graphs::mse(), graphs::cross_entropy(), graphs::mlp_step()] {
        let mut text = named.graph.to_string();
        for &phase in named.phases() {
            let explained = explain(&request(&named, phase, Policy::Compiled, &cuda())).unwrap();
            text += &format!("\ncompiled {phase}\n{explained}");
        }
        let path = root.join(format!("{}_cuda.txt", named.name));
        differences.extend(crate::support::golden(&path, &text).err());
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// A product of several panels, the last one smaller, with the operations that follow it.
#[test]
fn products_go_through_what_follows_panel_by_panel() {
    let named = graphs::tall_linear();
    let program = made(&named, Phase::Forward, Policy::Compiled, &Target::Cpu);
    assert_eq!(program.totals().launches, 6, "{:?}", program.steps);
    let inputs = inputs_of(&named.graph);
    let expected = evaluate(&named.graph, &inputs).unwrap();
    let found = run_on_cpu(&named.graph, program, &inputs, 2);
    check_outputs(&found, &expected, "panels");
}

/// Three pictures and the operations that follow, then the other two pictures.
#[test]
fn convolutions_go_through_what_follows_picture_by_picture() {
    let named = graphs::many_pictures();
    let program = made(&named, Phase::Forward, Policy::Compiled, &Target::Cpu);
    assert_eq!(program.totals().launches, 4, "{:?}", program.steps);
    let inputs = inputs_of(&named.graph);
    let expected = evaluate(&named.graph, &inputs).unwrap();
    let found = run_on_cpu(&named.graph, program, &inputs, 2);
    check_outputs(&found, &expected, "pictures");
}

/// On GPUs bias and activation are part of the call.
#[test]
fn calls_do_what_follows_them() {
    let compiled = |named: Named| launches(&named, Policy::Compiled, &cuda())[0];
    assert_eq!(compiled(graphs::linear_gelu()), 1);
    assert_eq!(compiled(graphs::conv_bn_relu()), 1);
    let eager = |named: Named| launches(&named, Policy::Eager, &cuda())[0];
    assert_eq!(eager(graphs::linear_gelu()), 2);
    assert_eq!(eager(graphs::conv_bn_relu()), 3);
}

#[test]
fn passes_are_explained() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/fuse");
    let mut differences = Vec::new();
    for named in graphs::all() {
        let mut text = named.graph.to_string();
        for (policy, word) in POLICIES {
            for &phase in named.phases() {
                let explained = explain(&request(&named, phase, policy, &Target::Cpu)).unwrap();
                text += &format!("\n{word} {phase}\n{explained}");
            }
        }
        let path = root.join(format!("{}.txt", named.name));
        differences.extend(crate::support::golden(&path, &text).err());
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Launches of the timed steps, by phase.
fn launches(named: &Named, policy: Policy, target: &Target) -> Vec<u64> {
    let phases = named.phases().iter();
    phases
        .map(|&phase| made(named, phase, policy, target).totals().launches)
        .collect()
}

#[test]
fn whole_operations_are_one_kernel() {
    let target = Target::Cpu;
    let compiled = |named: Named| launches(&named, Policy::Compiled, &target);
    assert_eq!(compiled(graphs::layernorm()), [1, 2, 2]);
    assert_eq!(compiled(graphs::rmsnorm()), [1, 2, 2]);
    assert_eq!(compiled(graphs::softmax()), [1, 1, 1]);
    assert_eq!(compiled(graphs::gelu()), [1, 1, 1]);
    assert_eq!(compiled(graphs::cross_entropy()), [2, 1, 2]);
    let eager = |named: Named| launches(&named, Policy::Eager, &target);
    assert_eq!(eager(graphs::layernorm()), [1, 2, 3]);
    assert_eq!(eager(graphs::softmax()), [1, 1, 2]);
    assert_eq!(eager(graphs::gelu()), [1, 1, 2]);
}
