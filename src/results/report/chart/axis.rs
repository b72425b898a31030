//! Logarithmic axes: ranges, ticks and their labels.

/// The values at which an axis has ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// At powers of two, for sizes.
    Log2,
    /// At powers of ten, and at 2 and 5 times these powers where there are few: times, ratios.
    Log10,
}

/// A tick.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    /// The value at which the tick stands.
    pub(super) value: f64,
    /// The tick's label; the base of the power where there is an exponent.
    pub(super) label: String,
    /// An exponent, to be raised.
    pub(super) exponent: Option<String>,
}

/// The range of an axis, as natural logarithms of its ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    low: f64,
    high: f64,
}

impl Span {
    /// A span of all of `values` that a logarithmic axis can show, with some room at both ends;
    /// from 1 to 10 if there are no such values.
    pub(super) fn of(values: impl IntoIterator<Item = f64>, least_factor: f64) -> Self {
        let shown = values
            .into_iter()
            .filter(|value| value.is_finite() && *value > 0.0)
            .map(f64::ln);
        let (low, high) = shown.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        if low > high {
            return Span {
                low: 0.0,
                high: 10f64.ln(),
            };
        }
        let missing = (least_factor.ln() - (high - low)).max(0.0) / 2.0;
        let room = (high - low).max(least_factor.ln()) * 0.06;
        Span {
            low: low - missing - room,
            high: high + missing + room,
        }
    }

    /// The place of a value on the axis, from 0 to 1.
    pub(super) fn place(self, value: f64) -> f64 {
        (value.ln() - self.low) / (self.high - self.low)
    }

    fn ends(self) -> (f64, f64) {
        (self.low.exp(), self.high.exp())
    }

    /// Ticks with labels, at most `most`.
    pub(super) fn ticks(self, scale: Scale, most: usize) -> Vec<Tick> {
        let most = most.max(2);
        let (low, high) = self.ends();
        let inside = |value: &f64| low <= *value * (1.0 + 1e-9) && *value <= high * (1.0 + 1e-9);
        let base: f64 = match scale {
            Scale::Log2 => 2.0,
            Scale::Log10 => 10.0,
        };
        let first = (self.low / base.ln() - 1e-9).ceil() as i32;
        let last = (self.high / base.ln() + 1e-9).floor() as i32;
        let powers = (last - first + 1).max(0) as usize;
        if powers >= 3 || (scale == Scale::Log2 && powers >= 2) {
            let step = powers.div_ceil(most).max(1) as i32;
            // Multiples of the step: two plots of the same data have the same ticks.
            let exponents = (first..=last).filter(|exponent| exponent % step == 0);
            return with_powers(base as u32, &exponents.collect::<Vec<i32>>());
        }
        let decade = (self.low / 10f64.ln()).floor() as i32;
        for mantissas in [
            &[1.0, 2.0, 5.0][..],
            &[1.0, 3.0],
            &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
        ] {
            let values = (decade..=decade + 3)
                .flat_map(|exponent| mantissas.iter().map(move |m| m * 10f64.powi(exponent)));
            let values: Vec<f64> = values.filter(inside).collect();
            if (3..=most).contains(&values.len()) {
                return with_numbers(&values);
            }
        }
        with_numbers(&even(low, high, most))
    }

    /// Values of the ticks without labels between powers of ten.
    pub(super) fn minor(self) -> Vec<f64> {
        let first = (self.low / 10f64.ln()).floor() as i32;
        let last = (self.high / 10f64.ln()).ceil() as i32;
        if last - first > 6 {
            return Vec::new();
        }
        let (low, high) = self.ends();
        (first..=last)
            .flat_map(|exponent| (2..10).map(move |m| f64::from(m) * 10f64.powi(exponent)))
            .filter(|value| (low..=high).contains(value))
            .collect()
    }
}

/// Ticks at powers of a base: written out if all of the numbers are short, else as powers.
fn with_powers(base: u32, exponents: &[i32]) -> Vec<Tick> {
    let value = |exponent: i32| f64::from(base).powi(exponent);
    let is_short = |exponent: i32| match base {
        2 => (-3..=16).contains(&exponent),
        _ => (-2..=3).contains(&exponent),
    };
    let are_short = exponents.iter().all(|&exponent| is_short(exponent));
    exponents
        .iter()
        .map(|&exponent| match are_short {
            true => plain(value(exponent), false),
            false => Tick {
                value: value(exponent),
                label: base.to_string(),
                exponent: Some(exponent.to_string().replace('-', "−")),
            },
        })
        .collect()
}

