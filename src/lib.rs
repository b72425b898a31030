//! The journey of a sweep: manifest, grid, plan, compile, execute, record, report.
//!
//! Modules are listed in the order of the journey. Data flows one way; verbs meet only through
//! files.

pub mod files;
pub mod frames;
pub mod toml_text;
pub mod proc_stat;
pub mod scratch;
pub mod library_folders;
pub mod tensor_file;
pub mod identity;
pub mod hardware;
pub mod word;
pub mod status;
pub mod shard;
pub mod row;
pub mod tuning;
pub mod expression;
pub mod declared;
pub mod manifest;
pub mod mode;
pub mod grid;
pub mod plan;
pub mod compile;
pub mod device;
pub mod auto;
pub mod execute;
pub mod guides;
pub mod record;
pub mod run;
pub mod report;
pub mod compare;
pub mod stats;
pub mod interval;
pub mod economics;
pub mod fusion;
pub mod quantity;
pub mod interchange;
pub mod cli;
#[cfg(test)]
mod golden;
