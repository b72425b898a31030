//! The referee: functions and kernels that nobody trusts, each in a sandboxed process of its own
//! that reaches neither the clock nor the judge.
//!
//! [`candidate`] starts the process, [`spares`] does so ahead; [`page`] and [`gpu`] are the memory
//! that both share, with tensors at their [`places`]; [`protocol`] are the calls. The process of a
//! function is an interpreter; that of [`kernels`] in C is this program, as [`process`].
//!
//! Inputs of samples come from whoever asks for them by
//! [`run_unseen`](RunsPrograms::run_unseen): no two calls have the same.

mod candidate;
mod gpu;
mod kernels;
mod kernels_on_gpu;
mod page;
mod places;
pub mod process;
mod protocol;
mod spares;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::Value;
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Dtype, Runner, Tensor, Tensors};

use super::ForeignRunner;
use super::python::{Place, told_use};
use crate::device::cpu::identity as processors;
use crate::device::outputs::{Outputs, Reading};
use crate::device::{
    Artifact, DeviceError, DeviceMemory, Job, Preparation, Prepared, RunsPrograms, Sample,
    UnseenRun,
};
use protocol::Reads;
use sweeper_model::identity::CacheState;
use sweeper_model::row::outcome::{LibraryUse, Status};
use sweeper_model::scratch::Scratch;

/// How long an interpreter may take to start, and to import a library.
const LOADING_LIMIT: Duration = Duration::from_secs(120);

/// Before a shorter call, the first one after a rest, there is another on inputs that are known:
/// after a pause caches hold other code, and processors have slept.
const SHORT_NS: f64 = 1e6;

/// Calls on a GPU that are shorter are made several at a time, until they last so long together:
/// the switch between two processes differs by two microseconds from call to call, and a bell that
/// is rung too early is noticed after ten.
const TURN_NS: f64 = 200e3;

/// The most calls behind one gate, and the most bytes of their tensors, which have to be made.
const MOST_CALLS: usize = 16;
const MOST_SET_BYTES: usize = 64 << 20;

/// Runs functions that nobody trusts.
pub struct Referee {
    place: Place,
    cache: CacheState,
    /// How long a request may take.
    limit: Duration,
    /// Folders that no candidate sees.
    hidden: Vec<PathBuf>,
    spares: spares::Spares,
    programs: Vec<Held>,
}

/// A candidate, and what its last call left.
struct Held {
    calls: protocol::Calls,
    /// So many calls have tensors of their own.
    most_calls: usize,
    /// The inputs that everybody knows.
    inputs: Tensors,
    outputs: Tensors,
    /// It stood still since its last call, which took so many nanoseconds.
    is_resting: bool,
    usual_ns: f64,
    /// What is wrong with a candidate that did not come to rest.
    left_work: Option<DeviceError>,
    /// The folder that it writes into; removed after its process.
    _scratch: Scratch,
}

/// A program before its process has started.
struct Entrant<'a> {
    guest: candidate::Guest,
    places: places::Places,
    outputs: Vec<TensorSpec>,
    task: Task<'a>,
}

/// What a process is asked to call.
enum Task<'a> {
    /// A function, by its request.
    Function(Value),
    Kernels(kernels::Kernels, &'a [Artifact]),
}

impl<'a> Entrant<'a> {
    fn new(job: Job<'a>, inputs: &Tensors) -> Result<Self, DeviceError> {
        let Some(foreign) = job.program.foreign() else {
            let (kernels, places, outputs) = kernels::Kernels::new(job.program)?;
            return Ok(Entrant {
                guest: candidate::Guest::Kernels,
                places,
                outputs,
                task: Task::Kernels(kernels, job.artifacts),
            });
        };
        let request: Value = serde_json::from_str(&foreign.request)
            .map_err(|error| DeviceError::Launch(error.to_string()))?;
        let outputs = outputs_of(&request);
        Ok(Entrant {
            guest: candidate::Guest::function(&request),
            places: places::Places::new(inputs, &request, &outputs),
            outputs,
            task: Task::Function(request),
        })
    }
}

impl Task<'_> {
    /// The request of a process that has answered so when it was told of the tensors, and reads
    /// `folder`.
    fn request(self, answer: &Value, sets: usize, folder: &Path) -> Result<Value, DeviceError> {
        match self {
            Task::Function(mut request) => {
                candidate::move_files(&mut request, folder)
                    .map_err(|error| unavailable(&error.to_string()))?;
                Ok(request)
            }
            Task::Kernels(kernels, artifacts) => {
                let address = answer["address"].as_u64().unwrap_or_default();
                let task = kernels.task((address, sets), artifacts, folder)?;
                serde_json::to_value(&task).map_err(|error| DeviceError::Launch(error.to_string()))
            }
        }
    }
}

