//! The right answers in f64, written by hand: they share no code with the graph or any backend.
//!
//! Beside each answer stands its spread ([`sweeper_program::spread`]), from the variances of its
//! elements if they were computed in f32 ([`sweeper_program::rounding`]). All sums are added up in
//! an order that does not depend on the number of threads.

use std::borrow::Cow;

use rayon::prelude::*;

use super::sizes::Sizes;
use sweeper_program::check;
use sweeper_program::rounding::{DEVIATION, LEAST, of_sum};
use sweeper_program::spread::{AxisNoise, Noise, SliceSums, Spread, is_sliced, name_of};
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

    /// An answer with the variances of its elements, in squares of [`DEVIATION`]: of errors that
    /// are independent, and of others that elements have in common.
    pub(super) fn answer(
        &mut self,
        name: &str,
        shape: &[usize],
        values: Vec<f64>,
        variances: Vec<f64>,
        common: CommonNoise,
    ) {
        let total: f64 = variances.iter().sum();
        let own = (1.0 - common.variance / total).max(0.0);
        let squares = own * own * square_sum(variances.iter().copied());
        let freedom = freedom_of([total, squares + common.squared_variance]);
        let places = values.iter().zip(&variances);
        let along = places.map(|(value, variance)| value * value * variance);
        let along = common.along + along.sum::<f64>();
        self.insert(name, shape, (values, variances), (freedom, &[]), along);
    }

    /// An answer of the operand's shape, row by row: `fill` takes a row's number, and the places of
    /// its elements and of their variances. It gives the part of the sum of these variances that is
    /// of one error, which all elements of the row have in common.
    pub(super) fn answer_rows(
        &mut self,
        name: &str,
        fill: impl Fn(usize, &mut [f64], &mut [f64]) -> f64 + Sync,
    ) {
        let elements = self.sizes.elements();
        let (mut values, mut variances) = (vec![0.0; elements], vec![0.0; elements]);
        let dimension = self.sizes.dimension;
        let rows = PIECE.div_ceil(dimension);
        let pieces = values.par_chunks_mut(rows * dimension);
        let pieces = pieces.zip(variances.par_chunks_mut(rows * dimension));
        let rows: Vec<RowNoise> = pieces
            .enumerate()
            .flat_map_iter(|(piece, (values, variances))| {
                let places = values.chunks_exact_mut(dimension);
                let places = places.zip(variances.chunks_exact_mut(dimension));
                let fill = &fill;
                places.enumerate().map(move |(at, (row, variances))| {
                    let common = fill(piece * rows + at, row, variances);
                    RowNoise::new(row, variances, common)
                })
            })
            .collect();
        let along = rows.iter().map(|row| row.along).sum();
        let whole = freedoms(&rows, 1, |_| 0)[0];
        let Sizes {
            batch, sequence, ..
        } = self.sizes;
        let by_axis = [
            freedoms(&rows, batch, |row| row / sequence),
            freedoms(&rows, sequence, |row| row % sequence),
            // Rows have independent errors.
            column_freedoms(&variances, dimension),
        ];
        let shape = self.sizes.shape();
        self.insert(name, &shape, (values, variances), (whole, &by_axis), along);
    }

    /// Inserts an answer with its spread. `freedom` is that of the whole, `freedoms` are those of
    /// the slices along each axis; `along` is the variance of the noise's product with the answer.
    fn insert(
        &mut self,
        name: &str,
        shape: &[usize],
        (values, variances): (Vec<f64>, Vec<f64>),
        (freedom, freedoms): (f64, &[Vec<f64>]),
        along: f64,
    ) {
        let elements = values.len();
        let noise = SliceSums::from_elements(shape, |at| {
            DEVIATION.powi(2) * variances[at].max(LEAST * LEAST)
        });
        let size = square_sum(values.iter().copied());
        let sliced = shape.iter().zip(freedoms);
        let sliced = sliced.filter(|(extent, _)| is_sliced(**extent, elements));
        let axes = noise
            .axes
            .iter()
            .zip(sliced)
            .map(|(sums, (&extent, freedoms))| AxisNoise {
                freedoms: freedoms.clone(),
                mean_squares: sums
                    .iter()
                    .map(|sum| sum * extent as f64 / elements as f64)
                    .collect(),
            });
        let spread = Spread {
            probes: f64::INFINITY,
            whole: Noise {
                freedom: freedom.max(1.0),
                mean_square: noise.whole / elements as f64,
            },
            scale: if size > 0.0 {
                DEVIATION * along.sqrt() / size
            } else {
                0.0
            },
            axes: axes.collect(),
        };
        self.answers.insert(name_of(name), spread.into_tensor());
        self.answers
            .insert(name.to_owned(), Tensor::f64(shape, values));
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
        let variance = of_sum(count as usize, sum, squares) + sum * sum + of_rows;
        let variances = vec![variance / count / count];
        self.answer(
            name,
            &[],
            vec![sum / count],
            variances,
            CommonNoise::default(),
        );
    }
}

/// Errors that elements of an answer have in common, each with the variance of its sum of squares.
#[derive(Default)]
pub(super) struct CommonNoise {
    /// The sum of the variances.
    pub(super) variance: f64,
    /// The sum of their squares.
    pub(super) squared_variance: f64,
    /// The variance of the noise's product with the answer.
    pub(super) along: f64,
}

/// Degrees of freedom of the rows with each index.
fn freedoms(rows: &[RowNoise], extent: usize, index: impl Fn(usize) -> usize) -> Vec<f64> {
    let mut sums = vec![[0.0; 2]; extent];
    for (at, row) in rows.iter().enumerate() {
        let [variance, squares] = &mut sums[index(at)];
        *variance += row.variance;
        *squares += row.squared_variance;
    }
    sums.into_iter().map(freedom_of).collect()
}

/// Degrees of freedom of the columns of elements that are independent of each other.
fn column_freedoms(variances: &[f64], columns: usize) -> Vec<f64> {
    let mut sums = vec![[0.0; 2]; columns];
    for row in variances.chunks_exact(columns) {
        for ([sum, squares], variance) in sums.iter_mut().zip(row) {
            *sum += variance;
            *squares += variance * variance;
        }
    }
    sums.into_iter().map(freedom_of).collect()
}

/// Those of errors whose variances, and the squares of these, have such sums.
fn freedom_of([sum, squares]: [f64; 2]) -> f64 {
    if squares > 0.0 {
        (sum * sum / squares).max(1.0)
    } else {
        1.0
    }
}

/// Sums over a row of an answer.
struct RowNoise {
    /// Variances.
    variance: f64,
    /// Squares of the variances of independent errors: the one that all elements have in common,
    /// and those of their own.
    squared_variance: f64,
    /// The variance of the product of the noise with the row.
    along: f64,
}

impl RowNoise {
    fn new(values: &[f64], variances: &[f64], common: f64) -> Self {
        let variance: f64 = variances.iter().sum();
        let own = f64::max(variance - common, 0.0);
        let places = values.iter().zip(variances);
        let along: f64 = places
            .map(|(value, variance)| value * value * variance)
            .sum();
        RowNoise {
            variance,
            squared_variance: common * common + own * own / values.len() as f64,
            along: along + common * square_sum(values.iter().copied()),
        }
    }
}

/// The sum of squares.
pub(super) fn square_sum(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum()
}

#[cfg(test)]
mod tests;
