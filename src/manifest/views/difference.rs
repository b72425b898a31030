//! The keys in which two resolved manifests differ, if these keys change the meaning of rows.

use std::collections::BTreeMap;

use toml::Value;

use crate::setting::{self, Identity};

/// A key in which two manifests differ.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Change {
    /// Path of the key, such as `measure.repeats`.
    pub key: String,
    /// Value of the key in the first manifest; none where the key is missing.
    pub from: Option<String>,
    /// Value of the key in the second manifest; none where the key is missing.
    pub to: Option<String>,
}

/// The keys in which two resolved manifests differ, without keys that are not part of the identity;
/// files of backends first.
pub fn changes(from: &str, to: &str) -> Vec<Change> {
    let [from, to] = [from, to].map(keys);
    let mut names: Vec<&String> = from.keys().chain(to.keys()).collect();
    names.sort();
    names.dedup();
    names.sort_by_key(|name| !(name.starts_with("backend.") && name.contains(".digests.")));
    let differing = names
        .into_iter()
        .filter(|name| from.get(*name) != to.get(*name));
    differing
        .map(|name| Change {
            key: name.clone(),
            from: from.get(name).cloned(),
            to: to.get(name).cloned(),
        })
        .collect()
}

/// Whether the key at `path` of a resolved manifest is part of its identity.
fn is_hashed(path: &str) -> bool {
    match setting::find(path) {
        Some(setting) => setting.identity != Identity::NotHashed,
        None => !path.ends_with(".needs"),
    }
}

fn keys(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let Ok(root) = text.parse::<toml::Table>() else {
        return found;
    };
    for (key, value) in root {
        add(key, &value, &mut found);
    }
    found.retain(|path, _| is_hashed(path));
    found
}

fn add(path: String, value: &Value, found: &mut BTreeMap<String, String>) {
    match value {
        Value::Table(table) => {
            for (key, value) in table {
                add(format!("{path}.{key}"), value, found);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_table) => {
            // The order of rules means nothing.
            let mut rules: Vec<String> = items.iter().map(text).collect();
            rules.sort();
            found.insert(path, rules.join(", "));
        }
        value => {
            found.insert(path, text(value));
        }
    }
}

/// A value as a manifest writes it.
fn text(value: &Value) -> String {
    match value {
        Value::String(word) => word.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(is) => is.to_string(),
        Value::Datetime(at) => at.to_string(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(text).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Table(table) => {
            let keys = table.iter().filter(|(key, _)| *key != "reason");
            let keys: Vec<String> = keys
                .map(|(key, value)| format!("{key} = {}", text(value)))
                .collect();
            format!("{{ {} }}", keys.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_the_identity_are_named_with_both_values() {
        let from = "name = \"a\"\n[measure]\nrepeats = 5\nl2 = \"hot\"\n[case.c.grid]\nT = [1, 2]\n\
                    [[case.c.exclude]]\nwhen = \"T > 1\"\nreason = \"large\"\n[output]\ndir = \"x\"\n";
        let to = from
            .replace("repeats = 5", "repeats = 7")
            .replace("name = \"a\"", "name = \"b\"")
            .replace("\"large\"", "\"too large\"")
            .replace("dir = \"x\"", "dir = \"y\"")
            .replace("[1, 2]", "[1, 2, 4]");
        let found = changes(from, &to);
        let change = |key: &str, from: &str, to: &str| Change {
            key: key.to_owned(),
            from: Some(from.to_owned()),
            to: Some(to.to_owned()),
        };
        assert_eq!(
            found,
            [
                change("case.c.grid.T", "[1, 2]", "[1, 2, 4]"),
                change("measure.repeats", "5", "7"),
            ]
        );
        assert_eq!(changes(from, from), []);
        let added = changes(from, &format!("{from}[plan]\ncanonical = \"published\"\n"));
        assert_eq!(added.len(), 1);
        assert_eq!(added[0].from, None);
    }
}
