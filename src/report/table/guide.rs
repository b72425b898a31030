//! The tables of the semi-CRF guide, with its names and columns: for its workload as they are, for
//! others with their own sizes in place of T, K, C and KC. Sizes that the guide has no column for
//! come last.

use std::collections::BTreeMap;

use super::{Cell, Layout, Request, Table, Unit, size};
use crate::report::frame::{Key, number_of};
use crate::row::entry::Entry;

/// A gigabyte in these files is 2^30 bytes.
const GB: f64 = (1u64 << 30) as f64;

/// A row's median in milliseconds.
pub(super) fn time_ms(entry: &Entry) -> f64 {
    entry.median_ns().map_or(f64::NAN, |time_ns| time_ns / 1e6)
}

/// A row's peak in gigabytes.
fn peak_gb(entry: &Entry) -> f64 {
    let peak = entry.memory.peak_allocated;
    peak.map_or(f64::NAN, |bytes| bytes as f64 / GB)
}

/// Positions that a semi-CRF goes through in a second: `B T / s`.
pub fn positions_per_s(entry: &Entry) -> Option<f64> {
    let positions = entry.int("B")? * entry.int("T")?;
    let median_ns = entry.median_ns().filter(|&median| median > 0.0)?;
    Some(positions as f64 / median_ns * 1e9)
}

/// The cells and columns that name a row in the guide's order: words, phase if wanted, sizes of the
/// guide; other sizes go to the end.
struct Names<'l> {
    layout: &'l Layout,
    has_phase: bool,
}

impl Names<'_> {
    fn guides_sizes(&self) -> usize {
        match self.layout.is_guides {
            true => 4,
            false => self.layout.sizes.len(),
        }
    }

    fn columns(&self, table: &mut Table) {
        table.plain(["backend"]).plain(&self.layout.words);
        if self.has_phase {
            table.plain(["phase"]);
        }
        table.plain(&self.layout.sizes[..self.guides_sizes()]);
    }

    fn last_columns(&self, table: &mut Table) {
        table.plain(&self.layout.sizes[self.guides_sizes()..]);
    }

    /// A row: names, `cells`, and what the guide has no columns for.
    fn row(&self, request: &Request<'_>, row: usize, cells: &[Cell]) -> Vec<Cell> {
        let frame = request.frame;
        let mut line = vec![Cell::word(frame.series(row))];
        let words = self.layout.words.iter();
        line.extend(words.map(|name| self.layout.word(frame, row, name)));
        if self.has_phase {
            line.push(Cell::word(frame.entries[row].phase.name()));
        }
        let sizes = self.layout.sizes.split_at(self.guides_sizes());
        line.extend(sizes.0.iter().map(|name| size(frame, row, name)));
        line.extend_from_slice(cells);
        line.extend(sizes.1.iter().map(|name| size(frame, row, name)));
        line
    }
}

