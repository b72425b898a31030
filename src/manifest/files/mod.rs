//! The files that a manifest names, as data: sources of kernels with their includes, sources in
//! Python with the modules that they import, tables of values, and files of tensors. Which of them
//! are read is decided by `resolve::sources`, at the edge.

pub(crate) mod expected;
pub mod includes;
mod named;
pub mod python;
pub mod sources;
