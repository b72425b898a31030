//! Where each value of a resolved manifest came from.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::texts::{At, Texts};

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Written in a manifest.
    File {
        /// Path of the manifest.
        path: Arc<str>,
        /// Line, from 1.
        line: usize,
    },
    /// Outside the manifest: a flag, `--set` or an environment variable, by name.
    Outside(Arc<str>),
    /// Nowhere.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { path, line } => write!(out, "{path}:{line}"),
            Origin::Outside(name) => out.write_str(name),
            Origin::Default => out.write_str("default"),
        }
    }
}

/// Origins by key path.
#[derive(Clone, Debug, Default)]
pub struct Provenance {
    origins: BTreeMap<String, Origin>,
}

impl Provenance {
    pub(crate) fn note(&mut self, texts: &Texts, path: String, at: At) {
        let text = &texts.0[at.source as usize];
        let origin = if text.is_file {
            Origin::File {
                path: text.name.clone(),
                line: texts.line(at),
            }
        } else {
            Origin::Outside(text.name.clone())
        };
        self.origins.insert(path, origin);
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.origins.contains_key(path)
    }

    /// The origin of a key, such as `measure.repeats` or `case.semicrf.grid.T`.
    pub fn origin(&self, path: &str) -> &Origin {
        self.origins.get(path).unwrap_or(&Origin::Default)
    }

    /// All keys that were given, by path.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Origin)> {
        self.origins
            .iter()
            .map(|(path, origin)| (path.as_str(), origin))
    }
}
