//! Right outputs that a function of the user computes, in an interpreter that stays for all
//! problems of a process.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use sweeper_program::check::{Check, as_f64};
use sweeper_program::spread::{self, ErrorSums, Spread};
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Data, Dtype, Foreign, Phase, Problem, Tensor, Tensors};

use super::answers::Answers;
use super::protocol::Block;
use super::refused::{failed, of_key};
use super::verify::ProblemInstance;
use crate::device::DeviceError;
use crate::device::foreign::python::reference::{KeptAnswer, Slot};
use crate::device::foreign::python::{self, Place, Python};
use crate::device::outputs::Outputs;
use sweeper_model::hardware::DeviceIdentity;
use sweeper_model::identity::CacheState;
use sweeper_model::row::outcome::{Outcome, Status};

/// The GPU that is measured, on which references of PyTorch run where it has room.
static GPU: OnceLock<DeviceIdentity> = OnceLock::new();

/// The interpreter of references: importing a library takes longer than most of them.
static REFERENCES: Mutex<Option<References>> = Mutex::new(None);

/// Whether that interpreter opens memory of others on the GPU, once it was tried.
static OPENS_OUTPUTS: OnceLock<bool> = OnceLock::new();

/// An interpreter of references.
struct References {
    python: Python,
    /// The problem whose answers it keeps.
    keeps: Option<[u8; 32]>,
    /// For each of them, its slot, what its inputs are told by, and what is known of it here.
    kept: Vec<(Slot, [u8; 32], Tensors)>,
}

impl References {
    /// The spreads of outputs for the published inputs of the problem whose answers are kept, for
    /// others by the same rule: each slice may be as far out as any along its axis was. What
    /// rounding does takes more time to find out than the answer.
    fn published_spreads(&self, problem: &dyn Problem) -> Tensors {
        let mut kept = self.kept.iter();
        let published = kept.find(|(slot, ..)| *slot == Slot::Published);
        let mut found = Tensors::new();
        for spec in problem.outputs(Phase::Forward) {
            let name = spread::name_of(&spec.name);
            let held = published.and_then(|(_, _, expected)| expected.get(&name));
            let held = held.and_then(|held| Spread::from_tensor(&spec.shape, held));
            found.extend(held.map(|held| (name, held.of_widest_slices().into_tensor())));
        }
        found
    }
}

/// The name of a tensor beside right outputs where a reference has operations that the model of
/// rounding does not know: their names, as text.
pub(super) const UNMODELLED: &str = "operations without a model";

/// The name of a tensor beside right outputs where the reference's own, in the judged format, are
/// not finite.
pub(super) const OVERFLOWS: &str = "overflows";

/// The name of a tensor in the place of right outputs that were kept where they were computed: a
/// [`KeptAnswer`], as text.
const KEPT_IN: &str = "kept in";

/// Answers of so many bytes in f64 stay in their interpreter, if the device is a GPU: making them
/// again takes less time than handing them over.
const KEPT_BYTES: u64 = 1 << 26;

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
/// call. `None` where the reference is not such a function.
///
/// # Errors
/// The outcome of all points of the problem.
pub(super) fn answer(
    block: &Block,
    whole: &ProblemInstance,
    answers: &Answers,
) -> Option<Result<Tensors, Outcome>> {
    let id = || whole.answer_id(&block.problem);
    let inputs = (&whole.inputs, Slot::Published);
    answer_for(block, whole.problem.as_ref(), inputs, id, answers)
}

