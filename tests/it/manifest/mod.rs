//! Manifests: what is read, what is refused, and how errors look.

mod bad;
mod curated;
mod outside;
mod sources;
mod identity;
mod schema;
