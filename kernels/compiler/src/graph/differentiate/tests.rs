//! Every gradient against central differences in f64, and the structure of backward passes.

use proptest::prelude::*;

use super::*;
use crate::graph::op::{Binary, Convolution, Reduction, Unary};
use crate::graph::{evaluate_nodes, op};
use sweeper_program::Role;
use sweeper_program::inputs::InputKey;
use sweeper_program::tensor::{Tensor, Tensors};

type Added = Result<NodeId, GraphError>;

/// A layer of `x` and so many parameters, and the words of the tensors saved for its gradient.
type Saves = (
    fn(&mut Graph, &[NodeId]) -> Added,
    usize,
    &'static [&'static str],
);

/// A function of some tensors, with whole-number tensors after the real ones.
struct Function<F> {
    build: F,
    shapes: Vec<Vec<usize>>,
    /// Least and greatest value of the real inputs.
    range: [f32; 2],
    indices: Vec<(Vec<usize>, Vec<i64>)>,
}

impl<F: Fn(&mut Graph, &[NodeId]) -> Added> Function<F> {
    fn new(shapes: &[&[usize]], build: F) -> Self {
        Function {
            build,
            shapes: shapes.iter().map(|shape| shape.to_vec()).collect(),
            range: [-2.0, 2.0],
            indices: vec![],
        }
    }

    fn positive(mut self) -> Self {
        self.range = [0.5, 2.0];
        self
    }

    fn with(mut self, shape: &[usize], indices: &[i64]) -> Self {
        self.indices.push((shape.to_vec(), indices.to_vec()));
        self
    }

    /// The graph with its gradients, the function's value, the backward pass and the inputs.
    fn graph(&self) -> (Graph, NodeId, Backward, Tensors) {
        let mut graph = Graph::new();
        let mut inputs = Tensors::new();
        let key = InputKey([5; 32]);
        let mut given = |graph: &mut Graph, name: String, shape: &[usize]| {
            let values =
                key.stream(&name)
                    .uniform(shape.iter().product(), self.range[0], self.range[1]);
            let values = values.into_iter().map(f64::from).collect();
            let node = graph.input(&name, shape, Dtype::F32, Role::Input);
            inputs.insert(name, Tensor::f64(shape, values));
            node.expect("an input")
        };
        let shapes = self.shapes.iter().enumerate();
        let mut nodes: Vec<NodeId> = shapes
            .map(|(at, shape)| given(&mut graph, format!("x{at}"), shape))
            .collect();
        let by = nodes.clone();
        for (at, (shape, _)) in self.indices.iter().enumerate() {
            let node = graph.input(&format!("i{at}"), shape, Dtype::I64, Role::Input);
            nodes.push(node.expect("indices"));
        }
        let y = (self.build)(&mut graph, &nodes).expect("a function");
        let shape = graph.node(y).shape.clone();
        let seed = given(&mut graph, "seed".to_owned(), &shape);
        for (at, (shape, indices)) in self.indices.iter().enumerate() {
            inputs.insert(
                format!("i{at}"),
                Tensor::i64(shape.clone(), indices.clone()),
            );
        }
        let backward = differentiate(&mut graph, &[(y, Some(seed))], &by).expect("gradients");
        (graph, y, backward, inputs)
    }

    /// Checks the gradient by every element of every real input.
    fn check(self) {
        const STEP: f64 = 1e-5;
        let (graph, y, backward, mut inputs) = self.graph();
        let gradients = evaluate_nodes(&graph, &inputs, &backward.gradients).expect("values");
        let seed = inputs["seed"].as_f64().expect("real").to_vec();
        let value = |inputs: &Tensors| {
            let y = evaluate_nodes(&graph, inputs, &[y])
                .expect("a value")
                .remove(0);
            let y = y.as_f64().expect("real").to_vec();
            y.iter().zip(&seed).map(|(y, seed)| y * seed).sum::<f64>()
        };
        for (at, gradient) in gradients.iter().enumerate() {
            let name = format!("x{at}");
            let x = inputs[&name].clone();
            let values = x.as_f64().expect("real");
            assert_eq!(gradient.shape(), x.shape());
            for (place, &gradient) in gradient.as_f64().expect("real").iter().enumerate() {
                let mut moved = |by: f64| {
                    let mut values = values.to_vec();
                    values[place] += by;
                    inputs.insert(name.clone(), Tensor::f64(x.shape(), values));
                    value(&inputs)
                };
                let slope = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
                let error = (gradient - slope).abs() / slope.abs().max(1.0);
                assert!(
                    error < 1e-7,
                    "{name}[{place}]: {gradient}, but {slope}\n{graph}"
                );
            }
            inputs.insert(name, x);
        }
    }
}

