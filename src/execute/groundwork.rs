//! What a block needs of its host before the device has anything to do: inputs and the oracle's
//! answer. It is laid while the device is at the block before, where that disturbs nobody.

use sweeper_kernels::inputs::InputKey;
use sweeper_kernels::{Parameters, Phase, Problem, registry};

use super::outcome::{Outcome, Status};
use super::protocol::Block;
use super::tensors;
use super::verify::{Posed, stand_in};

/// A block's problem, ready to be measured.
pub struct Groundwork {
    /// The problem; with the right answer, unless a smaller problem stands for it.
    pub whole: Posed,
    /// The smaller problem, with its answer, where the oracle would take too long on the whole one.
    pub small: Option<Posed>,
}

impl Groundwork {
    /// Makes the problem, and for a device that `computes` its inputs and the oracle's answer.
    ///
    /// # Errors
    /// What becomes of all points of the block instead.
    pub fn lay(block: &Block, computes: bool) -> Result<Self, Outcome> {
        let error = |reason: String| Outcome::without_measurement(Status::Error, reason);
        let problem = problem_of(block).map_err(error)?;
        if !computes {
            return Ok(Groundwork {
                whole: Posed::idle(problem),
                small: None,
            });
        }
        let phase = covering_phase(block);
        let verify = block.settings.verify;
        let small = match block.inputs {
            None if verify => stand_in(problem.as_ref(), phase, block.settings.oracle_s),
            // Inputs from a file are what they are: they can't be made smaller.
            _ => None,
        };
        let small = small.map(|small| {
            let inputs = small.generate(&InputKey(block.problem));
            Posed::answered(small, inputs, phase)
        });
        let inputs = match &block.inputs {
            Some(path) => tensors::read_inputs(path, problem.as_ref()).map_err(error)?,
            None => problem.generate(&InputKey(block.problem)),
        };
        if let Some(folder) = &block.save_tensors {
            tensors::write_inputs(folder, &block.problem, &inputs).map_err(error)?;
        }
        let whole = match verify && small.is_none() {
            true => Posed::answered(problem, inputs, phase),
            false => Posed {
                problem,
                inputs,
                expected: None,
            },
        };
        Ok(Groundwork { whole, small })
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
