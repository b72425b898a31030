//! The journey of a sweep: manifest, grid, plan, compile, execute, record, report.
//!
//! The crates of the stages stand one above the other: [`sweeper_model`] has the nouns that all
//! share, [`sweeper_manifest`] reads and plans, [`sweeper_engine`] measures, [`sweeper_results`]
//! keeps and shows. Here are runs, which lead from one to the next, and the command line.

pub use sweeper_engine::{auto, compile, device, execute};
pub use sweeper_manifest as manifest;
pub use sweeper_manifest::{grid, import, plan, user};
pub use sweeper_model::{
    economics, expression, files, frames, fusion, hardware, identity, interval, library_folders,
    mode, proc_stat, quantity, row, scratch, shard, stats, status, tensor_file, toml_text, tuning,
    word,
};
pub use sweeper_results::{compare, guides, record, report};

pub mod run;
pub mod cli;
