//! Values of single operations, by hand or by loops that share nothing with the code under test.

use super::*;
use crate::graph::op::{Convolution, Reduction, Unary};
use sweeper_program::Role;

/// A graph with inputs, and their values.
#[derive(Default)]
struct Case {
    graph: Graph,
    inputs: Tensors,
}

impl Case {
    fn real(&mut self, name: &str, shape: &[usize], values: &[f64]) -> NodeId {
        let tensor = Tensor::f64(shape, values.to_vec());
        self.inputs.insert(name.to_owned(), tensor);
        let node = self.graph.input(name, shape, Dtype::F32, Role::Input);
        node.expect("an input")
    }

    /// Values that are all different, and of both signs.
    fn counted(&mut self, name: &str, shape: &[usize]) -> NodeId {
        let values: Vec<f64> = (0..shape.iter().product())
            .map(|at| ((at * 7 + 3) % 31) as f64 - 15.0)
            .collect();
        self.real(name, shape, &values)
    }

    fn whole(&mut self, name: &str, shape: &[usize], values: &[i64]) -> NodeId {
        let tensor = Tensor::i64(shape, values.to_vec());
        self.inputs.insert(name.to_owned(), tensor);
        let node = self.graph.input(name, shape, Dtype::I64, Role::Input);
        node.expect("an input")
    }

    fn value(&self, node: NodeId) -> Tensor {
        evaluate_nodes(&self.graph, &self.inputs, &[node])
            .expect("a value")
            .remove(0)
    }

    fn values(&self, node: NodeId) -> Vec<f64> {
        self.value(node).as_f64().expect("real").to_vec()
    }

    fn error(&self, node: NodeId) -> String {
        evaluate_nodes(&self.graph, &self.inputs, &[node])
            .expect_err("refused")
            .to_string()
    }
}

#[test]
fn functions_of_one_element() {
    let mut case = Case::default();
    let x = case.real("x", &[2], &[0.25, -0.5]);
    // The second value of each, for -0.5; for all others the first.
    let expected = [
        (Unary::Neg, 0.5, 1),
        (Unary::Abs, 0.5, 1),
        (Unary::Exp, 0.606_530_659_712_633_4, 1),
        (Unary::Ln, -1.386_294_361_119_890_6, 0),
        (Unary::Sqrt, 0.5, 0),
        (Unary::Rsqrt, 2.0, 0),
        (Unary::Reciprocal, -2.0, 1),
        (Unary::Tanh, -0.462_117_157_260_009_76, 1),
        (Unary::Erf, -0.520_499_877_813_046_5, 1),
        (Unary::Sigmoid, 0.377_540_668_798_145_4, 1),
        (Unary::Sin, -0.479_425_538_604_203, 1),
        (Unary::Cos, 0.877_582_561_890_372_8, 1),
    ];
    assert_eq!(expected.map(|(function, ..)| function), Unary::ALL);
    for (function, value, at) in expected {
        let y = case.graph.unary(function, x).unwrap();
        let found = case.values(y)[at];
        assert!(
            (found - value).abs() < 1e-15,
            "{}: {found}",
            function.name()
        );
    }
}

#[test]
fn functions_of_two_elements() {
    let mut case = Case::default();
    let a = case.real("a", &[3], &[1.0, 2.0, 4.0]);
    let b = case.real("b", &[3], &[2.0, 2.0, -2.0]);
    let expected = [
        [3.0, 4.0, 2.0],
        [-1.0, 0.0, 6.0],
        [2.0, 4.0, -8.0],
        [0.5, 1.0, -2.0],
        [2.0, 2.0, 4.0],
        [1.0, 2.0, -2.0],
        [0.0, 1.0, 0.0],
        [1.0, 0.0, 0.0],
        [1.0, 1.0, 0.0],
    ];
    for (function, expected) in Binary::ALL.into_iter().zip(expected) {
        let y = case.graph.binary(function, a, b).unwrap();
        assert_eq!(case.values(y), expected, "{}", function.name());
    }
    let mask = case.graph.binary(Binary::Less, a, b).unwrap();
    let chosen = case.graph.select(mask, a, b).unwrap();
    assert_eq!(case.values(chosen), [1.0, 2.0, -2.0]);
}

