//! The right answers in f64, written by hand: they share no code with the graph or any backend.
//!
//! Beside each answer stands its *spread*: the L2 norm of the standard deviations of its elements
//! if they were computed in f32 (see [`sweeper_program::rounding`]). All sums are added up in an
//! order that does not depend on the number of threads.

mod activation;
mod loss;
mod norm;
mod softmax;

use std::borrow::Cow;

use rayon::prelude::*;

use super::sizes::{Kind, Sizes};
use sweeper_program::check;
use sweeper_program::rounding::DEVIATION;
use sweeper_program::tensor::{Tensor, Tensors};
use sweeper_program::workload::Phase;

/// Elements that one task computes, about.
const PIECE: usize = 1 << 14;

/// A problem's inputs in f64, and room for answers.
struct Asked<'a> {
    inputs: &'a Tensors,
    sizes: Sizes,
    answers: Tensors,
}

/// The answers for `phase`, with their spreads.
pub(super) fn oracle(kind: Kind, sizes: &Sizes, inputs: &Tensors, phase: Phase) -> Tensors {
    let mut asked = Asked {
        inputs,
        sizes: *sizes,
        answers: Tensors::new(),
    };
    let is_forward = phase != Phase::Backward;
    let is_backward = phase.has_gradients();
    match kind {
        Kind::LayerNorm | Kind::RmsNorm => {
            norm::answer(&mut asked, kind, is_forward, is_backward);
        }
        Kind::Softmax => softmax::answer(&mut asked, is_forward, is_backward),
        Kind::GeluErf | Kind::GeluTanh | Kind::Swish => {
            activation::answer(&mut asked, kind, is_forward, is_backward);
        }
        Kind::Mse => loss::mse(&mut asked, is_forward, is_backward),
        Kind::CrossEntropy => loss::cross_entropy(&mut asked, is_forward, is_backward),
    }
    asked.answers
}

/// The name of an answer's spread among the answers.
pub(super) fn spread_of(name: &str) -> String {
    format!("spread of {name}")
}

impl<'a> Asked<'a> {
    fn input(&self, name: &str) -> Cow<'a, [f64]> {
        check::as_f64(&self.inputs[name])
    }

    /// An answer with the sum of its elements' variances, in squares of [`DEVIATION`].
    fn answer(&mut self, name: &str, shape: &[usize], values: Vec<f64>, variance: f64) {
        self.answers
            .insert(name.to_owned(), Tensor::f64(shape, values));
        let spread = Tensor::f64([], vec![DEVIATION * variance.sqrt()]);
        self.answers.insert(spread_of(name), spread);
    }

    /// An answer of the operand's shape, row by row: `fill` takes a row's number and its place, and
    /// gives the sum of its elements' variances.
    fn answer_rows(&mut self, name: &str, fill: impl Fn(usize, &mut [f64]) -> f64 + Sync) {
        let mut values = vec![0.0; self.sizes.elements()];
        let dimension = self.sizes.dimension;
        let rows = PIECE.div_ceil(dimension);
        let pieces = values.par_chunks_mut(rows * dimension).enumerate();
        let variances: Vec<f64> = pieces
            .map(|(piece, values)| {
                let places = values.chunks_exact_mut(dimension).enumerate();
                places.map(|(at, row)| fill(piece * rows + at, row)).sum()
            })
            .collect();
        let variance = variances.iter().sum();
        self.answer(name, &self.sizes.shape(), values, variance);
    }

    /// The sums over rows of what `of` gives for each, as many at once as it says.
    fn sum_rows<const N: usize>(&self, of: impl Fn(usize) -> [f64; N] + Sync) -> [f64; N] {
        let rows = self.sizes.rows();
        let count = PIECE.div_ceil(self.sizes.dimension);
        let pieces = (0..rows.div_ceil(count)).into_par_iter();
        let add = |mut sums: [f64; N], values: [f64; N]| {
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += value;
            }
            sums
        };
        let sums: Vec<[f64; N]> = pieces
            .map(|piece| {
                let rows = piece * count..((piece + 1) * count).min(rows);
                rows.map(&of).fold([0.0; N], add)
            })
            .collect();
        sums.into_iter().fold([0.0; N], add)
    }

    /// Row `row` of an operand.
    fn row<'b>(&self, values: &'b [f64], row: usize) -> &'b [f64] {
        let dimension = self.sizes.dimension;
        &values[row * dimension..(row + 1) * dimension]
    }
}

/// The norm of a vector.
pub(super) fn norm_of(values: &[f64]) -> f64 {
    let squares = values.par_chunks(PIECE);
    let squares: Vec<f64> = squares
        .map(|piece| piece.iter().map(|value| value * value).sum())
        .collect();
    squares.iter().sum::<f64>().sqrt()
}

fn square_sum(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum()
}

#[cfg(test)]
mod tests;
