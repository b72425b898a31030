//! Rows over their deviation: what `layernorm` and `rmsnorm` share.

use std::borrow::Cow;

use rayon::prelude::*;

use super::oracle::{Asked, CommonNoise, square_sum};
use super::sizes::Sizes;
use sweeper_program::rounding::{self, FUNCTION};

/// Added to variances and mean squares.
pub(super) const EPS: f64 = 1e-5;

/// Columns whose gradients are found by one task.
const COLUMNS: usize = 64;

/// What is known of one row.
#[derive(Clone, Copy)]
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
    fn of(x: &[f64], is_centred: bool) -> Self {
        let count = x.len() as f64;
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
        let squares_of_terms = square_sum(x.iter().copied()) / count / count;
        let of_mean = rounding::of_sum(x.len(), mean, squares_of_terms) + 2.0 * mean * mean;
        let share = variance / (variance + EPS);
        // Squares are those of differences, whose rounding counts twice; then the sum, `EPS`, and
        // the root's inverse, of which the sum is half.
        let of_sum = match variance > 0.0 {
            true => {
                let squares = fourths / (count * variance).powi(2);
                rounding::of_sum(x.len(), 1.0, squares) + 5.0 * squares
            }
            false => 0.0,
        };
        Row {
            mean,
            scale,
            of_mean: match is_centred {
                true => of_mean * scale * scale,
                false => 0.0,
            },
            of_scale: 0.25 * (share * share * of_sum + 2.0) + FUNCTION,
        }
    }

    /// A normalised element.
    fn normal(&self, x: f64) -> f64 {
        (x - self.mean) * self.scale
    }

    /// The variance of a normalised element: a difference and a product, the mean's and the
    /// scale's.
    fn of_normal(&self, normal: f64) -> f64 {
        normal * normal * (2.0 + self.of_scale) + self.of_mean
    }
}

/// The oracle of rows that are normalised.
pub(super) struct Norm<'a> {
    sizes: Sizes,
    x: Cow<'a, [f64]>,
    gamma: Cow<'a, [f64]>,
    rows: Vec<Row>,
    is_centred: bool,
}

impl<'a> Norm<'a> {
    /// Of rows less their mean, if they are centred.
    pub(super) fn new(asked: &Asked<'a>, is_centred: bool) -> Self {
        let (x, sizes) = (asked.input("x"), asked.sizes);
        let rows = (0..sizes.rows()).into_par_iter();
        let rows = rows.map(|row| Row::of(sizes.row(&x, row), is_centred));
        Norm {
            sizes,
            rows: rows.collect(),
            x,
            gamma: asked.input("gamma"),
            is_centred,
        }
    }

    /// `gamma normal + beta`
    pub(super) fn forward(&self, asked: &mut Asked<'_>, beta: &[f64]) {
        asked.answer_rows("out", |at, out, variances| {
            let row = self.rows[at];
            let x = self.sizes.row(&self.x, at);
            let mut common = 0.0;
            for (column, (out, variance)) in out.iter_mut().zip(variances).enumerate() {
                let (gamma, normal) = (self.gamma[column], row.normal(x[column]));
                let product = gamma * normal;
                *out = product + beta[column];
                *variance = gamma.powi(2) * row.of_normal(normal) + product * product + *out * *out;
                common += product * product * row.of_scale + gamma.powi(2) * row.of_mean;
            }
            common
        });
    }

    /// By `x`, by the gain, and by the bias where rows are centred.
    pub(super) fn backward(&self, asked: &mut Asked<'_>) {
        let grad = asked.input("grad_out");
        asked.answer_rows("grad_x", |at, out, variances| {
            self.by_x(at, self.sizes.row(&grad, at), out, variances)
        });
        self.by_parameters(asked, &grad);
    }

