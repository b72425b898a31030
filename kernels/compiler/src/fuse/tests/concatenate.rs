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
        by_library: false,
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

/// Checks that products read bf16 alone, all of it written before, and nothing that is computed is
/// rounded by a launch of its own. Returns how many launches round given tensors.
fn assert_factors_are_stored_in_bf16(program: &Program) -> usize {
    let is_given = |view: &View| program.buffers[view.buffer.0].binding != Binding::Scratch;
    let (mut written, mut rounding) = (BTreeSet::new(), 0);
    for step in program.prologue.iter().chain(&program.steps) {
        let Step::Launch { kernel, args, .. } = step else {
            continue;
        };
        let kernel = &program.kernels[kernel.0];
        let views = |is_wanted: fn(&Arg) -> Option<&View>| args.iter().filter_map(is_wanted);
        let mut read_views = views(|arg| match arg {
            Arg::Read(view) => Some(view),
            _ => None,
        });
        if rounds_factors(kernel) {
            assert!(read_views.all(is_given), "a computed value is rounded");
            rounding += 1;
        } else if let Kernel::Library(Library::Matmul(call)) = kernel {
            let [a, b] = [read_views.next().unwrap(), read_views.next().unwrap()];
            let dtypes = [a, b].map(|view| program.buffers[view.buffer.0].dtype);
            assert_eq!(dtypes, [Dtype::Bf16; 2]);
            let missing = read(call, [a, b]).difference(&written).count();
            assert_eq!(missing, 0, "{call:?}");
        }
        let stored = views(|arg| match arg {
            Arg::Write(view) => Some(view),
            _ => None,
        });
        written.extend(stored.flat_map(elements));
    }
    rounding
}

/// Kernels store factors in bf16 where they lie beside each other, weights are rounded there, and
/// products read nothing else.
#[test]
fn parts_in_bf16_lie_beside_each_other_in_that_form() {
    let (graph, backward) = network(true);
    let of = |precision| compiled_in(precision, &graph, Some(backward), Phase::Step, &cuda());
    let program = of(Precision::Bf16);
    assert_eq!(products(&program), products(&of(Precision::F32)));
    assert_eq!(adjacent(&program), [["w1", "w3"]]);
    // Before a forward pass alone, where it is not timed, each factor is rounded by itself.
    for (phase, launches) in [(Phase::Forward, 2), (Phase::Both, 1), (Phase::Step, 1)] {
        let target = cuda();
        let program = compiled_in(Precision::Bf16, &graph, Some(backward), phase, &target);
        let rounding = assert_factors_are_stored_in_bf16(&program);
        assert_eq!(rounding, launches, "{phase}: weights are rounded together");
    }
}

/// Attention of projections of `sigmoid(x)`, with next values of the weights. Queries are scaled,
/// as rotations change them: their products are not kept for the backward pass.
fn projected_attention() -> (Graph, NodeId) {
    let [rows, heads, width] = [EXTENT, 2, EXTENT / 2];
    let mut graph = Graph::new();
    let x = given(&mut graph, "x", Role::Input);
    let weights = ["wq", "wk", "wv"].map(|name| given(&mut graph, name, Role::Parameter));
    let y = graph.unary(Unary::Sigmoid, x).unwrap();
    let apart = weights.map(|w| {
        let product = linear(&mut graph, y, w).unwrap();
        let held = graph.reshape(product, &[1, rows, heads, width]).unwrap();
        graph.transpose(held, &[0, 2, 1, 3]).unwrap()
    });
    let [q, k, v] = apart;
    let [q, k] = [q, k].map(|held| graph.unary(Unary::Sigmoid, held).unwrap());
    let keys = graph.transpose_last(k).unwrap();
    let scores = graph.matmul(q, keys).unwrap();
    let weighed = graph.softmax(scores).unwrap();
    let mixed = graph.matmul(weighed, v).unwrap();
    let beside = graph.transpose(mixed, &[0, 2, 1, 3]).unwrap();
    let out = graph.reshape(beside, &[rows, heads * width]).unwrap();
    graph.output("out", out, Role::Output);
    let by = [x, weights[0], weights[1], weights[2]];
    let backward = differentiate(&mut graph, &[(out, None)], &by).unwrap();
    for (name, (w, &gradient)) in ["x", "wq", "wk", "wv"]
        .into_iter()
        .zip(by.into_iter().zip(&backward.gradients))
    {
        let after = graph.sub(w, gradient).unwrap();
        graph.update(format!("after.{name}"), after, w, Role::Parameter);
    }
    (graph, backward.from)
}

/// Attention stores its gradient by values as part of the concatenation that products read.
#[test]
fn gradients_of_attention_are_stored_where_products_read_them() {
    let (graph, backward) = projected_attention();
    let phase = Phase::Step;
    let of = |precision| compiled_in(precision, &graph, Some(backward), phase, &cuda());
    for precision in [Precision::Bf16, Precision::Tf32] {
        let program = of(precision);
        assert_eq!(adjacent(&program), [["wq", "wk", "wv"]]);
        let (one, three) = (EXTENT, 3 * EXTENT);
        let found = products(&program);
        assert_eq!(found[&[three, one, one]], 1, "by weights: {found:?}");
        assert_eq!(found[&[one, three, one]], 1, "by inputs: {found:?}");
        let gradient = program
            .kernels
            .iter()
            .filter(|kernel| kernel.name() == "attention_grad_kv");
        assert_eq!(gradient.count(), 1);
    }
    let rounding = assert_factors_are_stored_in_bf16(&of(Precision::Bf16));
    assert_eq!(rounding, 1, "weights are rounded together");
    assert_means(&graph, Some(backward), phase);
}
