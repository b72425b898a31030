//! `layernorm` and `rmsnorm`.

use rayon::prelude::*;

use super::{Asked, square_sum};
use crate::operations::sizes::{EPS, Kind};

/// What is known of one row.
#[derive(Clone, Copy, Default)]
struct Row {
    /// The mean, of a layer norm.
    mean: f64,
    /// One over the deviation, or over the root mean square.
    scale: f64,
    /// By how much rounding of the row's elements grows in its normalised ones: 1 and the greatest element
    /// times the scale.
    growth: f64,
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
    let statistics = |row: usize| {
        let x = asked.row(x, row);
        let mean = match is_centred {
            true => x.iter().sum::<f64>() / count,
            false => 0.0,
        };
        let variance = square_sum(x.iter().map(|x| x - mean)) / count;
        let scale = 1.0 / (variance + EPS).sqrt();
        let greatest = x.iter().fold(0.0, |most, x| f64::max(most, x.abs()));
        Row {
            mean,
            scale,
            growth: 1.0 + greatest * scale,
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
        let mut square = 0.0;
        for (column, out) in out.iter_mut().enumerate() {
            let normal = (x[column] - row.mean) * row.scale;
            *out = gamma[column] * normal + beta[column];
            let weight = gamma[column].abs() * row.growth + beta[column].abs();
            square += weight * weight;
        }
        square
    });
}

/// Through the row's mean and its deviation: with `h = gamma grad / n`,
/// `dx_i = scale (n h_i - sum h - normal_i sum(h normal))`, the first sum only where there is a mean.
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
    asked.answer_rows("grad_x", |at, out| {
        let row = rows[at];
        let x = &x[at * dimension..][..dimension];
        let grad = &grad[at * dimension..][..dimension];
        let normal = |column: usize| (x[column] - row.mean) * row.scale;
        let wanted = |column: usize| gamma[column] * grad[column];
        let (mut sum, mut along, mut sizes, mut along_sizes) = (0.0, 0.0, 0.0, 0.0);
        for column in 0..dimension {
            let (wanted, normal) = (wanted(column), normal(column));
            sum += wanted / count;
            along += wanted * normal / count;
            sizes += wanted.abs() / count;
            along_sizes += (wanted * normal).abs() / count;
        }
        if !is_centred {
            (sum, sizes) = (0.0, 0.0);
        }
        let mut square = 0.0;
        for (column, out) in out.iter_mut().enumerate() {
            let (wanted, normal) = (wanted(column), normal(column));
            *out = row.scale * (wanted - sum - normal * along);
            let terms = wanted.abs() + sizes + normal.abs() * along_sizes;
            let weight = row.scale * row.growth * terms;
            square += weight * weight;
        }
        square
    });
}

/// Sums over rows. Their weights are the greatest sum on the way, which is what is rounded, and the terms' own
/// errors, which are as good as independent.
fn by_parameters(asked: &mut Asked<'_>, x: &[f64], rows: &[Row], grad: &[f64], is_centred: bool) {
    let dimension = asked.sizes.dimension;
    // For each column: gradients by gamma and beta, the greatest sums on the way, squares of terms.
    let mut columns = vec![[0.0; 6]; dimension];
    let pieces = columns.par_chunks_mut(COLUMNS).enumerate();
    pieces.for_each(|(piece, columns)| {
        for (at, row) in rows.iter().enumerate() {
            let first = at * dimension + piece * COLUMNS;
            let places = x[first..].iter().zip(&grad[first..]);
            for (sums, (x, grad)) in columns.iter_mut().zip(places) {
                let term = grad * (x - row.mean) * row.scale;
                sums[0] += term;
                sums[1] += grad;
                sums[2] = f64::max(sums[2], sums[0].abs());
                sums[3] = f64::max(sums[3], sums[1].abs());
                sums[4] += (grad * row.growth).powi(2);
                sums[5] += grad * grad;
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
        let weights = columns
            .iter()
            .map(|sums| sums[2 + at] + sums[4 + at].sqrt());
        let weight = square_sum(weights).sqrt();
        asked.answer(name, &[dimension], values, weight);
    }
}
