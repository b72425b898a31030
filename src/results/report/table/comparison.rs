//! `comparison.csv`: all backends side by side at each shape of an operation, and their geometric
//! means.

use std::collections::BTreeMap;

use super::means::LogInterval;
use super::pivot::Held;
use super::{Cell, Request, Table, Unit, pivot, size};
use sweeper_manifest::settings::GB;
use sweeper_model::row::entry::{Entry, Words};
use sweeper_model::row::outcome::Checked;

/// The number of columns beside those of sizes.
const COLUMNS: usize = 13;

/// `comparison.csv`: for workloads that compare no word. Those that compare one have
/// `crossover_points.csv` and tables of ratios.
pub(super) fn comparison(request: &Request<'_>) -> Option<Table> {
    let shown = request.layout.presentation;
    if shown.is_some_and(|shown| shown.compared.is_some()) {
        return None;
    }
    let frame = request.frame;
    let mut table = Table::new("comparison", "Backends side by side at each shape");
    table.plain(["phase"]).plain(&request.layout.sizes);
    table
        .plain(["shapes", "backend"])
        .column("time_ns", Unit::Ns)
        .column("speedup", Unit::Ratio)
        .column("calls_per_s", Unit::PerSecond)
        .column("bytes_per_s", Unit::PerSecond)
        .plain(["efficiency"])
        .column("peak_gb", Unit::Gb)
        .plain(["launches", "library_launches", "checked", "fastest"]);
    let mut series: Vec<String> = request.rows.iter().map(|&row| frame.series(row)).collect();
    series.sort();
    series.dedup();
    let mut means = Vec::new();
    let mut words = Words::default();
    for rows in frame.groups(request.rows, &["phase"]).into_values() {
        let shapes = pivot::shapes(request, &rows, &series);
        for (key, held) in &shapes {
            let alone = BTreeMap::from([(key.clone(), held.clone())]);
            of_shape(request, &alone, held, &mut words, &mut table.rows);
        }
        let common = pivot::common(&shapes);
        if common.len() > 1 {
            means.extend(of_means(request, &shapes, &common));
        }
    }
    table.rows.extend(means);
    notes(&mut table, request);
    Some(table)
}

/// Adds a line for each backend at one shape.
fn of_shape(
    request: &Request<'_>,
    alone: &pivot::Shapes<'_>,
    held: &Held<'_>,
    words: &mut Words,
    lines: &mut Vec<Vec<Cell>>,
) {
    let frame = request.frame;
    let times = times(request, held);
    for (&name, &row) in held.iter() {
        let entry = frame.entries[row];
        let measured = entry.measurement.as_ref();
        let sizes = request.layout.sizes.iter();
        let [phase, backend] = [entry.phase.name(), name].map(|word| Cell::Word(words.get(word)));
        let checked = measured.map(|found| words.get(found.checked.name()));
        let mut line = Vec::with_capacity(COLUMNS + sizes.len());
        line.push(phase);
        line.extend(sizes.map(|name| size(frame, row, name)));
        line.extend([
            Cell::Count(1),
            backend,
            time(entry),
            speedup(request, alone, name),
            number(entry.median_ns().map(|median_ns| 1e9 / median_ns)),
            number(entry.bytes_per_s().filter(|&rate| rate > 0.0)),
            number(entry.efficiency()),
            number(entry.memory.peak_allocated.map(|bytes| bytes as f64 / GB)),
            count(measured.and_then(|found| Some(found.totals?.launches))),
            count(measured.and_then(|found| Some(found.totals?.calls))),
            checked.map_or(Cell::Empty, Cell::Word),
            fastest(&times, name),
        ]);
        lines.push(line);
    }
}

/// A line for each backend of the means over the shapes that all backends share.
fn of_means(
    request: &Request<'_>,
    shapes: &pivot::Shapes<'_>,
    common: &[&Held<'_>],
) -> Vec<Vec<Cell>> {
    let line = |mean: Mean<'_>| {
        let mut line = vec![Cell::word(request.frame.entries[mean.row].phase.name())];
        line.extend(request.layout.sizes.iter().map(|_| Cell::Empty));
        line.extend([
            Cell::Count(common.len() as i64),
            Cell::word(mean.backend),
            mean.time.map_or(Cell::Empty, Cell::from),
            speedup(request, shapes, mean.backend),
            number(mean.calls_per_s()),
            number(mean.bytes_per_s),
            number(mean.efficiency),
        ]);
        line.extend([const { Cell::Empty }; 4]);
        line.push(mean.fastest);
        line
    };
    means(request, common).into_iter().map(line).collect()
}