#[test]
fn functions_of_one_element() {
    for function in Unary::ALL {
        let only_positive = matches!(
            function,
            Unary::Ln | Unary::Sqrt | Unary::Rsqrt | Unary::Reciprocal
        );
        for is_positive in [true, false] {
            let check = Function::new(&[&[3, 4]], |graph, x| graph.unary(function, x[0]));
            match is_positive {
                true => check.positive().check(),
                false if !only_positive => check.check(),
                false => {}
            }
        }
    }
}

#[test]
fn functions_of_two_elements() {
    for function in Binary::ALL {
        for shapes in [
            [&[3, 4][..], &[3, 4]],
            [&[3, 1], &[1, 4]],
            [&[4], &[3, 4]],
            [&[1, 1], &[]],
        ] {
            Function::new(&shapes, |graph, x| graph.binary(function, x[0], x[1]))
                .positive()
                .check();
        }
        Function::new(&[&[5]], |graph, x| graph.binary(function, x[0], x[0]))
            .positive()
            .check();
    }
}

#[test]
fn choices() {
    Function::new(&[&[4, 1], &[3], &[4, 3]], |graph, x| {
        let mask = graph.binary(Binary::LessEqual, x[0], x[1])?;
        graph.select(mask, x[1], x[2])
    })
    .check();
}

#[test]
fn views() {
    Function::new(&[&[2, 3, 4]], |graph, x| {
        let turned = graph.transpose(x[0], &[2, 0, 1])?;
        let flat = graph.reshape(turned, &[8, 3])?;
        let part = graph.slice(flat, 0, 1, 3, 3)?;
        let wide = graph.broadcast(part, &[2, 3, 3])?;
        let turned = graph.transpose_last(wide)?;
        let square = graph.mul(wide, turned)?;
        graph.unslice(square, 2, 1, 2, 7)
    })
    .check();
}

#[test]
fn rows_by_indices() {
    Function::new(&[&[4, 2]], |graph, x| graph.gather(x[0], x[1]))
        .with(&[2, 3], &[0, 3, 3, 1, 0, 3])
        .check();
    Function::new(&[&[5, 3], &[2, 3]], |graph, x| {
        let sums = graph.scatter_add(x[0], x[2], 2)?;
        graph.mul(sums, x[1])
    })
    .with(&[5], &[1, 0, 1, 1, 0])
    .check();
    Function::new(&[&[2, 3, 4]], |graph, x| graph.pick(x[0], x[1]))
        .with(&[2, 3], &[0, 3, 3, 1, 0, 2])
        .check();
}

#[test]
fn gradients_of_gradients() {
    // Of convolution's gradients, which are operations of their own.
    let conv = Convolution {
        stride: 2,
        padding: 1,
    };
    let shapes: [&[usize]; 2] = [&[2, 2, 5, 4], &[3, 2, 3, 2]];
    Function::new(&shapes, |graph, x| {
        let y = graph.conv2d(x[0], x[1], conv)?;
        let square = graph.mul(y, y)?;
        let inner = differentiate(graph, &[(square, None)], x)?;
        let wide = graph.reshape(inner.gradients[0], &[80])?;
        let other = graph.reshape(inner.gradients[1], &[36])?;
        let [one, other] = [wide, other].map(|node| graph.mean_of_all(node));
        let (one, other) = (one?, other?);
        graph.mul(one, other)
    })
    .check();
    Function::new(&[&[3, 4]], |graph, x| {
        let y = graph.softmax(x[0])?;
        let square = graph.mul(y, y)?;
        let inner = differentiate(graph, &[(square, None)], x)?;
        graph.unary(Unary::Sin, inner.gradients[0])
    })
    .check();
}

