//! Means over shapes and their intervals.

use super::Cell;
use crate::row::entry::Entry;

pub use crate::interval::LogInterval;

impl LogInterval {
    /// The median of a row with its interval, if it is above zero; one sample has no interval.
    pub fn of(entry: &Entry) -> Option<Self> {
        let median = entry.median_ns().filter(|&median| median > 0.0)?;
        let times = entry.times.filter(|times| times.n != Some(1));
        let interval = times.and_then(|times| times.interval());
        Some(LogInterval::new(median, interval))
    }

    /// The cell that shows this value with its interval.
    pub fn cell(self) -> Cell {
        let [low, value, high] = self.numbers();
        Cell::Interval { value, low, high }
    }
}
