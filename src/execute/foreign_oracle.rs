//! Right outputs that a function of the user computes, in an interpreter that stays for all
//! problems of a process.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use sweeper_program::check::as_f64;
use sweeper_program::{Dtype, Foreign, Phase, Problem, Tensor, Tensors, spread};

use super::answers::Answers;
use super::protocol::Block;
use super::refused::{failed, of_key};
use super::verify::ProblemInstance;
use crate::device::DeviceError;
use crate::device::foreign::python::{self, Place, Python};
use crate::hardware::DeviceIdentity;
use crate::identity::CacheState;
use crate::row::outcome::{Outcome, Status};

/// The GPU that is measured, on which references of PyTorch run where it has room.
static GPU: OnceLock<DeviceIdentity> = OnceLock::new();

/// The interpreter of references: importing a library takes longer than most of them.
static KEPT: Mutex<Option<Python>> = Mutex::new(None);

/// The name of a tensor beside right outputs where a reference has operations that the model of
/// rounding does not know: their names, as text.
pub(super) const UNMODELLED: &str = "operations without a model";

/// Lets references of PyTorch use a GPU.
pub(super) fn use_gpu(gpu: &DeviceIdentity) {
    // A process has one device.
    let _ = GPU.set(gpu.clone());
}

/// Whether the reference of a problem is asked once the device has nothing else to do.
pub(super) fn waits_for_device(problem: &dyn Problem) -> bool {
    let function = problem.foreign_oracle();
    GPU.get().is_some() && function.is_some_and(|function| is_torch(&request(&function)))
}

fn is_torch(request: &serde_json::Value) -> bool {
    request["arrays"] == "torch"
}

/// The right outputs of a problem whose reference is a function of the user, from the cache or by a
/// call. `None` where the reference is no such function.
///
/// # Errors
/// The outcome of all points of the problem.
pub(super) fn answer(
    block: &Block,
    whole: &ProblemInstance,
    answers: &Answers,
) -> Option<Result<Tensors, Outcome>> {
    let problem = whole.problem.as_ref();
    let function = problem.foreign_oracle()?;
    // The request names the interpreter and has the sources. Its packages may compute otherwise in
    // another version.
    let request = request(&function);
    let interpreter = match python::identity::known(&python::interpreter_of(&request)) {
        Ok(interpreter) => interpreter,
        Err(interrupted) => return Some(Err(failed(interrupted))),
    };
    let mut id = Sha256::new()
        .chain_update(whole.answer_id(&block.problem))
        .chain_update(&function.request)
        .chain_update(interpreter);
    python::reference::TEXTS
        .iter()
        .for_each(|text| id.update(text));
    if is_torch(&request) {
        id.update(GPU.get().map_or("", |gpu| &gpu.name));
    }
    let compute = || computed(block, problem, &function, &whole.inputs);
    Some(answers.of(problem, &id.finalize().into(), Phase::Forward, compute))
}

/// The right outputs in f64, and beside them what a derived tolerance follows from: statistics of
/// what rounding does to them.
///
/// # Errors
/// The outcome of all points of the problem.
pub(super) fn computed(
    block: &Block,
    problem: &dyn Problem,
    function: &Foreign,
    inputs: &Tensors,
) -> Result<Tensors, Outcome> {
    let limit_s = block.settings.oracle_s;
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let unit = GPU.get().map(|gpu| gpu.unit.clone());
    let python = kept.get_or_insert_with(|| interpreter_beside(unit, limit_s));
    python.set_limit(limit(limit_s));
    let found = python.reference(function, inputs);
    let mut found = found.map(in_f64).map_err(|error| failure(block, error))?;
    spread::finish(&mut found);
    for spec in problem.outputs(Phase::Forward) {
        spread::finish_probes(&mut found, &spec.name);
    }
    Ok(found)
}

/// Tensors with all elements as f64.
fn in_f64(mut tensors: Tensors) -> Tensors {
    for tensor in tensors.values_mut() {
        if tensor.dtype() != Dtype::F64 {
            *tensor = Tensor::f64(tensor.shape(), as_f64(tensor).into_owned());
        }
    }
    tensors
}

/// An interpreter on the host, which is started when it is first needed, and each of whose requests
/// may take so long.
pub(super) fn interpreter(limit_s: f64) -> Python {
    interpreter_beside(None, limit_s)
}

/// One that may use a GPU.
fn interpreter_beside(unit: Option<String>, limit_s: f64) -> Python {
    let threads = rayon::current_num_threads();
    let mut place = Place::of_cpu(threads, CacheState::Hot);
    if let Place::Cpu { gpu, .. } = &mut place {
        *gpu = unit;
    }
    Python::new(place, CacheState::Hot, limit(limit_s), None)
}

fn limit(limit_s: f64) -> Duration {
    Duration::try_from_secs_f64(limit_s).unwrap_or(Duration::MAX)
}

/// The request that calls a function.
fn request(function: &Foreign) -> serde_json::Value {
    serde_json::from_str(&function.request).unwrap_or_default()
}

/// The outcome of points whose reference failed.
fn failure(block: &Block, error: DeviceError) -> Outcome {
    failed(with_limit(
        block,
        of_key(block, "check.reference", "", error),
    ))
}

/// A function that took too long, with the limit that it had.
pub(super) fn with_limit(block: &Block, error: DeviceError) -> DeviceError {
    match error {
        DeviceError::Foreign {
            status: status @ Status::Timeout,
            reason,
        } => {
            let limit_s = block.settings.oracle_s;
            let reason = format!("{reason} (`limits.oracle_s = {limit_s}`)");
            DeviceError::Foreign { status, reason }
        }
        error => error,
    }
}
