//! Losses: means over everything.

use super::softmax::statistics;
use super::{Asked, square_sum};

/// `mean((x - target)^2)`
pub(super) fn mse(asked: &mut Asked<'_>, is_forward: bool, is_backward: bool) {
    let (x, target) = (asked.input("x"), asked.input("target"));
    let dimension = asked.sizes.dimension;
    let count = asked.sizes.elements() as f64;
    if is_forward {
        let [sum] = asked.sum_rows(|row| {
            let places = asked.row(&x, row).iter().zip(asked.row(&target, row));
            [square_sum(places.map(|(x, target)| x - target))]
        });
        asked.answer("out", &[], vec![sum / count], sum / count);
    }
    if is_backward {
        let grad = asked.input("grad_out")[0];
        asked.answer_rows("grad_x", |row, out| {
            let places = x[row * dimension..].iter().zip(&target[row * dimension..]);
            for (out, (x, target)) in out.iter_mut().zip(places) {
                *out = grad * 2.0 / count * (x - target);
            }
            square_sum(out.iter().copied())
        });
    }
}

/// The mean over rows of `ln sum(e^x) - x[label]`.
pub(super) fn cross_entropy(asked: &mut Asked<'_>, is_forward: bool, is_backward: bool) {
    let (x, labels) = (asked.input("x"), asked.input("labels"));
    let dimension = asked.sizes.dimension;
    let count = asked.sizes.rows() as f64;
    // Labels are small whole numbers, exact in f64.
    let label = |row: usize| labels[row] as usize;
    if is_forward {
        let [sum, weight] = asked.sum_rows(|row| {
            let x = asked.row(&x, row);
            let (most, sum) = statistics(x);
            let own = x[label(row)];
            let loss = most - own + sum.ln();
            [loss, 1.0 + loss]
        });
        asked.answer("out", &[], vec![sum / count], weight / count);
    }
    if is_backward {
        let grad = asked.input("grad_out")[0] / count;
        asked.answer_rows("grad_x", |row, out| {
            let x = &x[row * dimension..][..dimension];
            let (most, sum) = statistics(x);
            let mut square = 0.0;
            for (column, (out, x)) in out.iter_mut().zip(x).enumerate() {
                let share = (x - most).exp() / sum;
                let own = f64::from(u8::from(column == label(row)));
                *out = grad * (share - own);
                let weight = grad * (share * (1.0 + most - x + sum.ln()) + own);
                square += weight * weight;
            }
            square
        });
    }
}
