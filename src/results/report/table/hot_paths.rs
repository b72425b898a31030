//! `hot_paths.csv`: loops that decide themselves whether to compile, beside both programs.

use super::{Cell, Layout, Request, Table, Unit, size};
use crate::report::hot_loops::{Length, hot_path, problems, total_ns};
use sweeper_model::row::hot_path::HotPath;
use sweeper_model::word::Word;

/// The name of the table.
pub(super) const NAME: &str = "hot_paths";

/// The loops of `auto`, where there are any.
pub(super) fn hot_paths(request: &Request<'_>) -> Option<Table> {
    let frame = request.frame;
    let found = problems(frame, request.rows, request.baseline);
    let lengths = found.iter().flatten();
    let lengths: Vec<(u32, Length, usize)> = lengths
        .filter_map(|(iterations, length)| Some((*iterations, *length, length.auto?)))
        .collect();
    if lengths.is_empty() {
        return None;
    }
    let rows: Vec<usize> = lengths.iter().map(|(.., row)| *row).collect();
    let layout = Layout::of(frame, &rows);
    let words = frame.words(&["backend", "mode"]);
    let mut table = Table::new(NAME, "Loops that decide whether to compile");
    table
        .plain(words.iter().copied())
        .plain(&layout.sizes)
        .plain(["iterations"])
        .names_rows()
        .column("auto_ns", Unit::Ns)
        .column("eager_ns", Unit::Ns)
        .column("compiled_ns", Unit::Ns)
        .column("over_best", Unit::Ratio)
        .column("background_ns", Unit::Ns)
        .column("rest_over_best", Unit::Ratio)
        .plain(["outcome", "detected_at", "switched_at"])
        .column("detection_ns", Unit::Ns)
        .plain(["regressions"]);
    for &(iterations, length, row) in &lengths {
        let Some(path) = hot_path(frame.entries[row]) else {
            continue;
        };
        let mut line: Vec<Cell> = words
            .iter()
            .map(|name| Cell::from(frame.value(row, name)))
            .collect();
        line.extend(layout.sizes.iter().map(|name| size(frame, row, name)));
        line.push(Cell::Count(iterations.into()));
        line.extend(times(request, length, iterations, path));
        line.extend([
            Cell::word(path.outcome.word()),
            count(path.detected_at),
            count(path.switched_at),
            path.detection_ns.map_or(Cell::Empty, Cell::Number),
            Cell::Count(path.regressions.into()),
        ]);
        table.rows.push(line);
    }
    table.notes.push(
        "auto, eager, compiled: median time of the whole loop. over_best: auto over the faster of \
         both; rest_over_best: the same less background_ns, the time of planning and compiling \
         beside the first loop. Where a processor of its own did that, the loop did not wait for \
         it, and this is not a time that a loop took: it may be far below 1. \
         outcome and the columns behind it: of the first loop. eager and compiled are loaded \
         before their loops begin"
            .to_owned(),
    );
    Some(table)
}

/// Times of the whole loop by all three, and how they compare.
fn times(request: &Request<'_>, length: Length, iterations: u32, path: &HotPath) -> [Cell; 6] {
    let total = |row: Option<usize>| {
        row.and_then(|row| total_ns(request.frame, row, iterations))
            .filter(|total_ns| *total_ns > 0.0)
    };
    let [auto, eager, compiled] = [length.auto, length.eager, length.compiled].map(total);
    let best = [eager, compiled].into_iter().flatten().reduce(f64::min);
    let over = |time: Option<f64>| match time.zip(best) {
        Some((time, best)) => Cell::Number(time / best),
        None => Cell::Empty,
    };
    let number = |time: Option<f64>| time.map_or(Cell::Empty, Cell::Number);
    [
        number(auto),
        number(eager),
        number(compiled),
        over(auto),
        Cell::Number(path.background_ns),
        over(auto.map(|auto| auto - path.background_ns)),
    ]
}

fn count(iteration: Option<u32>) -> Cell {
    iteration.map_or(Cell::Empty, |iteration| Cell::Count(iteration.into()))
}
