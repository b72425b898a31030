//! The referee: functions that nobody trusts, each in a sandboxed process of its own that reaches
//! neither the clock nor the judge.
//!
//! [`candidate`] starts the process, [`page`] is the memory that both share, [`protocol`] are the
//! calls. Inputs of samples come from whoever asks for them by
//! [`run_unseen`](RunsPrograms::run_unseen): no two calls have the same.

mod candidate;
mod page;
mod protocol;

use std::path::PathBuf;
use std::time::Duration;

use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::Value;
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Dtype, Foreign, Program, Tensors};

use super::ForeignRunner;
use super::python::interpreters::failed;
use super::python::{Place, interpreter_of};
use crate::device::cpu::identity as processors;
use crate::device::outputs::{Outputs, Reading};
use crate::device::{
    DeviceError, DeviceMemory, Preparation, Prepared, RunsPrograms, Sample, UnseenRun,
};
use crate::identity::CacheState;
use crate::row::outcome::Status;
use crate::scratch::Scratch;

/// How long an interpreter may take to start, and to import a library.
const LOADING_LIMIT: Duration = Duration::from_secs(120);

/// Before a shorter call, the first one after a rest, there is another on inputs that are known:
/// after a pause caches hold other code, and processors have slept.
const SHORT_NS: f64 = 1e6;

/// Runs functions that nobody trusts.
pub struct Referee {
    place: Place,
    cache: CacheState,
    /// How long a request may take.
    limit: Duration,
    /// Folders that no candidate sees.
    hidden: Vec<PathBuf>,
    programs: Vec<Held>,
}

/// A candidate, and what its last call left.
struct Held {
    calls: protocol::Calls,
    /// The inputs that everybody knows.
    inputs: Tensors,
    outputs: Tensors,
    /// It stood still since its last call, which took so many nanoseconds.
    is_resting: bool,
    usual_ns: f64,
    /// The folder that it writes into; removed after its process.
    _scratch: Scratch,
}

impl Referee {
    /// A runner for functions on these processors, which see nothing below `hidden`.
    pub fn new(place: Place, cache: CacheState, limit: Duration, hidden: Vec<PathBuf>) -> Self {
        Referee {
            place,
            cache,
            limit,
            hidden,
            programs: Vec::new(),
        }
    }

    /// The processors of candidates.
    fn processors(&self) -> Result<Vec<usize>, DeviceError> {
        let Place::Cpu { processors, .. } = &self.place else {
            return Err(unavailable(
                "functions that are not trusted are measured on CPUs so far",
            ));
        };
        match self.cache {
            CacheState::Hot => Ok(processors.clone()),
            _ => Err(unavailable(
                "inputs of a refereed function were just written by another processor: its caches \
                 can't be flushed (`measure.l2 = \"hot\"` can)",
            )),
        }
    }

    fn start(
        &self,
        outputs: &[TensorSpec],
        request: &Value,
        inputs: &Tensors,
    ) -> Result<Held, DeviceError> {
        let processors = self.processors()?;
        if outputs.len() > page::MOST_RESULTS {
            return Err(unavailable("it has more outputs than the referee takes"));
        }
        let scratch = Scratch::new().map_err(|error| unavailable(&error.to_string()))?;
        let page = page::Page::new(inputs, request, outputs);
        let page = page.map_err(|error| unavailable(&error.to_string()))?;
        let modules = request["path"].as_array().into_iter().flatten();
        let seat = candidate::Seat {
            exe: &interpreter_of(request),
            scratch: scratch.path(),
            processors: &processors,
            hidden: &self.hidden,
            modules: modules
                .filter_map(|path| path.as_str().map(PathBuf::from))
                .collect(),
            yields: own_processors(&processors).is_empty(),
        };
        let child = seat.start(&page).map_err(failed)?;
        let secret = secret()?;
        let calls = protocol::Calls::new((child, page), outputs, secret, seat.yields);
        let mut held = Held {
            calls,
            inputs: inputs.clone(),
            outputs: Tensors::new(),
            is_resting: true,
            usual_ns: 0.0,
            _scratch: scratch,
        };
        held.prepare(request, self.limit, &processors)?;
        Ok(held)
    }
}

impl Held {
    /// Measures the empty function, then lets the candidate import its text and compile.
    fn prepare(
        &mut self,
        request: &Value,
        limit: Duration,
        candidates: &[usize],
    ) -> Result<(), DeviceError> {
        let mut request = request.clone();
        request["do"] = "enter".into();
        let child = &mut self.calls.child;
        child
            .ask(&request, LOADING_LIMIT.max(limit))
            .map_err(failed)?;
        let inputs = &self.inputs;
        let calls = &mut self.calls;
        beside(candidates, || calls.measure_floor(inputs, limit)).map_err(failed)?;
        request["do"] = "prepare".into();
        calls.child.ask(&request, limit).map_err(failed)?;
        self.rest();
        Ok(())
    }

    /// Lets it stand still, with all that it has left at work.
    fn rest(&mut self) {
        self.calls.child.suspend();
        self.is_resting = true;
    }

