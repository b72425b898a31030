//! Manifests: accepted and refused ones, and their errors.

mod bad;
mod curated;
mod outside;
mod sources;
mod identity;
mod schema;
