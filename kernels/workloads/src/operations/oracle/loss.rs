//! Losses: means over everything.

use super::softmax::{of_exponential, of_sum, statistics};
use super::{Asked, square_sum};
use sweeper_program::rounding::{FUNCTION, Order};

/// `mean((x - target)^2)`
pub(super) fn mse(asked: &mut Asked<'_>, is_forward: bool, is_backward: bool) {
    let (x, target) = (asked.input("x"), asked.input("target"));
    let dimension = asked.sizes.dimension;
    let count = asked.sizes.elements() as f64;
    if is_forward {
        let in_row = Order::in_row(dimension);
        let [sum, squares, of_rows] = asked.sum_rows(|row| {
            let places = asked.row(&x, row).iter().zip(asked.row(&target, row));
            let terms = places.map(|(x, target)| (x - target).powi(2));
            let sum = terms.clone().sum::<f64>();
            let squares = square_sum(terms);
            // A square is that of a difference, whose rounding counts twice, and rounded itself.
            [
                sum,
                sum * sum,
                in_row.variance(sum, squares) + 5.0 * squares,
            ]
        });
        let variance = total(asked, sum, squares) + of_rows;
        asked.answer("out", &[], vec![sum / count], variance / count / count);
    }
    if is_backward {
        let grad = asked.input("grad_out")[0];
        asked.answer_rows("grad_x", |row, out| {
            let places = x[row * dimension..].iter().zip(&target[row * dimension..]);
            for (out, (x, target)) in out.iter_mut().zip(places) {
                *out = grad * 2.0 / count * (x - target);
            }
            // The difference, the factor, and their product.
            3.0 * square_sum(out.iter().copied())
        });
    }
}

/// The variance of a sum of exact terms of all rows, with the division that makes it a mean.
fn total(asked: &Asked<'_>, sum: f64, squares: f64) -> f64 {
    Order::over_rows(asked.sizes.rows()).variance(sum, squares) + sum * sum
}

/// The mean over rows of `ln sum(e^x) - x[label]`.
pub(super) fn cross_entropy(asked: &mut Asked<'_>, is_forward: bool, is_backward: bool) {
    let (x, labels) = (asked.input("x"), asked.input("labels"));
    let dimension = asked.sizes.dimension;
    let count = asked.sizes.rows() as f64;
    // Labels are small whole numbers, exact in f64.
    let label = |row: usize| labels[row] as usize;
    if is_forward {
        let [sum, squares, of_rows] = asked.sum_rows(|row| {
            let x = asked.row(&x, row);
            let (most, sum) = statistics(x);
            let (below, log) = (most - x[label(row)], sum.ln());
            let loss = below + log;
            let of_log = of_sum(x, most, sum) + FUNCTION * log * log;
            [loss, loss * loss, of_log + below * below + loss * loss]
        });
        let variance = total(asked, sum, squares) + of_rows;
        asked.answer("out", &[], vec![sum / count], variance / count / count);
    }
    if is_backward {
        let grad = asked.input("grad_out")[0] / count;
        asked.answer_rows("grad_x", |row, out| {
            let x = &x[row * dimension..][..dimension];
            let (most, sum) = statistics(x);
            let (log, of_sum) = (sum.ln(), of_sum(x, most, sum));
            let mut variance = 0.0;
            for (column, (out, x)) in out.iter_mut().zip(x).enumerate() {
                let share = (x - most).exp() / sum;
                let own = f64::from(u8::from(column == label(row)));
                *out = grad * (share - own);
                let of_share = of_exponential(most - x + log) + of_sum + 1.0;
                variance += (grad * share).powi(2) * of_share + 3.0 * *out * *out;
            }
            variance
        });
    }
}
