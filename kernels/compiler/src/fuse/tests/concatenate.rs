//! Products that become one: how many calls there are, and that they mean what the graph means.

use std::collections::{BTreeMap, BTreeSet};

use super::{check, cuda, plan_on, random};
use crate::fuse::bf16::rounds_factors;
use crate::fuse::{Policy, Request, program};
use crate::graph::{Graph, GraphError, NodeId, Unary, differentiate};
use sweeper_program::tensor::Dtype;
use sweeper_program::workload::{Phase, Target};
use sweeper_program::{
    Arg, Binding, Kernel, Library, Matmul, Matrix, Precision, Program, Role, Step, View,
};

/// Rows of inputs and of weights: with so many columns, weights are multiples of 256 bytes.
const EXTENT: usize = 16;

fn given(graph: &mut Graph, name: &str, role: Role) -> NodeId {
    let shape = [EXTENT, EXTENT];
    graph.input(name, &shape, Dtype::F32, role).unwrap()
}

/// `x w^T`
fn linear(graph: &mut Graph, x: NodeId, w: NodeId) -> Result<NodeId, GraphError> {
    let turned = graph.transpose_last(w)?;
    graph.matmul(x, turned)
}

/// A feed-forward network `w2 (swish(w1 y) w3 y)` of `y = sigmoid(x)`, with the gradients of the
/// sum of its results or, where it trains, next values of the given tensors.
fn network(trains: bool) -> (Graph, NodeId) {
    let mut graph = Graph::new();
    let x = given(&mut graph, "x", Role::Input);
    let weights = ["w1", "w2", "w3"].map(|name| given(&mut graph, name, Role::Parameter));
    let build = |graph: &mut Graph| {
        let y = graph.unary(Unary::Sigmoid, x)?;
        let gate = linear(graph, y, weights[0])?;
        let up = linear(graph, y, weights[2])?;
        let gate = graph.swish(gate)?;
        let inner = graph.mul(gate, up)?;
        linear(graph, inner, weights[1])
    };
    let out = build(&mut graph).unwrap();
    graph.output("out", out, Role::Output);
    let by = [x, weights[0], weights[1], weights[2]];
    let backward = differentiate(&mut graph, &[(out, None)], &by).unwrap();
    let names = ["x", "w1", "w2", "w3"];
    for ((name, w), &gradient) in names.into_iter().zip(by).zip(&backward.gradients) {
        if trains {
            let step = graph.unary(Unary::Sigmoid, gradient).unwrap();
            let after = graph.sub(w, step).unwrap();
            graph.update(format!("after.{name}"), after, w, Role::Parameter);
        } else {
            graph.output(format!("grad.{name}"), gradient, Role::Gradient);
        }
    }
    (graph, backward.from)
}

fn compiled(graph: &Graph, backward: Option<NodeId>, phase: Phase, target: &Target) -> Program {
    compiled_in(Precision::F32, graph, backward, phase, target)
}

fn compiled_in(
    precision: Precision,
    graph: &Graph,
    backward: Option<NodeId>,
    phase: Phase,
    target: &Target,
) -> Program {
    let request = Request {
        graph,
        backward,
        phase,
        policy: Policy::Compiled,
        target,
        canonical: &[],
        precision,
    };
    program(&request).unwrap()
}

/// How often there is a product of so many rows, terms and columns.
fn products(program: &Program) -> BTreeMap<[usize; 3], usize> {
    let mut counts = BTreeMap::new();
    for step in program.prologue.iter().chain(&program.steps) {
        if let Step::Launch { kernel, .. } = step
            && let Kernel::Library(Library::Matmul(call)) = &program.kernels[kernel.0]
        {
            *counts.entry([call.m, call.k, call.n]).or_default() += 1;
        }
    }
    counts
}

fn adjacent(program: &Program) -> Vec<Vec<&str>> {
    let names = program.adjacent.iter().map(|together| {
        let names = together.iter().map(|at| &*program.buffers[at.0].name);
        names.collect()
    });
    names.collect()
}

fn assert_means(graph: &Graph, backward: Option<NodeId>, phase: Phase) {
    let inputs = random::inputs(graph, 7);
    let plan = plan_on(&cuda(), graph, backward, phase, Policy::Compiled);
    check(graph, &inputs, &plan, &phase.to_string());
}

#[test]
fn projections_and_their_gradients_are_one_product_each() {
    let (one, two) = (EXTENT, 2 * EXTENT);
    let (graph, backward) = network(true);
    let program = compiled(&graph, Some(backward), Phase::Step, &cuda());
    // Two gradients of w2 inner; columns, terms and rows of two factors each.
    let mut expected = BTreeMap::from([([one, one, one], 2)]);
    for sizes in [[one, one, two], [one, two, one], [two, one, one]] {
        expected.insert(sizes, 1);
    }
    assert_eq!(products(&program), expected);
    assert_eq!(adjacent(&program), [["w1", "w3"]]);
    for phase in Phase::EVERY {
        assert_means(&graph, Some(backward), phase);
    }
    // A CPU has no other products.
    let program = compiled(&graph, Some(backward), Phase::Step, &Target::Cpu);
    assert_eq!(products(&program), BTreeMap::from([([one, one, one], 8)]));
    assert!(program.adjacent.is_empty());
}

/// A result has memory of its own.
#[test]
fn gradients_that_are_results_are_products_of_their_own() {
    let (one, two) = (EXTENT, 2 * EXTENT);
    let (graph, backward) = network(false);
    let program = compiled(&graph, Some(backward), Phase::Both, &cuda());
    let expected = [
        ([one, one, one], 5),
        ([one, one, two], 1),
        ([one, two, one], 1),
    ];
    assert_eq!(products(&program), expected.into());
    for phase in Phase::ALL {
        assert_means(&graph, Some(backward), phase);
    }
}