/// Round numbers at equal distances, for spans that are too narrow for factors.
fn even(low: f64, high: f64, most: usize) -> Vec<f64> {
    let raw = (high - low) / most.clamp(2, 5) as f64;
    let unit = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * unit)
        .find(|&step| step >= raw)
        .unwrap_or(10.0 * unit);
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last).map(|number| number as f64 * step).collect()
}

/// A number with a prefix of the SI: `2 M`; as a power where no prefix fits.
fn with_prefix(value: f64) -> String {
    let prefixes = [(1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"), (1e15, "P")];
    let found = prefixes.iter().rev().find(|(factor, _)| value >= *factor);
    match found {
        Some((factor, prefix)) if value < 1e18 => {
            let scaled: f64 = format!("{:.11e}", value / factor).parse().unwrap_or(value);
            format!("{scaled} {prefix}")
        }
        _ => format!("{value:e}"),
    }
}

/// Ticks at numbers, written out; all of them with a prefix if one of them is too long without.
fn with_numbers(values: &[f64]) -> Vec<Tick> {
    let has_prefixes = values.iter().any(|&value| value >= 1e5);
    let ticks = values.iter().map(|&value| plain(value, has_prefixes));
    ticks.collect()
}

/// A tick whose label is its number.
fn plain(value: f64, has_prefix: bool) -> Tick {
    // Twelve digits: the label does not show rounding errors of the arithmetic.
    let rounded: f64 = format!("{value:.11e}").parse().unwrap_or(value);
    let label = match rounded {
        size if has_prefix && size >= 1e3 => with_prefix(size),
        size if (1e-4..1e4).contains(&size) => size.to_string(),
        size if (1e4..1e5).contains(&size) && size.fract() == 0.0 => size.to_string(),
        size => with_prefix(size),
    };
    Tick {
        value,
        label,
        exponent: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(low: f64, high: f64, scale: Scale) -> Vec<String> {
        let ticks = Span::of([low, high], 1.01).ticks(scale, 7);
        ticks
            .into_iter()
            .map(|tick| match tick.exponent {
                Some(exponent) => format!("{}^{exponent}", tick.label),
                None => tick.label,
            })
            .collect()
    }

    #[test]
    fn ticks_are_at_powers() {
        assert_eq!(
            labels(128.0, 1024.0, Scale::Log2),
            ["128", "256", "512", "1024"]
        );
        assert_eq!(
            labels(1.0, 1000.0, Scale::Log10),
            ["1", "10", "100", "1000"]
        );
        assert_eq!(
            labels(1e-6, 1e-2, Scale::Log10),
            ["10^−6", "10^−5", "10^−4", "10^−3", "10^−2"]
        );
        assert_eq!(
            labels(0.16, 55.0, Scale::Log10),
            ["0.3", "1", "3", "10", "30"]
        );
        assert_eq!(
            labels(1.1e6, 9e6, Scale::Log10),
            ["1 M", "2 M", "5 M", "10 M"]
        );
        assert_eq!(
            labels(4.9e4, 5.1e5, Scale::Log10),
            ["50 k", "100 k", "200 k", "500 k"]
        );
        assert_eq!(labels(1.0, 1.05, Scale::Log10), ["1", "1.02", "1.04"]);
        assert_eq!(
            labels(1.0, 2f64.powi(20), Scale::Log2).last().unwrap(),
            "2^20"
        );
    }

    proptest! {
        #[test]
        fn there_are_ticks_inside(low in 1e-9f64..1e9, factor in 1.0f64..1e9) {
            for scale in [Scale::Log2, Scale::Log10] {
                let span = Span::of([low, low * factor], 1.5);
                let ticks = span.ticks(scale, 6);
                prop_assert!((2..=8).contains(&ticks.len()), "{ticks:?}");
                for tick in ticks {
                    let place = span.place(tick.value);
                    prop_assert!((-1e-6..=1.000_001).contains(&place), "{tick:?} at {place}");
                }
            }
        }
    }
}
