//! Numbers with intervals, as logarithms: ratios and means of times are made of these.

use crate::row::entry::Entry;

/// A number and its interval, as logarithms. Where there is no interval, as of a single sample, its
/// ends are NaN, and so are those of all results of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogInterval {
    /// Logarithm of the number.
    pub value: f64,
    /// Distance to the logarithm of the lower end.
    pub below: f64,
    /// Distance to the logarithm of the upper end.
    pub above: f64,
}

impl LogInterval {
    /// The time of a row, by which it is held against others: that of the second measurement of
    /// configurations that were chosen as the fastest of many, which is not the luckiest; else of
    /// the first.
    pub fn of(entry: &Entry) -> Option<Self> {
        Self::of_second(entry).or_else(|| Self::of_first(entry))
    }

    /// The median of the second measurement with its interval.
    pub fn of_second(entry: &Entry) -> Option<Self> {
        let again = entry.again.as_ref().filter(|again| again.median_ns > 0.0)?;
        Some(LogInterval::new(again.median_ns, again.interval()))
    }

    /// The median of the first measurement with its interval, if it is above zero; one sample has
    /// no interval.
    pub fn of_first(entry: &Entry) -> Option<Self> {
        let median = entry.median_ns().filter(|&median| median > 0.0)?;
        let times = entry.times.filter(|times| times.n != Some(1));
        let interval = times.and_then(|times| times.interval());
        Some(LogInterval::new(median, interval))
    }

    /// A number greater than zero with its interval, if there is one.
    pub fn new(number: f64, interval: Option<(f64, f64)>) -> Self {
        let value = number.ln();
        match interval {
            Some((low, high)) => LogInterval {
                value,
                // Not `clamp`: a number may be less than the least normal one.
                below: value - low.max(f64::MIN_POSITIVE).min(number).ln(),
                above: high.max(number).ln() - value,
            },
            None => LogInterval {
                value,
                below: f64::NAN,
                above: f64::NAN,
            },
        }
    }

    /// A number greater than zero that is known exactly.
    pub fn exact(number: f64) -> Option<Self> {
        (number > 0.0).then(|| LogInterval::new(number, Some((number, number))))
    }

    /// This over `other`. Errors of the two are taken as independent, and add up in quadrature.
    pub fn over(self, other: Self) -> Self {
        LogInterval {
            value: self.value - other.value,
            below: self.below.hypot(other.above),
            above: self.above.hypot(other.below),
        }
    }

    /// One over this.
    pub fn inverse(self) -> Self {
        LogInterval {
            value: -self.value,
            below: self.above,
            above: self.below,
        }
    }

    /// The geometric mean. Errors are taken as independent: that of the mean is the root of the sum
    /// of their squares over their number.
    pub fn mean(all: &[LogInterval]) -> Option<Self> {
        let n = all.len() as f64;
        (!all.is_empty()).then(|| LogInterval {
            value: all.iter().map(|one| one.value).sum::<f64>() / n,
            below: all.iter().map(|one| one.below.powi(2)).sum::<f64>().sqrt() / n,
            above: all.iter().map(|one| one.above.powi(2)).sum::<f64>().sqrt() / n,
        })
    }

    /// The number itself.
    pub fn number(self) -> f64 {
        self.value.exp()
    }

    /// The numbers themselves: low, middle, high.
    pub fn numbers(self) -> [f64; 3] {
        [
            (self.value - self.below).exp(),
            self.value.exp(),
            (self.value + self.above).exp(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn interval() -> impl Strategy<Value = LogInterval> {
        (-20.0..20.0f64, 0.0..1.0f64, 0.0..1.0f64).prop_map(|(value, below, above)| LogInterval {
            value,
            below,
            above,
        })
    }

    /// Positive numbers of every size, those that are not normal ones among them.
    fn positive() -> impl Strategy<Value = f64> {
        use prop::num::f64::{INFINITE, NORMAL, POSITIVE, SUBNORMAL, ZERO};
        (POSITIVE | NORMAL | SUBNORMAL | INFINITE | ZERO).prop_map(|number: f64| number)
    }

    #[test]
    fn the_least_number_has_an_interval() {
        let least = f64::from_bits(1);
        let [low, middle, high] = LogInterval::new(least, Some((0.0, 2.0 * least))).numbers();
        assert!(low <= middle && middle < high, "{low} {middle} {high}");
    }

    proptest! {
        #[test]
        fn intervals_of_any_numbers_hold_them(number in positive(), low in positive(), high in positive()) {
            let held = LogInterval::new(number, Some((low, high)));
            if number > 0.0 && number.is_finite() {
                prop_assert!(held.below >= 0.0 && held.above >= 0.0);
                let [low, middle, high] = held.numbers();
                prop_assert!(low <= middle && middle <= high);
            }
        }

        #[test]
        fn a_ratio_turned_round_is_its_inverse(a in interval(), b in interval()) {
            let [low, middle, high] = a.over(b).numbers();
            let [inverse_low, inverse_middle, inverse_high] = b.over(a).numbers();
            prop_assert!((middle * inverse_middle - 1.0).abs() < 1e-9);
            prop_assert!((low * inverse_high - 1.0).abs() < 1e-9);
            prop_assert!((high * inverse_low - 1.0).abs() < 1e-9);
        }

        #[test]
        fn a_mean_lies_between(all in prop::collection::vec(interval(), 1..20)) {
            let mean = LogInterval::mean(&all).unwrap();
            let least = all.iter().map(|one| one.value).fold(f64::INFINITY, f64::min);
            let greatest = all.iter().map(|one| one.value).fold(f64::NEG_INFINITY, f64::max);
            prop_assert!(least - 1e-9 <= mean.value && mean.value <= greatest + 1e-9);
            let widest = all.iter().map(|one| one.above).fold(0.0, f64::max);
            prop_assert!(mean.above <= widest + 1e-9);
        }

        #[test]
        fn the_mean_of_ratios_is_the_ratio_of_means(pairs in prop::collection::vec((interval(), interval()), 1..20)) {
            let ratios: Vec<LogInterval> = pairs.iter().map(|(a, b)| a.over(*b)).collect();
            let (a, b): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
            let of_means = LogInterval::mean(&a).unwrap().over(LogInterval::mean(&b).unwrap());
            let of_ratios = LogInterval::mean(&ratios).unwrap();
            prop_assert!((of_means.value - of_ratios.value).abs() < 1e-9);
        }
    }
}
