//! Means over shapes and their intervals.

use super::Cell;

pub use sweeper_model::interval::LogInterval;

impl From<LogInterval> for Cell {
    fn from(time: LogInterval) -> Self {
        let [low, value, high] = time.numbers();
        Cell::Interval { value, low, high }
    }
}
