//! `softmax`.

use super::Asked;
use sweeper_program::rounding::{FUNCTION, Order};

/// The greatest element of a row, and the sum of exponentials relative to it.
pub(super) fn statistics(x: &[f64]) -> (f64, f64) {
    let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (most, x.iter().map(|x| (x - most).exp()).sum())
}

/// The variance of `e^-below` relative to it: the argument is a difference, and rounded once more
/// on the way to a power of 2.
pub(super) fn of_exponential(below: f64) -> f64 {
    2.0 * below * below + FUNCTION
}

/// The variance of a row's sum of exponentials relative to it.
pub(super) fn of_sum(x: &[f64], most: f64, sum: f64) -> f64 {
    let (mut squares, mut terms) = (0.0, 0.0);
    for x in x {
        let share = (x - most).exp() / sum;
        squares += share * share;
        terms += share * share * of_exponential(most - x);
    }
    Order::in_row(x.len()).variance(1.0, squares) + terms
}

pub(super) fn answer(asked: &mut Asked<'_>, is_forward: bool, is_backward: bool) {
    let x = asked.input("x");
    let dimension = asked.sizes.dimension;
    let row = |at: usize| &x[at * dimension..][..dimension];
    if is_forward {
        asked.answer_rows("out", |at, out| {
            let (most, sum) = statistics(row(at));
            let of_sum = of_sum(row(at), most, sum);
            let mut variance = 0.0;
            for (out, x) in out.iter_mut().zip(row(at)) {
                *out = (x - most).exp() / sum;
                // The sum's inverse, and a product with it.
                variance += *out * *out * (of_exponential(most - x) + of_sum + 2.0);
            }
            variance
        });
    }
    if is_backward {
        let grad = asked.input("grad_out");
        let order = Order::in_row(dimension);
        asked.answer_rows("grad_x", |at, out| {
            let (x, grad) = (row(at), &grad[at * dimension..][..dimension]);
            let (most, sum) = statistics(x);
            let of_sum = of_sum(x, most, sum) + 2.0;
            let (mut mean, mut squares, mut terms) = (0.0, 0.0, 0.0);
            for (x, grad) in x.iter().zip(grad) {
                let share = (x - most).exp() / sum;
                let term = share * grad;
                mean += term;
                squares += term * term;
                terms += term * term * (of_exponential(most - x) + 1.0);
            }
            let of_mean = order.variance(mean, squares) + terms + mean * mean * of_sum;
            let mut variance = 0.0;
            for (out, (x, grad)) in out.iter_mut().zip(x.iter().zip(grad)) {
                let share = (x - most).exp() / sum;
                *out = share * (grad - mean);
                let of_share = of_exponential(most - x) + of_sum;
                variance += *out * *out * (of_share + 2.0) + share * share * of_mean;
            }
            variance
        });
    }
}