#[test]
fn products() {
    Function::new(&[&[2, 3], &[3, 4]], |graph, x| graph.matmul(x[0], x[1])).check();
    Function::new(&[&[5, 2, 3], &[3, 4]], |graph, x| graph.matmul(x[0], x[1])).check();
    Function::new(&[&[2, 1, 2, 3], &[3, 3, 1]], |graph, x| {
        graph.matmul(x[0], x[1])
    })
    .check();
    Function::new(&[&[2, 3], &[5, 3, 4]], |graph, x| graph.matmul(x[0], x[1])).check();
    Function::new(&[&[3, 2], &[4, 3]], |graph, x| {
        let [a, b] = [x[0], x[1]].map(|x| graph.transpose_last(x));
        let (a, b) = (a?, b?);
        graph.matmul(a, b)
    })
    .check();
    Function::new(&[&[3, 3]], |graph, x| graph.matmul(x[0], x[0])).check();
}

#[test]
fn layers() {
    for rows in [&[3, 5][..], &[2, 1, 4], &[3, 1], &[6]] {
        let row = &rows[rows.len() - 1..];
        let norm = [rows, row, row];
        Function::new(&norm, |graph, x| graph.layernorm(x[0], x[1], x[2], 1e-2)).check();
        Function::new(&norm[..2], |graph, x| graph.rmsnorm(x[0], x[1], 1e-2)).check();
        Function::new(&[rows, rows], |graph, x| graph.mse(x[0], x[1])).check();
        let lead = &rows[..rows.len() - 1];
        let labels: Vec<i64> = (0..lead.iter().product::<usize>() as i64)
            .map(|at| at % row[0] as i64)
            .collect();
        Function::new(&[rows], |graph, x| graph.cross_entropy(x[0], x[1]))
            .with(lead, &labels)
            .check();
        let layers: [fn(&mut Graph, NodeId) -> Added; 7] = [
            Graph::softmax,
            Graph::log_softmax,
            Graph::relu,
            Graph::gelu_erf,
            Graph::gelu_tanh,
            Graph::swish,
            Graph::mean_of_all,
        ];
        for layer in layers {
            Function::new(&[rows], |graph, x| layer(graph, x[0])).check();
        }
    }
    Function::new(&[&[2, 3, 4], &[4, 5], &[5]], |graph, x| {
        graph.linear(x[0], x[1], x[2])
    })
    .check();
}

#[test]
fn operands_of_a_layer_that_are_used_elsewhere_too() {
    Function::new(&[&[3, 5], &[5], &[5]], |graph, x| {
        let y = graph.layernorm(x[0], x[1], x[2], 1e-5)?;
        let p = graph.softmax(y)?;
        let sum = graph.add(p, x[0])?;
        graph.mul(sum, y)
    })
    .check();
    // A layer norm whose gain is computed from its input.
    Function::new(&[&[3, 5]], |graph, x| {
        let gain = graph.reduce(Reduction::Sum, x[0], &[0])?;
        graph.rmsnorm(x[0], gain, 1e-5)
    })
    .check();
}

