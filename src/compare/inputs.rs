//! Points that were measured on other inputs: a function that makes inputs (`inputs_from`) may make
//! others in each run. Neither times nor outputs of such points can be compared.

use std::collections::BTreeSet;

use super::Digests;
use super::changes::Change;
use super::pairing::Rows;
use crate::row::entry::Entry;

/// The field that is declared, by the name of its column.
const FIELD: &str = "input_digest";
/// Digests of a side that are declared at most.
const MOST: usize = 3;
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
    let others: Vec<&&Rows<'_>> = both.iter().filter(|rows| of(rows).differ()).collect();
    let field = match others.len() {
        0 => return None,
        1 => format!("{FIELD} of 1 point"),
        count => format!("{FIELD} of {count} points"),
    };
    let [a, b] = [0, 1].map(|side| {
        let mut all: Vec<String> = Vec::new();
        for rows in &others {
            for digest in &digests(rows)[side] {
                let digits: String = digest.chars().take(DIGITS).collect();
                if !all.contains(&digits) {
                    all.push(digits);
                }
            }
        }
        let more = all.len().saturating_sub(MOST);
        all.truncate(MOST);
        all.extend((more > 0).then(|| format!("{more} more")));
        all
    });
    Some(Change { field, a, b })
}
