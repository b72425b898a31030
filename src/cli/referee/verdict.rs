//! Verdicts on candidates, from rows of a run that has the baseline, too.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sweeper_program::{Phase, Value};

use super::NAME;
use sweeper_model::identity::ProblemId;
use sweeper_model::interval::LogInterval;
use sweeper_model::row::Row;
use sweeper_model::row::outcome::Status;
use sweeper_model::stats::Summary;
use sweeper_model::stats::student::critical;

/// Why a candidate that is right has no speedup.
const TOO_SHORT: &str = "it is right, and too short to be told from an empty function: larger \
                         sizes have a speedup";

/// A problem and a phase.
type PointKey = (ProblemId, Phase);

/// Logarithms of ratios of two processes of equal code, by problem and phase.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs(BTreeMap<PointKey, Vec<f64>>);

/// A line of output.
#[derive(Serialize, Deserialize)]
pub(super) struct Verdict {
    pub(super) id: String,
    /// What it is for, where its line says that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
    /// `ok`, or the status of the first point that is not.
    pub(super) verdict: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// How many times as fast as the baseline, in the geometric mean over the points: with the ends
    /// of its interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) speedup: Option<[f64; 3]>,
    /// Of the point where it is greatest: the share of the device's time that kernels of libraries
    /// take, and the names of the most expensive ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    library_share: Option<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    library_kernels: Vec<String>,
    baseline: String,
    points: Vec<Point>,
    /// Where its rows are.
    #[serde(skip_serializing_if = "Option::is_none")]
    folder: Option<PathBuf>,
    /// From its line to this one.
    pub(super) seconds: f64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Point {
    parameters: BTreeMap<String, Value>,
    phase: Phase,
    status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    median_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline_median_ns: Option<f64>,
}

impl Pairs {
    /// Adds the ratios of a run of the baseline beside itself.
    pub(super) fn add(&mut self, rows: &[Row], like: &str) {
        for (row, base) in pairs(rows, like) {
            if let (Some(own), Some(base)) = (summary(row), base.and_then(summary)) {
                let ratio = logarithm(&base).over(logarithm(&own)).value;
                let known = self.0.entry(key_of(row)).or_default();
                known.extend(Some(ratio).filter(|ratio| ratio.is_finite()));
            }
        }
    }

    /// How far the ratio of two processes of equal code is from 1, with a probability of 95 %, as a
    /// logarithm.
    fn between_processes(&self, row: &Row) -> f64 {
        let Some(ratios) = self.0.get(&key_of(row)) else {
            return 0.0;
        };
        let count = ratios.len() as f64;
        if ratios.is_empty() {
            return 0.0;
        }
        let squares: f64 = ratios.iter().map(|ratio| ratio * ratio).sum();
        critical(0.95, count) * (squares / count).sqrt()
    }
}

impl Verdict {
    /// A candidate that was not run.
    pub(super) fn refusal(id: &str, reason: String) -> Self {
        Verdict {
            id: id.to_owned(),
            problem: None,
            verdict: Status::Error,
            reason: Some(reason),
            speedup: None,
            library_share: None,
            library_kernels: Vec::new(),
            baseline: String::new(),
            points: Vec::new(),
            folder: None,
            seconds: 0.0,
        }
    }

    /// The verdict of the rows of a run.
    pub(super) fn from_rows(
        id: &str,
        baseline: &str,
        (rows, known): (&[Row], &Pairs),
        folder: PathBuf,
    ) -> Self {
        let mut ratios = Vec::new();
        let points = pairs(rows, baseline).map(|(row, base)| {
            let own = summary(row);
            let base = base.and_then(summary);
            if let (Some(own), Some(base)) = (&own, &base) {
                let mut ratio = logarithm(base).over(logarithm(own));
                let between = known.between_processes(row);
                ratio.below = ratio.below.hypot(between);
                ratio.above = ratio.above.hypot(between);
                ratios.push(ratio);
            }
            Point {
                parameters: row.parameters.clone(),
                phase: row.phase,
                status: row.outcome.status,
                reason: row.outcome.reason.clone(),
                median_ns: own.map(|own| own.median),
                baseline_median_ns: base.map(|base| base.median),
            }
        });
        let points: Vec<Point> = points.collect();
        let failed = points.iter().find(|point| point.status != Status::Ok);
        let speedup = LogInterval::mean(&ratios).map(LogInterval::numbers);
        // Samples of no time at all, or intervals that hold it, have no ratio.
        let speedup = speedup.filter(|ends| ends.iter().all(|end| end.is_finite()));
        let (verdict, reason) = match failed {
            None if speedup.is_none() && !ratios.is_empty() => {
                (Status::Ok, Some(TOO_SHORT.to_owned()))
            }
            Some(point) => (point.status, point.reason.clone()),
            None if points.is_empty() => (
                Status::Error,
                Some("the run ended before any of its points was measured".to_owned()),
            ),
            None => (Status::Ok, None),
        };
        let used = pairs(rows, baseline)
            .filter_map(|(row, _)| row.outcome.measurement.as_ref()?.library_use.as_ref())
            .max_by(|one, other| one.share.total_cmp(&other.share));
        Verdict {
            id: id.to_owned(),
            problem: None,
            verdict,
            reason,
            speedup,
            library_share: used.map(|used| used.share),
            library_kernels: used.map_or_else(Vec::new, |used| used.kernels.clone()),
            baseline: baseline.to_owned(),
            points,
            folder: Some(folder),
            seconds: 0.0,
        }
    }

    /// For people.
    pub(super) fn line(&self) -> String {
        let mut line = format!("{:20} {:12}", self.id, self.verdict.name());
        if let Some([low, middle, high]) = self.speedup {
            let _ = write!(
                line,
                " {middle:.2}x as fast as {} ({low:.2} to {high:.2})",
                self.baseline
            );
        }
        let _ = write!(line, " {}", self.telling());
        line.trim_end().to_owned()
    }

    /// What it is for.
    pub(super) fn subject(&self) -> &str {
        self.problem.as_deref().unwrap_or(&self.baseline)
    }

    /// The line of its reason that tells the most: the complaints of a compiler are many.
    pub(super) fn telling(&self) -> &str {
        let reason = self.reason.as_deref().unwrap_or_default();
        let mut complaints = reason.lines();
        let telling = complaints.find(|line| line.contains("error:"));
        telling.or(reason.lines().next()).unwrap_or_default()
    }
}

/// The rows of candidates, each with that of the baseline for the same problem and phase.
fn pairs<'r>(rows: &'r [Row], baseline: &str) -> impl Iterator<Item = (&'r Row, Option<&'r Row>)> {
    let of = |name: &str| -> Vec<&'r Row> {
        let rows = rows.iter().filter(|row| row.backend == name);
        rows.collect()
    };
    let others = of(baseline);
    of(NAME).into_iter().map(move |row| {
        let mut others = others.iter();
        let other = others.find(|other| key_of(other) == key_of(row));
        (row, other.copied())
    })
}

fn key_of(row: &Row) -> PointKey {
    (row.problem, row.phase)
}

/// The times of a row that is right.
fn summary(row: &Row) -> Option<Summary> {
    let measured = row.outcome.measurement.as_ref();
    let measured = measured.filter(|_| row.outcome.status == Status::Ok)?;
    Summary::of(&measured.samples_ns)
}

fn logarithm(summary: &Summary) -> LogInterval {
    let interval = (summary.interval.low, summary.interval.high);
    LogInterval::new(summary.median, Some(interval))
}
