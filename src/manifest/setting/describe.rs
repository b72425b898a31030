//! How the table describes a setting.

use super::{Flag, Identity, Kind, Setting};

/// A setting that is not hashed and has no flag.
pub(super) const fn setting(
    path: &'static str,
    about: &'static str,
    kind: &'static dyn Kind,
) -> Setting {
    Setting {
        path,
        about,
        kind,
        identity: Identity::NotHashed,
        flag: None,
        is_needed: false,
    }
}

impl Setting {
    /// Part of the manifest's hash, under a tag.
    pub(super) const fn hashed(self, tag: &'static str) -> Self {
        Setting {
            identity: Identity::Hashed(tag),
            ..self
        }
    }

    /// Part of the hashes of cases.
    pub(super) const fn hashed_in_cases(self) -> Self {
        Setting {
            identity: Identity::HashedInCases,
            ..self
        }
    }

    /// Without a default.
    pub(super) const fn needed(self) -> Self {
        Setting {
            is_needed: true,
            ..self
        }
    }

    /// Adds a flag that takes a value.
    pub(super) const fn flag(self, names: &'static [&'static str]) -> Self {
        let flag = Some(Flag {
            names,
            preset: None,
        });
        Setting { flag, ..self }
    }

    /// Adds a flag that sets `value`, with a description of the effect.
    pub(super) const fn preset(
        self,
        names: &'static [&'static str],
        value: &'static str,
        about: &'static str,
    ) -> Self {
        let preset = Some((value, about));
        let flag = Some(Flag { names, preset });
        Setting { flag, ..self }
    }
}
