//! `metrics.csv`: values that runs of programs have beside their times.

use std::collections::BTreeMap;

use super::{Cell, Layout, Request, Table, Unit, size};
use crate::report::frame::Key;
use sweeper_model::row::metric::{Better, MetricSummary};

/// A metric of a row.
struct Found<'r> {
    row: usize,
    name: &'r str,
    metric: &'r MetricSummary,
}

/// The metrics of all rows that have some, beside the best of each problem.
pub(super) fn metrics(request: &Request<'_>) -> Option<Table> {
    let frame = request.frame;
    let mut problems: BTreeMap<(&str, Key), Vec<Found<'_>>> = BTreeMap::new();
    for &row in request.rows {
        let entry = frame.entries[row];
        for (name, metric) in entry.metrics.iter().filter(|_| entry.is_ok()) {
            let key = (&**name, frame.key_without(row, &["backend"]));
            let found = Found { row, name, metric };
            problems.entry(key).or_default().push(found);
        }
    }
    let rows: Vec<usize> = problems.values().flatten().map(|found| found.row).collect();
    if rows.is_empty() {
        return None;
    }
    let layout = Layout::of(frame, &rows);
    let words = frame.words(&["backend", "phase"]);
    let mut table = Table::new("metrics", "Values beside times");
    table
        .plain(["metric", "unit", "better"])
        .plain(words.iter().copied())
        .plain(&layout.sizes)
        .plain(["backend"])
        .column("value", Unit::Plain)
        .column("over_best", Unit::Ratio);
    for found in problems.values() {
        let best = best(found);
        for Found { row, name, metric } in found {
            let mut line = vec![
                Cell::word(name),
                Cell::word(&metric.unit),
                metric
                    .better
                    .map_or(Cell::Empty, |better| Cell::word(better.name())),
            ];
            line.extend(words.iter().map(|name| Cell::from(frame.value(*row, name))));
            line.extend(layout.sizes.iter().map(|name| size(frame, *row, name)));
            let over_best = best
                .filter(|&best| best != 0.0)
                .map(|best| metric.median / best);
            line.extend([
                Cell::word(frame.series(*row)),
                Cell::Interval {
                    value: metric.median,
                    low: metric.low,
                    high: metric.high,
                },
                over_best.map_or(Cell::Empty, Cell::Number),
            ]);
            table.rows.push(line);
        }
    }
    table.notes.push(
        "value: the median of the samples, with its 95 % interval; over_best: over the best median \
         of the same problem"
            .to_owned(),
    );
    Some(table)
}

/// The best median, where one is better than another.
fn best(found: &[Found<'_>]) -> Option<f64> {
    let medians = found.iter().map(|found| found.metric.median);
    match found.first()?.metric.better? {
        Better::Lower => medians.reduce(f64::min),
        Better::Higher => medians.reduce(f64::max),
    }
}
