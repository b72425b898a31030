//! How long one side takes in units of the other: an estimate, its interval, and a probability.
//!
//! All is done with logarithms of medians, one a run. The error is estimated by how the runs were
//! made:
//!
//! * *pairs*: each run of one side was made next to a run of the other. Slow changes cancel in the
//!   differences. Six pairs or more: Wilcoxon's signed ranks; fewer: Student's t.
//! * *apart*: several runs a side, one side after the other. Their own scatter is small where the
//!   machine changed between the sides, so the error is never less than the machine's spread
//!   between such sides.
//! * *single*: one run a side; the machine's spread, and the errors of the two medians.

use serde::Serialize;

use super::median::{Centre, Error};
use super::spread::Spread;
use super::verdict::Correction;
use sweeper_model::stats::paired::{self, moments};
use sweeper_model::stats::signed_rank::LEAST_PAIRS;
use sweeper_model::stats::student;

/// Intervals cover with this probability.
pub const CONFIDENCE: f64 = 0.95;

/// With fewer pairs, Student's t is used.
pub(super) const LEAST_SIGNED: usize = LEAST_PAIRS;

/// The least number of pairs whose signed ranks can be significant at one of `points` points.
pub(super) fn pairs_needed(points: usize, correction: Correction) -> usize {
    let tests = match correction {
        Correction::None => 1.0,
        // At best a single point differs, which has to bear the whole correction with both.
        Correction::Holm | Correction::Bh => points.max(1) as f64,
    };
    // All of n pairs have one sign with probability 2 / 2^n.
    let needed = (2.0 * tests / (1.0 - CONFIDENCE)).log2().ceil();
    (needed as usize).max(LEAST_PAIRS)
}

/// How the runs of two sides were made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Design {
    /// A run of each side next to each other, by their places in the sides' lists.
    Pairs(Vec<[usize; 2]>),
    /// Several runs of one side, then of the other.
    Apart,
    /// One run a side.
    Single,
}

/// How an interval was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Wilcoxon's signed ranks of six pairs or more.
    SignedRank,
    /// Student's t of fewer pairs.
    PairedT,
    /// Welch's t of several runs a side.
    Welch,
    /// The machine's spread between runs, and the errors of the medians.
    Spread,
}

/// An estimate of a ratio of times, as natural logarithms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The logarithm of the ratio.
    pub log_ratio: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The probability of a difference of this size or more between two sides of one program.
    pub p: f64,
    /// How that was found.
    pub method: Method,
    /// Runs of either side that it rests on.
    pub runs: [usize; 2],
}

impl Estimate {
    /// Compares two sides of one point: for each run the centre of its samples, where it has them.
    /// `None` where runs do not tell anything.
    pub(super) fn of(
        design: &Design,
        sides: [&[Option<Centre>]; 2],
        spread: &Spread,
    ) -> Option<Self> {
        let present =
            |side: &[Option<Centre>]| -> Vec<Centre> { side.iter().copied().flatten().collect() };
        let [before, after] = sides.map(present);
        if let Design::Pairs(pairs) = design {
            let both = |pair: &[usize; 2]| {
                let of = |side: usize| *sides[side].get(pair[side])?;
                Some(of(1)?.log - of(0)?.log)
            };
            let differences: Vec<f64> = pairs.iter().filter_map(both).collect();
            if differences.len() >= 2 {
                return paired(&differences);
            }
        }
        if before.len() >= 2 && after.len() >= 2 {
            return apart(&before, &after, spread);
        }
        single(&before, &after, spread)
    }

    /// An estimate whose error is `error` at `freedom` degrees of freedom.
    fn by_t(log_ratio: f64, error: Error, method: Method, runs: [usize; 2]) -> Option<Self> {
        let (reach, p) = student::around(log_ratio, error.size, error.freedom, CONFIDENCE);
        let estimate = Estimate {
            log_ratio,
            low: log_ratio - reach,
            high: log_ratio + reach,
            p,
            method,
            runs,
        };
        reach.is_finite().then_some(estimate)
    }
}

fn paired(differences: &[f64]) -> Option<Estimate> {
    let found = paired::centre(differences, CONFIDENCE)?;
    Some(Estimate {
        log_ratio: found.centre,
        low: found.low,
        high: found.high,
        p: found.p,
        method: match differences.len() {
            LEAST_PAIRS.. => Method::SignedRank,
            _ => Method::PairedT,
        },
        runs: [differences.len(); 2],
    })
}

/// Welch's t, unless the machine's spread between such sides is wider.
fn apart(before: &[Centre], after: &[Centre], spread: &Spread) -> Option<Estimate> {
    let sides = [before, after];
    let runs = sides.map(<[Centre]>::len);
    let moments = sides.map(|side| moments(side.iter().map(|centre| centre.log)));
    let of_means = [0, 1].map(|side| moments[side].1 / runs[side] as f64);
    let square = of_means[0] + of_means[1];
    let terms = [0, 1].map(|side| of_means[side].powi(2) / (runs[side] - 1) as f64);
    let floor = spread.level(runs[0].min(runs[1]));
    let own = Error {
        size: square.sqrt(),
        freedom: match terms[0] + terms[1] {
            0.0 => floor.freedom,
            sum => square.powi(2) / sum,
        },
    };
    // Whichever makes the interval wider: a large error of many degrees of freedom may not.
    let floor = Error {
        size: floor.scale,
        freedom: floor.freedom,
    };
    let reach = |error: &Error| error.size * student::critical(CONFIDENCE, error.freedom);
    let error = if reach(&floor) > reach(&own) {
        floor
    } else {
        own
    };
    Estimate::by_t(moments[1].0 - moments[0].0, error, Method::Welch, runs)
}

/// The machine's spread and both medians' errors, by Welch's and Satterthwaite's degrees of
/// freedom.
fn single(before: &[Centre], after: &[Centre], spread: &Spread) -> Option<Estimate> {
    let mean = |side: &[Centre]| moments(side.iter().map(|centre| centre.log)).0;
    let floor = spread.level(1);
    let own = [before.first()?.error?, after.first()?.error?];
    let parts = [own[0], own[1]].map(|error| (error.size.powi(2), error.freedom));
    let parts = parts
        .into_iter()
        .chain([(floor.scale.powi(2), floor.freedom)]);
    let square: f64 = parts.clone().map(|(square, _)| square).sum();
    let terms: f64 = parts
        .map(|(square, freedom)| square.powi(2) / freedom)
        .sum();
    let error = Error {
        size: square.sqrt(),
        freedom: match terms {
            0.0 => floor.freedom,
            _ => square.powi(2) / terms,
        },
    };
    let runs = [before.len(), after.len()];
    Estimate::by_t(mean(after) - mean(before), error, Method::Spread, runs)
}

#[cfg(test)]
mod tests;
