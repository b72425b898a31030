//! Lines of ratios between two rows: phases, compared words, backend and baseline.

use sweeper_program::workload::ComparedWord;

use super::fixed::{FixedDimensions, fix_dimensions};
use super::over::{About, Failure, Value, fixed, lines, refuse_single_place};
use super::{Drawn, Slice};
use crate::report::chart::{Chart, Rule};
use crate::report::frame::{MACHINE, number_of};
use crate::report::table::means::LogInterval;
use sweeper_model::row::entry::Entry;

/// Time of the backward pass over that of the forward pass.
pub(super) fn backward_forward_ratio(slice: &Slice<'_>) -> Option<Drawn> {
    let axis = slice.main_axis()?;
    let held = fix_dimensions(slice.frame(), &slice.rows, &axis, &fixed(slice, &axis));
    let phase = |row: usize| slice.frame().entries[row].phase.name();
    let pairs = paired(
        slice,
        &held,
        &["phase"],
        |row| phase(row) == "forward",
        |row| phase(row) == "backward",
    );
    let about = About {
        title: format!("Backward over forward by {}", slice.label(&axis)),
        axis: &axis,
        label: "time ratio",
        needed: "no point was measured in both the forward and the backward phase",
        is_timed: true,
    };
    let found = ratios(slice, &axis, pairs, LogInterval::of);
    Some(ratio_lines(slice, &held, &about, found))
}

/// Time at each other value of the compared word over the time at its reference value.
pub(super) fn compared_overhead(slice: &Slice<'_>) -> Option<Drawn> {
    let shown = slice.request.layout.presentation?;
    let ComparedWord {
        name, reference, ..
    } = shown.compared?;
    let axis = shown.leading_axis;
    let held = fix_dimensions(slice.frame(), &slice.rows, axis, &fixed(slice, axis));
    let word = |row: usize| slice.frame().entries[row].text(name).unwrap_or_default();
    let pairs = paired(
        slice,
        &held,
        &[name],
        |row| word(row) == reference,
        |row| word(row) != reference,
    );
    // A line for each word of each backend; the first word has the backends' own colours.
    let count = slice.request.series.len();
    let mut others: Vec<&str> = pairs.iter().map(|&(_, row)| word(row)).collect();
    others.sort_unstable();
    others.dedup();
    let mut values = Vec::new();
    for &(base, row) in &pairs {
        let place = others.iter().position(|held| *held == word(row));
        let style = slice.style(row) + place.unwrap_or(0) * count;
        values.extend(
            ratio(slice, axis, (base, row), LogInterval::of).map(|value| Value { style, ..value }),
        );
    }
    let labels: Vec<String> = others
        .iter()
        .flat_map(|word| {
            slice
                .request
                .series
                .iter()
                .map(move |name| format!("{name} {word}"))
        })
        .collect();
    let wide = super::Request {
        series: &labels,
        ..*slice.request
    };
    let wide = Slice {
        request: &wide,
        rows: Vec::new(),
        question: slice.question.clone(),
    };
    let about = About {
        title: format!(
            "Overhead over the {reference} {name} by {}",
            slice.label(axis)
        ),
        axis,
        label: "time ratio",
        needed: &format!("no point was measured in the {reference} {name} and in another one"),
        is_timed: true,
    };
    Some(ratio_lines(&wide, &held, &about, (values, Vec::new())))
}

/// Time over the baseline's time, of workloads that compare a word; others have [`speedup`].
pub(super) fn time_ratio_baseline(slice: &Slice<'_>) -> Option<Drawn> {
    if !slice.request.layout.axes().is_empty() {
        return None;
    }
    let what = Ratio {
        title: "Time ratio to the baseline",
        label: "time ratio to",
        of: LogInterval::of,
        is_timed: true,
        is_inverse: false,
    };
    Some(baseline_ratio(slice, &slice.main_axis()?, &what))
}

/// Peak memory over the baseline's peak memory.
pub(super) fn memory_ratio_baseline(slice: &Slice<'_>) -> Option<Drawn> {
    let what = Ratio {
        title: "Memory ratio to the baseline",
        label: "memory ratio to",
        of: peak,
        is_timed: false,
        is_inverse: false,
    };
    Some(baseline_ratio(slice, &slice.main_axis()?, &what))
}

/// The baseline's time over the time. If there are several axes, this one must have two places
/// beside the fixed ones.
pub(super) fn speedup(slice: &Slice<'_>, axis: &str) -> Drawn {
    let what = Ratio {
        title: "Speedup over the baseline",
        label: "speedup over",
        of: LogInterval::of,
        is_timed: true,
        is_inverse: true,
    };
    baseline_ratio(slice, axis, &what)
}

