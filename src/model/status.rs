//! The result of a point, in one word: of rows, and of the rules in manifests that speak of rows.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::word::Word;

/// One word for the result of a point. Anything but `ok` comes with a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Measured.
    Ok,
    /// Left out for a declared reason: an exclusion, or mathematics that does not define it.
    Skipped,
    /// The backend, or a part that it needs, is missing here.
    Unavailable,
    /// The device ran out of memory.
    Oom,
    /// The program's buffers would not have fitted.
    PredictedOom,
    /// A smaller point failed.
    Pruned,
    /// The compiler refused a kernel.
    CompileError,
    /// The compiler did not finish.
    CompileTimeout,
    /// The device refused a launch, or the program.
    LaunchError,
    /// The worker died.
    Crashed,
    /// The worker did not answer in time.
    Timeout,
    /// The outputs are wrong; times are kept out of results.
    Wrong,
    /// It is right, and not what the problem asks for; times are kept out of results.
    Refused,
    /// Something else.
    Error,
}

impl Status {
    /// All words, in the order in which they are counted and listed.
    pub const ALL: [Status; 14] = [
        Status::Ok,
        Status::Skipped,
        Status::Unavailable,
        Status::Oom,
        Status::PredictedOom,
        Status::Pruned,
        Status::CompileError,
        Status::CompileTimeout,
        Status::LaunchError,
        Status::Crashed,
        Status::Timeout,
        Status::Wrong,
        Status::Refused,
        Status::Error,
    ];

    /// The word of rows and screens.
    pub const fn name(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Skipped => "skipped",
            Status::Unavailable => "unavailable",
            Status::Oom => "oom",
            Status::PredictedOom => "predicted_oom",
            Status::Pruned => "pruned",
            Status::CompileError => "compile_error",
            Status::CompileTimeout => "compile_timeout",
            Status::LaunchError => "launch_error",
            Status::Crashed => "crashed",
            Status::Timeout => "timeout",
            Status::Wrong => "wrong",
            Status::Refused => "refused",
            Status::Error => "error",
        }
    }

    /// True for points that have a result, and for those that are left out by declaration.
    pub const fn is_fine(self) -> bool {
        matches!(self, Status::Ok | Status::Skipped)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl Word for Status {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("ok", Status::Ok),
        ("skipped", Status::Skipped),
        ("unavailable", Status::Unavailable),
        ("oom", Status::Oom),
        ("predicted_oom", Status::PredictedOom),
        ("pruned", Status::Pruned),
        ("compile_error", Status::CompileError),
        ("compile_timeout", Status::CompileTimeout),
        ("launch_error", Status::LaunchError),
        ("crashed", Status::Crashed),
        ("timeout", Status::Timeout),
        ("wrong", Status::Wrong),
        ("refused", Status::Refused),
        ("error", Status::Error),
    ];
}
