//! `softmax`.

use super::Asked;

/// The greatest element of a row, and the sum of exponentials relative to it.
pub(super) fn statistics(x: &[f64]) -> (f64, f64) {
    let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (most, x.iter().map(|x| (x - most).exp()).sum())
}

pub(super) fn answer(asked: &mut Asked<'_>, is_forward: bool, is_backward: bool) {
    let x = asked.input("x");
    let dimension = asked.sizes.dimension;
    let row = |at: usize| &x[at * dimension..][..dimension];
    if is_forward {
        asked.answer_rows("out", |at, out| {
            let (most, sum) = statistics(row(at));
            let mut square = 0.0;
            for (out, x) in out.iter_mut().zip(row(at)) {
                *out = (x - most).exp() / sum;
                let weight = *out * (1.0 + (x - most).abs());
                square += weight * weight;
            }
            square
        });
    }
    if is_backward {
        let grad = asked.input("grad_out");
        asked.answer_rows("grad_x", |at, out| {
            let (x, grad) = (row(at), &grad[at * dimension..][..dimension]);
            let (most, sum) = statistics(x);
            let (mut mean, mut sizes) = (0.0, 0.0);
            for (x, grad) in x.iter().zip(grad) {
                let share = (x - most).exp() / sum;
                mean += share * grad;
                sizes += share * grad.abs() * (1.0 + (x - most).abs());
            }
            let mut square = 0.0;
            for (out, (x, grad)) in out.iter_mut().zip(x.iter().zip(grad)) {
                let share = (x - most).exp() / sum;
                *out = share * (grad - mean);
                let weight = share * (1.0 + (x - most).abs()) * (grad.abs() + sizes);
                square += weight * weight;
            }
            square
        });
    }
}
