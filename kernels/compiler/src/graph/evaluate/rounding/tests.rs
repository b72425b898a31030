//! Factors that are rounded: how far products of them are from the right ones, and sums of these.

use super::*;
use crate::graph::{evaluate_nodes, evaluate_rounded};
use sweeper_program::Role;
use sweeper_program::tensor::{Dtype, Tensor};

const ROWS: usize = 2048;
const TERMS: usize = 24;
const COLUMNS: usize = 8;

/// The allowed error of a result in root mean squares of three probes.
const MARGIN: f64 = 3.0;

/// A product, and the sums of its columns.
struct Sums {
    graph: Graph,
    product: NodeId,
    sums: NodeId,
    x: Vec<f32>,
    w: Vec<f32>,
}

impl Sums {
    /// The rows are alike, so that errors of `w` do not cancel in sums over them.
    fn new(seed: u8) -> Self {
        let mut graph = Graph::default();
        let mut input = |name: &str, shape: [usize; 2]| {
            let node = graph.input(name, &shape, Dtype::F32, Role::Input);
            node.unwrap()
        };
        let (x, w) = (input("x", [ROWS, TERMS]), input("w", [TERMS, COLUMNS]));
        let product = graph.matmul(x, w).unwrap();
        let sums = graph.reduce(Reduction::Sum, product, &[0]).unwrap();
        let key = InputKey([seed; 32]);
        Sums {
            graph,
            product,
            sums,
            x: key.stream("x").uniform(ROWS * TERMS, 0.5, 1.5),
            w: key.stream("w").normal(TERMS * COLUMNS, 1.0),
        }
    }

    /// The inputs with `bits` of their significands, rounded to nearest.
    fn inputs(&self, bits: u32) -> Tensors {
        let kept = |value: &f32| {
            let dropped = 24 - bits;
            let half = (1 << dropped) / 2;
            f32::from_bits((value.to_bits() + half) & (u32::MAX << dropped))
        };
        let tensor = |shape: [usize; 2], values: &[f32]| {
            Tensor::f32(shape, values.iter().map(kept).collect())
        };
        let x = tensor([ROWS, TERMS], &self.x);
        let w = tensor([TERMS, COLUMNS], &self.w);
        [("x".to_owned(), x), ("w".to_owned(), w)].into()
    }

    fn exact(&self, node: NodeId, bits: u32) -> Vec<f64> {
        let values = evaluate_nodes(&self.graph, &self.inputs(bits), &[node]).unwrap();
        values[0].as_f64().unwrap().to_vec()
    }

    /// The error of a node of factors with so many bits.
    fn error(&self, node: NodeId, bits: u32) -> f64 {
        distance(&self.exact(node, bits), &self.exact(node, 24))
    }

    /// The allowed error of a node.
    fn tolerance(&self, node: NodeId, precision: Precision) -> f64 {
        let exact = self.exact(node, 24);
        let probes = (0..3).map(|probe| {
            let rounding = Rounding { precision, probe };
            let values = evaluate_rounded(&self.graph, &self.inputs(24), &[node], rounding);
            distance(values.unwrap()[0].as_f64().unwrap(), &exact).powi(2)
        });
        MARGIN * (probes.sum::<f64>() / 3.0).sqrt()
    }

    /// The allowed error of the sums if the product's elements in tf32 were off independently: each
    /// by the errors of its terms, and by what its size lacks where factors are truncated.
    fn tolerance_of_independent_elements(&self) -> f64 {
        let unit = f64::exp2(-11.0) / 3_f64.sqrt();
        let mut squares = 0.0;
        for row in self.x.chunks(TERMS) {
            for column in 0..COLUMNS {
                let terms = row.iter().zip(self.w[column..].iter().step_by(COLUMNS));
                let terms = terms.map(|(&x, &w)| f64::from(x) * f64::from(w));
                let of_terms: f64 = terms.clone().map(|term| term * term).sum();
                squares += unit.powi(2) * (2.0 * of_terms + 4.0 * terms.sum::<f64>().powi(2));
            }
        }
        MARGIN * squares.sqrt()
    }
}

fn distance(one: &[f64], other: &[f64]) -> f64 {
    let squares = one
        .iter()
        .zip(other)
        .map(|(one, other)| (one - other).powi(2));
    squares.sum::<f64>().sqrt()
}

#[test]
fn errors_of_a_factor_add_up_over_the_rows_that_it_is_in() {
    for seed in 0..6 {
        let case = Sums::new(seed);
        let error = case.error(case.sums, 11);
        let independent = case.tolerance_of_independent_elements();
        assert!(error > independent, "{seed}: {error} {independent}");
        let tolerance = case.tolerance(case.sums, Precision::Tf32);
        assert!(error < tolerance, "{seed}: {error} {tolerance}");
        assert!(error > 0.1 * tolerance, "{seed}: {error} {tolerance}");
    }
}

/// A tolerance is no wider than its number format: results of the next shorter one are found.
#[test]
fn products_of_shorter_factors_are_too_far_out() {
    let formats = [
        (Precision::F32, 24, 11),
        (Precision::Tf32, 11, 8),
        (Precision::Bf16, 8, 5),
    ];
    for seed in 0..3 {
        let case = Sums::new(seed);
        for (precision, own, shorter) in formats {
            for node in [case.product, case.sums] {
                let tolerance = case.tolerance(node, precision);
                let [own, shorter] = [own, shorter].map(|bits| case.error(node, bits));
                let what = format!("{seed} {precision:?} {node}: {own} {tolerance} {shorter}");
                assert!(own < tolerance && tolerance < shorter, "{what}");
            }
        }
    }
}

/// A product is its transpose's transpose, but for the rounding of its sums: factors that are read
/// in another order are off by as much.
#[test]
fn a_factor_is_off_by_as_much_wherever_it_is_read() {
    let mut case = Sums::new(9);
    let graph = &mut case.graph;
    let [x, w] = ["x", "w"].map(|name| {
        let mut ids = graph.ids();
        let is_it = |&id: &NodeId| graph.node(id).op == Op::Input(name.to_owned());
        ids.find(is_it).unwrap()
    });
    let (x_turned, w_turned) = (
        graph.transpose_last(x).unwrap(),
        graph.transpose_last(w).unwrap(),
    );
    let turned = graph.matmul(w_turned, x_turned).unwrap();
    let again = graph.transpose_last(turned).unwrap();
    let difference = graph.sub(case.product, again).unwrap();
    let rounding = Rounding {
        precision: Precision::Tf32,
        probe: 1,
    };
    let values = evaluate_rounded(&case.graph, &case.inputs(24), &[difference], rounding).unwrap();
    let apart = distance(values[0].as_f64().unwrap(), &[0.0; ROWS * COLUMNS]);
    let [in_f32, in_tf32] =
        [Precision::F32, Precision::Tf32].map(|precision| case.tolerance(case.product, precision));
    assert!(apart > 0.0 && apart < in_f32, "{apart} {in_f32}");
    assert!(in_f32 < 1e-2 * in_tf32, "{in_f32} {in_tf32}");
}
