//! Whole loops of one problem by `auto`, and by the programs that it decides between.

use std::collections::BTreeMap;

use super::frame::Frame;
use super::frame::Key;
use super::loops::EAGER;
use sweeper_model::mode::Mode;
use sweeper_model::row::entry::Entry;
use sweeper_model::row::hot_path::HotPath;

/// The backend whose program runs from the first iteration on, compiled before.
const COMPILED: &str = "compiled";

/// Rows of loops of one length; those that there are.
#[derive(Clone, Copy, Default)]
pub(super) struct Length {
    pub(super) eager: Option<usize>,
    pub(super) compiled: Option<usize>,
    pub(super) auto: Option<usize>,
}

impl Length {
    /// All its rows.
    pub(super) fn rows(&self) -> impl Iterator<Item = usize> + use<> {
        [self.eager, self.compiled, self.auto].into_iter().flatten()
    }
}

/// Loops of one problem, by their iterations.
pub(super) type Loops = BTreeMap<u32, Length>;

/// The loops of all problems that have some by `auto`.
pub(super) fn problems(frame: &Frame<'_>, rows: &[usize], baseline: Option<&str>) -> Vec<Loops> {
    let eager = baseline.unwrap_or(EAGER);
    let mut problems: BTreeMap<Key, Loops> = BTreeMap::new();
    for (key, rows) in frame.joined(rows, &["backend", "mode"]) {
        for row in rows {
            let entry = frame.entries[row];
            let Some(iterations) = iterations(entry) else {
                continue;
            };
            let loops = problems.entry(key.clone()).or_default();
            let length = loops.entry(iterations).or_default();
            match &*entry.backend {
                _ if hot_path(entry).is_some() => length.auto = Some(row),
                backend if backend == eager => length.eager = Some(row),
                COMPILED => length.compiled = Some(row),
                _ => {}
            }
        }
    }
    let has_auto = |loops: &Loops| loops.values().any(|length| length.auto.is_some());
    problems.into_values().filter(has_auto).collect()
}

/// Iterations of a row's loop, if it is one.
fn iterations(entry: &Entry) -> Option<u32> {
    Mode::parse(entry.mode.as_deref()?)?.iterations()
}

/// What became of a row's loop, if it decided itself.
pub(super) fn hot_path(entry: &Entry) -> Option<&HotPath> {
    entry.measurement.as_ref()?.hot_path.as_deref()
}

/// Time of a row's whole loop, in nanoseconds: the median.
pub(super) fn total_ns(frame: &Frame<'_>, row: usize, iterations: u32) -> Option<f64> {
    let each_ns = frame.entries[row].median_ns()?;
    Some(each_ns * f64::from(iterations))
}
