//! Kernels that other processes run: a program of the user, or a function in Python.

use serde::{Deserialize, Serialize};

/// Work that a process other than the worker does when it is asked to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Foreign {
    /// Who runs it.
    pub runner: Runner,
    /// The name under which it is shown.
    pub name: String,
    /// Two runs with equal inputs give equal bits.
    pub is_deterministic: bool,
    /// Nobody trusts it: it runs in a sandbox.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_untrusted: bool,
    /// All that the runner has to know, as JSON that it alone reads.
    pub request: String,
}

/// Who runs foreign kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runner {
    /// A process is started for each run.
    Command,
    /// An interpreter of Python, which stays.
    Python,
    /// A process in a sandbox, by a clock and on inputs that a function in Python or kernels in C
    /// can't reach.
    Referee,
}
