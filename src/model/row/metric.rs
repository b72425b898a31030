//! Values that runs of a program have beside their times.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::stats::Summary;
use crate::word::Word;

/// Metrics that every program has, by the system's account: seconds of its own code and of the
/// system's in its name, and the most memory that it had.
pub const OF_SYSTEM: [&str; 3] = ["user_s", "system_s", "peak_bytes"];

/// Which of two values is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// The lesser.
    Lower,
    /// The greater.
    Higher,
}

impl Word for Better {
    const WORDS: &'static [(&'static str, Self)] =
        &[("lower", Better::Lower), ("higher", Better::Higher)];
}

impl Better {
    /// The word of rows.
    pub const fn name(self) -> &'static str {
        match self {
            Better::Lower => "lower",
            Better::Higher => "higher",
        }
    }
}

/// One value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// The value.
    pub value: f64,
    /// Its unit, for people; empty where nobody said.
    pub unit: String,
    /// Whether more is better; none where nobody said.
    pub better: Option<Better>,
}

/// The values of all samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MetricValues {
    /// One a sample, in the order taken.
    pub values: Vec<f64>,
    /// Their unit.
    pub unit: String,
    /// Whether more is better.
    pub better: Option<Better>,
}

impl MetricValues {
    /// Adds the value of a sample.
    pub fn push(&mut self, metric: Metric) {
        self.values.push(metric.value);
        self.unit = metric.unit;
        self.better = metric.better;
    }
}

/// The median of the values of all samples, with its 95 % interval.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricSummary {
    /// The median.
    pub median: f64,
    /// The lower end of its interval.
    pub low: f64,
    /// The upper end of its interval.
    pub high: f64,
    /// The unit.
    pub unit: Arc<str>,
    /// Whether more is better.
    pub better: Option<Better>,
}

impl MetricSummary {
    /// The summary of some values; none of none.
    pub fn of(found: &MetricValues) -> Option<Self> {
        let summary = Summary::of(&found.values)?;
        Some(MetricSummary {
            median: summary.median,
            low: summary.interval.low,
            high: summary.interval.high,
            unit: found.unit.as_str().into(),
            better: found.better,
        })
    }
}
