//! Layers against formulas written out by hand, which share nothing with the graph.

use super::*;
use crate::graph::evaluate_nodes;
use sweeper_program::Role;
use sweeper_program::inputs::InputKey;
use sweeper_program::tensor::{Dtype, Tensor, Tensors};

const ROWS: usize = 5;

/// Values of `x` (5, columns), `row` (columns) and `other` (5, columns), the first spread widely.
fn inputs(columns: usize) -> Tensors {
    let tensor = |name: &str, shape: &[usize], deviation| {
        let stream = InputKey([9; 32]).stream(name);
        let values = stream.normal(shape.iter().product(), deviation);
        let values = values.into_iter().map(f64::from).collect();
        (name.to_owned(), Tensor::f64(shape, values))
    };
    let full = [ROWS, columns];
    let labels: Vec<i64> = (0..ROWS).map(|row| (row * 7 % columns) as i64).collect();
    [
        tensor("x", &full, 5.0),
        tensor("row", &[columns], 1.0),
        tensor("other", &full, 1.0),
        ("labels".to_owned(), Tensor::i64([ROWS], labels)),
    ]
    .into()
}

/// Checks a layer of `x`, `row`, `other`, `labels` at several widths: `expected` takes a row of
/// `x`, the values of `row`, the row of `other` and the label, and yields the row of the result, or
/// where `is_mean` its share of the mean over rows.
fn check(
    is_mean: bool,
    layer: impl Fn(&mut Graph, [NodeId; 4]) -> Added,
    expected: impl Fn(&[f64], &[f64], &[f64], usize) -> Vec<f64>,
) {
    for columns in [1, 2, 7, 64] {
        let inputs = inputs(columns);
        let mut graph = Graph::new();
        let given = ["x", "row", "other", "labels"].map(|name| {
            let tensor = &inputs[name];
            let dtype = if name == "labels" {
                Dtype::I64
            } else {
                Dtype::F32
            };
            graph
                .input(name, tensor.shape(), dtype, Role::Input)
                .unwrap()
        });
        let y = layer(&mut graph, given).unwrap();
        let found = evaluate_nodes(&graph, &inputs, &[y]).unwrap().remove(0);
        let [x, row, other] = ["x", "row", "other"].map(|name| inputs[name].as_f64().unwrap());
        let labels = inputs["labels"].as_i64().unwrap();
        let rows = x.chunks(columns).zip(other.chunks(columns)).zip(labels);
        let rows = rows.map(|((x, other), &label)| expected(x, row, other, label as usize));
        let rows: Vec<Vec<f64>> = rows.collect();
        let (shape, expected) = match is_mean {
            true => (
                vec![],
                vec![rows.concat().iter().sum::<f64>() / ROWS as f64],
            ),
            false => (vec![ROWS, columns], rows.concat()),
        };
        assert_eq!(found.shape(), shape);
        for (&found, expected) in found.as_f64().unwrap().iter().zip(expected) {
            let error = (found - expected).abs() / expected.abs().max(1.0);
            assert!(
                error < 1e-13,
                "{columns} columns: {found}, expected {expected}"
            );
        }
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

/// The error function by its series, for small numbers, and by its continued fraction, for others.
fn erf(x: f64) -> f64 {
    if x.abs() < 3.0 {
        let mut term = x;
        let mut sum = x;
        for n in 1..120 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return sum * consts::FRAC_2_SQRT_PI;
    }
    let z = x.abs();
    let fraction = (1..80)
        .rev()
        .fold(z, |below, n| z + f64::from(n) / 2.0 / below);
    x.signum() * (1.0 - (-z * z).exp() / fraction / consts::PI.sqrt())
}

#[test]
fn norms() {
    check(
        false,
        |graph, [x, row, ..]| {
            let beta = graph.scale(row, 3.0)?;
            graph.layernorm(x, row, beta, 1e-5)
        },
        |x, row, _, _| {
            let centre = mean(x.iter().copied());
            let variance = mean(x.iter().map(|x| (x - centre).powi(2)));
            let normal = x.iter().map(|x| (x - centre) / (variance + 1e-5).sqrt());
            normal
                .zip(row)
                .map(|(x, row)| x * row + 3.0 * row)
                .collect()
        },
    );
    check(
        false,
        |graph, [x, row, ..]| graph.rmsnorm(x, row, 1e-5),
        |x, row, _, _| {
            let square = mean(x.iter().map(|x| x * x));
            let normal = x.iter().map(|x| x / (square + 1e-5).sqrt());
            normal.zip(row).map(|(x, row)| x * row).collect()
        },
    );
}

#[test]
fn softmaxes() {
    let log_sum = |x: &[f64]| x.iter().map(|x| x.exp()).sum::<f64>().ln();
    check(
        false,
        |graph, [x, ..]| graph.softmax(x),
        |x, _, _, _| x.iter().map(|y| (y - log_sum(x)).exp()).collect(),
    );
    check(
        false,
        |graph, [x, ..]| graph.log_softmax(x),
        |x, _, _, _| x.iter().map(|y| y - log_sum(x)).collect(),
    );
}

#[test]
fn activations() {
    let each = |function: fn(f64) -> f64| {
        move |x: &[f64], _: &[f64], _: &[f64], _: usize| x.iter().map(|&x| function(x)).collect()
    };
    check(
        false,
        |graph, [x, ..]| graph.relu(x),
        each(|x| if x < 0.0 { 0.0 } else { x }),
    );
    check(
        false,
        |graph, [x, ..]| graph.gelu_erf(x),
        each(|x| 0.5 * x * (1.0 + erf(x / 2f64.sqrt()))),
    );
    check(
        false,
        |graph, [x, ..]| graph.gelu_tanh(x),
        each(|x| 0.5 * x * (1.0 + ((2.0 / consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())),
    );
    check(
        false,
        |graph, [x, ..]| graph.swish(x),
        each(|x| x / (1.0 + (-x).exp())),
    );
}

#[test]
fn products() {
    check(
        false,
        |graph, [x, row, other, _]| {
            // (5, c) times (c, 5), then (5, 5) times (5, c), plus a row.
            let turned = graph.transpose_last(other)?;
            let square = graph.matmul(x, turned)?;
            graph.linear(square, other, row)
        },
        |x, row, _, _| {
            let inputs = inputs(row.len());
            let other = inputs["other"].as_f64().unwrap();
            let mut sums = row.to_vec();
            for other in other.chunks(row.len()) {
                let product: f64 = x.iter().zip(other).map(|(x, other)| x * other).sum();
                for (sum, other) in sums.iter_mut().zip(other) {
                    *sum += product * other;
                }
            }
            sums
        },
    );
}

#[test]
fn losses() {
    check(
        true,
        |graph, [x, _, other, _]| graph.mse(x, other),
        |x, _, other, _| {
            vec![mean(
                x.iter().zip(other).map(|(x, other)| (x - other).powi(2)),
            )]
        },
    );
    check(
        true,
        |graph, [x, _, _, labels]| graph.cross_entropy(x, labels),
        |x, _, _, label| vec![x.iter().map(|x| x.exp()).sum::<f64>().ln() - x[label]],
    );
}

#[test]
fn layers_are_groups_and_outer_ones_hold() {
    let mut graph = Graph::new();
    let x = graph.input("x", &[2, 3], Dtype::F32, Role::Input).unwrap();
    graph.softmax(x).unwrap();
    graph
        .group("both", |graph| {
            let y = graph.softmax(x)?;
            graph.relu(y)
        })
        .unwrap();
    graph.swish(x).unwrap();
    assert_eq!(graph.groups(), ["softmax", "both", "sigmoid"]);
    assert_eq!(graph.nodes().last().unwrap().group, None);
}

#[test]
fn parameters_of_norms_do_not_widen_them() {
    let mut graph = Graph::new();
    let x = graph.input("x", &[1, 3], Dtype::F32, Role::Input).unwrap();
    let wide = graph
        .input("wide", &[2, 3], Dtype::F32, Role::Parameter)
        .unwrap();
    let narrow = graph
        .input("narrow", &[2], Dtype::F32, Role::Parameter)
        .unwrap();
    for parameter in [wide, narrow] {
        let text = graph.rmsnorm(x, parameter, 1e-5).unwrap_err().to_string();
        assert!(text.starts_with("broadcast as %"), "{text}");
        assert!(graph.layernorm(x, parameter, parameter, 1e-5).is_err());
    }
}

#[test]
fn a_number_has_no_rows() {
    let mut graph = Graph::new();
    let number = graph.constant(1.0);
    let text = graph.softmax(number).unwrap_err().to_string();
    assert_eq!(
        text,
        "amax as %1: shapes [] and [0] don't fit: there is no such dimension"
    );
    assert!(graph.layernorm(number, number, number, 1e-5).is_err());
}
