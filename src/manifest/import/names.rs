//! Names and texts of manifests that are written here.

use std::collections::BTreeSet;

/// Names that were given in a manifest.
pub(super) struct Names {
    given: BTreeSet<String>,
    /// The beginning of a name that would have no letter there.
    prefix: &'static str,
}

impl Names {
    /// No names; those without a letter at the beginning will get `prefix` and a `_`.
    pub(super) fn new(prefix: &'static str) -> Self {
        Names {
            given: BTreeSet::new(),
            prefix,
        }
    }

    /// A name of letters, digits and `_` that no other has.
    pub(super) fn of(&mut self, text: &str) -> String {
        let mut name = plain(text);
        if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            name = format!("{}_{name}", self.prefix);
        }
        while !self.given.insert(name.clone()) {
            name.push('_');
        }
        name
    }
}

/// A text in small letters, digits and `_`.
pub fn plain(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let text: String = text.to_lowercase().chars().map(plain).collect();
    text.trim_matches('_').to_owned()
}

/// A JSON text with each of its strings in turn replaced by each hostile one.
#[cfg(test)]
pub(super) fn hostile_variants(json: &str) -> Vec<String> {
    fn strings<'j>(value: &'j mut serde_json::Value, found: &mut Vec<&'j mut String>) {
        match value {
            serde_json::Value::String(text) => found.push(text),
            serde_json::Value::Array(items) => {
                items.iter_mut().for_each(|item| strings(item, found));
            }
            serde_json::Value::Object(items) => {
                items.values_mut().for_each(|item| strings(item, found));
            }
            _ => {}
        }
    }
    let read: serde_json::Value = serde_json::from_str(json).unwrap();
    let count = |mut value: serde_json::Value| {
        let mut found = Vec::new();
        strings(&mut value, &mut found);
        found.len()
    };
    let places = 0..count(read.clone());
    let pairs = places.flat_map(|at| sweeper_model::toml_text::HOSTILE.map(|text| (at, text)));
    let variants = pairs.map(|(at, text)| {
        let mut variant = read.clone();
        let mut found = Vec::new();
        strings(&mut variant, &mut found);
        text.clone_into(found[at]);
        variant.to_string()
    });
    variants.collect()
}

/// Panics if a manifest is not TOML, or has a key that a hostile text made.
#[cfg(test)]
pub(super) fn assert_unharmed(manifest: &str) {
    fn keys(table: &toml::Table) -> Vec<&str> {
        let own = table.keys().map(String::as_str);
        let below = table.values().filter_map(toml::Value::as_table);
        own.chain(below.flat_map(keys)).collect()
    }
    let read: Result<toml::Table, _> = manifest.parse();
    let read = read.unwrap_or_else(|error| panic!("{error}\n{manifest}"));
    // A name is cleaned: a workload may be called so.
    let is_harmed = read.contains_key("pwned") || keys(&read).contains(&"command");
    assert!(!is_harmed, "{manifest}");
}
