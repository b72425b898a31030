//! Values that are bf16 in memory.

use super::{check, cuda};
use crate::fuse::{Policy, Request, Watcher, explain, passes, program};
use crate::graph::{self, Graph, NodeId};
use sweeper_program::inputs::InputKey;
use sweeper_program::tensor::{Dtype, Tensor};
use sweeper_program::workload::{Phase, Target};
use sweeper_program::{Arg, Heads, Kernel, Library, Precision, Program, Role, Step};

fn request<'a>(graph: &'a Graph, policy: Policy, target: &'a Target) -> Request<'a> {
    Request {
        graph,
        backward: None,
        phase: Phase::Forward,
        policy,
        target,
        canonical: &[],
        precision: Precision::Bf16,
        by_library: false,
    }
}

/// What the products of a program store, in the order of their kernels.
fn stored(program: &Program) -> Vec<Dtype> {
    let kernels = program.kernels.iter();
    let stored = kernels.filter_map(|kernel| match kernel {
        Kernel::Library(Library::Matmul(call)) => Some(call.stores),
        _ => None,
    });
    stored.collect()
}

fn given(graph: &mut Graph, name: &str, shape: &[usize]) -> NodeId {
    let given = graph.input(name, shape, Dtype::F32, Role::Input);
    given.unwrap()
}

#[test]
fn products_between_operations_are_stored_in_bf16() {
    let mut graph = Graph::new();
    let x = given(&mut graph, "x", &[4, 8]);
    let [first, second] = [[8, 16], [16, 4]].map(|shape| {
        let name = format!("w{}", shape[0]);
        given(&mut graph, &name, &shape)
    });
    let inner = graph.matmul(x, first).unwrap();
    let inner = graph.swish(inner).unwrap();
    let out = graph.matmul(inner, second).unwrap();
    graph.output("out", out, Role::Output);
    for policy in super::POLICIES {
        let target = cuda();
        let made = program(&request(&graph, policy, &target)).unwrap();
        assert_eq!(stored(&made), [Dtype::Bf16, Dtype::F32], "{policy:?}");
        let exact = Request {
            precision: Precision::Tf32,
            ..request(&graph, policy, &target)
        };
        let made = program(&exact).unwrap();
        assert_eq!(stored(&made), [Dtype::F32, Dtype::F32], "{policy:?}");
    }
}

/// The gradient by rows that were looked up is a product, which a kernel that takes f32 adds up.
#[test]
fn what_is_scattered_is_f32() {
    let mut graph = Graph::new();
    let rows = given(&mut graph, "rows", &[5, 8]);
    let w = given(&mut graph, "w", &[8, 4]);
    let ids = graph.input("ids", &[6], Dtype::I64, Role::Input).unwrap();
    let found = graph.gather(rows, ids).unwrap();
    let out = graph.matmul(found, w).unwrap();
    graph.output("out", out, Role::Output);
    let backward = graph::differentiate(&mut graph, &[(out, None)], &[rows]).unwrap();
    graph.output("grad_rows", backward.gradients[0], Role::Gradient);
    let target = cuda();
    let both = Request {
        backward: Some(backward.from),
        phase: Phase::Both,
        ..request(&graph, Policy::Compiled, &target)
    };
    let stored = stored(&program(&both).unwrap());
    assert!(!stored.is_empty() && stored.iter().all(|dtype| *dtype == Dtype::F32));
}

/// softmax(q k^T) v
fn attended(graph: &mut Graph, [q, k, v]: [NodeId; 3]) -> NodeId {
    let keys = graph.transpose_last(k).unwrap();
    let scores = graph.matmul(q, keys).unwrap();
    let weights = graph.softmax(scores).unwrap();
    graph.matmul(weights, v).unwrap()
}

/// Attention of heads whose results lie beside each other, (batch, rows, heads x columns).
fn heads() -> Graph {
    let mut graph = Graph::new();
    let [q, k, v] = ["q", "k", "v"].map(|name| given(&mut graph, name, &[2, 3, 4, 8]));
    let mixed = attended(&mut graph, [q, k, v]);
    let beside = graph.transpose(mixed, &[0, 2, 1, 3]).unwrap();
    let joined = graph.reshape(beside, &[2, 4, 24]).unwrap();
    let w = given(&mut graph, "w", &[24, 5]);
    let out = graph.matmul(joined, w).unwrap();
    graph.output("out", out, Role::Output);
    graph
}

#[test]
fn heads_beside_each_other_are_not_copied() {
    let (graph, target) = (heads(), cuda());
    let text = |precision| {
        let request = Request {
            precision,
            ..request(&graph, Policy::Compiled, &target)
        };
        explain(&request).unwrap().passes.pop().unwrap().text
    };
    for precision in [Precision::Tf32, Precision::Bf16] {
        assert!(!text(precision).contains("copy"), "{}", text(precision));
    }
    // Kernels in f32 write each head apart.
    assert!(text(Precision::F32).contains("copy of reshape"));
}

#[test]
fn heads_beside_each_other_mean_the_same() {
    let (graph, target) = (heads(), cuda());
    let inputs = ["q", "k", "v", "w"].into_iter().zip(graph.given());
    let inputs = inputs.map(|(name, given)| {
        let node = graph.node(given.node);
        let values = InputKey([1; 32]).stream(name).normal(node.elements(), 1.0);
        (name.to_owned(), Tensor::f32(node.shape.clone(), values))
    });
    let inputs = inputs.collect();
    let plan = passes(
        &request(&graph, Policy::Compiled, &target),
        Watcher::default(),
    )
    .unwrap();
    check(&graph, &inputs, &plan, "heads");
}

