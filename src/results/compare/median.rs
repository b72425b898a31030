//! The logarithm of one run's median time, and how well the run's own samples know it.
//!
//! Ratios are compared as differences of logarithms: A against B and B against A then differ in
//! sign alone.

use sweeper_model::row::entry::Times;
use sweeper_model::stats::memory::memory;
use sweeper_model::stats::student::normal_critical;

/// A quarter of a normal distribution lies beyond this many standard deviations, above and below.
const QUARTILE: f64 = 0.674_489_750_196_081_7;

/// The standard error of a logarithm, and how well it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Error {
    /// The standard error.
    pub(super) size: f64,
    /// Degrees of freedom: that of an estimate of the density at the median from 2 sqrt(n) spacings
    /// is about sqrt(n).
    pub(super) freedom: f64,
}

/// Where the samples of one run lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Centre {
    /// Natural logarithm of the median in nanoseconds.
    pub(super) log: f64,
    /// The error of the logarithm, as far as samples of one run can show it; none where there is
    /// one sample, or a file that holds medians alone.
    pub(super) error: Option<Error>,
}

impl Centre {
    /// The centre of a row: from its samples where the source has them, else from the interval or
    /// the quartiles that it kept. `None` where the median is not a positive number.
    pub(super) fn of(times: &Times, samples_ns: &[f64]) -> Option<Self> {
        if !is_time(&times.median) {
            return None;
        }
        let all_times = samples_ns.iter().all(is_time);
        let error = match samples_ns.len() {
            2.. if all_times => Some(error_of_samples(samples_ns)),
            _ => error_of_times(times),
        };
        Some(Centre {
            log: times.median.ln(),
            error,
        })
    }
}

impl Centre {
    /// The mean of several points of one run, whose samples are independent of each other.
    pub(super) fn mean(centres: &[Centre]) -> Option<Self> {
        if centres.is_empty() {
            return None;
        }
        let count = centres.len() as f64;
        let errors: Option<Vec<Error>> = centres.iter().map(|centre| centre.error).collect();
        let error = errors.map(|errors| {
            let square: f64 = errors.iter().map(|error| error.size.powi(2)).sum();
            let terms = errors
                .iter()
                .map(|error| error.size.powi(4) / error.freedom);
            let freedom = match terms.sum::<f64>() {
                0.0 => count,
                sum => square.powi(2) / sum,
            };
            let size = square.sqrt() / count;
            Error { size, freedom }
        });
        Some(Centre {
            log: centres.iter().map(|centre| centre.log).sum::<f64>() / count,
            error,
        })
    }
}

fn is_time(time: &f64) -> bool {
    time.is_finite() && *time > 0.0
}

/// The standard error of the logarithm of the median, from the order statistics about sqrt(n) ranks
/// on either side of it (Price and Bonett, 2001; for ratios Bonett and Price, 2020), times the
/// square root of how much longer memory makes it.
///
/// The method assumes no shape of the distribution. `samples` are in the order taken.
fn error_of_samples(samples: &[f64]) -> Error {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let root = (count as f64).sqrt();
    let rank = (((count + 1) as f64 / 2.0 - root).round() as usize).max(1);
    let spread = (sorted[count - rank] / sorted[rank - 1]).ln();
    let critical = normal_critical(1.0 - 2.0 * binomial_below(count, rank));
    Error {
        size: spread / (2.0 * critical) * memory(samples, sorted[count / 2]).sqrt(),
        freedom: root,
    }
}

/// The probability that fewer than `rank` of `count` fair coins show heads.
fn binomial_below(count: usize, rank: usize) -> f64 {
    // By logarithms: 2^-1075 is not representable.
    let mut log = -(count as f64) * std::f64::consts::LN_2;
    let mut total = log.exp();
    for heads in 1..rank {
        log += ((count + 1 - heads) as f64 / heads as f64).ln();
        total += log.exp();
    }
    total
}

/// The standard error of the logarithm of the median from the statistics in a file: the median's
/// interval with its coverage, or the quartiles under a normal distribution (1.2533 standard
/// deviations over sqrt(n)).
fn error_of_times(times: &Times) -> Option<Error> {
    let count = f64::from(times.n?);
    let freedom = count.sqrt();
    let positive = |low: Option<f64>, high: Option<f64>| {
        let (low, high) = low.zip(high)?;
        (is_time(&low) && is_time(&high) && low <= high).then(|| (high / low).ln())
    };
    let interval = positive(times.ci_low, times.ci_high);
    if let (Some(width), Some(coverage)) = (interval, times.coverage)
        && coverage > 0.0
        && coverage < 1.0
    {
        let size = width / (2.0 * normal_critical(coverage));
        return Some(Error { size, freedom });
    }
    let width = positive(times.q1, times.q3).filter(|_| count >= 2.0)?;
    let deviation = width / (2.0 * QUARTILE);
    let size = (std::f64::consts::PI / 2.0).sqrt() * deviation / freedom;
    Some(Error { size, freedom })
}

