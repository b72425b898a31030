//! A block's inputs and the oracle's answer, which the host generates before the device starts. On
//! GPUs that happens while the device measures the block before.

use sweeper_program::inputs::InputKey;
use sweeper_program::workload::{AnswerSource, ORACLE_OPERATIONS_PER_SECOND, TensorSpec};
use sweeper_program::{Parameters, Phase, Problem, Tensors, Workload};
use sweeper_workloads::registry;

use super::answers::Answers;
use super::foreign_inputs::InputMaker;
use super::foreign_oracle;
use super::protocol::Block;
use super::refused::failed;
use super::tensors::{self, InputError};
use super::verify::{Asked, OracleLimits, ProblemInstance};
use crate::device::{DeviceError, memory};
use sweeper_manifest::user::Declared;
use sweeper_model::row::outcome::{Cause, Outcome, Status};

/// The inputs of a block.
pub struct BlockInputs {
    /// The problem, with the right answer if it is known.
    pub whole: ProblemInstance,
    /// A smaller problem whose answer is known instead.
    pub smaller: SmallerProblem,
    /// The problem, or a smaller one in its place, with inputs that show mistakes; with the right
    /// answer, unless the device is to give it.
    pub showing: Option<ProblemInstance>,
}

/// A smaller problem with its right answer, and its use.
pub enum SmallerProblem {
    /// There is no smaller problem: the whole problem's answer is known, or is not needed.
    Nothing,
    /// The points' kernels are judged on it.
    Reduced(ProblemInstance),
    /// The device's oracle is compared with the host's on it, and then computes the answer of the
    /// whole problem, or of a copy.
    Trial(ProblemInstance),
}

/// Seconds that the host's oracle may take on the problem on which the device's is tried.
const TRIAL_S: f64 = 0.5;

