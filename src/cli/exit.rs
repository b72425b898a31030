//! Exit codes: a contract for scripts.

use std::process::ExitCode;

use crate::run::RunError;
use sweeper_engine::execute::supervisor::WorkerError;

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All points ok or skipped by declaration, or nothing to do.
    Fine,
    /// The command line.
    Usage,
    /// The manifest.
    Manifest,
    /// Finished; some points failed.
    Failures,
    /// A rerun's outputs differ, or a comparison found a difference that it was told to fail on.
    Different,
    /// Files.
    Files,
    /// This place can't do it.
    Impossible,
    /// Stopped early; run again to go on.
    Stopped,
}

impl Exit {
    /// All exit codes, by their numbers.
    pub const ALL: [Exit; 8] = [
        Exit::Fine,
        Exit::Usage,
        Exit::Manifest,
        Exit::Failures,
        Exit::Different,
        Exit::Files,
        Exit::Impossible,
        Exit::Stopped,
    ];

    /// The number.
    pub const fn code(self) -> u8 {
        match self {
            Exit::Fine => 0,
            Exit::Usage => 2,
            Exit::Manifest => 3,
            Exit::Failures => 4,
            Exit::Different => 5,
            Exit::Files => 6,
            Exit::Impossible => 7,
            Exit::Stopped => 75,
        }
    }

    /// Ends the program here and now: without the destructors of libraries, under which other
    /// threads may still be at work.
    pub fn at_once(self) -> ! {
        signal_hook::low_level::exit(self.code().into())
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

impl From<&RunError> for Exit {
    fn from(error: &RunError) -> Self {
        match error {
            RunError::Impossible(_) | RunError::Worker(WorkerError::NoDevice(_)) => {
                Exit::Impossible
            }
            RunError::Stopped => Exit::Stopped,
            RunError::Folder(_) | RunError::Lost(_) | RunError::Worker(WorkerError::Io(_)) => {
                Exit::Files
            }
        }
    }
}
