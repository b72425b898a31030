//! Columns of metrics, behind those that every file has: five for each metric that a row has.

use std::collections::BTreeSet;

use sweeper_program::Value;

use crate::row::entry::{Entry, Words};
use crate::row::lines::{Line, TableError};
use crate::row::metric::{Better, MetricSummary};
use crate::word::Word;

/// Before the name of a metric.
pub(super) const PREFIX: &str = "metric_";

/// A column of one metric.
#[derive(Clone, Copy, Debug)]
pub struct MetricColumn<'n> {
    metric: &'n str,
    part: Part,
}

/// The part of a metric that a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Median,
    Low,
    High,
    Unit,
    Better,
}

impl Part {
    /// All parts, in the order of the file.
    const ALL: [Part; 5] = [
        Part::Median,
        Part::Low,
        Part::High,
        Part::Unit,
        Part::Better,
    ];

    const fn ending(self) -> &'static str {
        match self {
            Part::Median => "",
            Part::Low => "_low",
            Part::High => "_high",
            Part::Unit => "_unit",
            Part::Better => "_better",
        }
    }
}

impl<'n> MetricColumn<'n> {
    /// The columns of metrics, in the order of the file.
    pub fn of(
        metrics: impl IntoIterator<Item = &'n str>,
    ) -> impl Iterator<Item = MetricColumn<'n>> {
        let metrics: BTreeSet<&str> = metrics.into_iter().collect();
        metrics.into_iter().flat_map(|metric| {
            let parts = Part::ALL.into_iter();
            parts.map(move |part| MetricColumn { metric, part })
        })
    }

    /// The column's name: `metric_speed`, `metric_speed_low`.
    pub fn name(&self) -> String {
        name(self.metric, self.part)
    }

    /// True of columns with words.
    pub fn has_words(&self) -> bool {
        matches!(self.part, Part::Unit | Part::Better)
    }

    /// The value of a row.
    pub fn value(&self, entry: &Entry) -> Option<Value> {
        let found = entry.metrics.get(self.metric)?;
        Some(match self.part {
            Part::Median => Value::Float(found.median),
            Part::Low => Value::Float(found.low),
            Part::High => Value::Float(found.high),
            Part::Unit => Value::Text(found.unit.clone()),
            Part::Better => Value::from(found.better.map_or("", Better::name)),
        })
    }
}

fn name(metric: &str, part: Part) -> String {
    format!("{PREFIX}{metric}{}", part.ending())
}

/// The metrics that a file with these columns has.
pub fn of_columns(columns: &[String]) -> Vec<&str> {
    let has = |column: String| columns.contains(&column);
    let names = columns
        .iter()
        .filter_map(|column| column.strip_prefix(PREFIX));
    names
        .filter(|metric| Part::ALL.into_iter().all(|part| has(name(metric, part))))
        .collect()
}

/// Reads the metrics of a row.
///
/// # Errors
/// If a field is not a value of its column.
pub fn read(
    entry: &mut Entry,
    line: &Line<'_>,
    metrics: &[&str],
    words: &mut Words,
) -> Result<(), TableError> {
    for &metric in metrics {
        let number = |part| line.number(&name(metric, part));
        let ends = number(Part::Low)?.zip(number(Part::High)?);
        if let (Some(median), Some((low, high))) = (number(Part::Median)?, ends) {
            let found = MetricSummary {
                median,
                low,
                high,
                unit: words.get(line.text(&name(metric, Part::Unit))),
                better: Better::parse(line.text(&name(metric, Part::Better))),
            };
            entry.metrics.insert(words.get(metric), found);
        }
    }
    Ok(())
}
