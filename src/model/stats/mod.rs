//! Statistics of samples.

pub mod memory;
pub mod paired;
pub mod signed_rank;
pub mod student;

use serde::{Deserialize, Serialize};

/// An interval of the median.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end, in the unit of the samples.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The probability that the interval covers the median of the distribution: 0.95 at least where
    /// there are six samples or more, and the coverage of `min..max` where there are fewer.
    pub coverage: f64,
}

/// Statistics of a set of samples, in their unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of samples.
    pub n: usize,
    /// Median.
    pub median: f64,
    /// Distribution-free interval of the median, from order statistics.
    pub interval: Interval,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation, with n - 1; zero for one sample.
    pub std: f64,
    /// Least sample.
    pub min: f64,
    /// 5 % quantile. All quantiles interpolate linearly (type 7 of Hyndman and Fan, 1996).
    pub p5: f64,
    /// 25 % quantile.
    pub q1: f64,
    /// 75 % quantile.
    pub q3: f64,
    /// 95 % quantile.
    pub p95: f64,
    /// Greatest sample.
    pub max: f64,
    /// Median of the absolute deviations from the median, not scaled.
    pub mad: f64,
}

impl Summary {
    /// The summary of `samples`, or `None` if there are none.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let n = sorted.len();
        let median = quantile(&sorted, 0.5);
        let mean = sorted.iter().sum::<f64>() / n as f64;
        let squares: f64 = sorted.iter().map(|sample| (sample - mean).powi(2)).sum();
        let std = if n > 1 {
            (squares / (n - 1) as f64).sqrt()
        } else {
            0.0
        };
        let mut deviations: Vec<f64> = sorted
            .iter()
            .map(|sample| (sample - median).abs())
            .collect();
        deviations.sort_by(f64::total_cmp);
        Some(Summary {
            n,
            median,
            interval: median_interval(&sorted),
            mean,
            std,
            min,
            p5: quantile(&sorted, 0.05),
            q1: quantile(&sorted, 0.25),
            q3: quantile(&sorted, 0.75),
            p95: quantile(&sorted, 0.95),
            max,
            mad: quantile(&deviations, 0.5),
        })
    }

    /// Width of the median's interval in units of the median; zero where the median is.
    pub fn relative_interval(&self) -> f64 {
        if self.median == 0.0 {
            return 0.0;
        }
        (self.interval.high - self.interval.low) / self.median
    }
}

/// The quantile `p` of sorted, non-empty samples.
fn quantile(sorted: &[f64], p: f64) -> f64 {
    let position = p * (sorted.len() - 1) as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (position - below as f64) * (sorted[above] - sorted[below])
}

/// The narrowest pair of order statistics `x(j), x(n+1-j)` that covers the median with 95 %.
///
/// A sample lies below the median with probability 1/2, so the number that do is binomial:
/// coverage = 1 - 2 P(B(n, 1/2) < j).
fn median_interval(sorted: &[f64]) -> Interval {
    let n = sorted.len();
    let mut probability = 0.5f64.powi(n.min(1000) as i32);
    if n > 1000 {
        return wide_interval(sorted);
    }
    let mut below = probability;
    let mut rank = 1;
    let mut coverage = 1.0 - 2.0 * below;
    loop {
        // P(B = rank) from P(B = rank - 1).
        probability *= (n + 1 - rank) as f64 / rank as f64;
        below += probability;
        if 1.0 - 2.0 * below < 0.95 || 2 * (rank + 1) > n {
            break;
        }
        rank += 1;
        coverage = 1.0 - 2.0 * below;
    }
    Interval {
        low: sorted[rank - 1],
        high: sorted[n - rank],
        coverage: coverage.max(0.0),
    }
}

/// The interval of the median by the normal approximation, for more samples than powers of 1/2 have
/// room for.
fn wide_interval(sorted: &[f64]) -> Interval {
    let n = sorted.len() as f64;
    let rank = (n / 2.0 - 0.98 * n.sqrt()).floor() as usize;
    Interval {
        low: sorted[rank - 1],
        high: sorted[sorted.len() - rank],
        coverage: 0.95,
    }
}

