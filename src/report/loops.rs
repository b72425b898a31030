//! Rows as bodies of loops: the rows to compare, and the costs of each loop.

use super::frame::Frame;
use crate::economics::{Priced, Steady};
use crate::row::entry::Entry;
use crate::row::outcome::Starting;

/// The default baseline: an eager framework's way of computing.
const EAGER: &str = "eager";

/// The backend that loops are held against.
pub(super) fn baseline_of(chosen: Option<&str>) -> &str {
    chosen.unwrap_or(EAGER)
}

/// A row whose program is the body of a loop.
pub(super) struct Body {
    /// The row.
    pub(super) row: usize,
    /// The costs of a loop of this body.
    pub(super) price: Priced,
}

/// One problem: the baseline's row, and the rows that differ from it in the backend alone.
pub(super) struct Problem {
    pub(super) baseline: Body,
    pub(super) others: Vec<Body>,
}

/// The problems of some rows; rows that do not state the cost of their start are left out.
pub(super) fn problems(frame: &Frame<'_>, rows: &[usize], baseline: &str) -> Vec<Problem> {
    let is_baseline = |body: &Body| frame.entries[body.row].backend.as_ref() == baseline;
    let problem = |rows: Vec<usize>| {
        let bodies = rows.into_iter().filter_map(|row| {
            let price = priced(frame.entries[row])?;
            Some(Body { row, price })
        });
        let (baselines, others): (Vec<Body>, Vec<Body>) = bodies.partition(is_baseline);
        let baseline = baselines.into_iter().next()?;
        (!others.is_empty()).then_some(Problem { baseline, others })
    };
    let alike = frame.joined(rows, &["backend"]).into_values();
    alike.filter_map(problem).collect()
}

/// A row's program as the body of a loop with its costs, if the row states all of them.
fn priced(entry: &Entry) -> Option<Priced> {
    let found = entry.measurement.as_ref()?;
    let times = entry.times.filter(|_| entry.is_ok())?;
    let steady = Steady {
        median_ns: times.median,
        interval_ns: times.interval().filter(|_| times.n != Some(1)),
    };
    let once = found.prepare_ns.zip(found.first_runs);
    let once = once.and_then(|(prepare_ns, first_runs)| Starting::once(prepare_ns, first_runs));
    let starting = entry.fresh_starting.or(once);
    Priced::new(&entry.compile, starting, steady, found.checked)
}