impl BlockInputs {
    /// Generates the problem, its inputs and the oracle's answer. The host's memory holds `copies`
    /// copies of the inputs: two for a CPU, one for a GPU, none where nothing is computed.
    /// Available memory is checked first: the system overcommits, and kills the process that uses
    /// it all.
    ///
    /// # Errors
    /// The outcome of all points of the block.
    pub fn generate(
        block: &Block,
        copies: u64,
        answers: &Answers,
        declared: &[&'static Declared],
    ) -> Result<Self, Outcome> {
        let problem = problem_of(block, declared).map_err(error)?;
        if copies == 0 {
            return Ok(BlockInputs::whole(ProblemInstance::without_answer(
                problem,
                Tensors::new(),
            )));
        }
        let left_bytes = remaining_bytes(problem.as_ref(), copies, memory::available_bytes())?;
        let mut whole = with_inputs(block, problem)?;
        if !block.settings.verify || is_answered_elsewhere(block, &mut whole, answers)? {
            return Ok(BlockInputs::whole(whole));
        }
        let showing = || showing(block, declared, left_bytes);
        if !block.oracle_kernels.is_empty() {
            let smaller = for_device(block, &mut whole, answers, showing);
            if let Some((smaller, showing)) = smaller {
                return Ok(BlockInputs {
                    whole,
                    smaller,
                    showing,
                });
            }
        }
        let showing = showing();
        let phase = covering_phase(block);
        let showing = showing.map(|it| it.answered(&block.problem, phase, answers));
        Ok(BlockInputs {
            showing,
            ..BlockInputs::with_host_oracle(block, whole, left_bytes, answers)
        })
    }

    /// Whether they take so little of the host's memory that they can be made while another block
    /// is measured in it.
    pub fn are_small(block: &Block, declared: &[&'static Declared]) -> bool {
        let Ok(problem) = problem_of(block, declared) else {
            return true;
        };
        let inputs: u64 = problem.inputs().iter().map(TensorSpec::size_bytes).sum();
        let bytes = 2 * inputs + problem.oracle_bytes(covering_phase(block));
        bytes < memory::available_bytes() / 16
    }

    /// A problem that no smaller one stands for.
    fn whole(whole: ProblemInstance) -> Self {
        BlockInputs {
            whole,
            smaller: SmallerProblem::Nothing,
            showing: None,
        }
    }

    /// Asks the host's oracle for the answer of the whole problem or, where that takes too long or
    /// too much of the `left_bytes` of the host's memory, of a smaller one.
    pub fn with_host_oracle(
        block: &Block,
        whole: ProblemInstance,
        left_bytes: u64,
        answers: &Answers,
    ) -> Self {
        let phase = covering_phase(block);
        let id = &block.problem;
        let asked = match block.settings.verify {
            true => Asked::of(whole.problem.as_ref(), phase, limits(block, left_bytes)),
            false => Asked::None,
        };
        let (whole, smaller) = match asked {
            Asked::Whole => {
                let whole = whole.answered(id, phase, answers);
                (whole, SmallerProblem::Nothing)
            }
            Asked::Reduced(small) => {
                let inputs = small.generate(&InputKey(*id));
                let small = ProblemInstance::without_answer(small, inputs);
                let small = small.answered(id, phase, answers);
                (whole, SmallerProblem::Reduced(small))
            }
            Asked::None => (whole, SmallerProblem::Nothing),
        };
        BlockInputs {
            whole,
            smaller,
            showing: None,
        }
    }
}

fn error(reason: String) -> Outcome {
    Outcome::without_measurement(Status::Error, reason)
}

/// A problem with the inputs of its block: of a file, of the user's function, or generated.
fn with_inputs(block: &Block, problem: Box<dyn Problem>) -> Result<ProblemInstance, Outcome> {
    let key = InputKey(block.problem);
    let mut input_digest = None;
    let inputs = match &block.inputs {
        Some(file) => {
            let is_built_in = registry::workload(&block.workload).is_some();
            let only_forward = is_built_in && covering_phase(block) == Phase::Forward;
            tensors::read_inputs(file, problem.as_ref(), only_forward).map_err(unread)?
        }
        None => match InputMaker::new(block).make(block, problem.as_ref(), &key) {
            Some(made) => {
                let made = made.map_err(failed)?;
                input_digest = Some(tensors::digest(&made));
                made
            }
            None => problem.generate(&key),
        },
    };
    if let Some(folder) = &block.save_tensors {
        tensors::write_inputs(folder, &block.problem, &inputs)
            .map_err(|reason| error(reason).because_of(Cause::Surroundings))?;
    }
    let mut whole = ProblemInstance::without_answer(problem, inputs);
    whole.input_digest = input_digest;
    Ok(whole)
}

/// Whether the right answer comes from a file, a function of the user or the device, which then is
/// asked once it is free.
fn is_answered_elsewhere(
    block: &Block,
    whole: &mut ProblemInstance,
    answers: &Answers,
) -> Result<bool, Outcome> {
    match whole.problem.answer_source() {
        Some(AnswerSource::Backend { .. }) => return Ok(true),
        Some(AnswerSource::File { path, sha256 }) => {
            let found = tensors::read_expected(&path, &sha256, whole.problem.as_ref());
            whole.expected = Some(found.map_err(unread)?);
            return Ok(true);
        }
        None => {}
    }
    if foreign_oracle::waits_for_device(whole.problem.as_ref()) {
        return Ok(true);
    }
    let found = foreign_oracle::answer(block, whole, answers);
    whole.expected = found.transpose()?;
    Ok(whole.expected.is_some())
}

/// What a device whose oracle answers needs: nothing where the cache has its answers, or a smaller
/// problem on which it is tried. `None` where there is no such problem.
fn for_device(
    block: &Block,
    whole: &mut ProblemInstance,
    answers: &Answers,
    showing: impl Fn() -> Option<ProblemInstance>,
) -> Option<(SmallerProblem, Option<ProblemInstance>)> {
    let phase = covering_phase(block);
    whole.expected = answers.known(whole.problem.as_ref(), &block.problem, phase);
    if whole.expected.is_some() {
        let mut showing = showing();
        if let Some(showing) = &mut showing {
            let id = showing.answer_id(&block.problem);
            showing.expected = answers.known(showing.problem.as_ref(), &id, phase);
        }
        // Where the device would have to be asked for one answer, it is asked for both.
        if showing.as_ref().is_none_or(|it| it.expected.is_some()) {
            return Some((SmallerProblem::Nothing, showing));
        }
    }
    let small = trial(block, whole, answers)?;
    Some((SmallerProblem::Trial(small), showing()))
}

/// The problem of a block, or the smaller one that its oracle has time and memory for, with inputs
/// that show mistakes. None where there are no such inputs.
fn showing(
    block: &Block,
    declared: &[&'static Declared],
    left_bytes: u64,
) -> Option<ProblemInstance> {
    let phase = covering_phase(block);
    let limits = OracleLimits {
        time_s: block.settings.oracle_s,
        bytes: left_bytes / 2,
    };
    let whole = problem_of(block, declared).ok()?;
    let problem = match Asked::of(whole.as_ref(), phase, limits) {
        Asked::Whole => whole,
        Asked::Reduced(smaller) => smaller,
        Asked::None => return None,
    };
    let inputs = problem.showing(&InputKey(block.problem))?;
    let mut showing = ProblemInstance::without_answer(problem, inputs);
    showing.input_digest = Some(SHOWING.to_owned());
    Some(showing)
}

/// The digest, to find its answer by, of inputs that show mistakes: they follow from the problem.
const SHOWING: &str = "showing";

/// The smaller problem on which the device's oracle is tried; `None` where there is none that is
/// small enough.
fn trial(block: &Block, whole: &ProblemInstance, answers: &Answers) -> Option<ProblemInstance> {
    let phase = covering_phase(block);
    let threads = rayon::current_num_threads();
    let operations = TRIAL_S * ORACLE_OPERATIONS_PER_SECOND;
    let small = whole.problem.smaller(phase, operations, threads)?;
    let inputs = small.generate(&InputKey(block.problem));
    let small = ProblemInstance::without_answer(small, inputs);
    Some(small.answered(&block.problem, phase, answers))
}

/// The outcome of points whose inputs can't be read.
fn unread(error: InputError) -> Outcome {
    let outcome = Outcome::without_measurement(Status::Error, error.to_string());
    match error {
        InputError::Unreadable { .. } => outcome.because_of(Cause::Surroundings),
        InputError::Unfit(_) => outcome,
    }
}

/// Bytes of the available memory that a problem's inputs leave.
///
/// # Errors
/// The outcome of the points of a problem whose inputs do not fit.
fn remaining_bytes(
    problem: &dyn Problem,
    copies: u64,
    available_bytes: u64,
) -> Result<u64, Outcome> {
    let specs = problem.inputs();
    let needed_bytes = copies * specs.iter().map(TensorSpec::size_bytes).sum::<u64>();
    available_bytes.checked_sub(needed_bytes).ok_or_else(|| {
        failed(DeviceError::OutOfMemory {
            needed_bytes,
            available_bytes,
        })
    })
}

/// The oracle's limits for a block. Inputs from a file have no smaller problem, so that time is no
/// limit.
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
fn problem_of(block: &Block, declared: &[&'static Declared]) -> Result<Box<dyn Problem>, String> {
    let mut declared = declared.iter();
    let declared = declared.find(|held| held.info().name == block.workload);
    let declared = declared.map(|held| *held as &dyn Workload);
    let workload = declared
        .or_else(|| registry::workload(&block.workload).map(|held| held as &dyn Workload))
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