/// True if the last samples show no trend: the slope of a straight line through them is smaller
/// than 2.8 of its standard errors (the two-sided 5 % point of Student's t with 4 degrees of
/// freedom).
pub fn is_steady(samples: &[f64]) -> bool {
    const WINDOW: usize = 6;
    const CRITICAL: f64 = 2.776;
    let Some(start) = samples.len().checked_sub(WINDOW) else {
        return false;
    };
    let last = &samples[start..];
    let mean_x = (WINDOW - 1) as f64 / 2.0;
    let mean_y = last.iter().sum::<f64>() / WINDOW as f64;
    let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
    for (x, y) in last.iter().enumerate() {
        let (x, y) = (x as f64 - mean_x, y - mean_y);
        xx += x * x;
        xy += x * y;
        yy += y * y;
    }
    let slope = xy / xx;
    let residual = (yy - slope * xy).max(0.0);
    let error = (residual / (WINDOW - 2) as f64 / xx).sqrt();
    slope.abs() <= CRITICAL * error || yy == 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn five_samples_by_hand() {
        let summary = Summary::of(&[5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!((summary.n, summary.median, summary.mean), (5, 3.0, 3.0));
        assert_eq!(
            (summary.min, summary.q1, summary.q3, summary.max),
            (1.0, 2.0, 4.0, 5.0)
        );
        assert_eq!((summary.p5, summary.p95), (1.2, 4.8));
        assert!((summary.std - 2.5f64.sqrt()).abs() < 1e-12);
        assert_eq!(summary.mad, 1.0);
        let Interval {
            low,
            high,
            coverage,
        } = summary.interval;
        assert_eq!((low, high, coverage), (1.0, 5.0, 0.9375));
    }

    /// Ranks from tables of the sign test's interval (for example Conover, 1999, table A3).
    #[test]
    fn ranks_of_the_median_interval() {
        for (n, rank) in [
            (6, 1),
            (8, 1),
            (9, 2),
            (10, 2),
            (12, 3),
            (20, 6),
            (30, 10),
            (100, 40),
        ] {
            let samples: Vec<f64> = (1..=n).map(f64::from).collect();
            let interval = Summary::of(&samples).unwrap().interval;
            assert_eq!(interval.low, f64::from(rank), "n = {n}");
            assert_eq!(interval.high, f64::from(n + 1 - rank), "n = {n}");
            assert!(interval.coverage >= 0.95);
        }
    }

    #[test]
    fn large_sets_join_on() {
        let interval = |n: i32| {
            let samples: Vec<f64> = (1..=n).map(f64::from).collect();
            Summary::of(&samples).unwrap().interval
        };
        assert_eq!(interval(1000).low, 469.0);
        assert!((interval(1001).low - 469.0).abs() <= 1.0);
    }

    #[test]
    fn no_samples_have_no_summary() {
        assert_eq!(Summary::of(&[]), None);
        let one = Summary::of(&[3.0]).unwrap();
        assert_eq!(
            (one.median, one.std, one.interval.coverage),
            (3.0, 0.0, 0.0)
        );
    }

    #[test]
    fn a_trend_is_not_steady() {
        assert!(!is_steady(&[1.0; 5]));
        assert!(is_steady(&[1.0; 6]));
        assert!(is_steady(&[9.0, 1.0, 1.1, 0.9, 1.05, 0.95, 1.0]));
        assert!(!is_steady(&[2.0, 1.8, 1.61, 1.4, 1.2, 1.0]));
    }

    proptest! {
        #[test]
        fn order_and_scale(samples in prop::collection::vec(1e-3f64..1e9, 1..200), scale in 1e-3f64..1e3) {
            let summary = Summary::of(&samples).unwrap();
            let Summary { min, p5, q1, median, q3, p95, max, interval, .. } = summary;
            prop_assert!(min <= p5 && p5 <= q1 && q1 <= median && median <= q3 && q3 <= p95 && p95 <= max);
            prop_assert!(interval.low <= median && median <= interval.high);
            let scaled: Vec<f64> = samples.iter().map(|sample| sample * scale).collect();
            let scaled = Summary::of(&scaled).unwrap();
            prop_assert!((scaled.median / median / scale - 1.0).abs() < 1e-12);
            prop_assert!((scaled.mad - summary.mad * scale).abs() <= 1e-9 * scaled.max);
        }
    }
}
