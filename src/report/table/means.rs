//! Means over shapes and their intervals.

use super::Cell;
use crate::row::entry::Entry;

pub use crate::interval::LogInterval;

impl LogInterval {
    /// The time of a row, by which it is held against others: that of the second measurement of
    /// configurations that were chosen as the fastest of many, which is not the luckiest; else of
    /// the first.
    pub fn of(entry: &Entry) -> Option<Self> {
        Self::of_second(entry).or_else(|| Self::of_first(entry))
    }

    /// The median of the second measurement with its interval.
    pub fn of_second(entry: &Entry) -> Option<Self> {
        let again = entry.again.as_ref().filter(|again| again.median_ns > 0.0)?;
        Some(LogInterval::new(again.median_ns, again.interval()))
    }

    /// The median of the first measurement with its interval, if it is above zero; one sample has
    /// no interval.
    pub fn of_first(entry: &Entry) -> Option<Self> {
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
