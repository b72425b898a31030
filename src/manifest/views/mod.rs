//! What others see of a manifest: its identity, its text with everything resolved, the keys in
//! which two of them differ, the JSON Schema for editors, and the reference of all settings.

pub mod difference;
mod hash;
mod print;
mod reference;
mod schema;

pub use reference::{key_reference, reference};
pub use schema::schema;

use crate::model::manifest::Manifest;
use sweeper_model::identity::ManifestHash;

/// A commented manifest to start from, which `sweeper init` writes. It runs everywhere.
pub const STARTER: &str = include_str!("starter.toml");

impl Manifest {
    /// The identity of this manifest's meaning.
    pub fn hash(&self) -> ManifestHash {
        crate::views::hash::hash(self)
    }

    /// The full manifest as TOML, which resolves to an equal manifest beside the copies of its
    /// [`Manifest::sources`].
    pub fn resolved_toml(&self) -> String {
        crate::views::print::toml(self, false)
    }

    /// [`Manifest::resolved_toml`] with the origin of each value as a comment.
    pub fn resolved_toml_with_origins(&self) -> String {
        crate::views::print::toml(self, true)
    }
}
