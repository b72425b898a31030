//! The settings of a manifest apart from its cases: one table with an entry for each key.
//!
//! Decoding, the JSON Schema, `--resolved`, the identity, the flags of the command line and the
//! reference in `manifests/README.md` follow from [`SETTINGS`]. A new key is an entry in `table.rs`
//! and a field in [`crate::model::settings`].

mod describe;
mod kinds;
pub(crate) mod read;
mod special;
mod table;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value as Json;

use crate::grammar::section::Context;
use crate::model::manifest::Manifest;
use crate::text::tree::Node;

pub(crate) use special::is_name_character;
pub(crate) use table::{ADAPTIVE, PUBLISHED, SETTINGS};

/// One key: its path, its values and its meaning.
pub(crate) struct Setting {
    /// Key path, such as `measure.repeats`; without a dot at the top of the manifest.
    pub(crate) path: &'static str,
    /// Meaning of the setting in one line, for the schema, the reference and the help of its flag.
    pub(crate) about: &'static str,
    /// The kind of its values: how they are read and written.
    pub(crate) kind: &'static dyn Kind,
    /// Whether the setting changes the meaning of rows.
    pub(crate) identity: Identity,
    /// The flag of the command line that sets it.
    pub(crate) flag: Option<Flag>,
    /// Whether its section is invalid without it.
    pub(crate) is_needed: bool,
}

/// How a setting is part of a manifest's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Not at all: it is stored with the run.
    NotHashed,
    /// Under this tag, which can't change: every id of a run depends on it.
    Hashed(&'static str),
    /// As part of each case.
    HashedInCases,
}

/// The flag of a setting.
pub(crate) struct Flag {
    /// The flag and its other spellings.
    pub(crate) names: &'static [&'static str],
    /// The value that the flag sets, and its effect, if the flag takes no value.
    pub(crate) preset: Option<(&'static str, &'static str)>,
}

/// How the value of a setting is read, written and described.
pub(crate) trait Kind: Sync {
    /// Reads `node` into the manifest. Errors are reported, and the default stays.
    fn read(&self, cx: &mut Context<'_>, node: &Node, key: &str, manifest: &mut Manifest);
    /// The value, where the manifest has one that is worth writing down.
    fn get(&self, manifest: &Manifest) -> Option<Data>;
    /// The JSON Schema of the value.
    fn schema(&self) -> Json;
}

/// The value of a setting as it is printed and hashed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Data {
    Bool(bool),
    Integer(u64),
    Float(f64),
    /// Printed in seconds, hashed in nanoseconds.
    Time(Duration),
    Text(Arc<str>),
    /// A list whose order means nothing.
    List(Vec<Data>),
    /// A table in braces.
    Inline(Vec<(&'static str, Data)>),
    /// A table with keys that people name, each with integers.
    Named(Vec<(Arc<str>, Vec<u64>)>),
}

impl Data {
    fn text(text: impl AsRef<str>) -> Self {
        Data::Text(text.as_ref().into())
    }

    fn texts(texts: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        Data::List(texts.into_iter().map(Data::text).collect())
    }
}

impl Setting {
    /// The section that the key is in; empty at the top.
    pub(crate) fn section(&self) -> &'static str {
        self.path
            .rsplit_once('.')
            .map_or("", |(section, _)| section)
    }

    /// The last part of the path.
    pub(crate) fn key(&self) -> &'static str {
        self.path.rsplit_once('.').map_or(self.path, |(_, key)| key)
    }
}

/// The settings by section, in the order in which they are printed; the top first.
pub(crate) fn sections() -> impl Iterator<Item = (&'static str, &'static [Setting])> {
    let sections = SETTINGS.chunk_by(|one, next| one.section() == next.section());
    sections.map(|settings| (settings[0].section(), settings))
}

/// The setting that a key path is of, or is below.
pub(crate) fn find(path: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| {
        let below = path.strip_prefix(setting.path);
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_listed_once_and_sections_are_whole() {
        let mut paths: Vec<&str> = SETTINGS.iter().map(|setting| setting.path).collect();
        paths.sort_unstable();
        assert!(paths.is_sorted_by(|one, next| one < next), "{paths:?}");
        let mut names: Vec<&str> = sections().map(|(name, _)| name).collect();
        names.sort_unstable();
        assert!(names.is_sorted_by(|one, next| one < next), "{names:?}");
    }

    #[test]
    fn tags_of_the_identity_are_used_once() {
        let mut tags: Vec<&str> = SETTINGS
            .iter()
            .filter_map(|setting| match setting.identity {
                Identity::Hashed(tag) => Some(tag),
                _ => None,
            })
            .collect();
        tags.sort_unstable();
        assert!(tags.is_sorted_by(|one, next| one < next), "{tags:?}");
    }

    #[test]
    fn a_setting_is_found_by_its_path_and_by_those_below_it() {
        let path = |path| find(path).map(|setting| setting.path);
        assert_eq!(path("plan.buckets.T"), Some("plan.buckets"));
        assert_eq!(path("measure.l2"), Some("measure.l2"));
        assert_eq!(path("measure"), None);
        assert_eq!(path("case.crf.grid.T"), None);
        assert_eq!(path("seeds"), None);
    }
}