/// A ratio of a backend to the baseline.
struct Ratio<'a> {
    /// The title, without the axis.
    title: &'a str,
    /// The quantity upwards, without the baseline.
    label: &'a str,
    /// The quantity of a row.
    of: fn(&Entry) -> Option<LogInterval>,
    /// True if intervals come from samples.
    is_timed: bool,
    /// True if the baseline's quantity stands above.
    is_inverse: bool,
}

/// Why there are no ratios to a baseline.
pub(super) const NO_BASELINE: &str = "there is no baseline; choose one with --baseline";

/// Why there are no ratios to this baseline.
pub(super) fn shared_no_point(baseline: &str) -> String {
    format!("`{baseline}` and another backend share no point")
}

/// A row's peak memory, which has no interval.
pub(super) fn peak(entry: &Entry) -> Option<LogInterval> {
    let bytes = entry.memory.peak_allocated.filter(|_| entry.is_ok())?;
    LogInterval::exact(bytes as f64)
}

fn baseline_ratio(slice: &Slice<'_>, axis: &str, what: &Ratio<'_>) -> Drawn {
    let held = fix_dimensions(slice.frame(), &slice.rows, axis, &fixed(slice, axis));
    refuse_single_place(slice, &held, axis)?;
    let baseline = slice.request.baseline.ok_or(NO_BASELINE)?;
    let pairs = baseline_pairs(slice, &held.rows, baseline);
    let mut found = ratios(slice, axis, pairs, what.of);
    if what.is_inverse {
        for value in &mut found.0 {
            value.value = value.value.inverse();
        }
    }
    let frame = slice.frame();
    for &row in &held.rows {
        let entry = frame.entries[row];
        if let Some(x) = number_of(entry, axis).filter(|&x| x > 0.0 && !entry.is_ok()) {
            let style = slice.style(row);
            found.1.push(Failure { style, x });
        }
    }
    let about = About {
        title: format!("{} by {}", what.title, slice.label(axis)),
        axis,
        label: &format!("{} {baseline}", what.label),
        needed: &shared_no_point(baseline),
        is_timed: what.is_timed,
    };
    ratio_lines(slice, &held, &about, found)
}

/// Rows of other backends, each with the baseline's row of the same point on the same machine.
pub(super) fn baseline_pairs(
    slice: &Slice<'_>,
    rows: &[usize],
    baseline: &str,
) -> Vec<(usize, usize)> {
    let held = FixedDimensions {
        rows: rows.to_vec(),
        ..FixedDimensions::default()
    };
    let is_base = |row: usize| slice.frame().entries[row].backend.as_ref() == baseline;
    paired(slice, &held, &["backend"], is_base, |row| !is_base(row))
}

/// Pairs of rows that differ in `except` alone: a row of `of`, and each of its rows in `others`.
fn paired(
    slice: &Slice<'_>,
    held: &FixedDimensions,
    except: &[&str],
    of: impl Fn(usize) -> bool,
    others: impl Fn(usize) -> bool,
) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    for rows in slice.frame().joined(&held.rows, except).into_values() {
        if let Some(&base) = rows.iter().find(|&&row| of(row)) {
            let others = rows.iter().copied().filter(|&row| others(row));
            pairs.extend(others.map(|row| (base, row)));
        }
    }
    debug_assert!(pairs.iter().all(|&(one, other)| {
        let machine = |row| slice.frame().value(row, MACHINE);
        machine(one) == machine(other)
    }));
    pairs
}

fn ratio(
    slice: &Slice<'_>,
    axis: &str,
    (base, row): (usize, usize),
    measure: fn(&Entry) -> Option<LogInterval>,
) -> Option<Value> {
    let entry = slice.frame().entries[row];
    let value = measure(entry)?.over(measure(slice.frame().entries[base])?);
    Some(Value {
        style: slice.style(row),
        x: number_of(entry, axis).filter(|&x| x > 0.0)?,
        value,
    })
}

fn ratios(
    slice: &Slice<'_>,
    axis: &str,
    pairs: Vec<(usize, usize)>,
    measure: fn(&Entry) -> Option<LogInterval>,
) -> (Vec<Value>, Vec<Failure>) {
    let values = pairs
        .into_iter()
        .filter_map(|pair| ratio(slice, axis, pair, measure));
    (values.collect(), Vec::new())
}

/// Lines of ratios, with a rule at one.
fn ratio_lines(
    slice: &Slice<'_>,
    held: &FixedDimensions,
    about: &About<'_>,
    found: (Vec<Value>, Vec<Failure>),
) -> Drawn {
    let ends = found.0.iter().map(|value| value.x);
    let (low, high) = ends.fold((f64::INFINITY, 0.0f64), |(low, high), x| {
        (low.min(x), high.max(x))
    });
    let mut chart = lines(slice, held, about, found)?;
    if let Chart::Lines(chart) = &mut chart {
        chart.rules.push(Rule {
            from: (low, 1.0),
            to: (high, 1.0),
            label: String::new(),
        });
    }
    Ok(chart)
}
