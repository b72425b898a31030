//! The decisions of a race between the configurations of a tuned backend, by their intervals alone:
//! which is clearly slower than the best, and which can't be told from it.

use crate::stats::{Interval, Summary};

/// A configuration has so many samples before it is held against others.
pub const LEAST_SAMPLES: usize = 5;

/// The interval of the median of some samples; none of a single sample.
pub fn interval_of(samples_ns: &[f64]) -> Option<Interval> {
    let summary = Summary::of(samples_ns).filter(|summary| summary.n > 1)?;
    Some(summary.interval)
}

/// The upper end of the best's interval; infinite where there are no intervals. The best is the
/// configuration whose interval ends first: no other is as surely fast. The configuration with the
/// least median is never above this end, since each interval ends above its own median.
pub fn best_end(intervals: impl IntoIterator<Item = Interval>) -> f64 {
    let ends = intervals.into_iter().map(|interval| interval.high);
    ends.fold(f64::INFINITY, f64::min)
}

/// True for an interval that lies above the best's: the two do not even touch. A configuration
/// without an interval can't be told from any.
pub fn is_above(interval: Option<Interval>, best_end: f64) -> bool {
    interval.is_some_and(|interval| interval.low > best_end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn interval(low: f64, high: f64) -> Interval {
        Interval {
            low,
            high,
            coverage: 0.95,
        }
    }

    #[test]
    fn intervals_that_touch_or_overlap_are_ties() {
        let all = [
            interval(9.0, 11.0),
            interval(10.0, 12.0),
            interval(11.0, 20.0),
            interval(11.5, 12.0),
        ];
        let end = best_end(all);
        assert_eq!(end, 11.0);
        let above = all.map(|one| is_above(Some(one), end));
        assert_eq!(above, [false, false, false, true]);
    }

    #[test]
    fn nothing_is_above_where_nothing_is_known() {
        assert_eq!(best_end([]), f64::INFINITY);
        assert!(!is_above(Some(interval(1e9, 2e9)), best_end([])));
        assert!(!is_above(None, 0.0));
        assert_eq!(interval_of(&[3.0]), None);
        let of_two = interval_of(&[3.0, 4.0]);
        assert_eq!(of_two.map(|one| (one.low, one.high)), Some((3.0, 4.0)));
    }

    proptest! {
        #[test]
        fn the_least_median_is_never_above(
            all in prop::collection::vec(prop::collection::vec(1.0..1e6f64, 2..40), 1..20),
        ) {
            let end = best_end(all.iter().filter_map(|samples| interval_of(samples)));
            let median = |samples: &Vec<f64>| Summary::of(samples).unwrap().median;
            let least = all.iter().min_by(|one, other| median(one).total_cmp(&median(other)));
            prop_assert!(!is_above(interval_of(least.unwrap()), end));
        }
    }
}
