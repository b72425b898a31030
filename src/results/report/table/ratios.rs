//! Ratios of rows that differ in one dimension alone: phase, compared word, backend. Sizes that the
//! workload does not name come last.

use sweeper_program::workload::ComparedWord;

use super::{Cell, Layout, Request, Table, Unit, size};
use sweeper_manifest::settings::GB;
use sweeper_model::row::entry::Entry;

/// A row's median in milliseconds.
pub(super) fn time_ms(entry: &Entry) -> f64 {
    entry.median_ns().map_or(f64::NAN, |time_ns| time_ns / 1e6)
}

/// A row's peak in gigabytes.
pub(super) fn peak_gb(entry: &Entry) -> f64 {
    let peak = entry.memory.peak_allocated;
    peak.map_or(f64::NAN, |bytes| bytes as f64 / GB)
}

/// The cells and columns that name a row: words, phase if wanted, the workload's sizes; other sizes
/// last.
struct Names<'l> {
    layout: &'l Layout,
    has_phase: bool,
}

impl Names<'_> {
    /// Sizes that stand before a table's own columns, and sizes behind them.
    fn sizes(&self) -> (&[String], &[String]) {
        let sizes = &self.layout.sizes;
        let shown = self.layout.presentation;
        sizes.split_at(shown.map_or(sizes.len(), |shown| shown.sizes.len()))
    }

    fn columns(&self, table: &mut Table) {
        table.plain(["backend"]).plain(&self.layout.words);
        if self.has_phase {
            table.plain(["phase"]);
        }
        table.plain(self.sizes().0);
    }

    fn last_columns(&self, table: &mut Table) {
        table.plain(self.sizes().1);
    }

    /// A row of the table: names, `cells`, and the sizes that the guide has no columns for.
    fn row(&self, request: &Request<'_>, row: usize, cells: &[Cell]) -> Vec<Cell> {
        let frame = request.frame;
        let mut line = vec![Cell::word(frame.series(row))];
        let words = self.layout.words.iter();
        line.extend(words.map(|name| self.layout.word(frame, row, name)));
        if self.has_phase {
            line.push(Cell::word(frame.entries[row].phase.name()));
        }
        let sizes = self.sizes();
        line.extend(sizes.0.iter().map(|name| size(frame, row, name)));
        line.extend_from_slice(cells);
        line.extend(sizes.1.iter().map(|name| size(frame, row, name)));
        line
    }
}

pub(super) fn explain_if_empty(table: &mut Table, reason: &str) {
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

/// The compared word, such as `semiring_overhead.csv`: its values against the reference value.
pub(super) fn compared_overhead(request: &Request<'_>) -> Option<Table> {
    let ComparedWord {
        name, reference, ..
    } = request.layout.presentation?.compared?;
    let frame = request.frame;
    let names = Names {
        layout: request.layout,
        has_phase: true,
    };
    let title = format!("Time over that of the {reference} {name}");
    let mut table = Table::new(format!("{name}_overhead"), title);
    names.columns(&mut table);
    table
        .column("time_ms", Unit::Ms)
        .column(format!("{reference}_time_ms"), Unit::Ms)
        .column("overhead", Unit::Ratio);
    names.last_columns(&mut table);
    for rows in frame.joined(request.rows, &[name]).into_values() {
        let is_base = |row: &usize| frame.entries[*row].text(name) == Some(reference);
        let Some(base) = rows.iter().copied().find(is_base) else {
            continue;
        };
        let base_ms = time_ms(frame.entries[base]);
        for row in rows.into_iter().filter(|row| !is_base(row)) {
            let own_ms = time_ms(frame.entries[row]);
            let cells = [own_ms, base_ms, own_ms / base_ms].map(Cell::Number);
            table.rows.push(names.row(request, row, &cells));
        }
    }
    sort(&mut table);
    let reason = format!("no point was measured in the {reference} {name} and in another one");
    explain_if_empty(&mut table, &reason);
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