/// `summary_stats.csv`: statistics over shapes by backend, semiring and phase.
pub(super) fn summary_stats(request: &Request<'_>) -> Option<Table> {
    let (frame, layout) = (request.frame, request.layout);
    let mut table = Table::new("summary_stats", "Statistics over shapes");
    table.plain(["backend"]).plain(&layout.words);
    table.plain(["phase"]);
    for name in ["mean", "std", "min", "max"] {
        table.column(format!("time_ms_median_{name}"), Unit::Ms);
    }
    table.column("peak_allocated_gb_mean", Unit::Gb);
    table.column("peak_allocated_gb_max", Unit::Gb);
    let ranges: Vec<&str> = match layout.is_guides {
        true => {
            table.column("positions_per_sec_mean", Unit::PerSecond);
            table.column("positions_per_sec_max", Unit::PerSecond);
            vec!["KC", "T"]
        }
        false => layout.sizes.iter().map(String::as_str).collect(),
    };
    for name in &ranges {
        table.plain([format!("{name}_min"), format!("{name}_max")]);
    }
    let mut groups: BTreeMap<(String, Key), Vec<usize>> = BTreeMap::new();
    let mut names: Vec<&str> = layout.words.iter().map(String::as_str).collect();
    names.push("phase");
    for &row in request.rows {
        if frame.entries[row].is_ok() {
            let key = (frame.series(row), frame.key_of(row, &names));
            groups.entry(key).or_default().push(row);
        }
    }
    for rows in groups.values() {
        let first = rows[0];
        let entries: Vec<&Entry> = rows.iter().map(|&row| frame.entries[row]).collect();
        let mut line = vec![Cell::word(frame.series(first))];
        line.extend(
            layout
                .words
                .iter()
                .map(|name| layout.word(frame, first, name)),
        );
        line.push(Cell::word(entries[0].phase.name()));
        let times = Moments::of(entries.iter().map(|entry| time_ms(entry)));
        line.extend([times.mean, times.std, times.min, times.max].map(Cell::Number));
        let peaks = Moments::of(entries.iter().map(|entry| peak_gb(entry)));
        line.extend([peaks.mean, peaks.max].map(Cell::Number));
        if layout.is_guides {
            let rates = entries.iter().filter_map(|entry| positions_per_s(entry));
            let rates = Moments::of(rates);
            line.extend([rates.mean, rates.max].map(Cell::Number));
        }
        for name in &ranges {
            let sizes = entries.iter().filter_map(|entry| number_of(entry, name));
            let sizes = Moments::of(sizes);
            line.extend([sizes.min, sizes.max].map(whole));
        }
        table.rows.push(line);
    }
    explain_if_empty(&mut table, "no point was measured");
    Some(table)
}

/// A number that is shown without a fraction where it has none.
fn whole(value: f64) -> Cell {
    match value.fract() == 0.0 && value.abs() < 1e15 {
        true => Cell::Count(value as i64),
        false => Cell::Number(value),
    }
}

/// Statistics as pandas makes them: NaN is passed over, the deviation has n - 1.
struct Moments {
    mean: f64,
    std: f64,
    min: f64,
    max: f64,
}

