//! Runs that several processes share: shards, holds, merging, states, ends of jobs, and Slurm.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use super::place::{Place, code, null_manifest, text};

mod delayed;
mod merge;
mod shards;
mod slurm;
mod submit;
mod time;
