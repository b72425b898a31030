//! Rows of a run's journal.

use rayon::prelude::*;

use crate::record::contents::Contents;
use crate::row::Row;
use crate::row::entry::{Entry, Times, Words};

/// Number of rows that are held in the journal's form at a time.
const CHUNK: usize = 8192;

/// The rows of a run in this order; their lines are read in parallel.
///
/// # Errors
/// A message that names the line.
pub(super) fn entries(contents: &Contents, order: &[usize]) -> Result<Vec<Entry>, String> {
    let mut words = Words::default();
    let mut entries = Vec::with_capacity(contents.len());
    for chunk in order.chunks(CHUNK) {
        let rows: Vec<(Row, Option<Times>)> = chunk
            .par_iter()
            .map(|&number| {
                let row = contents.row(number)?;
                let times = row.summary().map(Times::from);
                Ok((row, times))
            })
            .collect::<Result<_, String>>()?;
        entries.extend(
            rows.into_iter()
                .map(|(row, times)| Entry::from_row(row, times, &mut words)),
        );
    }
    Ok(entries)
}
