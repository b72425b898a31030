//! How far a result in f32 is from the right one: the error model from which tolerances follow.
//!
//! One rounding moves a number by anything up to half a unit in the last place, `u = 2^-24` of its
//! size, and is as good as independent of all others (Higham and Mary, "A new approach to
//! probabilistic rounding error analysis", 2019). So variances add up, here in squares of
//! [`DEVIATION`], the standard deviation of one rounding of a number of size 1. The oracle adds
//! them up beside each answer, through everything that its formula computes: what cancels in one
//! problem is less exact there, and nowhere else. Graphs are evaluated with it
//! (`graph::Rounding` of the compiler).

/// The standard deviation of a rounding of a number of size 1: uniform within half a unit in the
/// last place.
pub const DEVIATION: f64 = f32::EPSILON as f64 / 2.0 * 0.577_350_269_189_625_8;

/// The variance of an elementary function (exponential, logarithm, error function) relative to its
/// result: that of four roundings, or of an error of a unit in the last place, which functions here
/// and those of GPUs stay within, for most arguments.
pub const FUNCTION: f64 = 4.0;

/// How a sum is added up: one after another in parts, and then the parts.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    terms: f64,
    /// Terms of a part.
    part: f64,
}

impl Order {
    /// Of `terms` along a row: parts of up to 64 terms, or 8 of them, as the lanes of a vector are.
    pub fn in_row(terms: usize) -> Self {
        Order::of(terms, 64, 8)
    }

    /// Of `terms` of as many rows: parts of up to 1024 rows, or 32 of them.
    pub fn over_rows(terms: usize) -> Self {
        Order::of(terms, 1024, 32)
    }

    /// Of `terms` one after another, as of products of matrices.
    pub fn sequential(terms: usize) -> Self {
        Order::of(terms, terms, 1)
    }

    fn of(terms: usize, most: usize, parts: usize) -> Self {
        Order {
            terms: terms as f64,
            part: terms.min(most.max(terms / parts)) as f64,
        }
    }

    /// The variance of a sum whose terms are exact. Sums on the way are rounded: they grow to the
    /// part's share of `sum` where terms are alike, and as a random walk does where they are not,
    /// whose `squares` add up. Adding up parts rounds sums of the whole size three times.
    pub fn variance(self, sum: f64, squares: f64) -> f64 {
        let [of_square, of_squares] = self.weights();
        of_square * sum * sum + of_squares * squares
    }

    /// The weights of the sum's square and of the squares' sum in [`Order::variance`].
    pub fn weights(self) -> [f64; 2] {
        let alike = self.part * self.part / (3.0 * self.terms);
        let walk = self.part / 2.0;
        [alike + 3.0, walk + 3.0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::InputKey;

    /// Sums in f32 as the model has them: in parts, and then the parts.
    fn added_up(values: &[f32], part: usize) -> f32 {
        let parts = values.chunks(part);
        parts.map(|part| part.iter().sum::<f32>()).sum()
    }

    #[test]
    fn sums_are_as_far_out_as_the_model_says() {
        for (terms, mean) in [
            (48, 0.0),
            (48, 1.0),
            (4096, 0.0),
            (4096, 1.0),
            (40_000, 3.0),
        ] {
            for order in [Order::in_row(terms), Order::over_rows(terms)] {
                let (mut found, mut modelled) = (0.0, 0.0);
                for seed in 0..50 {
                    let values = InputKey([seed; 32]).stream("x").normal(terms, 1.0);
                    let values: Vec<f32> = values.iter().map(|value| value + mean).collect();
                    let exact = values.iter().map(|&value| f64::from(value));
                    let sum: f64 = exact.clone().sum();
                    let squares = exact.map(|value| value * value).sum();
                    found += (f64::from(added_up(&values, order.part as usize)) - sum).powi(2);
                    modelled += DEVIATION.powi(2) * order.variance(sum, squares);
                }
                let ratio = (found / modelled).sqrt();
                assert!(
                    (0.05..1.0).contains(&ratio),
                    "{terms} {mean} {order:?}: {ratio}"
                );
            }
        }
    }
}
