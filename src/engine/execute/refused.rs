//! Outcomes of points that are refused, fail, or yield wrong results.

use sweeper_program::{Program, Refusal, Runner};

use super::protocol::{Block, BlockPoint};
use crate::device::DeviceError;
use sweeper_model::mode::{Launching, Mode};
use sweeper_model::row::outcome::{Cause, Measurement, Outcome, Status};

/// Refuses modes in which a program of another process can't be run.
pub(super) fn check_mode(mode: Mode, program: &Program) -> Result<(), Outcome> {
    let runner = program.runner();
    let reason = match (mode, runner) {
        (_, None) | (Mode::Each(Launching::Launch), _) => return Ok(()),
        (Mode::Each(Launching::Graph), Some(Runner::Python)) => return Ok(()),
        (Mode::Each(Launching::Graph), Some(Runner::Command)) => {
            "the launches of a program are its own: they are not made one graph"
        }
        (Mode::Each(Launching::Graph), Some(Runner::Referee)) => {
            "the launches of what is not trusted are not made one graph"
        }
        (Mode::Loop(_), Some(_)) => "what another process runs is not run as a loop",
    };
    let outcome = Outcome::without_measurement(Status::Unavailable, reason);
    Err(outcome.because_of(Cause::Device))
}

/// The outcome of a point whose backend has no program for the problem.
pub fn refused(refusal: Refusal) -> Outcome {
    match refusal {
        Refusal::Undefined(reason) => Outcome::without_measurement(Status::Skipped, reason),
        Refusal::Invalid(reason) => Outcome::without_measurement(Status::Error, reason),
        Refusal::Unavailable(reason) => {
            Outcome::without_measurement(Status::Unavailable, reason).because_of(Cause::Device)
        }
    }
}

/// A failure of a function or a backend that a workload names, with its key, such as
/// `check.reference`; `how` says how it was called.
pub(super) fn of_key(block: &Block, key: &str, how: &str, error: DeviceError) -> DeviceError {
    let named = |reason: String| {
        let key = format!("workload.{}.{key}", block.workload);
        format!("`{key}`{how}: {reason}")
    };
    match error {
        DeviceError::Interrupted(reason) => DeviceError::Interrupted(named(reason)),
        DeviceError::Lost(reason) => DeviceError::Lost(named(reason)),
        error => {
            let outcome = failed(error);
            let reason = outcome.reason.unwrap_or_default();
            DeviceError::Foreign {
                reason: named(reason),
                // The points' own results are not known to be wrong, and the device works on.
                status: match outcome.status {
                    Status::Wrong | Status::Crashed => Status::Error,
                    status => status,
                },
            }
        }
    }
}

/// The outcome of a point that a device refused.
pub(super) fn failed(error: DeviceError) -> Outcome {
    let status = match error {
        DeviceError::Interrupted(reason) => {
            let outcome = Outcome::without_measurement(Status::Error, reason);
            return outcome.because_of(Cause::Surroundings);
        }
        DeviceError::Foreign { status, .. } => status,
        DeviceError::OutOfMemory { .. } => Status::Oom,
        DeviceError::Launch(_) => Status::LaunchError,
        DeviceError::Lost(_) => Status::Crashed,
        DeviceError::Unavailable(_) => Status::Unavailable,
    };
    Outcome::without_measurement(status, error.to_string())
}

/// The outcome of a point that was refused. That a device can't launch one configuration of a tuned
/// backend is not a failure of the run: others are tried for that.
pub(super) fn of_configuration(point: &BlockPoint, outcome: Outcome) -> Outcome {
    match (outcome.status, &point.tuned) {
        (Status::LaunchError, Some(_)) => outcome.because_of(Cause::Device),
        _ => outcome,
    }
}

/// The outcome of a point whose results are not right.
pub(super) fn wrong(reason: String, measurement: Measurement) -> Outcome {
    Outcome {
        measurement: Some(Box::new(measurement)),
        ..Outcome::without_measurement(Status::Wrong, reason)
    }
}

/// Scripted failures of the null device. A crash and a hang are real: the main process must survive
/// them.
pub(super) fn scripted(status: Status) -> Outcome {
    match status {
        Status::Crashed => std::process::abort(),
        Status::Timeout => loop {
            std::thread::park();
        },
        other => Outcome::without_measurement(other, "scripted"),
    }
}
