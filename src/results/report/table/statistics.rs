//! `summary_stats.csv`: time and memory of a backend over all shapes of a section.

use std::collections::BTreeMap;

use sweeper_program::workload::Amount;

use super::ratios::{explain_if_empty, peak_gb, time_ms};
use super::{Cell, Request, Table, Unit};
use crate::report::frame::{Key, number_of, product_of};
use sweeper_model::row::entry::Entry;

/// The row's amount of `work` for each second.
fn work_per_s(entry: &Entry, work: Amount) -> Option<f64> {
    let median_ns = entry.median_ns().filter(|&median| median > 0.0)?;
    Some(product_of(entry, work.factors)? / median_ns * 1e9)
}

/// `summary_stats.csv`: statistics over shapes by backend, compared word and phase.
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
    let work = layout.presentation.and_then(|shown| shown.work);
    if let Some(Amount { unit, .. }) = work {
        table.column(format!("{unit}_per_sec_mean"), Unit::PerSecond);
        table.column(format!("{unit}_per_sec_max"), Unit::PerSecond);
    }
    let ranges: Vec<&str> = match layout.presentation {
        Some(shown) => vec![shown.leading_axis, shown.second_axis],
        None => layout.sizes.iter().map(String::as_str).collect(),
    };
    for name in &ranges {
        table.plain([format!("{name}_min"), format!("{name}_max")]);
    }
    let mut groups: BTreeMap<(String, Key), Vec<usize>> = BTreeMap::new();
    let words = layout.words.iter().map(String::as_str);
    let names: Vec<&str> = words.chain(["phase"]).collect();
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
        if let Some(work) = work {
            let rates = entries.iter();
            let rates = rates.filter_map(|entry| work_per_s(entry, work));
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

/// A number, shown without a fraction if it is whole.
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
