//! The line that a slice's error may reach, in spreads.

use std::collections::BTreeMap;

use statrs::distribution::{ChiSquared, ContinuousCDF as _, FisherSnedecor};

/// The rate at which an honest output is called wrong by chance, over all slices along an axis.
const RATE: f64 = 1e-9;

/// That of common scale errors: four deviations.
const RATE_OF_SCALE: f64 = 6.334e-5;

/// For what the model of rounding does not know.
const MARGIN: f64 = 2.0;

/// Beyond these degrees of freedom quantiles are those of a constant.
const MOST_FREEDOM: f64 = 1e6;

/// How many spreads a slice may be out, one of so many along an axis: its error has `freedom`
/// degrees of freedom, and its noise is known from `probes` evaluations, or for certain where these
/// are infinite.
pub fn line(freedom: f64, probes: f64, slices: usize) -> f64 {
    let freedom = freedom.clamp(1.0, MOST_FREEDOM);
    let rate = RATE / slices.max(1) as f64;
    let of_error = MARGIN * (chi_squared(freedom, rate) / freedom).sqrt();
    let of_both = fisher(freedom, (probes * freedom).min(MOST_FREEDOM), rate).sqrt();
    of_error.max(of_both)
}

/// How many times as large as the noise's a common scale error may be: it is one number, which few
/// evaluations may show as small by chance. 8 times where the noise is known for certain.
pub(super) fn scale_line(probes: f64) -> f64 {
    MARGIN * fisher(1.0, probes.min(MOST_FREEDOM), RATE_OF_SCALE).sqrt()
}

/// Lines of slices along one axis, each quantile found once.
pub(super) struct Lines {
    probes: f64,
    slices: usize,
    known: BTreeMap<i32, f64>,
}

/// Freedoms in this ratio have one line, that of the least of them.
const STEPS_IN_OCTAVE: f64 = 8.0;

impl Lines {
    pub(super) fn new(probes: f64, slices: usize) -> Self {
        Lines {
            probes,
            slices,
            known: BTreeMap::new(),
        }
    }

    /// The line at these degrees of freedom, or a little wider.
    pub(super) fn at(&mut self, freedom: f64) -> f64 {
        let step = (freedom.clamp(1.0, MOST_FREEDOM).log2() * STEPS_IN_OCTAVE).floor();
        let (probes, slices) = (self.probes, self.slices);
        let found = self.known.entry(step as i32);
        *found.or_insert_with(|| line((step / STEPS_IN_OCTAVE).exp2(), probes, slices))
    }
}

/// The number that chi squared of so many degrees of freedom exceeds at this rate.
fn chi_squared(freedom: f64, rate: f64) -> f64 {
    ChiSquared::new(freedom).map_or(f64::INFINITY, |it| it.inverse_cdf(1.0 - rate))
}

/// The number that the ratio of two mean squares exceeds at this rate: the inverse of the one that
/// the inverse ratio stays below, which is found more exactly.
fn fisher(freedom: f64, of_noise: f64, rate: f64) -> f64 {
    FisherSnedecor::new(of_noise, freedom).map_or(f64::INFINITY, |it| 1.0 / it.inverse_cdf(rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_tables() {
        // Normal deviates at 5e-10 on each side, and chi squared of two: -2 ln(1e-9).
        let close = |found: f64, expected: f64| {
            let ratio = found / expected;
            assert!((0.99..1.01).contains(&ratio), "{found} {expected}");
        };
        close(line(1.0, f64::INFINITY, 1), 2.0 * 6.109);
        close(line(2.0, f64::INFINITY, 1), 2.0 * (-(1e-9f64.ln())).sqrt());
        close(line(1e6, f64::INFINITY, 1), 2.0);
        // Student's t of 8 at 5e-10 on each side.
        close(line(1.0, 8.0, 1), 31.98);
    }

    #[test]
    fn lines_of_common_scale_errors_are_those_of_student() {
        let close = |probes: f64, expected: f64| {
            let ratio = scale_line(probes) / expected;
            assert!((0.99..1.01).contains(&ratio), "{probes}: {ratio}");
        };
        close(f64::INFINITY, 8.0);
        close(8.0, 2.0 * 7.595);
        close(4.0, 2.0 * 17.448);
    }

    #[test]
    fn a_line_falls_with_what_is_known() {
        for freedom in [1.0, 1.5, 4.0, 30.0, 1e3, 1e5] {
            for slices in [1, 100, 65_536] {
                let lines = [2.0, 4.0, 8.0, 32.0, f64::INFINITY].map(|n| line(freedom, n, slices));
                assert!(
                    lines.iter().all(|line| line.is_finite() && *line >= 2.0),
                    "{lines:?}"
                );
                assert!(
                    lines.is_sorted_by(|a, b| a >= b),
                    "{freedom} {slices}: {lines:?}"
                );
                assert!(line(freedom, 4.0, slices) >= line(freedom * 2.0, 4.0, slices));
            }
        }
    }
}
