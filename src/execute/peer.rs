//! Right outputs that a backend of the manifest computes, once for a block, on the device that is
//! measured.

use sweeper_program::check::as_f64;
use sweeper_program::{CanonicalShape, Phase, Program, Tensor, Tensors};

use super::block::Listener;
use super::block_context::{Artifacts, ContextError};
use super::protocol::{Block, Stage};
use super::refused::{failed, of_key, refused};
use super::trespass;
use super::verify::ProblemInstance;
use crate::device::{Artifact, Device, DeviceError, Job};
use crate::row::outcome::{Outcome, Status};

/// The outputs of a block's problem by the backend called `peer`.
///
/// # Errors
/// The outcome of all points of the block where the backend fails, or the loss of the device at the
/// first of them.
pub(super) fn answer(
    block: &Block,
    whole: &ProblemInstance,
    peer: &str,
    artifacts: &Artifacts,
    device: &mut dyn Device,
    listener: &mut dyn Listener,
) -> Result<Tensors, ContextError> {
    let Some(first) = block.points.first() else {
        return Ok(Tensors::new());
    };
    listener.working(first.number, Stage::Reference);
    if let Some(outcome) = &block.oracle_failure {
        return Err(named(block, peer, outcome.clone()).into());
    }
    let canonical = CanonicalShape::new(first.canonical.iter().cloned());
    let problem = whole.problem.as_ref();
    let program = problem.program(peer, Phase::Forward, &canonical, &device.target());
    let program = program.map_err(|refusal| named(block, peer, refused(refusal)))?;
    let found = run(block, whole, program, artifacts, device);
    found.map_err(
        |error| match of_key(block, "check.reference", &by(peer), error) {
            error @ DeviceError::Lost(_) => ContextError::LostAt(first.number, error),
            error => failed(error).into(),
        },
    )
}

/// Runs a program once.
fn run(
    block: &Block,
    whole: &ProblemInstance,
    program: Program,
    artifacts: &Artifacts,
    device: &mut dyn Device,
) -> Result<Tensors, DeviceError> {
    device.bind(&whole.inputs)?;
    let specs = whole.problem.outputs(Phase::Forward);
    let keys = block.oracle_kernels.iter();
    let kernels: Vec<Artifact> = keys.filter_map(|key| artifacts.get(key).cloned()).collect();
    let prepared = match program.foreign() {
        Some(foreign) => device.prepare_foreign(&program, foreign, &whole.inputs),
        None => device.prepare(Job {
            program,
            artifacts: &kernels,
            script: None,
        }),
    }?;
    device.poison(prepared)?;
    device.sample(prepared, 1)?;
    let mut outputs = device.results(prepared, &specs)?;
    if let Some(reason) = trespass::complaint(prepared, &whole.inputs, device)? {
        return Err(DeviceError::Foreign {
            status: Status::Error,
            reason,
        });
    }
    for tensor in outputs.values_mut() {
        *tensor = Tensor::f64(tensor.shape(), as_f64(tensor).into_owned());
    }
    Ok(outputs)
}

/// An outcome of a backend, as that of the points that it is the reference of.
pub(super) fn named(block: &Block, peer: &str, mut outcome: Outcome) -> Outcome {
    let key = format!("workload.{}.check.reference", block.workload);
    let reason = outcome.reason.unwrap_or_default();
    outcome.reason = Some(format!("`{key}`{}: {reason}", by(peer)));
    outcome
}

fn by(peer: &str) -> String {
    format!(", backend `{peer}`")
}
