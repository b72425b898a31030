//! Rows of a run's journal.

use rayon::prelude::*;

use crate::record::contents::Contents;
use sweeper_model::row::entry::{Entry, Times, Words};

/// Number of rows that are read at a time, by all threads.
const PIECE: usize = 8192;

/// Number of rows that a thread reads at a time; they share their words.
const PART: usize = 512;

/// The rows of a run in this order; their lines are read in parallel.
///
/// # Errors
/// A message that names the line.
pub(super) fn entries(contents: &Contents, order: &[usize]) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::with_capacity(order.len());
    for piece in order.chunks(PIECE) {
        let parts = piece.par_chunks(PART).map(|part| of_part(contents, part));
        for part in parts.collect::<Result<Vec<_>, String>>()? {
            entries.extend(part);
        }
    }
    Ok(entries)
}

fn of_part(contents: &Contents, part: &[usize]) -> Result<Vec<Entry>, String> {
    let mut words = Words::default();
    let read = |&index: &usize| {
        let row = contents.row(index)?;
        let times = row.summary().map(Times::from);
        Ok(Entry::from_row(row, times, &mut words))
    };
    part.iter().map(read).collect()
}
