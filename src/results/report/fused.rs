//! Pairs of rows that differ in fusing alone, and their comparison, for a table and a plot.

use std::collections::BTreeMap;

use super::frame::{Frame, MACHINE};
use super::table::means::LogInterval;
use sweeper_model::fusion::subject::Subject;
use sweeper_model::fusion::{Basis, CONTROL, FUSED, Judged, Ratio, UNFUSED, is_same_program};
use sweeper_model::row::entry::{DIMENSIONS, Entry};

/// Dimensions that the pattern's name contains, or that are told apart anyway.
const NAMED: [&str; 3] = ["backend", "workload", "case"];

/// One pattern of one size, unfused and fused.
pub(super) struct Pair<'f> {
    pub(super) unfused: &'f Entry,
    pub(super) fused: &'f Entry,
    /// The second measurement of the unfused program.
    pub(super) control: Option<&'f Entry>,
    /// The unfused row.
    pub(super) row: usize,
    pub(super) subject: Subject,
    pub(super) judged: Judged,
}

/// All pairs of some rows, by pattern and size. Rows without a right result are in no pair.
pub(super) fn pairs<'f>(frame: &Frame<'f>, rows: &[usize]) -> Vec<Pair<'f>> {
    let is_one_of =
        |row: &usize| [UNFUSED, FUSED, CONTROL].contains(&&*frame.entries[*row].backend);
    let rows: Vec<usize> = rows.iter().copied().filter(is_one_of).collect();
    let alike = frame.joined(&rows, &["backend"]).into_values();
    let mut pairs: Vec<Pair<'f>> = alike.filter_map(|rows| Pair::of(frame, &rows)).collect();
    // Not by codes, which depend on how rows differ; codes decide between equal names and sizes.
    pairs.sort_by(|a, b| {
        let key = |pair: &Pair<'f>| (pair.subject.pattern.clone(), pair.subject.sizes.clone());
        key(a).cmp(&key(b))
    });
    pairs
}

/// Names of the dimensions beside parameters in which rows differ: phases, machines, states of the
/// cache. The parameters are contained in a pattern's name and sizes.
pub(super) fn conditions<'f>(frame: &'f Frame<'_>) -> Vec<&'f str> {
    let names = frame.dimensions.iter().map(|held| held.name.as_ref());
    let is_condition = |name: &&str| DIMENSIONS.contains(name) || *name == MACHINE;
    names
        .filter(is_condition)
        .filter(|name| !NAMED.contains(name))
        .collect()
}

impl<'f> Pair<'f> {
    /// The pair of some rows that differ in their backend alone, if both backends are among them.
    fn of(frame: &Frame<'f>, rows: &[usize]) -> Option<Self> {
        let backends: BTreeMap<&str, usize> = rows
            .iter()
            .map(|&row| (&*frame.entries[row].backend, row))
            .collect();
        let entry = |backend: &str| backends.get(backend).map(|&row| frame.entries[row]);
        let (unfused, fused, control) = (entry(UNFUSED)?, entry(FUSED)?, entry(CONTROL));
        let said = |entry: &'f Entry| entry.measurement.as_ref()?.same_program_as.as_deref();
        let is_same = is_same_program(said(unfused), said(fused));
        let row = backends[UNFUSED];
        let judged = match frame.is_in_turns(row) {
            true => {
                let control = control.and_then(|control| ratio(unfused, control));
                Judged::new(is_same, ratio(unfused, fused), control)
            }
            false => Judged::apart(is_same),
        };
        let parameters = unfused.parameters.iter();
        Some(Pair {
            unfused,
            fused,
            control,
            row,
            subject: Subject::of(
                &unfused.workload,
                parameters.map(|(name, value)| (&**name, value)),
            ),
            judged,
        })
    }
}

/// The ratio of two rows: of their rounds, where the source has samples, else of their medians.
fn ratio(over: &Entry, under: &Entry) -> Option<Ratio> {
    if let Some(ratio) = Ratio::of_rounds(&over.samples_ns, &under.samples_ns) {
        return Some(ratio);
    }
    let [low, value, high] = LogInterval::of(over)?
        .over(LogInterval::of(under)?)
        .numbers();
    Some(Ratio {
        value,
        low,
        high,
        basis: Basis::Medians,
    })
}