    /// Through the row's mean and its deviation: with `h = gamma grad / n`, `dx_i = scale (n h_i -
    /// sum h - normal_i sum(h normal))`, the first sum only where there is a mean.
    fn by_x(&self, at: usize, grad: &[f64], out: &mut [f64], variances: &mut [f64]) -> f64 {
        let (row, x) = (self.rows[at], self.sizes.row(&self.x, at));
        let count = x.len() as f64;
        let wanted = |column: usize| self.gamma[column] * grad[column];
        // Sums, and those of squares of their terms.
        let (mut sum, mut along, mut squares, mut along_squares) = (0.0, 0.0, 0.0, 0.0);
        for (column, &x) in x.iter().enumerate() {
            let (wanted, normal) = (wanted(column) / count, row.normal(x));
            sum += wanted;
            along += wanted * normal;
            squares += wanted * wanted;
            along_squares += (wanted * normal).powi(2);
        }
        // Terms of the first are rounded once, those of the second by normalised elements and two
        // products; the mean's rounding is one for all of them.
        let of_sum = rounding::of_sum(x.len(), sum, squares) + squares + sum * sum;
        let of_along = rounding::of_sum(x.len(), along, along_squares)
            + 4.0 * along_squares
            + along * along * (1.0 + row.of_scale)
            + sum * sum * row.of_mean;
        let (sum, of_sum) = match self.is_centred {
            true => (sum, of_sum),
            false => (0.0, 0.0),
        };
        let mut common = 0.0;
        for (column, (out, variance)) in out.iter_mut().zip(variances).enumerate() {
            let (wanted, normal) = (wanted(column), row.normal(x[column]));
            let centred = wanted - sum;
            let correction = normal * along;
            *out = row.scale * (centred - correction);
            let of_difference = wanted * wanted
                + of_sum
                + centred * centred
                + normal * normal * of_along
                + along * along * row.of_normal(normal)
                + correction * correction;
            *variance = row.scale.powi(2) * of_difference + *out * *out * (2.0 + row.of_scale);
            let of_sums = of_sum + normal * normal * of_along + along * along * row.of_mean;
            common += row.scale.powi(2) * of_sums + *out * *out * row.of_scale;
        }
        common
    }

    /// The errors of rows' scales: a row adds to the gradient by the gain a multiple of its scale.
    fn common_by_gamma(&self, grad: &[f64], gradient: &[f64]) -> CommonNoise {
        let mut common = CommonNoise::default();
        for (at, row) in self.rows.iter().enumerate() {
            let places = self.sizes.row(&self.x, at).iter();
            let places = places.zip(self.sizes.row(grad, at)).zip(gradient);
            let (mut squares, mut along) = (0.0, 0.0);
            for ((&x, grad), gradient) in places {
                let term = grad * row.normal(x);
                squares += term * term;
                along += term * gradient;
            }
            common.variance += row.of_scale * squares;
            common.squared_variance += (row.of_scale * squares).powi(2);
            common.along += row.of_scale * along * along;
        }
        common
    }

    /// Sums over rows.
    fn by_parameters(&self, asked: &mut Asked<'_>, grad: &[f64]) {
        let dimension = self.sizes.dimension;
        let rows = self.rows.len();
        // For each column: gradients by gamma and beta, squares of their terms, variances of the
        // terms.
        let mut columns = vec![[0.0; 5]; dimension];
        let pieces = columns.par_chunks_mut(COLUMNS).enumerate();
        pieces.for_each(|(piece, columns)| {
            for (at, row) in self.rows.iter().enumerate() {
                let first = at * dimension + piece * COLUMNS;
                let places = self.x[first..].iter().zip(&grad[first..]);
                for (sums, (&x, grad)) in columns.iter_mut().zip(places) {
                    let normal = row.normal(x);
                    let term = grad * normal;
                    sums[0] += term;
                    sums[1] += grad;
                    sums[2] += term * term;
                    sums[3] += grad * grad;
                    sums[4] += grad * grad * row.of_normal(normal) + term * term;
                }
            }
        });
        let names = ["grad_gamma", "grad_beta"].into_iter().enumerate();
        for (at, name) in names.take(1 + usize::from(self.is_centred)) {
            let values = columns.iter().map(|sums| sums[at]);
            let of_terms = |sums: &[f64; 5]| if at == 0 { sums[4] } else { 0.0 };
            let variances = columns.iter();
            let variances = variances
                .map(|sums| rounding::of_sum(rows, sums[at], sums[2 + at]) + of_terms(sums));
            let values: Vec<f64> = values.collect();
            let common = match at {
                0 => self.common_by_gamma(grad, &values),
                _ => CommonNoise::default(),
            };
            asked.answer(name, &[dimension], values, variances.collect(), common);
        }
    }
}