fn extents(rank: usize) -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1usize..4, rank)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn reductions(shape in extents(3), chosen in 0usize..8) {
        let dims: Vec<usize> = (0..3).filter(|dim| chosen >> dim & 1 == 1).collect();
        for reduction in [Reduction::Sum, Reduction::Max] {
            Function::new(&[&shape], |graph, x| graph.reduce(reduction, x[0], &dims)).check();
        }
    }

    #[test]
    fn broadcasts(shape in extents(3), ones in 0usize..8, dropped in 0usize..3) {
        let extent = |dim: usize| if ones >> dim & 1 == 1 { 1 } else { shape[dim] };
        let own: Vec<usize> = (dropped..3).map(extent).collect();
        Function::new(&[&own], |graph, x| {
            let wide = graph.broadcast(x[0], &shape)?;
            graph.mul(wide, wide)
        })
        .check();
    }

    #[test]
    fn convolutions(
        [b, i, o] in [1usize..3, 1..3, 1..3],
        [h, w] in [1usize..6, 1..6],
        [r, s] in [1usize..4, 1..4],
        stride in 1usize..4,
        padding in 0usize..3,
    ) {
        prop_assume!(h + 2 * padding >= r && w + 2 * padding >= s);
        let conv = Convolution { stride, padding };
        let shapes: [&[usize]; 2] = [&[b, i, h, w], &[o, i, r, s]];
        Function::new(&shapes, |graph, x| graph.conv2d(x[0], x[1], conv)).check();
    }

    /// Chains of operations, some of which share operands.
    #[test]
    fn chains(steps in prop::collection::vec((0usize..8, 0usize..100, 0usize..100), 1..8)) {
        Function::new(&[&[2, 3], &[1, 3]], |graph, x| {
            let mut held = vec![x[0], x[1]];
            for &(kind, one, other) in &steps {
                let (a, b) = (held[one % held.len()], held[other % held.len()]);
                held.push(match kind {
                    0 => graph.add(a, b)?,
                    1 => graph.sub(a, b)?,
                    2 => {
                        let product = graph.mul(a, b)?;
                        // Squares of squares grow so fast that differences show nothing.
                        graph.unary(Unary::Tanh, product)?
                    }
                    3 => graph.unary(Unary::Tanh, a)?,
                    4 => graph.softmax(a)?,
                    5 => graph.mean(a, &[0])?,
                    6 => graph.gelu_tanh(a)?,
                    _ => graph.unary(Unary::Sigmoid, a)?,
                });
            }
            let last = held[held.len() - 1];
            graph.unary(Unary::Sin, last)
        })
        .check();
    }
}

#[test]
fn where_there_is_no_derivative_one_is_chosen() {
    let gradients = |build: &dyn Fn(&mut Graph, &[NodeId]) -> Added, values: &[f64]| {
        let mut graph = Graph::new();
        let shape = [values.len()];
        let x = graph.input("x", &shape, Dtype::F32, Role::Input).unwrap();
        let zero = graph
            .input("zero", &shape, Dtype::F32, Role::Input)
            .unwrap();
        let y = build(&mut graph, &[x, zero]).unwrap();
        let backward = differentiate(&mut graph, &[(y, None)], &[x, zero]).unwrap();
        let inputs = [("x", values.to_vec()), ("zero", vec![0.0; values.len()])]
            .map(|(name, values)| (name.to_owned(), Tensor::f64(shape, values)));
        let found = evaluate_nodes(&graph, &inputs.into(), &backward.gradients).unwrap();
        [0, 1].map(|at: usize| found[at].as_f64().unwrap().to_vec())
    };
    let [by_x, by_zero] = gradients(
        &|graph, x| graph.binary(Binary::Max, x[0], x[1]),
        &[0.0, 1.0],
    );
    assert_eq!((by_x, by_zero), (vec![0.0, 1.0], vec![1.0, 0.0]));
    let [by_x, by_zero] = gradients(
        &|graph, x| graph.binary(Binary::Min, x[0], x[1]),
        &[0.0, -1.0],
    );
    assert_eq!((by_x, by_zero), (vec![0.0, 1.0], vec![1.0, 0.0]));
    let [by_x, _] = gradients(&|graph, x| graph.unary(Unary::Abs, x[0]), &[0.0, -3.0]);
    assert_eq!(by_x, [0.0, -1.0]);
    let [by_x, _] = gradients(&|graph, x| graph.relu(x[0]), &[0.0, 3.0]);
    assert_eq!(by_x, [0.0, 1.0]);
    let most = |graph: &mut Graph, x: &[NodeId]| graph.reduce(Reduction::Max, x[0], &[0]);
    let [by_x, by_zero] = gradients(&most, &[2.0, 1.0, 2.0]);
    assert_eq!(by_x, [0.5, 0.0, 0.5]);
    // Nothing depends on it.
    assert_eq!(by_zero, [0.0; 3]);
}