#[test]
fn comparisons_of_whole_numbers_are_exact() {
    let mut case = Case::default();
    // Neighbours that are one number in f64.
    let a = case.whole("a", &[2], &[9_007_199_254_740_993, 5]);
    let b = case.whole("b", &[2], &[9_007_199_254_740_992, 5]);
    let equal = case.graph.binary(Binary::Equal, a, b).unwrap();
    assert_eq!(case.values(equal), [0.0, 1.0]);
}

#[test]
fn what_is_not_a_number_stays_so() {
    let mut case = Case::default();
    let x = case.real("x", &[3], &[1.0, f64::NAN, 2.0]);
    let most = case.graph.reduce(Reduction::Max, x, &[0]).unwrap();
    assert!(case.values(most)[0].is_nan());
    let zero = case.graph.constant(0.0);
    for (a, b) in [(x, zero), (zero, x)] {
        let most = case.graph.binary(Binary::Max, a, b).unwrap();
        assert!(case.values(most)[1].is_nan());
    }
}

#[test]
fn reductions_over_every_choice_of_dimensions() {
    let shape = [3, 1, 5, 2];
    let mut case = Case::default();
    let x = case.counted("x", &shape);
    let elements = case.values(x);
    for chosen in 0..16usize {
        let dims: Vec<usize> = (0..4).filter(|dim| chosen >> dim & 1 == 1).collect();
        let sum = case.graph.reduce(Reduction::Sum, x, &dims).unwrap();
        let most = case.graph.reduce(Reduction::Max, x, &dims).unwrap();
        let kept: Vec<usize> = (0..4)
            .map(|dim| if dims.contains(&dim) { 1 } else { shape[dim] })
            .collect();
        let mut sums = vec![0.0; kept.iter().product()];
        let mut mosts = vec![f64::NEG_INFINITY; sums.len()];
        for (at, &element) in elements.iter().enumerate() {
            let place = [at / 10, 0, at / 2 % 5, at % 2];
            let to = (0..4).fold(0, |to, dim| to * kept[dim] + place[dim] % kept[dim]);
            sums[to] += element;
            mosts[to] = f64::max(mosts[to], element);
        }
        assert_eq!(case.values(sum), sums, "{dims:?}");
        assert_eq!(case.values(most), mosts, "{dims:?}");
    }
}

#[test]
fn reductions_of_views() {
    let mut case = Case::default();
    let x = case.counted("x", &[40, 1]);
    let wide = case.graph.broadcast(x, &[40, 600]).unwrap();
    let turned = case.graph.transpose(wide, &[1, 0]).unwrap();
    let over_rows = case.graph.reduce(Reduction::Sum, turned, &[0]).unwrap();
    let expected: Vec<f64> = case.values(x).iter().map(|x| 600.0 * x).collect();
    assert_eq!(case.values(over_rows), expected);
}