/// The right outputs for other inputs of a block's problem, which `id` tells from others.
///
/// # Errors
/// Those of [`answer`].
pub(super) fn answer_for(
    block: &Block,
    problem: &dyn Problem,
    (inputs, slot): (&Tensors, Slot),
    id: impl FnOnce() -> [u8; 32],
    answers: &Answers,
) -> Option<Result<Tensors, Outcome>> {
    let function = problem.foreign_oracle()?;
    // The request names the interpreter and has the sources. Its packages may compute otherwise in
    // another version.
    let request = request(&function);
    let compute = || computed(block, problem, &function, inputs, slot);
    if is_kept(block, problem, &request) {
        return Some(known_or_kept(block, (slot, id()), compute));
    }
    let interpreter = match python::identity::known(&python::interpreter_of(&request)) {
        Ok(interpreter) => interpreter,
        Err(interrupted) => return Some(Err(failed(interrupted))),
    };
    let mut id = Sha256::new()
        .chain_update(id())
        .chain_update(&function.request)
        .chain_update(interpreter);
    python::reference::TEXTS
        .iter()
        .for_each(|text| id.update(text));
    if is_torch(&request) {
        id.update(GPU.get().map_or("", |gpu| &gpu.name));
    }
    Some(answers.of(problem, &id.finalize().into(), Phase::Forward, compute))
}

/// What is known of an answer that is kept, or will be.
fn known_or_kept(
    block: &Block,
    (slot, id): (Slot, [u8; 32]),
    compute: impl FnOnce() -> Result<Tensors, Outcome>,
) -> Result<Tensors, Outcome> {
    let known = asked(block, |references| {
        let is_this = references.keeps == Some(block.problem);
        references
            .kept
            .retain(|held| is_this && (held.0 != slot || held.1 == id));
        let mut kept = references.kept.iter();
        Ok(kept.find(|held| held.0 == slot).map(|held| held.2.clone()))
    });
    if let Ok(Some(known)) = known {
        return Ok(known);
    }
    let found = compute()?;
    let _ = asked(block, |references| {
        references.kept.push((slot, id, found.clone()));
        Ok(())
    });
    Ok(found)
}

/// Whether the right outputs of a problem stay where they are computed.
fn is_kept(block: &Block, problem: &dyn Problem, request: &serde_json::Value) -> bool {
    let outputs = problem.outputs(Phase::Forward);
    let elements: u64 = outputs.iter().map(TensorSpec::elements).sum();
    let mut factors = block.points.iter().map(|point| point.tolerance_factor);
    // Outputs of kernels of the device itself are read to the host, and judged there.
    let mut points = block.points.iter();
    let has_functions = points.any(|point| point.kernels.is_empty());
    GPU.get().is_some()
        && has_functions
        && 8 * elements >= KEPT_BYTES
        && is_torch(request)
        && request["with_spread"] == true
        && problem.judge().is_none()
        && factors.all(|factor| factor <= 1.0)
        && outputs
            .iter()
            .all(|spec| spec.dtype.is_real() && spec.dtype != Dtype::F64)
}

/// The right outputs in f64, unless they are kept, and beside them what a derived tolerance follows
/// from: statistics of what rounding does to them.
///
/// # Errors
/// The outcome of all points of the problem.
fn computed(
    block: &Block,
    problem: &dyn Problem,
    function: &Foreign,
    inputs: &Tensors,
    slot: Slot,
) -> Result<Tensors, Outcome> {
    let is_kept = is_kept(block, problem, &request(function));
    let kept = is_kept.then(|| KeptAnswer {
        problem: hex::encode(block.problem),
        slot,
    });
    let found = asked(block, |references| {
        references.keeps = is_kept.then_some(block.problem).or(references.keeps);
        let spreads = match slot {
            Slot::Audit | Slot::FurtherAudit if is_kept => references.published_spreads(problem),
            _ => Tensors::new(),
        };
        let python = &mut references.python;
        let mut found = python.reference(function, inputs, kept.as_ref(), spreads.is_empty())?;
        found.extend(spreads);
        Ok(found)
    });
    let mut found = found.map(in_f64).map_err(|error| failure(block, error))?;
    for spec in problem.outputs(Phase::Forward) {
        spread::finish_sums(&mut found, &spec.name, &spec.shape);
        spread::finish_probes(&mut found, &spec.name, spec.dtype);
    }
    if let Some(text) = kept.and_then(|kept| serde_json::to_vec(&kept).ok()) {
        let text = Tensor::new(vec![text.len()], Data::U8(text));
        found.insert(KEPT_IN.to_owned(), text);
    }
    Ok(found)
}

