//! Names and texts of manifests that are written here.

use std::collections::BTreeSet;

use serde_json::Value as Json;

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
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let text: String = text.to_lowercase().chars().map(plain).collect();
        let mut name = text.trim_matches('_').to_owned();
        if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            name = format!("{}_{name}", self.prefix);
        }
        while !self.given.insert(name.clone()) {
            name.push('_');
        }
        name
    }
}

/// A text as TOML has it: printable letters are as in JSON.
pub(super) fn quoted(text: &str) -> String {
    Json::from(text).to_string()
}
