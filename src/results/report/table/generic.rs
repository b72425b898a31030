//! Tables for any sweep: speedups, the best backend, and failures.

use std::collections::BTreeMap;

use super::means::LogInterval;
use super::pivot::{self, Held, What};
use super::{Cell, Request, Table, Unit};
use crate::report::frame::MACHINE;
use sweeper_model::fusion::CONTROL;
use sweeper_model::status::Status;

/// `geometric_means.csv`: medians, as geometric means over the shapes that all backends share.
pub(super) fn geometric_means(request: &Request<'_>) -> Option<Table> {
    let mut table = Table::new("geometric_means", "Geometric means of medians");
    pivot::fill(&mut table, request, None, What::Times);
    Some(table)
}

/// `speedup.csv`: backends over the baseline.
pub(super) fn speedup(request: &Request<'_>) -> Option<Table> {
    let baseline = request.baseline?;
    let mut table = Table::new("speedup", format!("Speedup over `{baseline}`"));
    pivot::fill(&mut table, request, None, What::Speedups);
    Some(table)
}

/// `best_backend.csv`: the fastest backend, its lead, and the number of shapes.
pub(super) fn best_backend(request: &Request<'_>) -> Option<Table> {
    let frame = request.frame;
    // A control is not a candidate: it repeats another backend's program.
    let is_candidate = |row: &usize| &*frame.entries[*row].backend != CONTROL;
    let rows: Vec<usize> = request.rows.iter().copied().filter(is_candidate).collect();
    let mut series: Vec<String> = rows.iter().map(|&row| frame.series(row)).collect();
    series.sort();
    series.dedup();
    let mut questions = frame.words(&["backend", "phase", MACHINE]);
    questions.push("phase");
    let mut table = Table::new("best_backend", "The fastest backend");
    table
        .plain(questions.iter().copied())
        .plain(["shapes", "best"])
        .column("best_time_ns", Unit::Ns)
        .plain(["fastest_at", "clearly_at", "next"])
        .column("next_over_best", Unit::Ratio);
    for rows in frame.groups(&rows, &questions).into_values() {
        let shapes = pivot::shapes(request, &rows, &series);
        let common = pivot::common(&shapes);
        let Some(found) = rank(request, &common) else {
            continue;
        };
        let mut line: Vec<Cell> = questions
            .iter()
            .map(|name| Cell::from(frame.value(rows[0], name)))
            .collect();
        line.extend([
            Cell::Count(common.len() as i64),
            Cell::word(found.best),
            Cell::from(found.time),
            Cell::Count(found.wins as i64),
            Cell::Count(found.clear_wins as i64),
        ]);
        match found.next {
            Some((name, ratio)) => line.extend([Cell::word(name), Cell::from(ratio)]),
            None => line.extend([Cell::Empty, Cell::Empty]),
        }
        table.rows.push(line);
    }
    table.notes.push(
        "best: the least geometric mean over `shapes`, those at which every backend was measured; it is \
         the fastest at `fastest_at` of them, at `clearly_at` by more than the intervals of both. \
         Configurations that were measured again count by their second measurement, as in all tables \
         that compare"
            .to_owned(),
    );
    if table.rows.is_empty() {
        let reason = "empty: no shape was measured with every backend";
        table.notes.push(reason.to_owned());
    }
    Some(table)
}

struct Ranking<'q> {
    best: &'q str,
    time: LogInterval,
    wins: usize,
    clear_wins: usize,
    next: Option<(&'q str, LogInterval)>,
}

/// Ranks the lines over some shapes, which have the same lines.
fn rank<'q>(request: &Request<'_>, shapes: &[&Held<'q>]) -> Option<Ranking<'q>> {
    let time = |row: &usize| LogInterval::of(request.frame.entries[*row]);
    let mut times: BTreeMap<&'q str, Vec<LogInterval>> = BTreeMap::new();
    for held in shapes {
        for (&name, row) in held.iter() {
            times.entry(name).or_default().extend(time(row));
        }
    }
    let mut means: Vec<(&str, LogInterval)> = times
        .iter()
        .filter_map(|(&name, times)| Some((name, LogInterval::mean(times)?)))
        .collect();
    means.sort_by(|one, other| one.1.value.total_cmp(&other.1.value));
    let &(best, mean) = means.first()?;
    let (mut wins, mut clear_wins) = (0, 0);
    for held in shapes {
        let Some(own) = held.get(best).and_then(time) else {
            continue;
        };
        let others = held.iter().filter(|(name, _)| **name != best);
        let others: Vec<LogInterval> = others.filter_map(|(_, row)| time(row)).collect();
        wins += usize::from(others.iter().all(|other| own.value <= other.value));
        let high = own.value + own.above;
        let is_clear = others.iter().all(|other| high < other.value - other.below);
        clear_wins += usize::from(is_clear && !others.is_empty());
    }
    let next = means.get(1).map(|&(name, other)| (name, other.over(mean)));
    Some(Ranking {
        best,
        time: mean,
        wins,
        clear_wins,
        next,
    })
}

/// `not_measured.csv`: points without a result, and the reasons.
pub(super) fn not_measured(request: &Request<'_>) -> Option<Table> {
    let frame = request.frame;
    let mut groups: BTreeMap<(String, &str, Status, &str), usize> = BTreeMap::new();
    for &row in request.rows {
        let entry = frame.entries[row];
        if !entry.is_ok() {
            let reason = entry.reason.as_deref().unwrap_or_default();
            let key = (frame.series(row), entry.phase.name(), entry.status, reason);
            *groups.entry(key).or_default() += 1;
        }
    }
    if groups.is_empty() {
        return None;
    }
    let mut table = Table::new("not_measured", "Points without a result, and why");
    table.plain(["backend", "phase", "status", "points", "reason"]);
    for ((backend, phase, status, reason), points) in groups {
        let line = reason.lines().next().unwrap_or_default();
        table.rows.push(vec![
            Cell::word(backend),
            Cell::word(phase),
            Cell::word(status.name()),
            Cell::Count(points as i64),
            Cell::word(line),
        ]);
    }
    Some(table)
}
