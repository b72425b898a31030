//! Exponentials of a row relative to that of its greatest element: what `softmax` and
//! `cross_entropy` share.

use sweeper_program::rounding::{self, FUNCTION};

/// What is known of a row.
pub(super) struct Exponentials {
    /// The greatest element.
    pub(super) most: f64,
    /// The sum of `e^(x - most)`.
    pub(super) sum: f64,
    /// The variance of the sum, relative to it.
    pub(super) of_sum: f64,
}

impl Exponentials {
    pub(super) fn of(x: &[f64]) -> Self {
        let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum = x.iter().map(|x| (x - most).exp()).sum();
        let mut all = Exponentials {
            most,
            sum,
            of_sum: 0.0,
        };
        let (mut squares, mut terms) = (0.0, 0.0);
        for &x in x {
            let share = all.share(x);
            squares += share * share;
            terms += share * share * of_exponential(most - x);
        }
        all.of_sum = rounding::of_sum(x.len(), 1.0, squares) + terms;
        all
    }

    /// An element's exponential over the sum.
    pub(super) fn share(&self, x: f64) -> f64 {
        (x - self.most).exp() / self.sum
    }
}

/// The variance of `e^-below` relative to it: the argument is a difference, and rounded once more
/// on the way to a power of 2.
pub(super) fn of_exponential(below: f64) -> f64 {
    2.0 * below * below + FUNCTION
}
