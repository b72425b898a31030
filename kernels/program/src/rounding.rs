//! How far a result in f32 is from the right one: the error model from which tolerances follow.
//!
//! One rounding moves a number by anything up to half a unit in the last place, `u = 2^-24` of its
//! size, and is as good as independent of all others (Higham and Mary, "A new approach to
//! probabilistic rounding error analysis", 2019). So variances add up, here in squares of
//! [`DEVIATION`], the root mean square of the relative error of one rounding. Oracles that are
//! written by hand add them up beside each answer, through everything that their formula computes:
//! what cancels in one problem is less exact there, and nowhere else. Graphs are evaluated with
//! them (`graph::Rounding` of the compiler), each operation moving its result by as much.

/// The unit roundoff of f32, half a unit in the last place of 1.
pub const UNIT_ROUNDOFF: f64 = f32::EPSILON as f64 / 2.0;

/// The root mean square of the relative error of one rounding: between 0.41 `u`, of significands
/// that are uniform, and 0.58 `u`, of powers of 2.
pub const DEVIATION: f64 = 0.5 * UNIT_ROUNDOFF;

/// The size below which a number is rounded as one of this size: a result may be flushed to zero
/// where it is less than f32's least normal number, 2^-126, and then is off by all of it.
pub const LEAST: f64 = f32::MIN_POSITIVE as f64 / UNIT_ROUNDOFF;

/// The variance of an elementary function (exponential, logarithm, error function) relative to its
/// result: that of four roundings, or of an error of a unit in the last place, which functions here
/// and those of GPUs stay within, for most arguments.
pub const FUNCTION: f64 = 4.0;

/// The relative error of log2(e) in f32: exponentials that are powers of 2 have it in all
/// arguments.
pub const LOG2_E: f64 = (std::f64::consts::LOG2_E as f32) as f64 / std::f64::consts::LOG2_E - 1.0;

/// The variance of `e^x` relative to it: an honest exponential rounds its argument once more, on
/// the way to a power of 2.
pub fn of_exponential(x: f64) -> f64 {
    x * x + FUNCTION
}

/// The weights of the sum's square and of the sum of the terms' squares in the variance of a sum
/// whose terms are exact, added up one after another in any order.
///
/// Sums on the way are rounded. With terms in an order of chance their squares add up, in the mean,
/// to `n (S^2 / 3 + Q / 6)` for a sum `S` of n terms whose squares add up to `Q`: they grow evenly
/// where terms are alike, and as a random walk does where they are not. Terms are rounded once
/// more, as products are before they are added.
pub fn weights_of_sum(terms: usize) -> [f64; 2] {
    let terms = terms as f64;
    match terms > 1.0 {
        true => [terms / 3.0, terms / 6.0 + 1.0],
        false => [0.0, 1.0],
    }
}

/// The variance of a sum of `terms` exact terms, as [`weights_of_sum`] has it.
pub fn of_sum(terms: usize, sum: f64, squares: f64) -> f64 {
    let [of_square, of_squares] = weights_of_sum(terms);
    of_square * sum * sum + of_squares * squares
}

/// Bits that are as good as random, from a number: the finalizer of the generator SplitMix64
/// (Steele, Lea and Flood, 2014).
#[inline]
pub fn mixed(place: u64) -> u64 {
    let mut bits = place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::InputKey;

    fn root_mean_square(errors: &[f64]) -> f64 {
        (errors.iter().map(|error| error * error).sum::<f64>() / errors.len() as f64).sqrt()
    }

    #[test]
    fn single_roundings_are_as_far_out_as_the_model_says() {
        let values = (0..1000).map(|at| 1.0 + f64::from(at) / 1000.0 + 1e-9);
        let errors: Vec<f64> = values.map(|x| f64::from(x as f32) / x - 1.0).collect();
        let ratio = root_mean_square(&errors) / DEVIATION;
        assert!((0.7..1.2).contains(&ratio), "{ratio}");
        assert_eq!(LEAST * UNIT_ROUNDOFF, f64::from(f32::MIN_POSITIVE));
        // log2(e) is 1.44269504088896 and in f32 1.44269502162933.
        assert!((LOG2_E + 1.33497e-8).abs() < 1e-12, "{LOG2_E}");
    }

    #[test]
    fn powers_of_two_are_as_far_out_as_the_model_says() {
        for size in [3.0, 40.0] {
            let arguments = (0..1000).map(|at| size * (1.0 + f64::from(at) / 5000.0));
            let relative = arguments.map(|x| {
                let exponent = (x * std::f64::consts::LOG2_E) as f32;
                (f64::from(exponent).exp2() / x.exp() - 1.0) / of_exponential(x).sqrt()
            });
            let ratio = root_mean_square(&relative.collect::<Vec<_>>()) / DEVIATION;
            assert!((0.5..1.2).contains(&ratio), "{size}: {ratio}");
        }
        assert_eq!(of_exponential(0.0), FUNCTION);
    }

    #[test]
    fn a_single_term_is_rounded_once() {
        assert_eq!(weights_of_sum(1), [0.0, 1.0]);
        assert_eq!(weights_of_sum(6), [2.0, 2.0]);
        assert_eq!(of_sum(6, 3.0, 5.0), 28.0);
    }

    #[test]
    fn bits_are_those_of_the_published_generator() {
        assert_eq!(mixed(1), 0xe220_a839_7b1d_cdaf);
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
            let (mut found, mut modelled) = (0.0, 0.0);
            for seed in 0..50 {
                let values = InputKey([seed; 32]).stream("x").normal(terms, 1.0);
                let values: Vec<f32> = values.iter().map(|value| value + mean).collect();
                let exact = values.iter().map(|&value| f64::from(value));
                let sum: f64 = exact.clone().sum();
                let squares = exact.map(|value| value * value).sum();
                found += (f64::from(values.iter().sum::<f32>()) - sum).powi(2);
                modelled += DEVIATION.powi(2) * of_sum(terms, sum, squares);
            }
            let ratio = (found / modelled).sqrt();
            assert!((0.5..1.5).contains(&ratio), "{terms} {mean}: {ratio}");
        }
    }
}