#[test]
fn several_results_and_gradients_by_nodes_between() {
    let mut graph = Graph::new();
    let x = graph.input("x", &[2], Dtype::F32, Role::Input).unwrap();
    let square = graph.mul(x, x).unwrap();
    let sum = graph.reduce(Reduction::Sum, square, &[0]).unwrap();
    let of = [(sum, None), (square, Some(x)), (sum, None)];
    let backward = differentiate(&mut graph, &of, &[square, x]).unwrap();
    let inputs = [("x".to_owned(), Tensor::f64([2], vec![3.0, -1.0]))].into();
    let found = evaluate_nodes(&graph, &inputs, &backward.gradients).unwrap();
    assert_eq!(found[0].as_f64(), Some(&[5.0, 1.0][..]));
    assert_eq!(found[1].as_f64(), Some(&[30.0, -2.0][..]));
}

#[test]
fn what_has_no_gradient_is_refused() {
    let mut graph = Graph::new();
    let x = graph.input("x", &[2, 3], Dtype::F32, Role::Input).unwrap();
    let other = graph.input("other", &[3], Dtype::F32, Role::Input).unwrap();
    let labels = graph
        .input("labels", &[2], Dtype::I64, Role::Input)
        .unwrap();
    let y = graph.softmax(x).unwrap();
    let before = graph.clone();
    let mut error = |of: &[(NodeId, Option<NodeId>)], by: &[NodeId]| {
        differentiate(&mut graph, of, by).unwrap_err().to_string()
    };
    assert_eq!(
        error(&[(y, Some(other))], &[x]),
        "gradient as %10: shapes [2, 3] and [3] don't fit: a seed has the shape of what it is for"
    );
    assert_eq!(
        error(&[(y, None)], &[x, labels]),
        "gradient as %10: %2 is i64, expected f32"
    );
    assert!(error(&[(labels, None)], &[x]).contains("%2 is i64"));
    assert!(error(&[(y, Some(labels))], &[x]).contains("%2 is i64"));
    assert_eq!(graph, before);
}

/// The backward pass of a layer of `x` (2, 4) with parameters (4), as text, and the values of the
/// forward pass that it reads.
fn backward_text(
    build: impl Fn(&mut Graph, &[NodeId]) -> Added,
    parameters: usize,
) -> (String, Vec<String>) {
    let shapes: Vec<&[usize]> = [&[2, 4][..]]
        .into_iter()
        .chain(vec![&[4][..]; parameters])
        .collect();
    let (graph, y, backward, _) = Function::new(&shapes, build).graph();
    let text = graph.to_string();
    let lines = text.lines().skip(backward.from.index());
    let ending = |node: NodeId| match node == y {
        true => "the result".to_owned(),
        false => graph.node(node).op.name().to_owned(),
    };
    let saved = saved(&graph, backward.from)
        .into_iter()
        .map(ending)
        .collect();
    (lines.collect::<Vec<_>>().join("\n"), saved)
}

#[test]
fn little_is_saved() {
    let layers: [Saves; 7] = [
        (|graph, x| graph.softmax(x[0]), 0, &["the result"]),
        (|graph, x| graph.log_softmax(x[0]), 0, &["the result"]),
        (|graph, x| graph.relu(x[0]), 0, &["the result"]),
        (|graph, x| graph.gelu_erf(x[0]), 0, &[]),
        (|graph, x| graph.gelu_tanh(x[0]), 0, &[]),
        (|graph, x| graph.rmsnorm(x[0], x[1], 1e-5), 1, &["rsqrt"]),
        (|graph, x| graph.mse(x[0], x[1]), 1, &[]),
    ];
    for (layer, parameters, expected) in layers {
        let (text, saved) = backward_text(layer, parameters);
        assert_eq!(saved, expected, "{text}");
    }
    let norm = |graph: &mut Graph, x: &[NodeId]| graph.layernorm(x[0], x[1], x[2], 1e-5);
    let (_, saved) = backward_text(norm, 2);
    // The mean, and the inverse deviation.
    assert_eq!(saved, ["mul", "rsqrt"]);
}

