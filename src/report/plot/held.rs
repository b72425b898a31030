//! Values that a plot holds fixed: chosen from the data, never one that is not in it.

use std::collections::BTreeMap;

use crate::report::frame::{Frame, Key, number_of};
use sweeper_kernels::Value;

/// The rows that are left, and the values that all of them have.
pub(super) struct Held {
    pub(super) rows: Vec<usize>,
    pub(super) values: Vec<(String, Value)>,
}

/// Holds `names` fixed for a plot over `axis`: at the combination of values with results at the most
/// places of the axis; of several, at the one that is closest to the middle of each dimension's values.
pub(super) fn hold(frame: &Frame<'_>, rows: &[usize], axis: &str, names: &[&str]) -> Held {
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
    let best = best(frame, &groups, &middles, axis);
    let rows = best.map(|key| groups[key].clone()).unwrap_or_default();
    let constants = frame.constants.iter().map(|(name, _)| name.as_ref());
    let constants = constants.filter(|name| {
        let is_size = |row: &usize| frame.entries[*row].int(name).is_some();
        *name != axis && !names.contains(name) && rows.iter().any(is_size)
    });
    let values = names
        .iter()
        .copied()
        .chain(constants)
        .filter_map(|name| {
            let value = rows.first().and_then(|&row| frame.value(row, name))?;
            Some((name.to_owned(), value))
        })
        .collect();
    Held { rows, values }
}

fn best<'k>(
    frame: &Frame<'_>,
    groups: &'k BTreeMap<Key, Vec<usize>>,
    middles: &[f64],
    axis: &str,
) -> Option<&'k Key> {
    // Places on the axis with any result come first, then the middle, then the number of results.
    let worth = |key: &Key, rows: &[usize]| {
        let ok = || rows.iter().filter(|&&row| frame.entries[row].is_ok());
        let mut places: Vec<u64> = ok()
            .filter_map(|&row| number_of(frame.entries[row], axis))
            .map(f64::to_bits)
            .collect();
        places.sort_unstable();
        places.dedup();
        let distances = key.iter().zip(middles);
        let far: f64 = distances
            .map(|(&code, middle)| (f64::from(code) - middle).abs())
            .sum();
        (places.len(), -far, ok().count())
    };
    let mut best: Option<(&Key, (usize, f64, usize))> = None;
    for (key, rows) in groups {
        let own = worth(key, rows);
        if best.is_none_or(|(_, held)| own > held) {
            best = Some((key, own));
        }
    }
    best.map(|(key, _)| key)
}
