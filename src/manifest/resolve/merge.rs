//! Laying one manifest over another that it extends.
//!
//! Sections merge key by key; an axis, a list or a value is replaced as a whole; lists of rules
//! (`zip`, `exclude`, `include`) grow, the base's first.

use crate::grammar::wire::RULES;
use crate::setting::{ADAPTIVE, PUBLISHED, sections};
use crate::text::texts::At;
use crate::text::tree::{Node, Raw, Table};

/// Tables whose keys are merged one by one, besides the sections of settings. `*` is any name.
const SECTIONS: &[&[&str]] = &[
    &["grid"],
    &["derive"],
    &["case"],
    &["case", "*"],
    &["case", "*", "grid"],
    &["case", "*", "derive"],
    &["plan", "buckets"],
    &["workload"],
    &["workload", "*"],
    &["workload", "*", "params"],
    &["workload", "*", "inputs"],
    &["workload", "*", "outputs"],
    &["workload", "*", "check"],
    &["backend"],
    &["backend", "*"],
];

/// Lays `over` on `base`.
pub(crate) fn overlay(base: &mut Table, over: Table) {
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
                base.set(crate::text::tree::Entry { value, ..entry });
            }
        }
        path.pop();
    }
}

/// Removes the keys from `table` that can't be there together with `key`, if they are `earlier`.
pub(crate) fn displace(
    table: &mut Table,
    key: &str,
    text: Option<&str>,
    earlier: impl Fn(At) -> bool,
) {
    let key_of = |path: &&'static str| path.rsplit_once('.').map_or(*path, |(_, key)| key);
    let adaptive = || ADAPTIVE.iter().map(key_of);
    let losers: Vec<&str> = match key {
        "repeats" => adaptive().collect(),
        "prune" => vec!["skip_adjacent_oom"],
        "skip_adjacent_oom" => vec!["prune"],
        "canonical" if text != Some("published") => PUBLISHED.iter().map(key_of).collect(),
        _ if adaptive().any(|held| held == key) => vec!["repeats"],
        _ => Vec::new(),
    };
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
    let of_settings = |name: &String| sections().any(|(section, _)| section == name);
    if let [name] = path
        && of_settings(name)
    {
        return true;
    }
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