    fn call(
        &mut self,
        inputs: Option<&Tensors>,
        limit: Duration,
        candidates: &[usize],
    ) -> Result<f64, DeviceError> {
        let known = &self.inputs;
        let inputs = inputs.unwrap_or(known);
        let is_first = std::mem::take(&mut self.is_resting);
        let (calls, usual_ns) = (&mut self.calls, self.usual_ns);
        let call = beside(candidates, || {
            if is_first && usual_ns < SHORT_NS {
                calls.call(known, limit)?;
            }
            calls.call(inputs, limit)
        });
        let call = call.map_err(failed)?;
        self.usual_ns = call.elapsed_ns;
        self.outputs = call.outputs;
        Ok(call.elapsed_ns)
    }
}

impl ForeignRunner for Referee {
    fn forget(&mut self) {
        self.programs.clear();
    }

    fn prepare(
        &mut self,
        _program: &Program,
        foreign: &Foreign,
        inputs: &Tensors,
    ) -> Result<Prepared, DeviceError> {
        let request: Value = serde_json::from_str(&foreign.request)
            .map_err(|error| DeviceError::Launch(error.to_string()))?;
        let held = self.start(&outputs_of(&request), &request, inputs)?;
        self.programs.push(held);
        Ok(Prepared(self.programs.len() - 1))
    }
}

impl RunsPrograms for Referee {
    fn preparation(&self, program: Prepared) -> Option<Preparation> {
        let floor = self.programs[program.0].calls.floor;
        Some(Preparation {
            referee_ns: Some((floor.call_ns as u64, floor.spread_ns as u64)),
            ..Preparation::default()
        })
    }

    /// Memory is poisoned before each call.
    fn poison(&mut self, _program: Prepared) -> Result<(), DeviceError> {
        Ok(())
    }

    fn sample(&mut self, program: Prepared, iterations: u32) -> Result<Sample, DeviceError> {
        let (limit, candidates) = (self.limit, self.processors()?);
        let held = &mut self.programs[program.0];
        let mut elapsed_ns = 0.0;
        for _ in 0..iterations {
            elapsed_ns += held.call(None, limit, &candidates)?;
        }
        held.rest();
        Ok(Sample::new(elapsed_ns, iterations))
    }

    fn results(
        &mut self,
        program: Prepared,
        _specs: &[TensorSpec],
    ) -> Result<Tensors, DeviceError> {
        Ok(self.programs[program.0].outputs.clone())
    }

    fn run_unseen(
        &mut self,
        program: Prepared,
        inputs: &Tensors,
        _read: Reading<'_>,
    ) -> Result<Option<UnseenRun>, DeviceError> {
        let (limit, candidates) = (self.limit, self.processors()?);
        let held = &mut self.programs[program.0];
        let elapsed_ns = held.call(Some(inputs), limit, &candidates)?;
        Ok(Some(UnseenRun {
            outputs: Outputs::Host(std::mem::take(&mut held.outputs)),
            elapsed_ns,
            has_room: true,
        }))
    }

    fn rest(&mut self, program: Prepared) {
        self.programs[program.0].rest();
    }

    fn memory(&mut self, program: Prepared) -> Result<DeviceMemory, DeviceError> {
        let held = &self.programs[program.0];
        let tensors = held.inputs.values().chain(held.outputs.values());
        let bytes: usize = tensors.map(|tensor| tensor.data().bytes().len()).sum();
        Ok(DeviceMemory {
            peak_allocated_bytes: bytes as u64,
            peak_reserved_bytes: processors::peak_resident_of(held.calls.child.id()),
        })
    }
}

/// The outputs of a function, in the order of its request.
fn outputs_of(request: &Value) -> Vec<TensorSpec> {
    let outputs = request["outputs"].as_array().into_iter().flatten();
    let spec = |held: &Value| {
        Some(TensorSpec {
            name: held["name"].as_str()?.to_owned(),
            dtype: Dtype::named(held["dtype"].as_str()?)?,
            shape: serde_json::from_value(held["shape"].clone()).ok()?,
        })
    };
    outputs.filter_map(spec).collect()
}

/// The processors of this process that no candidate has.
fn own_processors(candidates: &[usize]) -> Vec<usize> {
    let all = processors::allowed_cpus().into_iter();
    all.filter(|cpu| !candidates.contains(cpu)).collect()
}

/// Does something on a processor that no candidate has, where there is one.
fn beside<T>(candidates: &[usize], act: impl FnOnce() -> T) -> T {
    let own = own_processors(candidates);
    let before = processors::allowed_cpus();
    if let Some(first) = own.first() {
        processors::keep_current_thread_on(&[*first]);
    }
    let found = act();
    if !own.is_empty() {
        processors::keep_current_thread_on(&before);
    }
    found
}

/// Bytes that nobody can guess.
///
/// # Errors
/// The system's.
pub fn secret() -> Result<[u8; 32], DeviceError> {
    let mut bytes = [0; 32];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(32) => Ok(bytes),
        Ok(_) => Err(unavailable("the system has no random numbers")),
        Err(error) => Err(unavailable(&error.to_string())),
    }
}

fn unavailable(reason: &str) -> DeviceError {
    DeviceError::Foreign {
        status: Status::Unavailable,
        reason: reason.to_owned(),
    }
}
