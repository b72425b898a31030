//! Kernel source to artifact: through the cache where there is one, else through a compiler.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sweeper_cache::CacheConfig;

pub mod kernels;
pub mod background;
pub mod cc;
pub mod nvrtc;
pub mod bound;
pub mod digests;
pub mod elf;
pub mod process;
pub mod toolchain;
pub mod wall;

/// A kernel cache, as other processes are told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachePlace {
    /// The folder of the cache.
    pub dir: PathBuf,
    /// The most that it may hold, in bytes on disk.
    pub capacity_bytes: u64,
    /// Caches that are only read.
    pub upstream: Vec<PathBuf>,
}

impl CachePlace {
    /// How it is opened.
    pub fn config(&self) -> CacheConfig {
        CacheConfig {
            upstream: self.upstream.clone(),
            ..CacheConfig::new(&self.dir, self.capacity_bytes)
        }
    }
}

/// Why there is no artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum CompileError {
    /// The compiler refused the source; it would again.
    #[error("the compiler refused the kernel:\n{log}")]
    Rejected {
        /// The log of the compiler.
        log: String,
    },
    /// The compiler did not finish.
    #[error("the compiler did not finish within {limit:?}")]
    Timeout {
        /// The time it had.
        limit: Duration,
    },
    /// There is no compiler for it here, and the cache does not hold it.
    #[error("{0}")]
    Unavailable(String),
    /// Something around the compiler failed; another try may work.
    #[error("{0}")]
    Surroundings(String),
    /// The run was told to stop meanwhile.
    #[error("stopped before it was compiled")]
    Stopped,
}

/// The most of a compiler's complaints that is kept, in bytes: they stand in the row of each point
/// that needs the kernel. The first ones tell the most.
const COMPLAINT_BYTES: usize = 4096;

impl CompileError {
    /// A refusal, with as much of the compiler's complaints as is kept, and without characters that
    /// would steer a terminal.
    pub fn rejected(log: &str) -> Self {
        let end = log.floor_char_boundary(COMPLAINT_BYTES.min(log.len()));
        let is_plain = |letter: &char| !letter.is_control() || matches!(letter, '\n' | '\t');
        let mut kept: String = log[..end].chars().filter(is_plain).collect();
        if end < log.len() {
            kept.push_str(&format!("\n... and {} bytes more", log.len() - end));
        }
        CompileError::Rejected { log: kept }
    }
}

/// How long a compiler may work, and the flag that ends it before.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'a> {
    /// The time it has.
    pub limit: Duration,
    /// Set when the run is to stop.
    pub stop: &'a AtomicBool,
}

impl Bounds<'static> {
    /// A limit that nothing cuts short.
    pub fn within(limit: Duration) -> Self {
        Bounds {
            limit,
            stop: &NEVER,
        }
    }
}

impl Bounds<'_> {
    /// True if the run is to stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// For callers that nothing stops.
pub static NEVER: AtomicBool = AtomicBool::new(false);
