//! Points that were measured on other inputs: a function that makes inputs (`inputs_from`) may make
//! others in each run. Neither times nor outputs of such points can be compared.

use std::collections::BTreeSet;

use super::Digests;
use super::changes::Change;
use super::pairing::Rows;
use sweeper_model::row::entry::Entry;

/// The field that is declared, by the name of its column.
const FIELD: &str = "input_digest";
/// Digits of a digest that tell it from others.
const DIGITS: usize = 12;

/// Whether the rows of a point were measured on equal inputs.
pub(super) fn of(rows: &Rows<'_>) -> Digests {
    Digests::of(digests(rows))
}

fn digests<'s>(rows: &Rows<'s>) -> [BTreeSet<&'s str>; 2] {
    let digest = |entry: &'s Entry| entry.measurement.as_ref()?.input_digest.as_deref();
    [0, 1].map(|side| {
        let entries = rows.sides[side].iter().copied().flatten();
        entries.filter_map(digest).collect()
    })
}

/// The declaration of all points whose inputs differ, if there are some.
pub(super) fn change(both: &[&Rows<'_>]) -> Option<Change> {
    let others = both.iter().filter(|rows| of(rows).differ());
    let beginning = |digest: &str| digest.chars().take(DIGITS).collect();
    let texts =
        others.map(|rows| digests(rows).map(|side| side.into_iter().map(beginning).collect()));
    Change::of_points(FIELD, &texts.collect::<Vec<_>>())
}
