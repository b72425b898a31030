//! The right answers in f64, written by hand: they share no code with the graph or any backend.
//!
//! Beside each answer stands its *spread*: the L2 norm of the standard deviations of its elements
//! if they were computed in f32 (see [`sweeper_program::rounding`]). All sums are added up in an
//! order that does not depend on the number of threads.

use std::borrow::Cow;

use rayon::prelude::*;

use super::sizes::Sizes;
use crate::spread::spread_of;
use sweeper_program::check;
use sweeper_program::rounding::{DEVIATION, Order};
use sweeper_program::tensor::{Tensor, Tensors};
use sweeper_program::workload::Phase;

/// Elements that one task computes, about.
const PIECE: usize = 1 << 14;

/// What is asked of an oracle: a problem's inputs in f64, a phase, and room for answers.
pub(crate) struct Asked<'a> {
    inputs: &'a Tensors,
    pub(super) sizes: Sizes,
    pub(super) is_forward: bool,
    pub(super) is_backward: bool,
    /// The answers so far, with their spreads.
    pub(super) answers: Tensors,
}

impl<'a> Asked<'a> {
    pub(super) fn new(inputs: &'a Tensors, sizes: Sizes, phase: Phase) -> Self {
        Asked {
            inputs,
            sizes,
            is_forward: phase != Phase::Backward,
            is_backward: phase.has_gradients(),
            answers: Tensors::new(),
        }
    }

    pub(super) fn input(&self, name: &str) -> Cow<'a, [f64]> {
        check::as_f64(&self.inputs[name])
    }

    /// An answer with the sum of its elements' variances, in squares of [`DEVIATION`].
    pub(super) fn answer(&mut self, name: &str, shape: &[usize], values: Vec<f64>, variance: f64) {
        self.answers
            .insert(name.to_owned(), Tensor::f64(shape, values));
        let spread = Tensor::f64([], vec![DEVIATION * variance.sqrt()]);
        self.answers.insert(spread_of(name), spread);
    }

    /// An answer of the operand's shape, row by row: `fill` takes a row's number and its place, and
    /// gives the sum of its elements' variances.
    pub(super) fn answer_rows(
        &mut self,
        name: &str,
        fill: impl Fn(usize, &mut [f64]) -> f64 + Sync,
    ) {
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

    /// An answer that is a mean over `count` terms: `of` gives the sum of a row's terms, and its
    /// variance.
    pub(super) fn answer_mean(
        &mut self,
        name: &str,
        count: f64,
        of: impl Fn(usize) -> [f64; 2] + Sync,
    ) {
        let rows = self.sizes.rows();
        let in_piece = PIECE.div_ceil(self.sizes.dimension);
        let pieces = (0..rows.div_ceil(in_piece)).into_par_iter();
        let add = |sums: [f64; 3], values: [f64; 3]| [0, 1, 2].map(|at| sums[at] + values[at]);
        let sums: Vec<[f64; 3]> = pieces
            .map(|piece| {
                let rows = piece * in_piece..((piece + 1) * in_piece).min(rows);
                let values = rows.map(|row| {
                    let [sum, variance] = of(row);
                    [sum, sum * sum, variance]
                });
                values.fold([0.0; 3], add)
            })
            .collect();
        let [sum, squares, of_rows] = sums.into_iter().fold([0.0; 3], add);
        // The sum over rows, and the division that makes it a mean.
        let variance = Order::over_rows(rows).variance(sum, squares) + sum * sum + of_rows;
        self.answer(name, &[], vec![sum / count], variance / count / count);
    }
}

/// The sum of squares.
pub(super) fn square_sum(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum()
}

#[cfg(test)]
mod tests;
