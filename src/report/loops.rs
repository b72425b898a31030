//! Rows as bodies of loops: which are to be compared, and what each loop pays.

use super::entry::Entry;
use super::frame::Frame;
use crate::economics::{Priced, Steady};

/// The baseline where nobody chose one: what an eager framework does.
const EAGER: &str = "eager";

/// The backend that loops are held against.
pub(super) fn baseline_of(chosen: Option<&str>) -> &str {
    chosen.unwrap_or(EAGER)
}

/// What a row says of its program as the body of a loop, if it says everything.
pub(super) fn priced(entry: &Entry) -> Option<Priced> {
    let program = entry.program.as_ref()?;
    let times = entry.times.filter(|_| entry.is_ok())?;
    let steady = Steady {
        median_ns: times.median,
        interval_ns: times.interval().filter(|_| times.n != Some(1)),
    };
    Priced::new(
        &entry.compile,
        program.prepare_ns,
        program.first_runs,
        steady,
        program.checked,
    )
}

/// Rows that are alike but for the backend: the baseline's, and the others', if all say what starting took.
pub(super) fn problems(
    frame: &Frame<'_>,
    rows: &[usize],
    baseline: &str,
) -> Vec<(usize, Vec<usize>)> {
    let is_baseline = |row: &usize| frame.entries[*row].backend.as_ref() == baseline;
    let problem = |rows: Vec<usize>| {
        let mut rows = rows;
        rows.retain(|&row| priced(frame.entries[row]).is_some());
        let base = rows.iter().copied().find(is_baseline)?;
        rows.retain(|row| !is_baseline(row));
        (!rows.is_empty()).then_some((base, rows))
    };
    let alike = frame.joined(rows, &["backend"]).into_values();
    alike.filter_map(problem).collect()
}
