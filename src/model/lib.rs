//! The nouns that all stages share: identities and rows, hardware, statistics, expressions, files.
//!
//! Nothing here knows of a manifest, a device or a report.

pub mod files;
pub mod frames;
pub mod toml_text;
pub mod proc_stat;
pub mod scratch;
pub mod library_folders;
pub mod tensor_file;
pub mod digests;
pub mod identity;
pub mod hardware;
pub mod word;
pub mod mode;
pub mod status;
pub mod shard;
pub mod row;
pub mod tuning;
pub mod expression;
pub mod stats;
pub mod interval;
pub mod economics;
pub mod fusion;
pub mod quantity;
