//! Shared by the two files of the attention guide: rows of the baseline and of `compiled` by the
//! lines that they belong to, and the failures of a line's rows.

use sweeper_model::row::Row;
use sweeper_model::row::outcome::{Checked, Status};
use sweeper_model::stats::Summary;

/// The backend that is compared with the baseline.
pub(super) const COMPILED: &str = "compiled";

/// Rows by line, in the order of the first of each: rows of a line differ in backend and phase
/// alone.
pub(super) fn lines<'r>(rows: &[&'r Row]) -> Vec<Vec<&'r Row>> {
    let mut lines: Vec<Vec<&Row>> = Vec::new();
    for &row in rows {
        match lines.iter_mut().find(|line| is_same_line(line[0], row)) {
            Some(line) => line.push(row),
            None => lines.push(vec![row]),
        }
    }
    lines
}

fn is_same_line(one: &Row, other: &Row) -> bool {
    one.problem == other.problem
        && one.mode == other.mode
        && one.l2 == other.l2
        && one.threads == other.threads
        && one.device_name == other.device_name
}

/// Statistics of a row that is right.
pub(super) fn summary(row: &Row) -> Option<Summary> {
    row.summary().filter(|_| row.outcome.status == Status::Ok)
}

/// The guide's word for the first failure, or success.
pub(super) fn status(rows: &[&Row]) -> &'static str {
    let mut failed = rows.iter().map(|row| row.outcome.status);
    match failed.find(|status| *status != Status::Ok) {
        None => "success",
        Some(Status::Oom | Status::PredictedOom) => "OOM",
        Some(Status::Skipped | Status::Unavailable | Status::Pruned) => "SKIPPED",
        Some(status) => status.name(),
    }
}

/// Reasons of rows that failed, and of rows whose outputs could not be checked.
pub(super) fn complaints(rows: &[&Row]) -> String {
    let complaint = |row: &&Row| {
        let what = format!("{} {}", row.backend, row.phase);
        let found = row.outcome.measurement.as_ref();
        let is_unchecked = found.is_some_and(|found| found.checked == Checked::None);
        match (row.outcome.status, &row.outcome.reason) {
            (Status::Ok, _) if is_unchecked => Some(format!("{what}: outputs not checked")),
            (Status::Ok, _) => None,
            (status, Some(reason)) if !reason.is_empty() => {
                Some(format!("{what}: {}: {reason}", status.name()))
            }
            (status, _) => Some(format!("{what}: {}", status.name())),
        }
    };
    let complaints: Vec<String> = rows.iter().filter_map(complaint).collect();
    complaints.join("; ")
}