/// Given tensors that lie one behind another begin at multiples of 256 bytes.
#[test]
fn weights_of_odd_sizes_stay_where_they_are() {
    let mut graph = Graph::new();
    let x = given(&mut graph, "x", Role::Input);
    for name in ["v", "w"] {
        let shape = [EXTENT - 1, EXTENT];
        let weight = graph.input(name, &shape, Dtype::F32, Role::Parameter);
        let product = linear(&mut graph, x, weight.unwrap()).unwrap();
        let out = graph.unary(Unary::Sigmoid, product).unwrap();
        graph.output(format!("out.{name}"), out, Role::Output);
    }
    let program = compiled(&graph, None, Phase::Forward, &cuda());
    assert_eq!(products(&program).into_values().sum::<usize>(), 2);
    assert!(program.adjacent.is_empty());
}

/// Two products of one factor, where the other factor of the second is made of the first product;
/// and two pairs of products, each of which could be one if the other were not.
#[test]
fn products_that_wait_for_each_other_stay_apart() {
    let mut graph = Graph::new();
    let [x, y, s, t] = ["x", "y", "s", "t"].map(|name| given(&mut graph, name, Role::Input));
    let sigmoid = |graph: &mut Graph, x| graph.unary(Unary::Sigmoid, x).unwrap();
    let of = |graph: &mut Graph, x, w| {
        let w = sigmoid(graph, w);
        linear(graph, x, w).unwrap()
    };
    let first = of(&mut graph, x, s);
    let second = of(&mut graph, x, first);
    let out = sigmoid(&mut graph, second);
    graph.output("chain", out, Role::Output);
    assert_eq!(
        products(&compiled(&graph, None, Phase::Forward, &cuda())),
        [([EXTENT, EXTENT, EXTENT], 2)].into()
    );
    let mut graph = Graph::new();
    let [x, y, s, t] = [x, y, s, t].map(|id| {
        let name = ["x", "y", "s", "t"][id.index()];
        given(&mut graph, name, Role::Input)
    });
    let a = of(&mut graph, x, s);
    let b = of(&mut graph, y, a);
    let c = of(&mut graph, y, t);
    let d = of(&mut graph, x, c);
    for (name, node) in [("b", b), ("d", d)] {
        let out = sigmoid(&mut graph, node);
        graph.output(name, out, Role::Output);
    }
    let found = products(&compiled(&graph, None, Phase::Forward, &cuda()));
    assert_eq!(found.into_values().sum::<usize>(), 3);
    assert_means(&graph, None, Phase::Forward);
}

/// Elements of a view, in its buffer.
fn elements(view: &View) -> BTreeSet<(usize, usize)> {
    let start = view.offset.fixed_value().unwrap() as usize;
    let is_in_row = |at: &usize| view.rows.is_none_or(|rows| at % rows.step < rows.len);
    let places = (0..view.len).filter(is_in_row);
    places.map(|at| (view.buffer.0, start + at)).collect()
}

/// Elements of both factors that a call reads from these views.
fn read(call: &Matmul, views: [&View; 2]) -> BTreeSet<(usize, usize)> {
    let matrices = [(&call.a, call.m, call.k), (&call.b, call.k, call.n)];
    let of = |(view, (matrix, rows, columns)): (&View, (&Matrix, usize, usize))| {
        let start = view.offset.fixed_value().unwrap() as usize;
        let (buffer, [row_step, column_step]) =
            (view.buffer.0, [matrix.row_step, matrix.column_step]);
        let places = (0..rows).flat_map(move |row| (0..columns).map(move |column| [row, column]));
        places.map(move |[row, column]| (buffer, start + row * row_step + column * column_step))
    };
    views.into_iter().zip(matrices).flat_map(of).collect()
}

/// Kernels store factors in bf16 where they lie beside each other, weights are rounded there, and
/// products read nothing else.
#[test]
fn parts_in_bf16_lie_beside_each_other_in_that_form() {
    let (graph, backward) = network(true);
    let program = compiled_in(
        Precision::Bf16,
        &graph,
        Some(backward),
        Phase::Step,
        &cuda(),
    );
    let exact = compiled(&graph, Some(backward), Phase::Step, &cuda());
    assert_eq!(products(&program), products(&exact));
    assert_eq!(adjacent(&program), [["w1", "w3"]]);
    let given = |view: &View| program.buffers[view.buffer.0].binding != Binding::Scratch;
    let (mut written, mut rounded) = (BTreeSet::new(), 0);
    for step in program.prologue.iter().chain(&program.steps) {
        let Step::Launch { kernel, args, .. } = step else {
            continue;
        };
        let kernel = &program.kernels[kernel.0];
        if let Kernel::Library(Library::Matmul(call)) = kernel {
            let [Arg::Read(a), Arg::Read(b), ..] = &args[..] else {
                panic!("{args:?}");
            };
            for view in [a, b] {
                assert_eq!(program.buffers[view.buffer.0].dtype, Dtype::Bf16);
            }
            let missing: Vec<_> = read(call, [a, b]).difference(&written).copied().collect();
            assert_eq!(missing, [], "{call:?}");
        }
        if rounds_factors(kernel) {
            let read = args.iter().filter_map(|arg| match arg {
                Arg::Read(view) => Some(view),
                _ => None,
            });
            assert!(read.into_iter().all(given), "computed values are rounded");
            rounded += 1;
        }
        let views = args.iter().filter_map(|arg| match arg {
            Arg::Write(view) => Some(view),
            _ => None,
        });
        written.extend(views.flat_map(elements));
    }
    assert_eq!(rounded, 1, "weights are rounded together");
}
