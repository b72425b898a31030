//! Rows as bodies of loops: the rows to compare, and the costs of each loop.

use super::frame::Frame;
use sweeper_model::economics::{Priced, Steady};
use sweeper_model::row::entry::Entry;
use sweeper_model::row::outcome::Starting;

/// The default baseline: an eager framework's way of computing.
pub(super) const EAGER: &str = "eager";

/// The backends that loops are held against: the baseline, and `more`.
pub(super) fn baselines_of<'n>(chosen: Option<&'n str>, more: &'n [String]) -> Vec<&'n str> {
    let mut names = vec![chosen.unwrap_or(EAGER)];
    names.extend(more.iter().map(String::as_str));
    names
}

/// A row whose program is the body of a loop.
#[derive(Clone, Copy)]
pub(super) struct Body {
    /// The row.
    pub(super) row: usize,
    /// The costs of a loop of this body.
    pub(super) price: Priced,
}

/// One problem: a baseline's row, and the rows that differ from it in the backend alone.
pub(super) struct Problem {
    pub(super) baseline: Body,
    pub(super) others: Vec<Body>,
}

/// The problems of some rows, one for each of the baselines that it has; rows that do not state the
/// cost of their start are left out.
pub(super) fn problems(frame: &Frame<'_>, rows: &[usize], baselines: &[&str]) -> Vec<Problem> {
    let body = |row: usize| {
        let price = priced(frame.entries[row])?;
        Some(Body { row, price })
    };
    let mut found = Vec::new();
    for alike in frame.joined(rows, &["backend"]).into_values() {
        let bodies: Vec<Body> = alike.into_iter().filter_map(body).collect();
        for name in baselines {
            let is_baseline = |body: &Body| frame.entries[body.row].backend.as_ref() == *name;
            let (own, others): (Vec<Body>, Vec<Body>) = bodies.iter().partition(|b| is_baseline(b));
            let baseline = own.into_iter().next().filter(|_| !others.is_empty());
            found.extend(baseline.map(|baseline| Problem { baseline, others }));
        }
    }
    found
}

/// A row's program as the body of a loop with its costs, if the row states all of them.
fn priced(entry: &Entry) -> Option<Priced> {
    let found = entry.measurement.as_ref()?;
    let times = entry.times.filter(|_| entry.is_ok())?;
    let steady = Steady {
        median_ns: times.median,
        interval_ns: times.interval().filter(|_| times.n != Some(1)),
    };
    let once = found.own_prepare_ns().zip(found.first_runs);
    let once = once.and_then(|(prepare_ns, first_runs)| Starting::once(prepare_ns, first_runs));
    let starting = entry.fresh_starting.as_deref().copied().or(once);
    let cold = entry.cold_starting.as_deref().copied();
    Priced::new(&entry.compile, starting, cold, steady, found.checked)
}