/// Types of the buffers that the kernel of an attention writes, and launches that round factors.
fn results_of_attention(made: &Program) -> (Vec<Dtype>, usize) {
    let launched = |entry: &'static str| {
        let steps = made.steps.iter().filter_map(|step| match step {
            Step::Launch { kernel, args, .. } => Some((kernel, args)),
            _ => None,
        });
        steps.filter(move |(kernel, _)| made.kernels[kernel.0].name() == entry)
    };
    let written = launched("attention").flat_map(|(_, args)| {
        args.iter().filter_map(|arg| match arg {
            Arg::Write(view) => Some(made.buffers[view.buffer.0].dtype),
            _ => None,
        })
    });
    (written.collect(), launched("round_to_bf16").count())
}

/// Gradients read the result of an attention in f32, products in bf16: its kernel stores both, and
/// a forward pass alone that in bf16.
#[test]
fn attention_stores_its_result_in_the_forms_that_are_read() {
    let mut graph = heads();
    let q = graph.given()[0].node;
    let out = graph.outputs()[0].node;
    let backward = graph::differentiate(&mut graph, &[(out, None)], &[q]).unwrap();
    graph.output("grad_q", backward.gradients[0], Role::Gradient);
    let target = cuda();
    let of_phase = |phase| {
        let request = Request {
            backward: Some(backward.from),
            phase,
            ..request(&graph, Policy::Compiled, &target)
        };
        results_of_attention(&program(&request).unwrap())
    };
    let (written, rounded) = of_phase(Phase::Both);
    assert_eq!(
        written,
        [Dtype::F32, Dtype::Bf16, Dtype::F32],
        "with the logarithms of sums"
    );
    let (alone, rounded_alone) = of_phase(Phase::Forward);
    assert_eq!(alone, [Dtype::Bf16]);
    // Weights, and nothing that attention computes.
    assert_eq!(rounded, rounded_alone + 1);
}

/// Attention over computed matrices of so many columns.
fn computed_heads(columns: usize) -> Graph {
    let mut graph = Graph::new();
    let [q, k, v] = ["q", "k", "v"].map(|name| {
        let given = given(&mut graph, name, &[2, 4, columns]);
        graph.swish(given).unwrap()
    });
    let out = attended(&mut graph, [q, k, v]);
    graph.output("out", out, Role::Output);
    graph
}

/// Matrices that are bf16 in memory are read as they lie, 16 bytes at a time; others are packed.
#[test]
fn matrices_in_bf16_are_not_packed() {
    let packs = |graph: &Graph, precision| {
        let target = cuda();
        let request = Request {
            precision,
            ..request(graph, Policy::Compiled, &target)
        };
        let made = program(&request).unwrap();
        let mut kernels = made.kernels.iter();
        kernels.any(|kernel| kernel.name() == "attention_pack")
    };
    assert!(!packs(&computed_heads(8), Precision::Bf16));
    assert!(packs(&computed_heads(8), Precision::Tf32));
    assert!(
        packs(&computed_heads(6), Precision::Bf16),
        "rows of 12 bytes"
    );
    assert!(packs(&heads(), Precision::Bf16), "given, and f32");
}

/// Attention of parts of one given tensor, (batch, rows, heads, 3 x columns), from a column on.
fn parts_of_one(first: usize) -> Graph {
    let mut graph = Graph::new();
    let whole = given(&mut graph, "whole", &[2, 4, 3, 40]);
    let [q, k, v] = [0, 1, 2].map(|part| {
        let part = graph.slice(whole, 3, first + 8 * part, 1, 8).unwrap();
        graph.transpose(part, &[0, 2, 1, 3]).unwrap()
    });
    let out = attended(&mut graph, [q, k, v]);
    graph.output("out", out, Role::Output);
    graph
}

/// A library reads operands where they lie, if their rows begin at multiples of 16 bytes.
#[test]
fn a_library_reads_attention_where_it_lies() {
    let target = cuda();
    let made = |first: usize| {
        let graph = parts_of_one(first);
        program(&Request {
            by_library: true,
            ..request(&graph, Policy::Compiled, &target)
        })
    };
    let program = made(8).unwrap();
    let call = program.kernels.iter().find_map(|kernel| match kernel {
        Kernel::Library(Library::Attention(call)) => Some(call),
        _ => None,
    });
    let lies = Heads {
        batch_step: 480,
        head_step: 40,
        row_step: 120,
    };
    let call = call.unwrap();
    assert_eq!([call.q, call.k, call.v], [lies; 3]);
    assert_eq!((call.batch, call.heads, call.queries), (2, 3, 4));
    // One copy of all three.
    let names = program.kernels.iter().map(|kernel| kernel.name());
    let names: Vec<&str> = names.collect();
    assert_eq!(
        names,
        ["round_to_bf16", "library.attention", "widen_from_bf16"]
    );
    let refusal = made(4).unwrap_err().to_string();
    assert!(refusal.contains("16 bytes"), "{refusal}");
}
