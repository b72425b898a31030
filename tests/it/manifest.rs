//! Manifests: what is read, what is refused, and how errors look.

/// Every bad manifest says what is wrong with it, word for word.
mod bad;
/// The manifests that come with the program, and the examples of their page.
mod curated;
/// Flags, `--set`, environment, `extends`, and which of them wins.
mod outside;
/// Files that can't be read, and what a manifest refers to.
mod sources;
/// What changes an identity and what does not.
mod identity;
/// The JSON Schema and the starter manifest.
mod schema;
