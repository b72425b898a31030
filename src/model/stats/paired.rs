//! Where the centre of paired differences lies: by signed ranks, or where there are too few by
//! Student's t.

use super::signed_rank::{LEAST_PAIRS, SignedRank};
use super::student;

/// The centre of a set of paired differences, in their unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paired {
    /// The estimate.
    pub centre: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Probability of differences at least this one-sided, were the centre zero.
    pub p: f64,
}

/// The centre of `differences` with an interval that covers with `confidence`: Wilcoxon's signed
/// ranks of [`LEAST_PAIRS`] or more, Student's t of fewer. None of fewer than two, or where one is
/// no number.
pub fn centre(differences: &[f64], confidence: f64) -> Option<Paired> {
    let count = differences.len();
    if count < 2 || !differences.iter().all(|difference| difference.is_finite()) {
        return None;
    }
    if count >= LEAST_PAIRS {
        let found = SignedRank::of(differences, confidence)?;
        return Some(Paired {
            centre: found.centre,
            low: found.low,
            high: found.high,
            p: found.p,
        });
    }
    let (mean, variance) = moments(differences.iter().copied());
    let size = (variance / count as f64).sqrt();
    let (reach, p) = student::around(mean, size, (count - 1) as f64, confidence);
    reach.is_finite().then_some(Paired {
        centre: mean,
        low: mean - reach,
        high: mean + reach,
        p,
    })
}

/// Mean and variance (with n - 1; of one number none, zero).
pub fn moments(numbers: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = numbers.clone().count() as f64;
    let mean = numbers.clone().sum::<f64>() / count;
    let squares: f64 = numbers.map(|number| (number - mean).powi(2)).sum();
    (mean, squares / (count - 1.0).max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three differences of mean 2 and deviation 1: 4.303 of 1 / sqrt(3) on either side.
    #[test]
    fn few_pairs_by_hand() {
        let found = centre(&[1.0, 2.0, 3.0], 0.95).unwrap();
        let reach = 4.303 / 3f64.sqrt();
        assert!((found.centre - 2.0).abs() < 1e-12);
        assert!((found.low - (2.0 - reach)).abs() < 1e-3, "{}", found.low);
        assert!((found.high - (2.0 + reach)).abs() < 1e-3, "{}", found.high);
        assert_eq!(centre(&[1.0], 0.95), None);
        assert_eq!(centre(&[1.0, f64::NAN], 0.95), None);
    }

    #[test]
    fn six_pairs_are_ranked() {
        let found = centre(&[3.0, 1.0, 2.0, 6.0, 4.0, 5.0], 0.95).unwrap();
        assert_eq!((found.centre, found.low, found.high), (3.5, 1.0, 6.0));
    }
}
