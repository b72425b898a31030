//! `layernorm` and `rmsnorm`.

use rayon::prelude::*;

use super::{Asked, square_sum};
use crate::operations::sizes::{EPS, Kind};
use sweeper_program::rounding::{FUNCTION, Order};

/// What is known of one row.
#[derive(Clone, Copy, Default)]
struct Row {
    /// The mean, of a layer norm.
    mean: f64,
    /// One over the deviation, or over the root mean square.
    scale: f64,
    /// The variance of what the mean's rounding adds to each normalised element.
    of_mean: f64,
    /// The variance of the scale, relative to it.
    of_scale: f64,
}

impl Row {
    /// The variance of a normalised element: a difference and a product, the mean's and the
    /// scale's.
    fn of_normal(&self, normal: f64) -> f64 {
        normal * normal * (2.0 + self.of_scale) + self.of_mean
    }
}

/// Columns whose gradients are found by one task.
const COLUMNS: usize = 64;

pub(super) fn answer(asked: &mut Asked<'_>, kind: Kind, is_forward: bool, is_backward: bool) {
    let x = asked.input("x");
    let gamma = asked.input("gamma");
    let rows = statistics(asked, &x, kind == Kind::LayerNorm);
    if is_forward {
        let none = vec![0.0; gamma.len()];
        let beta = match kind {
            Kind::LayerNorm => asked.input("beta"),
            _ => none.into(),
        };
        forward(asked, &x, &rows, &gamma, &beta);
    }
    if is_backward {
        let grad = asked.input("grad_out");
        by_x(asked, &x, &rows, &gamma, &grad, kind == Kind::LayerNorm);
        by_parameters(asked, &x, &rows, &grad, kind == Kind::LayerNorm);
    }
}

fn statistics(asked: &Asked<'_>, x: &[f64], is_centred: bool) -> Vec<Row> {
    let count = asked.sizes.dimension as f64;
    let order = Order::in_row(asked.sizes.dimension);
    let statistics = |row: usize| {
        let x = asked.row(x, row);
        let mean = match is_centred {
            true => x.iter().sum::<f64>() / count,
            false => 0.0,
        };
        let squares = x.iter().map(|x| (x - mean).powi(2));
        let fourths: f64 = squares.clone().map(|square| square * square).sum();
        let variance = squares.sum::<f64>() / count;
        let scale = 1.0 / (variance + EPS).sqrt();
        // The sum, the division, and a product of the mean and the scale where that is what is
        // taken off.
        let of_mean =
            order.variance(mean, square_sum(x.iter().copied()) / count / count) + 2.0 * mean * mean;
        let share = variance / (variance + EPS);
        // Squares are those of differences, whose rounding counts twice; then the sum, `EPS`, and
        // the root's inverse, of which the sum is half.
        let of_sum = match variance > 0.0 {
            true => {
                let squares = fourths / (count * variance).powi(2);
                order.variance(1.0, squares) + 5.0 * squares
            }
            false => 0.0,
        };
        Row {
            mean,
            scale,
            of_mean: if is_centred {
                of_mean * scale * scale
            } else {
                0.0
            },
            of_scale: 0.25 * (share * share * of_sum + 2.0) + FUNCTION,
        }
    };
    let rows = (0..asked.sizes.rows()).into_par_iter();
    rows.map(statistics).collect()
}

fn forward(asked: &mut Asked<'_>, x: &[f64], rows: &[Row], gamma: &[f64], beta: &[f64]) {
    let dimension = asked.sizes.dimension;
    asked.answer_rows("out", |at, out| {
        let row = rows[at];
        let x = &x[at * dimension..];
        let mut variance = 0.0;
        for (column, out) in out.iter_mut().enumerate() {
            let normal = (x[column] - row.mean) * row.scale;
            let product = gamma[column] * normal;
            *out = product + beta[column];
            variance +=
                gamma[column].powi(2) * row.of_normal(normal) + product * product + *out * *out;
        }
        variance
    });
}

