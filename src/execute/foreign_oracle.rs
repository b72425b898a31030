//! Right outputs that a function of the user computes, in an interpreter of its own. That of
//! references of PyTorch stays for all problems of a process.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use sweeper_program::check::as_f64;
use sweeper_program::{Dtype, Foreign, Phase, Problem, Program, Tensor, Tensors};

use super::answers::Answers;
use super::protocol::Block;
use super::refused::{failed, of_key};
use super::verify::ProblemInstance;
use crate::declared::in_f32;
use crate::device::foreign::ForeignRunner as _;
use crate::device::foreign::python::{self, Place, Python};
use crate::device::{DeviceError, RunsPrograms as _};
use crate::hardware::DeviceIdentity;
use crate::identity::CacheState;
use crate::row::outcome::{Outcome, Status};

/// The GPU that is measured, on which references of PyTorch run where it has room.
static GPU: OnceLock<DeviceIdentity> = OnceLock::new();

/// The interpreter of references of PyTorch: importing a library takes longer than most of them.
static KEPT: Mutex<Option<Python>> = Mutex::new(None);

/// The name of a tensor beside right outputs where a reference of PyTorch has operations that the
/// model of rounding does not know: their names, as text.
pub(super) const UNMODELLED: &str = "operations without a model";

/// Lets references of PyTorch use a GPU.
pub(super) fn use_gpu(gpu: &DeviceIdentity) {
    // A process has one device.
    let _ = GPU.set(gpu.clone());
}

/// Whether the reference of a problem is asked once the device has nothing else to do.
pub(super) fn waits_for_device(problem: &dyn Problem) -> bool {
    let function = problem.foreign_oracle(Dtype::F64);
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
    let function = problem.foreign_oracle(Dtype::F64)?;
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
    if is_torch(&request) {
        python::reference::TEXTS
            .iter()
            .for_each(|text| id.update(text));
        id.update(GPU.get().map_or("", |gpu| &gpu.name));
    }
    let compute = || computed(block, problem, &function, &whole.inputs);
    Some(answers.of(problem, &id.finalize().into(), Phase::Forward, compute))
}

/// The right outputs in f64, and beside them what a derived tolerance follows from: statistics of
/// what rounding does to a reference of PyTorch, or the outputs of another in f32.
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
    let failure = |error, how| failure(block, error, how);
    if is_torch(&request(function)) {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        let unit = GPU.get().map(|gpu| gpu.unit.clone());
        let python = kept.get_or_insert_with(|| interpreter_beside(unit, limit_s));
        python.set_limit(limit(limit_s));
        let found = python.reference(function, inputs);
        return found.map(in_f64).map_err(|error| failure(error, ""));
    }
    let outputs = |function: &Foreign, dtype| {
        let inputs = of_type(inputs, dtype);
        call(&mut interpreter(limit_s), function, &inputs).map(in_f64)
    };
    let mut found = outputs(function, Dtype::F64).map_err(|error| failure(error, ""))?;
    if let Some(function) = problem.foreign_oracle(Dtype::F32) {
        let coarse = outputs(&function, Dtype::F32).map_err(|error| failure(error, OF_F32))?;
        let coarse = coarse.into_iter();
        found.extend(coarse.map(|(name, tensor)| (in_f32(&name), tensor)));
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

/// Why a reference is called with f32.
const OF_F32: &str = " with f32, from which a derived tolerance follows (state `tolerance` \
     otherwise)";

/// Tensors whose real numbers are of this type.
fn of_type(tensors: &Tensors, dtype: Dtype) -> Tensors {
    let converted = tensors.iter().map(|(name, tensor)| {
        let converted = match dtype {
            _ if !tensor.dtype().is_real() => tensor.clone(),
            Dtype::F32 => {
                let elements = as_f64(tensor);
                let elements = elements.iter().map(|&element| element as f32);
                Tensor::f32(tensor.shape(), elements.collect())
            }
            _ => Tensor::f64(tensor.shape(), as_f64(tensor).into_owned()),
        };
        (name.clone(), converted)
    });
    converted.collect()
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

fn call(python: &mut Python, function: &Foreign, inputs: &Tensors) -> Result<Tensors, DeviceError> {
    python.load(function)?;
    // One call is enough: that which makes a function ready.
    let mut request = request(function);
    request["keep_results"] = true.into();
    let function = Foreign {
        request: request.to_string(),
        ..function.clone()
    };
    let prepared = python.prepare(&Program::default(), &function, inputs)?;
    python.results(prepared, &[])
}

/// The outcome of points whose reference failed; `how` says how it was called.
fn failure(block: &Block, error: DeviceError, how: &str) -> Outcome {
    failed(with_limit(
        block,
        of_key(block, "check.reference", how, error),
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
