//! Laying one manifest over another that it extends.
//!
//! Sections merge key by key; an axis, a list or a value is replaced as a whole; lists of rules
//! (`zip`, `table`, `restrict`, `require`, `exclude`, `include`) grow, the base's first.

use super::text::At;
use super::tree::{Node, Raw, Table};

/// Tables whose keys are merged one by one. `*` is any name.
const SECTIONS: &[&[&str]] = &[
    &["grid"],
    &["derive"],
    &["case"],
    &["case", "*"],
    &["case", "*", "grid"],
    &["case", "*", "derive"],
    &["plan"],
    &["plan", "buckets"],
    &["device"],
    &["cache"],
    &["measure"],
    &["limits"],
    &["output"],
    &["report"],
    &["null"],
];

/// Lists of rules, at the top and in a case.
pub(super) const RULES: &[&str] = &["zip", "table", "restrict", "require", "exclude", "include"];

/// Keys of which only one can be there: setting one displaces those of the other groups.
const EXCLUSIVE: &[&[&[&str]]] = &[
    &[
        &["repeats"],
        &["min_samples", "max_samples", "max_rel_ci", "max_seconds"],
    ],
    &[&["prune"], &["skip_adjacent_oom"]],
];

const PUBLISHED: &[&str] = &["max_canonical_shapes", "samples_per_shape"];

/// Lays `over` on `base`.
pub(super) fn overlay(base: &mut Table, over: Table) {
    overlay_at(base, over, &mut Vec::new());
}

fn overlay_at(base: &mut Table, over: Table, path: &mut Vec<String>) {
    for entry in over.entries {
        path.push(entry.key.clone());
        let held = base.get_mut(&entry.key);
        match (held.map(|held| &mut held.value.raw), entry.value) {
            (
                Some(Raw::Table(held)),
                Node {
                    raw: Raw::Table(over),
                    ..
                },
            ) if is_section(path) => overlay_at(held, over, path),
            (
                Some(Raw::Array(held)),
                Node {
                    raw: Raw::Array(over),
                    ..
                },
            ) if is_rules(path) => held.extend(over),
            (_, value) => {
                displace(base, &entry.key, value.text(), |_| true);
                base.set(super::tree::Entry { value, ..entry });
            }
        }
        path.pop();
    }
}

/// Removes the keys from `table` that can't be there together with `key`, if they are `earlier`.
pub(super) fn displace(
    table: &mut Table,
    key: &str,
    text: Option<&str>,
    earlier: impl Fn(At) -> bool,
) {
    let mut losers: Vec<&str> = Vec::new();
    for groups in EXCLUSIVE {
        if groups.iter().any(|group| group.contains(&key)) {
            let others = groups.iter().filter(|group| !group.contains(&key));
            losers.extend(others.flat_map(|group| group.iter()));
        }
    }
    if key == "canonical" && text != Some("published") {
        losers.extend(PUBLISHED);
    }
    for loser in losers {
        if table
            .get(loser)
            .is_some_and(|entry| earlier(entry.value.at))
        {
            table.remove(loser);
        }
    }
}

fn is_section(path: &[String]) -> bool {
    SECTIONS.iter().any(|section| {
        section.len() == path.len()
            && section
                .iter()
                .zip(path)
                .all(|(wanted, key)| *wanted == "*" || wanted == key)
    })
}

fn is_rules(path: &[String]) -> bool {
    let last = path.last().is_some_and(|key| RULES.contains(&key.as_str()));
    last && (path.len() == 1 || (path.len() == 3 && path[0] == "case"))
}
