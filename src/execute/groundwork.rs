//! What a block needs of its host before the device has anything to do: inputs and the oracle's
//! answer. It is laid while the device is at the block before, where that disturbs nobody.

use sweeper_kernels::inputs::InputKey;
use sweeper_kernels::workload::{ORACLE_OPERATIONS_PER_SECOND, TensorSpec};
use sweeper_kernels::{Parameters, Phase, Problem, registry};

use super::answers::Answers;
use super::protocol::Block;
use super::setting::failed;
use super::tensors::{self, InputError};
use super::verify::{Asked, OracleLimits, Posed};
use crate::device::{DeviceError, memory};
use crate::row::outcome::{Cause, Outcome, Status};

/// A block's problem, ready to be measured.
pub struct Groundwork {
    /// The problem; with the right answer, if it is known.
    pub whole: Posed,
    /// What is known instead.
    pub beside: Beside,
}

/// A smaller problem with its right answer, and what it is for.
pub enum Beside {
    /// There is none: the whole problem's answer is known, or nobody asks.
    Nothing,
    /// The points' kernels are judged by what they compute of it.
    Reduced(Posed),
    /// The device's oracle is held against its answer, and then asked for that of the whole problem.
    Trial(Posed),
}

/// Seconds that the host's oracle may take on the problem on which the device's is tried.
const TRIAL_S: f64 = 0.5;

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
                beside: Beside::Nothing,
            });
        }
        let left_bytes = admit(problem.as_ref(), copies, memory::available_bytes())?;
        let inputs = match &block.inputs {
            Some(file) => tensors::read_inputs(file, problem.as_ref()).map_err(unread)?,
            None => problem.generate(&InputKey(block.problem)),
        };
        if let Some(folder) = &block.save_tensors {
            tensors::write_inputs(folder, &block.problem, &inputs)
                .map_err(|reason| error(reason).because_of(Cause::Surroundings))?;
        }
        let mut whole = Posed::unanswered(problem, inputs);
        if block.settings.verify && !block.oracle_kernels.is_empty() {
            let phase = covering_phase(block);
            whole.expected = answers.known(whole.problem.as_ref(), &block.problem, phase);
            if whole.expected.is_some() {
                let beside = Beside::Nothing;
                return Ok(Groundwork { whole, beside });
            }
            if let Some(small) = trial(block, &whole, left_bytes, answers) {
                let beside = Beside::Trial(small);
                return Ok(Groundwork { whole, beside });
            }
        }
        Ok(Groundwork::by_host(block, whole, left_bytes, answers))
    }

    /// Asks the host's oracle of the whole problem or, where that takes too much, of a smaller one. The oracle may take
    /// `left_bytes` of the host's memory.
    pub fn by_host(block: &Block, whole: Posed, left_bytes: u64, answers: &Answers) -> Self {
        let phase = covering_phase(block);
        let id = &block.problem;
        let asked = match block.settings.verify {
            true => Asked::of(whole.problem.as_ref(), phase, limits(block, left_bytes)),
            false => Asked::None,
        };
        let (whole, beside) = match asked {
            Asked::Whole => {
                let whole = Posed::answered(whole.problem, id, whole.inputs, phase, answers);
                (whole, Beside::Nothing)
            }
            Asked::StandIn(small) => {
                let inputs = small.generate(&InputKey(*id));
                let small = Posed::answered(small, id, inputs, phase, answers);
                (whole, Beside::Reduced(small))
            }
            Asked::None => (whole, Beside::Nothing),
        };
        Groundwork { whole, beside }
    }
}

/// The smaller problem on which the device's oracle is tried; `None` where the whole problem's answer does not fit into the host's
/// memory, which has it and the outputs in f64, or where there is none that is small enough.
fn trial(block: &Block, whole: &Posed, left_bytes: u64, answers: &Answers) -> Option<Posed> {
    let phase = covering_phase(block);
    let answer = whole.problem.outputs(phase);
    let elements: u64 = answer.iter().map(TensorSpec::elements).sum();
    if 16 * elements > left_bytes {
        return None;
    }
    let threads = rayon::current_num_threads();
    let operations = TRIAL_S * ORACLE_OPERATIONS_PER_SECOND;
    let small = whole.problem.smaller(phase, operations, threads)?;
    let inputs = small.generate(&InputKey(block.problem));
    let id = &block.problem;
    Some(Posed::answered(small, id, inputs, phase, answers))
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
pub fn covering_phase(block: &Block) -> Phase {
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
