//! The tables of a run, made from its journal.

use std::collections::{BTreeMap, HashMap};

use super::RunError;
use sweeper_model::identity::PointId;
use sweeper_model::row::Row;
use sweeper_model::row::outcome::Status;
use sweeper_results::guides::About;
use sweeper_results::record::contents::{Contents, Standing};
use sweeper_results::record::folder::RunFolder;

/// Numbers of points in a run's journal, by status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All points.
    pub statuses: BTreeMap<Status, usize>,
    /// Points that have no result and should have one.
    pub failures: BTreeMap<Status, usize>,
    /// Failures that the next run tries again, because their cause was a temporary problem.
    pub of_the_moment: usize,
}

impl Tally {
    /// Counts.
    pub fn of(standings: impl IntoIterator<Item = Standing>) -> Self {
        let mut tally = Tally::default();
        for row in standings {
            *tally.statuses.entry(row.status).or_insert(0) += 1;
            if row.is_failure() {
                *tally.failures.entry(row.status).or_insert(0) += 1;
                tally.of_the_moment += usize::from(row.is_of_the_moment());
            }
        }
        tally
    }

    /// Number of points that have no result and should have one.
    pub fn failed(&self) -> usize {
        self.failures.values().sum()
    }
}

/// Makes tables and exports from journals, unless the existing ones were made from them. `order`
/// has the places of points in the plan: journals have rows in the order in which they were
/// finished, tables have declared skips, then the plan's order. Returns the rows, if all of them
/// were needed at once.
///
/// # Errors
/// Errors of reading and writing the files.
pub(super) fn write(
    folder: &RunFolder,
    contents: &Contents,
    order: &HashMap<PointId, usize>,
    about: &About<'_>,
    exports: &[&str],
) -> Result<Option<Vec<Row>>, RunError> {
    if folder.has_tables(contents, about, exports) {
        return Ok(None);
    }
    let mut rows: Vec<usize> = (0..contents.len()).collect();
    rows.sort_by_cached_key(|&row| order.get(&contents.point(row)));
    Ok(folder.write_tables(contents, &rows, about, exports)?)
}

/// The places of points.
pub(super) fn order(points: impl IntoIterator<Item = PointId>) -> HashMap<PointId, usize> {
    let points = points.into_iter().enumerate();
    points.map(|(place, point)| (point, place)).collect()
}