impl Referee {
    /// A runner for functions on these processors, which see nothing below `hidden`.
    pub fn new(place: Place, cache: CacheState, limit: Duration, hidden: Vec<PathBuf>) -> Self {
        Referee {
            place,
            cache,
            limit,
            hidden,
            spares: spares::Spares::default(),
            programs: Vec::new(),
        }
    }

    /// The processors of candidates.
    fn processors(&self) -> Vec<usize> {
        match &self.place {
            Place::Cpu { processors, .. } => processors.clone(),
            // One is the referee's.
            Place::Cuda { .. } => match &processors::allowed_cpus()[..] {
                [_, others @ ..] if !others.is_empty() => others.to_vec(),
                all => all.to_vec(),
            },
        }
    }

    /// Refuses a state of caches that can't be had before each call.
    fn check_cache(&self) -> Result<(), DeviceError> {
        match (&self.place, self.cache) {
            (_, CacheState::Hot) | (Place::Cuda { .. }, CacheState::Cold | CacheState::Clean) => {
                Ok(())
            }
            (Place::Cpu { .. }, _) => Err(unavailable(
                "inputs of a refereed function were just written by another processor: its caches \
                 can't be flushed (`measure.l2 = \"hot\"` can)",
            )),
        }
    }

    fn start(&mut self, entrant: Entrant<'_>, inputs: &Tensors) -> Result<Held, DeviceError> {
        self.check_cache()?;
        let processors = self.processors();
        let Entrant { task, outputs, .. } = entrant;
        if outputs.len() > page::MOST_RESULTS {
            return Err(unavailable("it has more outputs than the referee takes"));
        }
        let yields = own_processors(&processors).is_empty();
        let seat = candidate::Seat {
            guest: entrant.guest,
            processors: processors.clone(),
            yields,
            place: self.place.clone(),
            hidden: self.hidden.clone(),
        };
        let places = entrant.places;
        let mut seated = match self.place {
            Place::Cpu { .. } => seat.start(places.bytes())?,
            Place::Cuda { .. } => self.spares.take(&seat)?,
        };
        let (gpu, most_calls) = self.gpu_memory(&places, &seated.page, outputs.len())?;
        let shared = protocol::Shared {
            gpu,
            page: seated.page,
            places,
        };
        let told = candidate::description(&shared, most_calls)?;
        let answer = seated.child.ask(&told, LOADING_LIMIT)?;
        let request = task.request(&answer, most_calls, seated.scratch.path())?;
        let secret = secret()?;
        let mut held = Held {
            calls: protocol::Calls::new((seated.child, shared), &outputs, secret, yields),
            most_calls,
            inputs: inputs.clone(),
            outputs: Tensors::new(),
            is_resting: true,
            usual_ns: 0.0,
            left_work: None,
            _scratch: seated.scratch,
        };
        held.prepare(request, self.limit, &processors)?;
        Ok(held)
    }

    /// The memory of a GPU that is shared with a candidate of so many outputs, and how many calls
    /// it has tensors for.
    fn gpu_memory(
        &self,
        places: &places::Places,
        page: &page::Page,
        outputs: usize,
    ) -> Result<(Option<gpu::GpuMemory>, usize), DeviceError> {
        let Place::Cuda { ordinal, .. } = self.place else {
            return Ok((None, 1));
        };
        let room = MOST_SET_BYTES.checked_div(places.bytes());
        let results = page::MOST_RESULTS.checked_div(outputs);
        let most_calls = room.unwrap_or(MOST_CALLS).min(results.unwrap_or(1));
        let most_calls = most_calls.clamp(1, MOST_CALLS);
        let bytes = most_calls * places.bytes();
        let memory = gpu::GpuMemory::new(ordinal, page, bytes, self.cache)?;
        Ok((Some(memory), most_calls))
    }

    /// The calls of a program on these inputs, with the processors arranged.
    fn turn(
        &mut self,
        program: Prepared,
        inputs: Option<&[&Tensors]>,
    ) -> Result<protocol::Turn, DeviceError> {
        let (limit, candidates) = (self.limit, self.processors());
        self.programs[program.0].turn(inputs, limit, &candidates)
    }
}

impl Held {
    /// Measures the empty function, then lets the candidate import its text and compile.
    fn prepare(
        &mut self,
        mut request: Value,
        limit: Duration,
        candidates: &[usize],
    ) -> Result<(), DeviceError> {
        request["do"] = "enter".into();
        let (calls, inputs) = (&mut self.calls, &self.inputs);
        calls.rouse();
        calls.ask(&request, LOADING_LIMIT.max(limit))?;
        beside(candidates, || calls.measure_floor(inputs, limit))?;
        request["do"] = "prepare".into();
        calls.ask(&request, limit)?;
        self.rest();
        self.left_work.clone().map_or(Ok(()), Err)
    }

