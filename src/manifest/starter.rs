//! The manifest that `sweeper init` writes.

/// A commented manifest to start from. It runs everywhere.
pub const STARTER: &str = include_str!("starter.toml");
