//! Measures the points of one problem, inside a worker.
//!
//! The recipe, once its [`block_inputs`](super::block_inputs) are generated: prepare every program,
//! check its outputs against the oracle, warm up, take samples in interleaved rounds, check that
//! the outputs are unchanged.

use sweeper_program::Target;

use super::answers::Answers;
use super::block_context::{Artifacts, BlockContext, ContextError, VerifiedPoint};
use super::block_inputs::BlockInputs;
use super::protocol::{Block, Stage};
use super::refused::{failed, of_configuration};
use super::sampling::{Sampler, Source};
use super::turns;
use crate::device::{Device, DeviceError, busy};
use sweeper_model::row::outcome::{Outcome, Status};

/// Listens to the measurement of a block.
pub trait Listener {
    /// The following messages are about this point.
    fn working(&mut self, number: u32, stage: Stage);
    /// A point is finished.
    fn finished(&mut self, number: u32, outcome: Outcome);
}

/// Measures all points of a block. Every point is finished exactly once, whatever happens, as long
/// as the process lives.
///
/// # Errors
/// [`DeviceError::Lost`], after which the process must end; the point at work is finished, others
/// may not be. So it is after a program that leaves threads or processes at work, which is measured
/// by itself.
pub fn measure(
    block: &Block,
    block_inputs: Result<BlockInputs, Outcome>,
    artifacts: &Artifacts,
    answers: &Answers,
    device: &mut dyn Device,
    listener: &mut dyn Listener,
) -> Result<(), DeviceError> {
    let context = block_inputs
        .map_err(ContextError::AllPoints)
        .and_then(|inputs| BlockContext::new(block, inputs, artifacts, answers, device, listener));
    let context = match context {
        Ok(context) => context,
        Err(ContextError::LostAt(number, error)) => return fail(listener, number, error),
        Err(ContextError::AllPoints(outcome)) => {
            for point in &block.points {
                refuse(listener, point.number, outcome.clone())?;
            }
            return Ok(());
        }
    };
    let mut running = Vec::new();
    for point in context.points() {
        listener.working(point.number, Stage::Check);
        match context.prepare_and_verify(point, artifacts, device) {
            Ok(admitted) => running.push(admitted),
            Err(outcome) => {
                let outcome = of_configuration(point, outcome);
                refuse(listener, point.number, outcome)?;
            }
        }
    }
    running.retain(|one: &VerifiedPoint| context.measures(one.point));
    let mut started = Vec::new();
    let mut is_at_work = false;
    for mut one in running {
        listener.working(one.point.number, Stage::Warmup);
        let program = (one.prepared, one.point.mode);
        let warmup = block.settings.warmup;
        let source = one.source.take().unwrap_or(Source::Device);
        // On a GPU nobody has looked how soon clocks are up again after a check.
        let is_on_cpu = one.is_kernel() && device.target() == Target::Cpu;
        let before = (one.first_ns, is_at_work && is_on_cpu);
        is_at_work |= is_on_cpu;
        match Sampler::start(device, program, source, warmup, before) {
            Ok(sampler) => started.push((one, sampler)),
            Err(error) => fail(listener, one.point.number, error)?,
        }
    }
    turns::sample(&context, block, device, listener, started)?;
    match context.is_spoiled() {
        // Others are measured by the next worker.
        true => Err(DeviceError::Lost(format!("it has {}", busy::WORDS))),
        false => Ok(()),
    }
}

/// Finishes a point with an error; hands a lost device on.
pub(super) fn fail(
    listener: &mut dyn Listener,
    number: u32,
    error: DeviceError,
) -> Result<(), DeviceError> {
    listener.finished(number, failed(error.clone()));
    match error {
        DeviceError::Lost(_) => Err(error),
        _ => Ok(()),
    }
}

/// Finishes a point that can't be run; hands a lost device on.
fn refuse(listener: &mut dyn Listener, number: u32, outcome: Outcome) -> Result<(), DeviceError> {
    let lost = outcome.status == Status::Crashed;
    let reason = outcome.reason.clone().unwrap_or_default();
    listener.finished(number, outcome);
    match lost {
        true => Err(DeviceError::Lost(reason)),
        false => Ok(()),
    }
}
