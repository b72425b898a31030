//! Backends side by side: geometric means over the shapes that they share, for each question and,
//! if wanted, for each value of an axis.

use std::collections::{BTreeMap, BTreeSet};

use super::means::LogInterval;
use super::{Cell, Request, Table, Unit, size};
use crate::report::frame::{Key, MACHINE, Ordered, number_of};
use sweeper_model::row::named::Named;

/// The quantities in the cells.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// Medians.
    Times,
    /// Speedups over the baseline.
    Speedups,
    /// Medians and speedups.
    Both,
}

/// `by_AXIS`: medians and speedups by the values of an axis, parameter or derived value.
pub fn by_axis(request: &Request<'_>, axis: &str) -> Table {
    let mut table = Table::new(format!("by_{axis}"), format!("Backends by `{axis}`"));
    fill(&mut table, request, Some(axis), What::Both);
    table
}

/// The same by the leading axis of a workload that names one and compares no word.
pub(super) fn by_leading_axis(request: &Request<'_>) -> Option<Table> {
    let shown = request.layout.presentation?;
    let axis = shown.compared.is_none().then_some(shown.leading_axis)?;
    Some(by_axis(request, axis))
}

/// Rows of one shape, by line.
pub(super) type Held<'q> = Named<&'q str, usize>;

/// Rows of one question, by shape.
pub(super) type Shapes<'q> = BTreeMap<Key, Held<'q>>;

/// Fills a table with backends side by side.
pub(super) fn fill(table: &mut Table, request: &Request<'_>, axis: Option<&str>, what: What) {
    let frame = request.frame;
    let own = |name: &&str| Some(*name) != axis;
    let mut words = frame.words(&["backend", "phase", MACHINE]);
    words.retain(own);
    let phases = ["phase"].into_iter().filter(own);
    let questions: Vec<&str> = words.iter().copied().chain(phases).collect();
    let mut series: Vec<String> = request.rows.iter().map(|&row| frame.series(row)).collect();
    series.sort();
    series.dedup();
    columns(table, &questions, axis, &series, what, request.baseline);
    let mut unshared = false;
    for rows in frame.groups(request.rows, &questions).into_values() {
        for (value, rows) in by_value(request, &rows, axis) {
            let shapes = shapes(request, &rows, &series);
            let common = common(&shapes);
            unshared |= common.is_empty() && !shapes.is_empty();
            let first = rows[0];
            let mut line: Vec<Cell> = questions
                .iter()
                .map(|name| Cell::from(frame.value(first, name)))
                .collect();
            line.extend(value);
            line.push(Cell::Count(common.len() as i64));
            for name in &series {
                if what != What::Speedups {
                    let times: Vec<LogInterval> = common
                        .iter()
                        .filter_map(|held| LogInterval::of(frame.entries[*held.get(&**name)?]))
                        .collect();
                    let mean = LogInterval::mean(&times);
                    line.push(mean.map_or(Cell::Empty, Cell::from));
                }
                if let Some(baseline) = request.baseline.filter(|_| what != What::Times) {
                    line.push(speedup(request, &shapes, name, baseline));
                }
            }
            table.rows.push(line);
        }
    }
    notes(table, request, what, unshared);
}

fn columns(
    table: &mut Table,
    questions: &[&str],
    axis: Option<&str>,
    series: &[String],
    what: What,
    baseline: Option<&str>,
) {
    table.plain(questions.iter().copied()).plain(axis);
    table.plain(["shapes"]);
    for name in series {
        if what != What::Speedups {
            table.column_of(name, format!("{name}_ns"), Unit::Ns);
        }
        if what == What::Speedups && baseline.is_some() {
            table.column_of(name, format!("{name}_speedup"), Unit::Ratio);
        }
        if what == What::Both && baseline.is_some() {
            table.column_of(name, format!("{name}_speedup"), Unit::Speedup);
        }
    }
}

fn notes(table: &mut Table, request: &Request<'_>, what: What, unshared: bool) {
    if what != What::Speedups {
        table.notes.push(
            "times: geometric means of medians over `shapes`, those at which every backend of the row \
             was measured; intervals are of the measurement"
                .to_owned(),
        );
    }
    match request.baseline {
        Some(baseline) if what != What::Times => table.notes.push(format!(
            "speedups: geometric mean of the time of `{baseline}` over that of the backend, over the \
             shapes that the two share"
        )),
        _ => {}
    }
    if unshared {
        let note = "where `shapes` is 0, the backends have no shape in common";
        table.notes.push(note.to_owned());
    }
    if table.rows.is_empty() {
        table.notes.push("empty: there are no rows".to_owned());
    }
}

/// Rows by the value of the axis, with its cell; without an axis all rows in one group.
fn by_value(
    request: &Request<'_>,
    rows: &[usize],
    axis: Option<&str>,
) -> Vec<(Option<Cell>, Vec<usize>)> {
    let Some(axis) = axis else {
        return vec![(None, rows.to_vec())];
    };
    let frame = request.frame;
    let mut groups: BTreeMap<Option<Ordered>, Vec<usize>> = BTreeMap::new();
    for &row in rows {
        let value = frame.value(row, axis).or_else(|| {
            let states = number_of(frame.entries[row], axis)?;
            Some((states as i64).into())
        });
        groups.entry(value.map(Ordered)).or_default().push(row);
    }
    groups
        .into_values()
        .map(|rows| (Some(size(frame, rows[0], axis)), rows))
        .collect()
}

/// Rows with right results, by shape and by their name in `series`.
pub(super) fn shapes<'q>(
    request: &Request<'_>,
    rows: &[usize],
    series: &'q [String],
) -> Shapes<'q> {
    let frame = request.frame;
    let named = |row| {
        let index = series.binary_search(&frame.series(row)).ok()?;
        Some((&*series[index], row))
    };
    let joined = frame.joined(rows, &["backend", MACHINE]).into_iter();
    let shapes = joined.map(|(key, rows)| (key, rows.into_iter().filter_map(named).collect()));
    shapes
        .filter(|(_, held): &(_, Held<'_>)| !held.is_empty())
        .collect()
}

/// Shapes at which every line was measured that was measured at any shape.
pub(super) fn common<'s, 'q>(shapes: &'s Shapes<'q>) -> Vec<&'s Held<'q>> {
    let names: BTreeSet<&str> = shapes
        .values()
        .flat_map(|held| held.keys().copied())
        .collect();
    let is_whole = |held: &&Held<'_>| held.len() == names.len();
    shapes.values().filter(is_whole).collect()
}

/// Speedup of a line over the baseline on the same machine.
pub(super) fn speedup(
    request: &Request<'_>,
    shapes: &Shapes<'_>,
    name: &str,
    baseline: &str,
) -> Cell {
    let frame = request.frame;
    let ratios: Vec<LogInterval> = shapes
        .values()
        .filter_map(|held| {
            let &row = held.get(name)?;
            let machine = frame.value(row, MACHINE);
            let base = held.values().find(|&&other| {
                let is_base = frame.entries[other].backend.as_ref() == baseline;
                is_base && frame.value(other, MACHINE) == machine
            })?;
            if *base == row {
                // The baseline over itself is exactly 1, without noise.
                return LogInterval::exact(1.0);
            }
            let base = LogInterval::of(frame.entries[*base])?;
            Some(base.over(LogInterval::of(frame.entries[row])?))
        })
        .collect();
    LogInterval::mean(&ratios).map_or(Cell::Empty, Cell::from)
}
