//! From recorded files to text, tables, plots and a page for people.

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
pub mod page;
