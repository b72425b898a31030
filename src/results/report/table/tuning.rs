//! `tuning.csv`: the best configuration of each tuned backend, for each problem.

use super::{Cell, Layout, Request, Table, Unit, size};
use crate::report::frame::Frame;
use sweeper_model::tuning::{Choice, Standing, choices};

/// The best configurations of each problem, with a row of that problem.
pub(in crate::report) fn choices_of<'f>(
    frame: &Frame<'f>,
    problems: &[Vec<usize>],
) -> Vec<(usize, Choice<'f>)> {
    let of_problem = |rows: &Vec<usize>| {
        let entries: Vec<_> = rows.iter().map(|&row| frame.entries[row]).collect();
        let first = rows[0];
        let found = choices(&entries).into_iter();
        found.map(move |choice| (first, choice)).collect::<Vec<_>>()
    };
    problems.iter().flat_map(of_problem).collect()
}

/// The best configurations, where a backend has several.
pub(super) fn tuning(request: &Request<'_>) -> Option<Table> {
    let frame = request.frame;
    let found = choices_of(frame, &frame.problems(request.rows));
    if found.is_empty() {
        return None;
    }
    let rows: Vec<usize> = found.iter().map(|(row, _)| *row).collect();
    let layout = Layout::of(frame, &rows);
    let words = frame.words(&["backend", "phase"]);
    let mut table = Table::new("tuning", "The best configuration of each tuned backend");
    table
        .plain(["backend", "phase"])
        .plain(words.iter().copied())
        .plain(&layout.sizes)
        .plain(["best"])
        .column("best_time_ns", Unit::Ns)
        .plain(["alike"])
        .column("first_over_best", Unit::Ratio)
        .column("worst_over_best", Unit::Ratio)
        .plain(["configurations", "outraced", "failed", "measured_again"]);
    for (row, choice) in &found {
        table
            .rows
            .push(line(request, *row, choice, &words, &layout));
    }
    table.notes.push(
        "alike: how many other configurations can't be told from the best, since the interval of \
         the ratio of times has 1 in it: where it is large, the choice is one of several. \
         first_over_best: the first configuration of the manifest over the best. measured_again: \
         the best and those with overlapping intervals were measured once more, and times are \
         those of this second measurement; without it the least of many noisy medians is too low"
            .to_owned(),
    );
    Some(table)
}

fn line(
    request: &Request<'_>,
    row: usize,
    choice: &Choice<'_>,
    words: &[&str],
    layout: &Layout,
) -> Vec<Cell> {
    let frame = request.frame;
    let best = &*choice.best.backend;
    let values = best.strip_prefix(choice.family).unwrap_or(best);
    let count = |standing| {
        let ranked = choice.ranked.iter();
        ranked.filter(|one| one.standing == standing).count()
    };
    let mut line = vec![
        Cell::word(choice.family),
        Cell::word(choice.best.phase.name()),
    ];
    line.extend(words.iter().map(|name| Cell::from(frame.value(row, name))));
    line.extend(layout.sizes.iter().map(|name| size(frame, row, name)));
    line.extend([
        Cell::word(values.trim_matches(['{', '}'])),
        Cell::from(choice.best_time),
        Cell::Count(choice.alike.len() as i64),
        choice.first_over_best.map_or(Cell::Empty, Cell::from),
        choice.worst_over_best().map_or(Cell::Empty, Cell::from),
        Cell::Count(choice.ranked.len() as i64),
        Cell::Count(count(Standing::Outraced) as i64),
        Cell::Count(choice.failed as i64),
        Cell::word(if choice.is_by_again { "yes" } else { "no" }),
    ]);
    line
}
