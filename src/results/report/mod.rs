//! From recorded files to text, tables, plots and a page for people.
//!
//! Architecture invariant: this module reads files alone, never memory of a run.

pub mod answer;
pub mod source;
pub mod frame;
pub mod table;
pub mod plot;
pub mod chart;
pub mod files;
mod fused;
mod html;
mod index;
mod loops;
mod hot_loops;
pub mod page;
