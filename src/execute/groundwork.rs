//! What a block needs of its host before the device has anything to do: inputs and the oracle's
//! answer. It is laid while the device is at the block before, where that disturbs nobody.

use sweeper_kernels::inputs::InputKey;
use sweeper_kernels::workload::TensorSpec;
use sweeper_kernels::{Parameters, Phase, Problem, registry};

use super::answers::Answers;
use super::outcome::{Cause, Outcome, Status};
use super::protocol::Block;
use super::setting::failed;
use super::tensors::{self, InputError};
use super::verify::{Asked, OracleLimits, Posed};
use crate::device::{DeviceError, memory};

/// A block's problem, ready to be measured.
pub struct Groundwork {
    /// The problem; with the right answer, unless a smaller problem stands for it.
    pub whole: Posed,
    /// The smaller problem, with its answer, where the oracle would take too long on the whole one.
    pub small: Option<Posed>,
}

impl Groundwork {
    /// Makes the problem, its inputs and the oracle's answer. `copies` is how often the host's memory holds the
    /// inputs: twice for a CPU, once for a GPU, and not at all where nothing is computed. Memory is asked for
    /// first: the system promises more than it has, and ends the process that takes it by its word.
    ///
    /// # Errors
    /// What becomes of all points of the block instead.
    pub fn lay(block: &Block, copies: u64, answers: &Answers) -> Result<Self, Outcome> {
        let error = |reason: String| Outcome::without_measurement(Status::Error, reason);
        let problem = problem_of(block).map_err(error)?;
        if copies == 0 {
            return Ok(Groundwork {
                whole: Posed::idle(problem),
                small: None,
            });
        }
        let phase = covering_phase(block);
        let left_bytes = admit(problem.as_ref(), copies, memory::available_bytes())?;
        let asked = match block.settings.verify {
            true => Asked::of(problem.as_ref(), phase, limits(block, left_bytes)),
            false => Asked::None,
        };
        let inputs = match &block.inputs {
            Some(file) => tensors::read_inputs(file, problem.as_ref()).map_err(unread)?,
            None => problem.generate(&InputKey(block.problem)),
        };
        if let Some(folder) = &block.save_tensors {
            tensors::write_inputs(folder, &block.problem, &inputs)
                .map_err(|reason| error(reason).because_of(Cause::Surroundings))?;
        }
        let unanswered = |problem, inputs| Posed {
            problem,
            inputs,
            expected: None,
        };
        Ok(match asked {
            Asked::Whole => Groundwork {
                whole: Posed::answered(problem, &block.problem, inputs, phase, answers),
                small: None,
            },
            Asked::StandIn(small) => {
                let id = &block.problem;
                let small_inputs = small.generate(&InputKey(*id));
                let small = Posed::answered(small, id, small_inputs, phase, answers);
                Groundwork {
                    whole: unanswered(problem, inputs),
                    small: Some(small),
                }
            }
            Asked::None => Groundwork {
                whole: unanswered(problem, inputs),
                small: None,
            },
        })
    }
}

/// What becomes of the points of a block whose inputs can't be had.
fn unread(error: InputError) -> Outcome {
    let outcome = Outcome::without_measurement(Status::Error, error.to_string());
    match error {
        InputError::Unreadable { .. } => outcome.because_of(Cause::Surroundings),
        InputError::Unfit(_) => outcome,
    }
}

/// What is left of the available memory beside a problem's inputs.
///
/// # Errors
/// What becomes of the points of a problem whose inputs do not fit.
fn admit(problem: &dyn Problem, copies: u64, available_bytes: u64) -> Result<u64, Outcome> {
    let specs = problem.inputs();
    let needed_bytes = copies * specs.iter().map(TensorSpec::size_bytes).sum::<u64>();
    available_bytes.checked_sub(needed_bytes).ok_or_else(|| {
        failed(DeviceError::OutOfMemory {
            needed_bytes,
            available_bytes,
        })
    })
}

/// What the oracle may take for a block. Inputs from a file are what they are: nothing smaller can stand
/// for them, so that time is no limit.
fn limits(block: &Block, left_bytes: u64) -> OracleLimits {
    let time_s = match block.inputs {
        Some(_) => f64::INFINITY,
        None => block.settings.oracle_s,
    };
    OracleLimits {
        time_s,
        bytes: left_bytes / 10 * 9,
    }
}

/// The phase whose answer holds that of every point.
fn covering_phase(block: &Block) -> Phase {
    Phase::covering(block.points.iter().map(|point| point.phase))
}

/// The problem of a block.
fn problem_of(block: &Block) -> Result<Box<dyn Problem>, String> {
    let workload = registry::workload(&block.workload)
        .ok_or_else(|| format!("there is no workload `{}`", block.workload))?;
    let parameters: Parameters = block
        .parameters
        .iter()
        .map(|(name, value)| (name.as_str(), value.clone()))
        .collect();
    workload
        .problem(&parameters, block.dtype)
        .map_err(|reason| reason.to_string())
}