#[cfg(test)]
mod tests {
    use super::super::testing::Random;
    use super::*;
    use sweeper_model::stats::Summary;
    use sweeper_model::stats::student::critical;

    fn centre(samples: &[f64]) -> Centre {
        let times = Times::from(Summary::of(samples).unwrap());
        Centre::of(&times, samples).unwrap()
    }

    /// How often the interval of a ratio of medians covers the true one, where both sides have one
    /// distribution.
    fn coverage(count: usize, mut sample: impl FnMut() -> f64) -> f64 {
        const TRIALS: usize = 2000;
        let covered = (0..TRIALS).filter(|_| {
            let mut side = || {
                let samples: Vec<f64> = (0..count).map(|_| sample()).collect();
                centre(&samples)
            };
            let (one, other) = (side(), side());
            let errors = [one.error.unwrap(), other.error.unwrap()];
            let square: f64 = errors.iter().map(|error| error.size.powi(2)).sum();
            let terms = errors
                .iter()
                .map(|error| error.size.powi(4) / error.freedom);
            let freedom = square.powi(2) / terms.sum::<f64>();
            (one.log - other.log).abs() <= critical(0.95, freedom) * square.sqrt()
        });
        covered.count() as f64 / TRIALS as f64
    }

    #[test]
    fn intervals_of_skewed_samples_cover() {
        let mut random = Random::new(1);
        for count in [5, 10, 30, 100] {
            let lognormal = coverage(count, || 100.0 * (0.3 * random.normal()).exp());
            assert!(lognormal > 0.94, "log-normal {count}: {lognormal}");
            // A floor with an exponential tail, as times have: heavier on one side.
            let tailed = coverage(count, || 100.0 - 5.0 * random.uniform().ln());
            assert!(tailed > 0.94, "tailed {count}: {tailed}");
        }
    }

    #[test]
    fn samples_that_remember_have_wider_errors() {
        let mut random = Random::new(2);
        let mut last = 0.0;
        let remembering = coverage(100, || {
            last = 0.7 * last + random.normal();
            100.0 * (0.01 * last).exp()
        });
        assert!(remembering > 0.9, "{remembering}");
    }

    #[test]
    fn what_a_file_kept_stands_in_for_samples() {
        let mut random = Random::new(3);
        let samples: Vec<f64> = (0..50).map(|_| 100.0 + random.normal()).collect();
        let times = Times::from(Summary::of(&samples).unwrap());
        let of = |times: &Times, samples: &[f64]| {
            Centre::of(times, samples).unwrap().error.unwrap().size
        };
        let own = of(&times, &samples);
        let kept = of(&times, &[]);
        let quartiles = of(
            &Times {
                ci_low: None,
                ..times
            },
            &[],
        );
        for other in [kept, quartiles] {
            assert!((other / own).ln().abs() < 0.5, "{own} {other}");
        }
        let bare = Times {
            n: Some(1),
            ..Times {
                median: 5.0,
                ..Times::default()
            }
        };
        assert_eq!(Centre::of(&bare, &[]).unwrap().error, None);
        assert_eq!(Centre::of(&bare, &[5.0]).unwrap().error, None);
        for median in [f64::NAN, 0.0, -1.0, f64::INFINITY] {
            assert_eq!(
                Centre::of(
                    &Times {
                        median,
                        ..Times::default()
                    },
                    &[]
                ),
                None
            );
        }
    }

    #[test]
    fn thousands_of_samples_have_an_error_too() {
        let samples: Vec<f64> = (1..=5000).map(f64::from).collect();
        let error = centre(&samples).error.unwrap();
        // 1 / (2 f sqrt(n)) over the median, of a uniform density 1 / 5000.
        let expected = 5000.0 / (2.0 * 5000f64.sqrt()) / 2500.0;
        // A rising series remembers as much as a series can.
        assert!(error.size > expected, "{} {expected}", error.size);
        assert!((binomial_below(5000, 2500) - 0.5).abs() < 0.01);
    }
}
