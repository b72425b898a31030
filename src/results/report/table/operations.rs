//! `operations.csv`: the operations guide's comparison, for the screen: backends of each operation
//! side by side, over all shapes.

use super::comparison::{self, Mean, number};
use super::{Cell, Request, Table, Unit, pivot};
use crate::guides::operations::is_operation;
use crate::report::frame::MACHINE;

/// The table's name.
pub const NAME: &str = "operations";

/// Where operations of the operations guide were measured with several backends: a line for each
/// operation, phase and backend.
pub(super) fn operations(request: &Request<'_>) -> Option<Table> {
    let frame = request.frame;
    let is_its = |row: &&usize| is_operation(&frame.entries[**row].workload);
    let rows: Vec<usize> = request.rows.iter().filter(is_its).copied().collect();
    let mut series: Vec<String> = rows.iter().map(|&row| frame.series(row)).collect();
    series.sort();
    series.dedup();
    if series.len() < 2 {
        return None;
    }
    let mut table = Table::new(NAME, "Operations: backends side by side");
    table
        .plain(["operation", "phase", "shapes", "backend"])
        .column("time_ns", Unit::Ns)
        .column("speedup", Unit::Speedup)
        .column("calls_per_s", Unit::PerSecond)
        .plain(["efficiency", "fastest"]);
    let words = frame.words(&["workload", "backend", "phase", MACHINE]);
    let names = ["workload"].into_iter().chain(words.iter().copied());
    let questions: Vec<&str> = names.chain(["phase"]).collect();
    for rows in frame.groups(&rows, &questions).into_values() {
        let shapes = pivot::shapes(request, &rows, &series);
        let common = pivot::common(&shapes);
        let entry = frame.entries[rows[0]];
        let words = words.iter().filter_map(|name| frame.value(rows[0], name));
        let operation = words.fold(entry.workload.to_string(), |name, word| {
            format!("{name} {word}")
        });
        let line = |mean: Mean<'_>| {
            vec![
                Cell::word(&operation),
                Cell::word(entry.phase.name()),
                Cell::Count(common.len() as i64),
                Cell::word(mean.backend),
                mean.time.map_or(Cell::Empty, Cell::from),
                comparison::speedup(request, &shapes, mean.backend),
                number(mean.calls_per_s()),
                number(mean.efficiency),
                mean.fastest,
            ]
        };
        let means = comparison::means(request, &common);
        table.rows.extend(means.into_iter().map(line));
    }
    let speedup = request.baseline.map_or(String::new(), |baseline| {
        format!("speedup: over `{baseline}`; ")
    });
    table.notes.push(format!(
        "means over `shapes`, at which all backends were measured; {speedup}calls_per_s: the operations guide's inference speed"
    ));
    table.notes.push(
        "efficiency: part of what the device's measured ceilings allow; fastest: of those whose outputs were checked"
            .to_owned(),
    );
    if table.rows.is_empty() {
        table
            .notes
            .push("empty: no shape was measured with every backend".to_owned());
    }
    Some(table)
}
