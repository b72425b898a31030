//! Configurations that autotuners chose for kernels of a function in Python: they choose by timing,
//! and another choice has another time, and often other bits.

use std::collections::BTreeSet;

use super::Point;
use super::changes::Change;
use super::pairing::Rows;

/// The field that is declared, by the name of its column.
const FIELD: &str = "autotuned";

/// The configurations that were chosen on one side alone, for A and B.
pub(super) fn of(rows: &Rows<'_>) -> [Vec<String>; 2] {
    let [a, b] = [0, 1].map(|side| -> BTreeSet<&str> {
        let entries = rows.sides[side].iter().copied().flatten();
        let measured = entries.filter_map(|entry| entry.measurement.as_deref());
        measured.flat_map(|found| found.choices()).collect()
    });
    let alone = |own: &BTreeSet<&str>, others: &BTreeSet<&str>| {
        let alone = own.difference(others);
        alone.map(|text| (*text).to_owned()).collect()
    };
    [alone(&a, &b), alone(&b, &a)]
}

/// The declaration of all points with other choices, if there are some.
pub(super) fn change(points: &[Point]) -> Option<Change> {
    let others = points.iter().filter(|point| point.has_other_choices());
    let texts: Vec<_> = others.map(|point| point.autotuned.clone()).collect();
    Change::of_points(FIELD, &texts)
}