/// Through the row's mean and its deviation: with `h = gamma grad / n`, `dx_i = scale (n h_i - sum
/// h - normal_i sum(h normal))`, the first sum only where there is a mean.
fn by_x(
    asked: &mut Asked<'_>,
    x: &[f64],
    rows: &[Row],
    gamma: &[f64],
    grad: &[f64],
    is_centred: bool,
) {
    let dimension = asked.sizes.dimension;
    let count = dimension as f64;
    let order = Order::in_row(dimension);
    asked.answer_rows("grad_x", |at, out| {
        let row = rows[at];
        let x = &x[at * dimension..][..dimension];
        let grad = &grad[at * dimension..][..dimension];
        let normal = |column: usize| (x[column] - row.mean) * row.scale;
        let wanted = |column: usize| gamma[column] * grad[column];
        // Sums, and those of squares of their terms.
        let (mut sum, mut along, mut squares, mut along_squares) = (0.0, 0.0, 0.0, 0.0);
        for column in 0..dimension {
            let (wanted, normal) = (wanted(column) / count, normal(column));
            sum += wanted;
            along += wanted * normal;
            squares += wanted * wanted;
            along_squares += (wanted * normal).powi(2);
        }
        // Terms of the first are rounded once, those of the second by normalised elements and two
        // products; the mean's rounding is one for all of them.
        let of_sum = order.variance(sum, squares) + squares + sum * sum;
        let of_along = order.variance(along, along_squares)
            + 4.0 * along_squares
            + along * along * (1.0 + row.of_scale)
            + sum * sum * row.of_mean;
        let (sum, of_sum) = if is_centred {
            (sum, of_sum)
        } else {
            (0.0, 0.0)
        };
        let mut variance = 0.0;
        for (column, out) in out.iter_mut().enumerate() {
            let (wanted, normal) = (wanted(column), normal(column));
            let centred = wanted - sum;
            let correction = normal * along;
            *out = row.scale * (centred - correction);
            let of_difference = wanted * wanted
                + of_sum
                + centred * centred
                + normal * normal * of_along
                + along * along * row.of_normal(normal)
                + correction * correction;
            variance += row.scale.powi(2) * of_difference + *out * *out * (2.0 + row.of_scale);
        }
        variance
    });
}

/// Sums over rows.
fn by_parameters(asked: &mut Asked<'_>, x: &[f64], rows: &[Row], grad: &[f64], is_centred: bool) {
    let dimension = asked.sizes.dimension;
    let order = Order::over_rows(rows.len());
    // For each column: gradients by gamma and beta, squares of their terms, variances of the terms.
    let mut columns = vec![[0.0; 5]; dimension];
    let pieces = columns.par_chunks_mut(COLUMNS).enumerate();
    pieces.for_each(|(piece, columns)| {
        for (at, row) in rows.iter().enumerate() {
            let first = at * dimension + piece * COLUMNS;
            let places = x[first..].iter().zip(&grad[first..]);
            for (sums, (x, grad)) in columns.iter_mut().zip(places) {
                let normal = (x - row.mean) * row.scale;
                let term = grad * normal;
                sums[0] += term;
                sums[1] += grad;
                sums[2] += term * term;
                sums[3] += grad * grad;
                sums[4] += grad * grad * row.of_normal(normal) + term * term;
            }
        }
    });
    let names = ["grad_gamma", "grad_beta"];
    for (at, name) in names
        .into_iter()
        .take(1 + usize::from(is_centred))
        .enumerate()
    {
        let values = columns.iter().map(|sums| sums[at]).collect();
        let of_terms = |sums: &[f64; 5]| if at == 0 { sums[4] } else { 0.0 };
        let variances = columns
            .iter()
            .map(|sums| order.variance(sums[at], sums[2 + at]) + of_terms(sums));
        let variance = variances.sum();
        asked.answer(name, &[dimension], values, variance);
    }
}
