//! Kernel source to artifact: through the cache where there is one, else through a compiler.

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub mod kernels;
pub mod cc;
pub mod nvrtc;
pub mod places;
pub mod digests;
pub mod process;
pub mod toolchain;
pub mod wall;

/// Why there is no artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum CompileError {
    /// The compiler refused the source; it would again.
    #[error("the compiler refused the kernel:\n{log}")]
    Rejected {
        /// What it said.
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
}