    /// Lets it stand still, with all that it has left at work.
    fn rest(&mut self) {
        self.left_work = self.calls.rest().err();
        self.is_resting = true;
    }

    fn turn(
        &mut self,
        inputs: Option<&[&Tensors]>,
        limit: Duration,
        candidates: &[usize],
    ) -> Result<protocol::Turn, DeviceError> {
        if let Some(error) = &self.left_work {
            return Err(error.clone());
        }
        let known = [&self.inputs];
        let inputs = inputs.unwrap_or(&known);
        let is_first = std::mem::take(&mut self.is_resting);
        let (calls, usual_ns) = (&mut self.calls, self.usual_ns);
        if is_first {
            calls.rouse();
        }
        let mut turn = beside(candidates, || {
            if is_first && usual_ns < SHORT_NS {
                calls.turn(&known, Reads::Nothing, limit)?;
            }
            calls.turn(inputs, Reads::All, limit)
        })?;
        self.usual_ns = turn.elapsed_ns / inputs.len() as f64;
        self.outputs = turn.outputs.last_mut().cloned().unwrap_or_default();
        Ok(turn)
    }

    /// Asks which kernels of libraries a call launches.
    fn library_use(
        &mut self,
        inputs: &Tensors,
        limit: Duration,
    ) -> Result<Option<LibraryUse>, DeviceError> {
        if let Some(error) = &self.left_work {
            return Err(error.clone());
        }
        self.calls.rouse();
        let told = self.calls.watched(inputs, limit);
        self.rest();
        Ok(told_use(&told?))
    }

    /// How many calls are made behind one gate.
    fn calls_together(&self) -> usize {
        match self.usual_ns > 0.0 {
            true => (TURN_NS / self.usual_ns).ceil().min(self.most_calls as f64) as usize,
            false => self.most_calls,
        }
        .max(1)
    }
}

impl ForeignRunner for Referee {
    fn forget(&mut self) {
        self.programs.clear();
    }

    fn prepare(&mut self, job: Job<'_>, inputs: &Tensors) -> Result<Prepared, DeviceError> {
        let held = self.start(Entrant::new(job, inputs)?, inputs)?;
        self.programs.push(held);
        Ok(Prepared(self.programs.len() - 1, Some(Runner::Referee)))
    }
}

impl RunsPrograms for Referee {
    fn preparation(&self, program: Prepared) -> Option<Preparation> {
        let floor = self.programs[program.0].calls.floor();
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
        let mut elapsed_ns = 0.0;
        for _ in 0..iterations {
            elapsed_ns += self.turn(program, None)?.elapsed_ns;
        }
        self.rest(program);
        Ok(Sample::new(elapsed_ns, iterations))
    }

    fn results(&mut self, program: Prepared, specs: &[TensorSpec]) -> Result<Tensors, DeviceError> {
        Ok(in_shape(self.programs[program.0].outputs.clone(), specs))
    }

    fn run_unseen(
        &mut self,
        program: Prepared,
        inputs: &Tensors,
        read: Reading<'_>,
    ) -> Result<Option<UnseenRun>, DeviceError> {
        let mut runs = self.run_together(program, &[inputs], read)?;
        Ok(runs.pop())
    }

    fn calls_together(&self, program: Prepared) -> usize {
        self.programs[program.0].calls_together()
    }

    fn run_together(
        &mut self,
        program: Prepared,
        inputs: &[&Tensors],
        read: Reading<'_>,
    ) -> Result<Vec<UnseenRun>, DeviceError> {
        let turn = self.turn(program, Some(inputs))?;
        let elapsed_ns = turn.elapsed_ns / inputs.len() as f64;
        let is_ungated = self.programs[program.0].calls.is_ungated();
        let runs = turn.outputs.into_iter().map(|outputs| UnseenRun {
            outputs: Outputs::Host(in_shape(outputs, read.specs)),
            elapsed_ns,
            has_room: true,
            is_ungated,
        });
        Ok(runs.collect())
    }

    fn library_use(
        &mut self,
        program: Prepared,
        inputs: &Tensors,
    ) -> Result<Option<LibraryUse>, DeviceError> {
        match self.place {
            Place::Cpu { .. } => Ok(None),
            Place::Cuda { .. } => self.programs[program.0].library_use(inputs, self.limit),
        }
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
            peak_reserved_bytes: processors::peak_resident_of(held.calls.process()),
        })
    }
}

/// Tensors in the shapes of their specifications: those of kernels have one dimension.
fn in_shape(mut tensors: Tensors, specs: &[TensorSpec]) -> Tensors {
    for spec in specs {
        if let Some(held) = tensors.get_mut(&spec.name)
            && held.shape() != spec.shape
        {
            *held = Tensor::new(spec.shape.clone(), held.data().clone());
        }
    }
    tensors
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