/// A backend's geometric means over some shapes.
pub(super) struct Mean<'q> {
    pub(super) backend: &'q str,
    /// One of the backend's rows.
    pub(super) row: usize,
    pub(super) time: Option<LogInterval>,
    bytes_per_s: Option<f64>,
    /// Attained part of the device's ceilings.
    pub(super) efficiency: Option<f64>,
    /// Whether the backend is the fastest, and how clearly.
    pub(super) fastest: Cell,
}

impl Mean<'_> {
    pub(super) fn calls_per_s(&self) -> Option<f64> {
        self.time.map(|time| 1e9 / time.number())
    }
}

/// The means of each backend over shapes that all backends share.
pub(super) fn means<'q>(request: &Request<'_>, common: &[&Held<'q>]) -> Vec<Mean<'q>> {
    let frame = request.frame;
    let Some(first) = common.first() else {
        return Vec::new();
    };
    let entries = |name: &str| -> Vec<&Entry> {
        let rows = common.iter().filter_map(|held| held.get(name));
        rows.map(|&row| frame.entries[row]).collect()
    };
    let mean = |name: &str, of: fn(&Entry) -> Option<LogInterval>| {
        let values: Option<Vec<LogInterval>> = entries(name).into_iter().map(of).collect();
        LogInterval::mean(&values?)
    };
    // A backend that was not checked at every shape can't be the fastest.
    let times = first.keys().filter_map(|&name| {
        let is_checked = entries(name).into_iter().all(is_checked);
        Some((name, mean(name, LogInterval::of).filter(|_| is_checked)?))
    });
    let times: BTreeMap<&str, LogInterval> = times.collect();
    let of_backend = |(&backend, &row): (&&'q str, &usize)| {
        let rate = mean(backend, |entry| LogInterval::exact(entry.bytes_per_s()?));
        let efficiency = mean(backend, |entry| LogInterval::exact(entry.efficiency()?));
        Mean {
            backend,
            row,
            time: mean(backend, LogInterval::of),
            bytes_per_s: rate.map(LogInterval::number),
            efficiency: efficiency.map(LogInterval::number),
            fastest: fastest(&times, backend),
        }
    };
    first.iter().map(of_backend).collect()
}

/// The median with its interval, in nanoseconds.
fn time(entry: &Entry) -> Cell {
    let Some(times) = entry.times else {
        return Cell::Empty;
    };
    let ends = times.interval().filter(|_| times.n != Some(1));
    let (low, high) = ends.unwrap_or((f64::NAN, f64::NAN));
    Cell::Interval {
        value: times.median,
        low,
        high,
    }
}

/// The times of the backends whose results were checked.
fn times<'q>(request: &Request<'_>, held: &Held<'q>) -> BTreeMap<&'q str, LogInterval> {
    let time = |(&name, &row): (&&'q str, &usize)| {
        let entry = request.frame.entries[row];
        Some((name, LogInterval::of(entry).filter(|_| is_checked(entry))?))
    };
    held.iter().filter_map(time).collect()
}

fn is_checked(entry: &Entry) -> bool {
    let measured = entry.measurement.as_ref();
    measured.is_some_and(|found| found.checked != Checked::None)
}

/// Whether a backend is the fastest of the checked ones, and whether the intervals support this.
fn fastest(times: &BTreeMap<&str, LogInterval>, name: &str) -> Cell {
    let Some(own) = times.get(name) else {
        return Cell::Empty;
    };
    let others = || times.iter().filter(|(other, _)| **other != name);
    if others().next().is_none() || others().any(|(_, other)| other.value < own.value) {
        return Cell::Empty;
    }
    let high = own.value + own.above;
    match others().all(|(_, other)| high < other.value - other.below) {
        true => Cell::word("clearly"),
        false => Cell::word("within intervals"),
    }
}

pub(super) fn speedup(request: &Request<'_>, shapes: &pivot::Shapes<'_>, name: &str) -> Cell {
    match request.baseline {
        Some(baseline) => pivot::speedup(request, shapes, name, baseline),
        None => Cell::Empty,
    }
}

pub(super) fn number(value: Option<f64>) -> Cell {
    value.map_or(Cell::Empty, Cell::Number)
}

fn count(value: Option<u64>) -> Cell {
    value.map_or(Cell::Empty, |value| Cell::Count(value as i64))
}

fn notes(table: &mut Table, request: &Request<'_>) {
    let speedup = match request.baseline {
        Some(baseline) => format!("speedup: over `{baseline}`; "),
        None => String::new(),
    };
    table.notes.push(format!(
        "{speedup}calls_per_s: one over the time, the operations guide's inference speed; bytes_per_s: bytes that must be moved over time; efficiency: part of what the device's \
         measured ceilings allow; fastest: of those whose outputs were checked"
    ));
    table.notes.push(
        "lines without sizes: geometric means over the `shapes` at which every backend was measured".to_owned(),
    );
    if table.rows.is_empty() {
        table.notes.push("empty: no point was measured".to_owned());
    }
}
