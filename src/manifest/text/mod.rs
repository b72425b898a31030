//! The text of a manifest: TOML as a tree in which every key and value has its place, variables and
//! braces inside strings, and the diagnostics that point at such places. Nothing here knows which
//! keys there are.

pub(crate) mod braces;
pub mod codes;
pub mod diagnostics;
pub mod provenance;
pub mod render;
pub(crate) mod suggest;
pub(crate) mod texts;
pub(crate) mod tree;
pub(crate) mod variables;