/// The answer that stays in its interpreter, as its tensor among right outputs tells it.
fn kept_answer(expected: &Tensors) -> Option<KeptAnswer> {
    serde_json::from_slice(expected.get(KEPT_IN)?.data().bytes()).ok()
}

/// Asks the interpreter of references.
fn asked<T>(
    block: &Block,
    ask: impl FnOnce(&mut References) -> Result<T, DeviceError>,
) -> Result<T, DeviceError> {
    let limit_s = block.settings.oracle_s;
    let mut references = REFERENCES.lock().unwrap_or_else(PoisonError::into_inner);
    let references = references.get_or_insert_with(|| References {
        python: interpreter_beside(GPU.get().map(|gpu| gpu.unit.clone()), limit_s),
        keeps: None,
        kept: Vec::new(),
    });
    references.python.set_limit(limit(limit_s));
    let found = ask(references);
    if found.is_err() {
        // An interpreter that has ended keeps nothing.
        references.kept.clear();
    }
    found
}

/// Starts the interpreter of references in this thread: with a thread the processes end that it has
/// started. What fails does so again when something is asked of it.
pub(super) fn start_interpreter(block: &Block, problem: &dyn Problem) {
    if let Some(function) = problem.foreign_oracle() {
        let _ = asked(block, |references| references.python.start(&function));
    }
}

/// Lets the answers of other problems than a block's go: they may lie on the GPU.
pub(super) fn forget_others(block: &Block) {
    let mut references = REFERENCES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(references) = references.as_mut()
        && references
            .keeps
            .is_some_and(|problem| problem != block.problem)
    {
        let _ = references.python.forget();
        references.keeps = None;
        references.kept.clear();
    }
}

/// Judges outputs by right ones that were kept; none where they are at hand.
pub(super) fn check_by_kept(
    problem: &dyn Problem,
    outputs: &Outputs,
    expected: &Tensors,
) -> Option<Result<Check, DeviceError>> {
    let kept = kept_answer(expected)?;
    let specs = problem.outputs(Phase::Forward);
    let has_shape = |spec: &TensorSpec| outputs.shape(&spec.name) == Some(&spec.shape);
    let found = match specs.iter().all(has_shape) {
        true => compared(&kept, outputs),
        false => Ok(Tensors::new()),
    };
    let judged = |found: Tensors| {
        let tensors = specs.iter().map(|spec| {
            let raw = found.get(&spread::name_of_error_sums(&spec.name));
            let sums = raw.and_then(|raw| ErrorSums::from_raw(&spec.shape, &as_f64(raw)));
            spread::judge_by_sums(&spec.name, &spec.shape, sums, expected)
        });
        Check {
            tensors: tensors.collect(),
        }
    };
    Some(found.map(judged))
}

/// Whether outputs may stay on the GPU for a judgement by this answer.
pub(super) fn opens_outputs(expected: Option<&Tensors>) -> bool {
    let is_kept = expected.is_some_and(|expected| expected.contains_key(KEPT_IN));
    is_kept && *OPENS_OUTPUTS.get().unwrap_or(&true)
}

/// Whether the interpreter of references can read outputs where they are. Where it can't open
/// memory of another process, as some virtual machines do not let it, it never can.
pub(super) fn can_read(outputs: &Outputs) -> bool {
    let Outputs::Gpu(places) = outputs else {
        return true;
    };
    *OPENS_OUTPUTS.get_or_init(|| {
        let mut references = REFERENCES.lock().unwrap_or_else(PoisonError::into_inner);
        let references = references.as_mut();
        references.is_some_and(|references| references.python.open_outputs(places).is_ok())
    })
}

fn compared(kept: &KeptAnswer, outputs: &Outputs) -> Result<Tensors, DeviceError> {
    let mut references = REFERENCES.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(references) = references.as_mut() else {
        return Ok(Tensors::new());
    };
    let found = references.python.compare(kept, outputs);
    if found.is_err() {
        references.kept.clear();
    }
    found
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