#[test]
fn views_and_what_puts_them_back() {
    let mut case = Case::default();
    let x = case.real("x", &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let odd = case.graph.slice(x, 1, 0, 2, 2).unwrap();
    assert_eq!(case.values(odd), [1.0, 3.0, 4.0, 6.0]);
    let back = case.graph.unslice(odd, 1, 1, 2, 4).unwrap();
    assert_eq!(case.values(back), [0.0, 1.0, 0.0, 3.0, 0.0, 4.0, 0.0, 6.0]);
    let rows = case.graph.unslice(x, 0, 0, 2, 3).unwrap();
    assert_eq!(
        case.values(rows),
        [1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 4.0, 5.0, 6.0]
    );
    let turned = case.graph.transpose_last(x).unwrap();
    let flat = case.graph.reshape(turned, &[6]).unwrap();
    assert_eq!(case.values(flat), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
}

#[test]
fn whole_numbers_and_casts() {
    let mut case = Case::default();
    let iota = case.graph.iota(&[2, 3], 1).unwrap();
    assert_eq!(case.value(iota).as_i64(), Some(&[0, 1, 2, 0, 1, 2][..]));
    let real = case.graph.cast(iota, Dtype::F32).unwrap();
    assert_eq!(case.values(real), [0.0, 1.0, 2.0, 0.0, 1.0, 2.0]);
    let x = case.real("x", &[3], &[-1.9, 2.9, 1e30]);
    let whole = case.graph.cast(x, Dtype::I64).unwrap();
    assert_eq!(case.value(whole).as_i64(), Some(&[-1, 2, i64::MAX][..]));
}

#[test]
fn products_with_transposed_and_repeated_operands() {
    let mut case = Case::default();
    let a = case.counted("a", &[2, 3, 4]);
    let b = case.counted("b", &[5, 4]);
    let turned = case.graph.transpose_last(b).unwrap();
    let one_matrix = case.graph.matmul(a, turned).unwrap();
    let lifted = case.graph.reshape(turned, &[1, 4, 5]).unwrap();
    let repeated = case.graph.matmul(a, lifted).unwrap();
    let (a, b) = (case.values(a), case.values(b));
    let mut expected = Vec::new();
    for row in 0..6 {
        for column in 0..5 {
            expected.push((0..4).map(|k| a[row * 4 + k] * b[column * 4 + k]).sum());
        }
    }
    assert_eq!(case.values(one_matrix), expected);
    assert_eq!(case.values(repeated), expected);
}

/// Every pair of places that a convolution joins: of `x`, of `w` and of the result.
fn pairs(x: [usize; 4], w: [usize; 4], conv: Convolution) -> (Vec<[usize; 3]>, [usize; 4]) {
    let extent = |dim: usize| (x[dim] + 2 * conv.padding - w[dim]) / conv.stride + 1;
    let out = [x[0], w[0], extent(2), extent(3)];
    let flat =
        |shape: [usize; 4], at: [usize; 4]| (0..4).fold(0, |flat, dim| flat * shape[dim] + at[dim]);
    let mut pairs = Vec::new();
    for place in 0..out.iter().product() {
        let [width, height] = [out[3], out[2]];
        let at = [
            place / (width * height * out[1]),
            place / (width * height) % out[1],
            place / width % height,
            place % width,
        ];
        for tap in 0..w[1] * w[2] * w[3] {
            let (i, r, s) = (tap / (w[2] * w[3]), tap / w[3] % w[2], tap % w[3]);
            let met = |out: usize, tap: usize| (out * conv.stride + tap).checked_sub(conv.padding);
            let (Some(row), Some(column)) = (met(at[2], r), met(at[3], s)) else {
                continue;
            };
            if row < x[2] && column < x[3] {
                let from = flat(x, [at[0], i, row, column]);
                pairs.push([from, flat(w, [at[1], i, r, s]), place]);
            }
        }
    }
    (pairs, out)
}

#[test]
fn convolutions_and_their_gradients() {
    let cases = [
        ([1, 1, 1, 1], [1, 1, 1, 1], 1, 0),
        ([2, 3, 5, 6], [4, 3, 3, 2], 1, 1),
        ([1, 2, 7, 5], [3, 2, 3, 3], 2, 1),
        ([2, 1, 4, 9], [2, 1, 2, 5], 3, 4),
        ([1, 2, 3, 3], [1, 2, 7, 1], 1, 2),
        ([1, 1, 2, 2], [1, 1, 1, 1], 1, 3),
    ];
    for (x_shape, w_shape, stride, padding) in cases {
        let conv = Convolution { stride, padding };
        let (pairs, shape) = pairs(x_shape, w_shape, conv);
        let mut case = Case::default();
        let x = case.counted("x", &x_shape);
        let w = case.counted("w", &w_shape);
        let grad = case.counted("grad", &shape);
        let graph = &mut case.graph;
        let out = graph.conv2d(x, w, conv).unwrap();
        assert_eq!(graph.node(out).shape, shape);
        let grad_x = graph
            .conv2d_grad(Op::Conv2dGradX(conv), grad, w, x)
            .unwrap();
        let grad_w = graph
            .conv2d_grad(Op::Conv2dGradW(conv), grad, x, w)
            .unwrap();
        let operands = [x, w, grad].map(|node| case.values(node));
        for (result, node) in [x, w, out].into_iter().enumerate() {
            let mut sums = vec![0.0; case.graph.node(node).elements()];
            for pair in &pairs {
                // The gradient by one factor is the result's gradient times the other factor.
                let factor = |of: usize| match of {
                    _ if of == result => 1.0,
                    _ => operands[of][pair[of]],
                };
                sums[pair[result]] +=
                    factor(0) * factor(1) * if result == 2 { 1.0 } else { factor(2) };
            }
            let found = case.values([grad_x, grad_w, out][result]);
            assert_eq!(found, sums, "{conv:?} {x_shape:?} {w_shape:?} {result}");
        }
    }
}

#[test]
fn indices_that_are_data() {
    let mut case = Case::default();
    let rows = case.real("rows", &[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let indices = case.whole("indices", &[2, 2], &[2, 0, 0, 1]);
    let taken = case.graph.gather(rows, indices).unwrap();
    let expected = [5.0, 6.0, 1.0, 2.0, 1.0, 2.0, 3.0, 4.0];
    assert_eq!(case.value(taken), Tensor::f64([2, 2, 2], expected.to_vec()));
    let sums = case.graph.scatter_add(taken, indices, 4).unwrap();
    assert_eq!(case.values(sums), [2.0, 4.0, 3.0, 4.0, 5.0, 6.0, 0.0, 0.0]);
    let labels = case.whole("labels", &[3], &[1, 0, 1]);
    let own = case.graph.pick(rows, labels).unwrap();
    assert_eq!(case.values(own), [2.0, 3.0, 6.0]);
}

#[test]
fn indices_outside_are_refused() {
    let mut case = Case::default();
    let rows = case.counted("rows", &[3, 2]);
    let indices = case.whole("indices", &[3], &[0, 1, 3]);
    let taken = case.graph.gather(rows, indices).unwrap();
    assert_eq!(
        case.error(taken),
        "gather as %2: index 3 at position 2 is not below 3"
    );
    let own = case.graph.pick(rows, indices).unwrap();
    assert_eq!(
        case.error(own),
        "pick as %3: index 3 at position 2 is not below 2"
    );
    let sums = case.graph.scatter_add(rows, indices, 3).unwrap();
    assert!(
        case.error(sums)
            .contains("index 3 at position 2 is not below 3")
    );
    case.inputs
        .insert("indices".to_owned(), Tensor::i64([3], vec![0, -1, 0]));
    assert!(case.error(taken).contains("index -1 at position 1"));
}

#[test]
fn inputs_must_be_there_and_fit() {
    let mut case = Case::default();
    let x = case.counted("x", &[2, 3]);
    let label = case.whole("label", &[1], &[0]);
    case.inputs
        .insert("x".to_owned(), Tensor::f32([3, 2], vec![0.0; 6]));
    assert_eq!(
        case.error(x),
        "input `x` (%0) is f32[3, 2], the graph takes f32[2, 3]"
    );
    case.inputs
        .insert("label".to_owned(), Tensor::f32([1], vec![0.0]));
    assert_eq!(
        case.error(label),
        "input `label` (%1) is f32[1], the graph takes i64[1]"
    );
    case.inputs.remove("x");
    assert_eq!(case.error(x), "input `x` (%0) is missing");
    // An input that no wanted node needs may be missing.
    case.inputs
        .insert("label".to_owned(), Tensor::new([1], Data::I32(vec![4])));
    assert_eq!(case.value(label), Tensor::i64([1], vec![4]));
}

#[test]
fn results_by_name() {
    let mut case = Case::default();
    let x = case.real("x", &[2], &[1.0, -2.0]);
    let y = case.graph.relu(x).unwrap();
    case.graph.output("y", y, Role::Output);
    case.graph.output("again", y, Role::Output);
    let results = evaluate(&case.graph, &case.inputs).unwrap();
    let expected = Tensor::f64([2], vec![1.0, 0.0]);
    assert_eq!(
        results,
        [("again", expected.clone()), ("y", expected)]
            .map(|(name, tensor)| (name.to_owned(), tensor))
            .into()
    );
}
