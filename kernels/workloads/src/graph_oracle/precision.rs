//! The precision in which a product was computed, found from its error: requested less exact
//! arithmetic must be visible in the result.
//!
//! A library that is allowed to round factors to bf16 may round them to tf32, or not at all, and
//! its times then belong to another computation. A tolerance can't detect this: the result is
//! better than requested. The error can, for factors of f32 with random last bits: a rounded factor
//! is off by a random share of its last place, terms are independent, and the relative error of a
//! product equals the error of its terms, for any number of terms.

use sweeper_program::Precision;

/// The relative L2 error of a product whose factors are rounded to nearest, if they have random
/// last bits and terms have random signs: `sqrt(2)` times half a unit in the last place, over
/// `sqrt(3)`, as errors are uniform, times 0.67, as numbers are greater than the power of 2 below
/// them. 2.1e-3 for bf16 and 2.7e-4 for tf32; zero for f32, where the sum alone rounds.
pub fn error_of_factors(precision: Precision) -> f64 {
    let half_unit = match precision {
        Precision::F32 => 0.0,
        Precision::Tf32 => f64::exp2(-11.0),
        Precision::Bf16 => f64::exp2(-8.0),
    };
    0.67 * half_unit * (2.0_f64 / 3.0).sqrt()
}

/// The least relative L2 error that a product of random factors has if it was computed in
/// `precision`: half of [`error_of_factors`]. The error of tf32, even where hardware truncates, is
/// less than the error of bf16, and the error of f32 is less than the error of tf32, up to 10^8
/// terms.
pub fn least_error(precision: Precision) -> f64 {
    0.5 * error_of_factors(precision)
}

/// Whether a product of random factors of f32 with this relative L2 `error` may have been computed
/// in `precision`, and not in a better one. The answer has no meaning for factors that are whole
/// numbers or otherwise short: they are not rounded at all.
pub fn is_as_coarse_as(precision: Precision, error: f64) -> bool {
    error >= least_error(precision)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sweeper_program::check::{self, Metric};
    use sweeper_program::inputs::InputKey;
    use sweeper_program::tensor::Tensor;

    /// `value` with `bits` of its significand, rounded to nearest or truncated.
    fn kept(value: f32, bits: u32, is_cut: bool) -> f32 {
        let dropped = 24 - bits;
        let half = if is_cut || dropped == 0 {
            0
        } else {
            1 << (dropped - 1)
        };
        f32::from_bits((value.to_bits() + half) & (u32::MAX << dropped))
    }

    /// The error of a product of two matrices whose factors were `rounded`, added up in f32.
    fn error(terms: usize, mean: f32, rounded: impl Fn(f32) -> f32) -> f64 {
        const ROWS: usize = 48;
        let factor = |name: &str| {
            let values = InputKey([5; 32]).stream(name).normal(ROWS * terms, 1.0);
            values.into_iter().map(|value| value + mean).collect()
        };
        let (a, b): (Vec<f32>, Vec<f32>) = (factor("a"), factor("b"));
        let (mut exact, mut found) = (vec![], vec![]);
        for row in a.chunks(terms) {
            for column in b.chunks(terms) {
                let pairs = row.iter().zip(column);
                exact.push(
                    pairs
                        .clone()
                        .map(|(&a, &b)| f64::from(a) * f64::from(b))
                        .sum(),
                );
                found.push(pairs.fold(0.0, |sum, (&a, &b)| rounded(a).mul_add(rounded(b), sum)));
            }
        }
        let expected = Tensor::f64([exact.len()], exact);
        let found = Tensor::f32([found.len()], found);
        check::compare("out", Some(&found), &expected, Metric::RelativeL2, 0.0).error
    }

    #[test]
    fn each_precision_is_told_from_better_ones() {
        for terms in [16, 512, 4096] {
            let in_f32 = error(terms, 0.0, |value| value);
            let in_tf32 =
                [false, true].map(|is_cut| error(terms, 0.0, |value| kept(value, 11, is_cut)));
            let in_bf16 = error(terms, 0.0, |value| kept(value, 8, false));
            for (precision, error) in [(Precision::Tf32, in_tf32[0]), (Precision::Bf16, in_bf16)] {
                let ratio = error / error_of_factors(precision);
                assert!(
                    (0.85..1.15).contains(&ratio),
                    "{precision:?} {terms}: {ratio}"
                );
                assert!(is_as_coarse_as(precision, error), "{precision:?} {error}");
            }
            assert!(is_as_coarse_as(Precision::F32, in_f32));
            assert!(
                !is_as_coarse_as(Precision::Tf32, in_f32),
                "{terms}: {in_f32}"
            );
            for error in in_tf32 {
                assert!(is_as_coarse_as(Precision::Tf32, error), "{terms}: {error}");
                assert!(!is_as_coarse_as(Precision::Bf16, error), "{terms}: {error}");
            }
        }
    }
}
