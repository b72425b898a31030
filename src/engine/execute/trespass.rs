//! What kernels of the user write that they must not: inputs, and memory beside their outputs and
//! their scratch memory.

use sweeper_program::Tensors;

use crate::device::{Device, DeviceError, Prepared};
use sweeper_model::row::outcome::{Outcome, Status};

/// The complaint about a program that has just run, and that was poisoned before it, if there is
/// one. Inputs are made as they were `given`.
///
/// # Errors
/// A lost device.
pub(super) fn complaint(
    program: Prepared,
    given: &Tensors,
    device: &mut dyn Device,
) -> Result<Option<String>, DeviceError> {
    let damage = device.damage(program)?.into_iter();
    let damage: Vec<String> = damage.map(|damage| damage.to_string()).collect();
    let beside = (!damage.is_empty()).then(|| format!("it wrote {}", damage.join(", and ")));
    let changed = overwritten(&device.restore_inputs(given)?);
    let all: Vec<String> = beside.into_iter().chain(changed).collect();
    Ok((!all.is_empty()).then(|| all.join("; ")))
}

/// The complaint about a kernel after which inputs have changed.
pub(super) fn overwritten(inputs: &[String]) -> Option<String> {
    let names = inputs.join("`, `");
    (!inputs.is_empty()).then(|| {
        format!("it overwrote the input `{names}`: name it in `mutates`, then it gets a copy")
    })
}

/// The outcome of a point whose outputs are wrong, with a complaint that may explain them.
pub(super) fn explained(mut outcome: Outcome, complaint: Option<&str>) -> Outcome {
    if let (Status::Wrong, Some(reason), Some(complaint)) =
        (outcome.status, &mut outcome.reason, complaint)
    {
        *reason += "; ";
        *reason += complaint;
    }
    outcome
}
