//! Wilcoxon's signed-rank test of paired differences, and the interval that belongs to it.
//!
//! The differences of pairs that were made alike are as often positive as negative at every size,
//! whatever their distribution: under that symmetry the test is exact. The estimate is the median
//! of all means of two differences (Hodges and Lehmann, 1963), and the interval is made of those
//! means (Hollander, Wolfe and Chicken, 2014, section 3.3).

/// Fewer differences than this cannot be significant at 5 %: 2 / 2^5 is more.
pub const LEAST_PAIRS: usize = 6;

/// The centre of a set of paired differences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SignedRank {
    /// The Hodges-Lehmann estimate of the centre.
    pub centre: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Probability of differences at least this one-sided, were the centre zero.
    pub p: f64,
}

impl SignedRank {
    /// The test of `differences`, with an interval that covers with `confidence` at least; `None`
    /// for fewer differences than that needs.
    pub fn of(differences: &[f64], confidence: f64) -> Option<Self> {
        let count = differences.len();
        // A step of one in the sum of doubled ranks is two here.
        let plain: Vec<usize> = (1..=count).map(|rank| 2 * rank).collect();
        let tail = (1.0 - confidence) / 2.0;
        let below = 2 * largest_sum_below(&distribution(&plain), tail)?;
        let mut means = Vec::with_capacity(count * (count + 1) / 2);
        for (index, one) in differences.iter().enumerate() {
            means.extend(differences[index..].iter().map(|other| (one + other) / 2.0));
        }
        means.sort_by(f64::total_cmp);
        let cut = below / 2;
        let middle = means.len() / 2;
        let centre = match means.len() % 2 {
            1 => means[middle],
            _ => (means[middle - 1] + means[middle]) / 2.0,
        };
        Some(SignedRank {
            centre,
            low: means[cut],
            high: means[means.len() - 1 - cut],
            p: p_value(differences),
        })
    }
}

/// The two-sided probability; differences of zero say nothing and are left out.
fn p_value(differences: &[f64]) -> f64 {
    let mut sizes: Vec<(f64, bool)> = differences
        .iter()
        .filter(|&&difference| difference != 0.0)
        .map(|difference| (difference.abs(), *difference > 0.0))
        .collect();
    sizes.sort_by(|one, other| one.0.total_cmp(&other.0));
    let ranks = doubled_ranks(&sizes);
    let signed = ranks.iter().zip(&sizes);
    let sum: usize = signed
        .filter(|(_, (_, up))| *up)
        .map(|(rank, _)| rank)
        .sum();
    let distribution = distribution(&ranks);
    let below: f64 = distribution[..=sum].iter().sum();
    let above: f64 = distribution[sum..].iter().sum();
    (2.0 * below.min(above)).min(1.0)
}

/// Twice the rank of each size; equal sizes share the mean of their ranks.
fn doubled_ranks(sizes: &[(f64, bool)]) -> Vec<usize> {
    let mut ranks = Vec::with_capacity(sizes.len());
    for group in sizes.chunk_by(|one, other| one.0 == other.0) {
        let first = ranks.len() + 1;
        let last = ranks.len() + group.len();
        ranks.extend(std::iter::repeat_n(first + last, group.len()));
    }
    ranks
}

/// The probability of each sum of `ranks`, each in or out with probability 1/2.
fn distribution(ranks: &[usize]) -> Vec<f64> {
    let mut chances = vec![0.0; ranks.iter().sum::<usize>() + 1];
    chances[0] = 1.0;
    let mut reached = 0;
    for &rank in ranks {
        for sum in (0..=reached).rev() {
            let half = chances[sum] / 2.0;
            chances[sum] = half;
            chances[sum + rank] += half;
        }
        reached += rank;
    }
    chances
}

/// Half the largest doubled sum that is reached or undercut with probability `tail` at most.
fn largest_sum_below(chances: &[f64], tail: f64) -> Option<usize> {
    let mut total = 0.0;
    let mut largest = None;
    for (half, chance) in chances.iter().step_by(2).enumerate() {
        total += chance;
        if total > tail {
            break;
        }
        largest = Some(half);
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Critical values of the one-sided 2.5 % test (Conover, 1999, table A12).
    #[test]
    fn tables_agree() {
        for (count, expected) in [
            (6, 0),
            (7, 2),
            (8, 3),
            (10, 8),
            (15, 25),
            (20, 52),
            (30, 137),
        ] {
            let ranks: Vec<usize> = (1..=count).map(|rank| 2 * rank).collect();
            assert_eq!(
                largest_sum_below(&distribution(&ranks), 0.025),
                Some(expected),
                "{count}"
            );
        }
        assert_eq!(SignedRank::of(&[1.0; LEAST_PAIRS - 1], 0.95), None);
    }

    /// Six differences of one sign: the sum is 21, which one of 64 signings reaches.
    #[test]
    fn six_of_one_sign_by_hand() {
        let found = SignedRank::of(&[3.0, 1.0, 2.0, 6.0, 4.0, 5.0], 0.95).unwrap();
        assert_eq!((found.centre, found.low, found.high), (3.5, 1.0, 6.0));
        assert!((found.p - 2.0 / 64.0).abs() < 1e-12);
        assert_eq!(SignedRank::of(&[0.0; 8], 0.95).unwrap().p, 1.0);
    }

    #[test]
    fn ties_share_ranks() {
        let sizes = [(1.0, true), (2.0, true), (2.0, false), (3.0, true)];
        assert_eq!(doubled_ranks(&sizes), [2, 5, 5, 8]);
    }

    proptest! {
        #[test]
        fn a_mirror_image_is_mirrored(differences in prop::collection::vec(-1.0f64..1.0, 6..40)) {
            let mirrored: Vec<f64> = differences.iter().map(|x| -x).collect();
            let (one, other) = (
                SignedRank::of(&differences, 0.95).unwrap(),
                SignedRank::of(&mirrored, 0.95).unwrap(),
            );
            prop_assert_eq!((one.low, one.high, one.centre), (-other.high, -other.low, -other.centre));
            prop_assert!((one.p - other.p).abs() < 1e-9);
            prop_assert!(one.low <= one.centre && one.centre <= one.high);
        }

        #[test]
        fn the_interval_is_where_the_test_does_not_reject(
            differences in prop::collection::vec(-1.0f64..1.0, 6..25),
            at in -1.0f64..1.0,
        ) {
            let found = SignedRank::of(&differences, 0.95).unwrap();
            let moved: Vec<f64> = differences.iter().map(|x| x - at).collect();
            let rejected = p_value(&moved) <= 0.05;
            prop_assert_eq!(rejected, at < found.low || at > found.high);
        }

        #[test]
        fn more_of_the_same_sign_is_never_less_significant(
            differences in prop::collection::vec(-1.0f64..1.0, 6..25), up in 0.0f64..2.0,
        ) {
            let base = SignedRank::of(&differences, 0.95).unwrap();
            let moved: Vec<f64> = differences.iter().map(|x| x + up).collect();
            let moved = SignedRank::of(&moved, 0.95).unwrap();
            prop_assert!((moved.centre - base.centre - up).abs() < 1e-9);
            prop_assert!(base.low <= 0.0 || moved.p <= base.p + 1e-9);
        }
    }
}
