//! Values that a plot holds fixed: chosen among the values of the data.

use std::collections::BTreeMap;

use crate::report::frame::{Frame, Key, number_of};
use sweeper_program::Value;

/// The rows that are left, and the values that all of them have.
#[derive(Default)]
pub(super) struct FixedDimensions {
    pub(super) rows: Vec<usize>,
    pub(super) values: Vec<(String, Value)>,
    /// Sizes that are tied to the axis: each value of the axis has one value of such a size.
    pub(super) tied: Vec<String>,
}

impl FixedDimensions {
    /// The fixed values as text, `batch = 4, size = 8`.
    pub(super) fn said(&self) -> String {
        let values = self.values.iter();
        let said = values.map(|(name, value)| format!("{name} = {value}"));
        said.collect::<Vec<String>>().join(", ")
    }
}

/// Holds `names` fixed for a plot over `axis`: at the combination of values with results at the
/// most places of the axis; of several combinations, at the one closest to the middle of each
/// dimension's values. A dimension that is tied to the axis, as by `zip`, moves with it.
pub(super) fn fix_dimensions(
    frame: &Frame<'_>,
    rows: &[usize],
    axis: &str,
    names: &[&str],
) -> FixedDimensions {
    let varying = names.iter().copied();
    let varying = varying.filter(|name| frame.dimension(name).is_some());
    let (tied, varying): (Vec<&str>, Vec<&str>) =
        varying.partition(|name| is_tied(frame, rows, axis, name));
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
        // A size of 0 stands for one that other parameters give.
        let is_size = |row: &usize| frame.entries[*row].int(name).is_some_and(|size| size != 0);
        *name != axis && !names.contains(name) && rows.iter().any(is_size)
    });
    let values = names
        .iter()
        .copied()
        .filter(|name| !tied.contains(name))
        .chain(constants)
        .filter_map(|name| {
            let value = rows.first().and_then(|&row| frame.value(row, name))?;
            Some((name.to_owned(), value))
        })
        .collect();
    let tied = tied.into_iter().map(str::to_owned).collect();
    FixedDimensions { rows, values, tied }
}

/// True if each value of the axis has one value of another dimension, which differs along the axis.
fn is_tied(frame: &Frame<'_>, rows: &[usize], axis: &str, name: &str) -> bool {
    let places = |names: &[&str]| frame.groups(rows, names).len();
    frame.dimension(axis).is_some()
        && places(&[name]) > 1
        && places(&[axis, name]) == places(&[axis])
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::frame::tests::source;

    fn held(rows: &[(&str, i64, i64, Option<f64>)], axis: &str, name: &str) -> Value {
        let sources = [source("here", rows)];
        let frame = Frame::new(&sources);
        let held = fix_dimensions(&frame, &frame.all(), axis, &[name]);
        assert!(!held.rows.is_empty());
        held.values[0].1.clone()
    }

    #[test]
    fn a_value_near_the_middle_that_is_there() {
        let rows = [64, 128, 1024].map(|length| ("a", length, 8, Some(1.0)));
        assert_eq!(held(&rows, "K", "T"), Value::Int(128));
        // The median of two values is neither of them.
        assert_eq!(held(&rows[..2], "K", "T"), Value::Int(64));
    }

    #[test]
    fn what_is_tied_to_the_axis_moves_with_it() {
        let rows = [(64, 4), (128, 8), (256, 4)].map(|(length, k)| ("a", length, k, Some(1.0)));
        let sources = [source("here", &rows)];
        let frame = Frame::new(&sources);
        let found = fix_dimensions(&frame, &frame.all(), "T", &["K"]);
        assert_eq!((found.rows.len(), found.tied), (3, vec!["K".to_owned()]));
        assert!(!found.values.iter().any(|(name, _)| name == "K"));
        // Two lengths have one K, which therefore does not determine the length.
        let found = fix_dimensions(&frame, &frame.all(), "K", &["T"]);
        assert_eq!((found.rows.len(), found.tied), (1, vec![]));
    }

    #[test]
    fn places_with_results_come_before_the_middle() {
        let mut rows = Vec::new();
        for length in [64, 128, 256] {
            for longest in [4, 8] {
                let is_there = length == 256 || longest == 4;
                rows.push(("a", length, longest, is_there.then_some(1.0)));
            }
        }
        assert_eq!(held(&rows, "K", "T"), Value::Int(256));
        let failed: Vec<_> = rows.iter().map(|row| (row.0, row.1, row.2, None)).collect();
        assert_eq!(held(&failed, "K", "T"), Value::Int(128));
    }
}
