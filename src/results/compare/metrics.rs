//! Values that programs have beside their times: which of them differ, and whether for the better.
//!
//! A value differs where the 95 % intervals of all runs of A lie apart from those of B, by more
//! than the margin and more than runs of one program differ by on the machine. Fewer than six
//! samples have no such interval. Of a value that all samples of a side agree on, such as the size
//! of a file, two samples and the margin are enough. Nothing is corrected for the number of
//! comparisons.

use std::sync::Arc;

use serde::Serialize;

use super::Settings;
use super::pairing::Rows;
use sweeper_model::quantity;
use sweeper_model::row::entry::Entry;
use sweeper_model::row::metric::{Better, MetricSummary, OF_SYSTEM};

/// Samples from which on the least and the greatest are an interval of 95 %.
const LEAST_SAMPLES: u32 = 6;

/// Samples that show that a value is always the same.
const LEAST_EQUAL: u32 = 2;

/// How a metric of B compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It differs, for the worse.
    Worse,
    /// It differs, for the better.
    Better,
    /// It differs, and nobody said which is better.
    Different,
    /// No difference is shown.
    NotShown,
}

/// The values of all runs of a side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range {
    /// Mean of the runs' medians.
    pub median: f64,
    /// The lowest lower end of their intervals.
    pub low: f64,
    /// The highest upper end.
    pub high: f64,
}

/// A metric that both sides have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metric {
    /// Its name.
    pub name: Arc<str>,
    /// Its unit; empty where nobody said.
    pub unit: Arc<str>,
    /// Values of A.
    pub a: Range,
    /// Values of B.
    pub b: Range,
    /// How B's compare.
    pub change: Change,
}

impl Metric {
    /// `speed: 120 -> 96 MB/s, worse`.
    pub fn text(&self) -> String {
        let [a, b] = [self.a, self.b].map(|side| quantity::significant(side.median));
        let unit = match self.unit.is_empty() {
            true => String::new(),
            false => format!(" {}", self.unit),
        };
        let word = match self.change {
            Change::Worse => ", worse",
            Change::Better => ", better",
            Change::Different | Change::NotShown => "",
        };
        format!("{}: {a} -> {b}{unit}{word}", self.name)
    }

    /// True if a difference is shown.
    pub fn differs(&self) -> bool {
        self.change != Change::NotShown
    }
}

/// The metrics that both sides of a point have, of runs that are `ok`.
pub(super) fn of(rows: &Rows<'_>, settings: &Settings) -> Vec<Metric> {
    let entries = |side: usize| -> Vec<&Entry> {
        let present = rows.sides[side].iter().copied().flatten();
        present.filter(|entry| entry.is_ok()).collect()
    };
    let sides = [entries(0), entries(1)];
    let Some(first) = sides[0].first() else {
        return Vec::new();
    };
    let of_name = |(name, described): (&Arc<str>, &MetricSummary)| {
        let found = [0, 1].map(|side| {
            let values = sides[side].iter();
            let values: Vec<&MetricSummary> =
                values.filter_map(|entry| entry.metrics.get(name)).collect();
            values
        });
        let [a, b] = [Range::of(&found[0])?, Range::of(&found[1])?];
        let runs = found[0].len().min(found[1].len());
        let samples = |side: usize| -> u32 {
            let counts = sides[side]
                .iter()
                .filter_map(|entry| entry.times.as_ref()?.n);
            counts.sum()
        };
        // What the system counts is never the same for long.
        let is_exact = a.is_exact() && b.is_exact() && !OF_SYSTEM.contains(&&**name);
        let (least, reach) = match is_exact {
            true => (LEAST_EQUAL, 0.0),
            false => (LEAST_SAMPLES, settings.spread.level(runs).reach()),
        };
        let is_known = samples(0).min(samples(1)) >= least;
        let is_shown = is_known && are_apart([a, b], settings.rule.margin, reach);
        Some(Metric {
            name: name.clone(),
            unit: described.unit.clone(),
            a,
            b,
            change: match (is_shown, described.better) {
                (false, _) => Change::NotShown,
                (true, None) => Change::Different,
                (true, Some(Better::Lower)) if b.median < a.median => Change::Better,
                (true, Some(Better::Higher)) if b.median > a.median => Change::Better,
                (true, Some(_)) => Change::Worse,
            },
        })
    };
    first.metrics.iter().filter_map(of_name).collect()
}

impl Range {
    fn of(values: &[&MetricSummary]) -> Option<Range> {
        let sum: f64 = values.iter().map(|value| value.median).sum();
        let lows = values.iter().map(|value| value.low);
        let highs = values.iter().map(|value| value.high);
        (!values.is_empty()).then(|| Range {
            median: sum / values.len() as f64,
            low: lows.fold(f64::INFINITY, f64::min),
            high: highs.fold(f64::NEG_INFINITY, f64::max),
        })
    }

    /// True if all samples are equal, as far as their intervals tell.
    fn is_exact(&self) -> bool {
        self.low == self.high
    }
}

/// Whether intervals lie apart, and values by more than the margin and what runs differ by.
fn are_apart([a, b]: [Range; 2], margin: f64, reach: f64) -> bool {
    let is_apart = a.high < b.low || b.high < a.low;
    let least = (1.0 + margin) * (1.0 + reach) - 1.0;
    let smaller = a.median.abs().min(b.median.abs());
    is_apart && (a.median - b.median).abs() > least * smaller
}
