//! The result: a manifest as plain typed data that is known to be valid. Nothing here reads or
//! reports; the folders above fill these types in, and other crates see only them.

pub mod case;
pub(crate) mod manifest;
pub mod plots;
pub mod settings;
