//! The manifest: the definition of a sweep, as data.
//!
//! [`Sources`] reads files at the edge; [`Manifest::resolve`] is pure. It lays settings from
//! outside over the text, reads it, checks everything against the existing workloads, and reports
//! all errors at once. The result is plain typed data that is known to be valid.
//!
//! Each folder uses only those before it in this list: `text`, `files`, `grammar`, [`user`]
//! (problems and kernels of the user), `model` (the result), `setting` (the table of all keys of
//! settings), `cases`, `resolve` (the way from sources to a manifest), `views` (what others see of
//! it), [`grid`] (which judges all points, as the last step of [`Manifest::resolve`]) and [`plan`].
//! [`import`] stands apart: it writes manifests. [`sweeper_model::expression`] is the language of
//! conditions.

mod text;
mod files;
mod grammar;
pub mod user;
mod model;
mod setting;
mod cases;
mod resolve;
mod views;
pub mod grid;
pub mod plan;
pub mod import;

pub use files::sources::Sources;
pub use files::{includes, python as python_files, sources};
pub use grammar::expression::objection;
pub use model::case::{Case, registry};
pub use model::manifest::{Manifest, SCHEMA};
pub use model::settings::{
    CacheSettings, Canonical, Cluster, DeviceSettings, Limits, Measure, NullDevice, Output,
    PlanSettings, Report,
};
pub use model::{case, plots, settings};
pub use resolve::overrides::{self, OverrideOrigin, Overrides};
pub use text::diagnostics::{Diagnostic, Diagnostics};
pub use text::provenance::{Origin, Provenance};
pub use text::{codes, diagnostics, provenance, render};
pub use views::{STARTER, difference, key_reference, reference, schema};
