//! Files of a run: the journal first, and every other file made from it.

pub mod journal;
pub mod contents;
pub mod parts;
pub mod hold;
mod lock;
pub mod state;
pub mod progress;
pub mod tables;
pub mod exports;
pub mod environment;
pub mod usage;
pub mod folder;
pub mod recorded;
pub mod find;
pub mod history;
pub mod merge;
pub mod submission;
mod stamp;
