//! Values that a plot holds fixed: chosen from the data, never one that is not in it.

use std::collections::BTreeMap;

use crate::report::frame::{Frame, Key};
use sweeper_kernels::Value;

/// The rows that are left, and the values that all of them have.
pub(super) struct Held {
    pub(super) rows: Vec<usize>,
    pub(super) values: Vec<(String, Value)>,
}

/// Holds `names` fixed at the combination of values with the most results; of several, at the one that
/// is closest to the middle of each dimension's values.
pub(super) fn hold(frame: &Frame<'_>, rows: &[usize], names: &[&str]) -> Held {
    let varying: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| frame.dimension(name).is_some())
        .collect();
    let groups = frame.groups(rows, &varying);
    let middles: Vec<f64> = (0..varying.len())
        .map(|place| {
            let mut codes: Vec<u32> = groups.keys().map(|key| key[place]).collect();
            codes.sort_unstable();
            codes.dedup();
            codes
                .get((codes.len().max(1) - 1) / 2)
                .map_or(0.0, |&code| f64::from(code))
        })
        .collect();
    let best = best(frame, &groups, &middles);
    let rows = best.map(|key| groups[key].clone()).unwrap_or_default();
    let values = names
        .iter()
        .filter_map(|name| {
            let value = rows.first().and_then(|&row| frame.value(row, name))?;
            Some(((*name).to_owned(), value))
        })
        .collect();
    Held { rows, values }
}

fn best<'k>(
    frame: &Frame<'_>,
    groups: &'k BTreeMap<Key, Vec<usize>>,
    middles: &[f64],
) -> Option<&'k Key> {
    let results = |rows: &[usize]| {
        let ok = rows.iter().filter(|&&row| frame.entries[row].is_ok());
        ok.count()
    };
    let distance = |key: &Key| {
        let distances = key.iter().zip(middles);
        distances
            .map(|(&code, middle)| (f64::from(code) - middle).abs())
            .sum::<f64>()
    };
    let mut best: Option<(&Key, usize, f64)> = None;
    for (key, rows) in groups {
        let (count, far) = (results(rows), distance(key));
        let is_better =
            best.is_none_or(|(_, most, least)| count > most || (count == most && far < least));
        if is_better {
            best = Some((key, count, far));
        }
    }
    best.map(|(key, ..)| key)
}
