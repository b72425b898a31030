//! From recorded files to what people read: tables, plots, a page.
//!
//! Architecture invariant: this module reads files alone, never memory of a run.

pub mod entry;
pub mod source;