impl Moments {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.filter(|value| !value.is_nan()).collect();
        let n = values.len() as f64;
        if values.is_empty() {
            let nan = f64::NAN;
            let (mean, std, min, max) = (nan, nan, nan, nan);
            return Moments {
                mean,
                std,
                min,
                max,
            };
        }
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Moments {
            mean,
            std: (squares / (n - 1.0)).sqrt(),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

fn explain_if_empty(table: &mut Table, reason: &str) {
    if table.rows.is_empty() {
        table.notes.push(format!("empty: {reason}"));
    }
}

/// `backward_forward_ratios.csv`.
pub(super) fn backward_forward_ratios(request: &Request<'_>) -> Option<Table> {
    let frame = request.frame;
    let names = Names {
        layout: request.layout,
        has_phase: false,
    };
    let mut table = Table::new(
        "backward_forward_ratios",
        "Time of the backward pass over that of the forward pass",
    );
    names.columns(&mut table);
    table
        .column("forward_ms", Unit::Ms)
        .column("backward_ms", Unit::Ms)
        .column("ratio", Unit::Ratio);
    names.last_columns(&mut table);
    for rows in frame.joined(request.rows, &["phase"]).into_values() {
        let of = |phase: &str| {
            let found = rows
                .iter()
                .find(|&&row| frame.entries[row].phase.name() == phase);
            found.map(|&row| (row, time_ms(frame.entries[row])))
        };
        if let (Some((row, forward)), Some((_, backward))) = (of("forward"), of("backward")) {
            let cells = [forward, backward, backward / forward].map(Cell::Number);
            table.rows.push(names.row(request, row, &cells));
        }
    }
    sort(&mut table);
    explain_if_empty(
        &mut table,
        "no point was measured in both the forward and the backward phase",
    );
    Some(table)
}

/// `semiring_overhead.csv`: the other semirings against the log semiring.
pub(super) fn semiring_overhead(request: &Request<'_>) -> Option<Table> {
    if !request.layout.is_guides {
        return None;
    }
    let frame = request.frame;
    let names = Names {
        layout: request.layout,
        has_phase: true,
    };
    let mut table = Table::new("semiring_overhead", "Time over that of the log semiring");
    names.columns(&mut table);
    table
        .column("time_ms", Unit::Ms)
        .column("log_time_ms", Unit::Ms)
        .column("overhead", Unit::Ratio);
    names.last_columns(&mut table);
    for rows in frame.joined(request.rows, &["semiring"]).into_values() {
        let is_log = |row: &usize| frame.entries[*row].text("semiring") == Some("log");
        let Some(log) = rows.iter().copied().find(is_log) else {
            continue;
        };
        let log_ms = time_ms(frame.entries[log]);
        for row in rows.into_iter().filter(|row| !is_log(row)) {
            let own_ms = time_ms(frame.entries[row]);
            let cells = [own_ms, log_ms, own_ms / log_ms].map(Cell::Number);
            table.rows.push(names.row(request, row, &cells));
        }
    }
    sort(&mut table);
    explain_if_empty(
        &mut table,
        "no point was measured in the log semiring and in another one",
    );
    Some(table)
}

/// `baseline_ratios.csv`: time and memory of the other backends over those of the baseline.
pub(super) fn baseline_ratios(request: &Request<'_>) -> Option<Table> {
    let frame = request.frame;
    let names = Names {
        layout: request.layout,
        has_phase: true,
    };
    let title = match request.baseline {
        Some(baseline) => format!("Time and memory over those of `{baseline}`"),
        None => "Time and memory over those of a baseline".to_owned(),
    };
    let mut table = Table::new("baseline_ratios", title);
    names.columns(&mut table);
    table
        .column("time_ms", Unit::Ms)
        .column("baseline_time_ms", Unit::Ms)
        .column("time_ratio", Unit::Ratio)
        .column("peak_gb", Unit::Gb)
        .column("baseline_memory_gb", Unit::Gb)
        .column("memory_ratio", Unit::Ratio);
    names.last_columns(&mut table);
    let Some(baseline) = request.baseline else {
        explain_if_empty(
            &mut table,
            "there is no baseline; choose one with --baseline",
        );
        return Some(table);
    };
    for rows in frame.joined(request.rows, &["backend"]).into_values() {
        let is_base = |row: &usize| frame.entries[*row].backend.as_ref() == baseline;
        let Some(base) = rows.iter().copied().find(is_base) else {
            continue;
        };
        let base = frame.entries[base];
        for row in rows.into_iter().filter(|row| !is_base(row)) {
            let own = frame.entries[row];
            let times = [time_ms(own), time_ms(base)];
            let peaks = [peak_gb(own), peak_gb(base)];
            let [time_ratio, memory_ratio] = [times, peaks].map(|[own, base]| own / base);
            let cells = [
                times[0],
                times[1],
                time_ratio,
                peaks[0],
                peaks[1],
                memory_ratio,
            ];
            let cells = cells.map(Cell::Number);
            table.rows.push(names.row(request, row, &cells));
        }
    }
    sort(&mut table);
    let reason = format!("`{baseline}` and another backend have no point in common");
    explain_if_empty(&mut table, &reason);
    Some(table)
}

/// Rows by their leading words and sizes, whatever the order in which they were measured.
pub(super) fn sort(table: &mut Table) {
    let key = |cell: &Cell| match cell {
        Cell::Word(word) => (0, 0, word.to_string()),
        Cell::Count(count) => (1, *count, String::new()),
        _ => (2, 0, String::new()),
    };
    table
        .rows
        .sort_by_cached_key(|row| row.iter().map(key).collect::<Vec<_>>());
}