#[test]
fn backward_of_a_layer_norm() {
    let norm = |graph: &mut Graph, x: &[NodeId]| graph.layernorm(x[0], x[1], x[2], 1e-5);
    let (text, _) = backward_text(norm, 2);
    assert_eq!(
        text,
        concat!(
            "%27 = broadcast(%7) : f32[2, 4] in layernorm_backward\n",
            "%28 = sub(%0, %27) : f32[2, 4] in layernorm_backward\n",
            "%29 = broadcast(%17) : f32[2, 4] in layernorm_backward\n",
            "%30 = mul(%28, %29) : f32[2, 4] in layernorm_backward\n",
            "%31 = reshape(%1) : f32[1, 4] in layernorm_backward\n",
            "%32 = broadcast(%31) : f32[2, 4] in layernorm_backward\n",
            "%33 = mul(%26, %32) : f32[2, 4] in layernorm_backward\n",
            "%34 = mul(%33, %30) : f32[2, 4] in layernorm_backward\n",
            "%35 = sum(%34; dims [1]) : f32[2, 1] in layernorm_backward\n",
            "%36 = constant(0.25) : f32[] in layernorm_backward\n",
            "%37 = reshape(%36) : f32[1, 1] in layernorm_backward\n",
            "%38 = broadcast(%37) : f32[2, 1] in layernorm_backward\n",
            "%39 = mul(%35, %38) : f32[2, 1] in layernorm_backward\n",
            "%40 = broadcast(%39) : f32[2, 4] in layernorm_backward\n",
            "%41 = mul(%30, %40) : f32[2, 4] in layernorm_backward\n",
            "%42 = sum(%33; dims [1]) : f32[2, 1] in layernorm_backward\n",
            "%43 = mul(%42, %38) : f32[2, 1] in layernorm_backward\n",
            "%44 = broadcast(%43) : f32[2, 4] in layernorm_backward\n",
            "%45 = sub(%33, %44) : f32[2, 4] in layernorm_backward\n",
            "%46 = sub(%45, %41) : f32[2, 4] in layernorm_backward\n",
            "%47 = mul(%46, %29) : f32[2, 4] in layernorm_backward\n",
            "%48 = mul(%26, %30) : f32[2, 4] in layernorm_backward\n",
            "%49 = sum(%48; dims [0]) : f32[1, 4] in layernorm_backward\n",
            "%50 = reshape(%49) : f32[4] in layernorm_backward\n",
            "%51 = sum(%26; dims [0]) : f32[1, 4] in layernorm_backward\n",
            "%52 = reshape(%51) : f32[4] in layernorm_backward",
        )
    );
}

#[test]
fn backward_of_a_softmax() {
    let (text, _) = backward_text(|graph, x| graph.softmax(x[0]), 0);
    assert_eq!(
        text,
        concat!(
            "%9 = mul(%8, %7) : f32[2, 4] in softmax_backward\n",
            "%10 = sum(%9; dims [1]) : f32[2, 1] in softmax_backward\n",
            "%11 = broadcast(%10) : f32[2, 4] in softmax_backward\n",
            "%12 = sub(%8, %11) : f32[2, 4] in softmax_backward\n",
            "%13 = mul(%7, %12) : f32[2, 4] in softmax_backward",
        )
    );
}

#[test]
fn transposed_weights_have_their_gradient_as_it_lies() {
    let shapes: [&[usize]; 2] = [&[2, 3, 4], &[5, 4]];
    let (graph, _, backward, _) = Function::new(&shapes, |graph, x| {
        let turned = graph.transpose_last(x[1])?;
        graph.matmul(x[0], turned)
    })
    .graph();
    let [by_x, by_w] = backward.gradients[..] else {
        unreachable!("two inputs")
    };
    assert_eq!(graph.node(by_w).op, op::Op::Matmul);
    // The weights are not turned twice.
    let product = graph.node(graph.node(by_x).operands[0]);
    assert_eq!(product.op, op::Op::Matmul);
    assert!(matches!(
        graph.node(product.operands[1]).op,
        op::Op::Input(_)
    ));
}
