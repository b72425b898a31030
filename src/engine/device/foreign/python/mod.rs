//! Functions in Python, in an interpreter that stays: the worker's side of it.
//!
//! [`process`] is the process, `child/*.py` its program. It imports the user's source, gets
//! the problem's inputs once, and times calls as the device here times kernels. A function that
//! ends the process, or never returns, costs its own point: another interpreter is started, and
//! gets the programs that are still measured when they are next asked for.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Foreign, Runner, Tensors};

use super::ForeignRunner;
use crate::device::cpu::flush::Flush;
use crate::device::cpu::identity as processors;
use crate::device::outputs::{Outputs, Reading};
use crate::device::{
    DeviceError, DeviceMemory, Job, Preparation, Prepared, RunsPrograms, Sample, UnseenRun,
};
use sweeper_manifest::python_files::PythonFile;
use sweeper_model::identity::CacheState;
use sweeper_model::row::outcome::{LibraryUse, Status};

pub(super) mod caches;
pub(super) mod interpreters;
pub(super) mod process;
pub mod identity;
mod page;
pub mod reference;
pub(super) mod shared_file;

use interpreters::Interpreter;
use shared_file::SharedFile;

/// The kernel that reads a GPU's cache clean.
const READ_PTX: &str = include_str!("../../cuda/read.ptx");

/// Where functions run, and how their time is taken.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// On these processors of the host.
    Cpu {
        /// Numbers of processors, one for each thread.
        processors: Vec<usize>,
        /// Bytes that each thread writes to flush its caches.
        flush_bytes: usize,
        /// The GPU that references run on where it has room, as `CUDA_VISIBLE_DEVICES` names it.
        gpu: Option<String>,
    },
    /// On a GPU.
    Cuda {
        /// The device, as `CUDA_VISIBLE_DEVICES` names it.
        unit: String,
        /// Its number here.
        ordinal: u32,
    },
}

impl Place {
    /// The processors that so many threads of the host are pinned to.
    pub fn of_cpu(threads: usize, cache: CacheState) -> Self {
        // The last ones, as threads of the device are.
        let processors = processors::allowed_cpus().into_iter().rev().take(threads);
        Place::Cpu {
            processors: processors.collect(),
            flush_bytes: Flush::of_host(cache).map_or(0, |flush| flush.bytes()),
            gpu: None,
        }
    }
}

/// Hot samples of functions on a CPU last so long at least: the first call after a request costs up
/// to 20 microseconds more than those that follow.
const LEAST_HOT_NS: f64 = 500e3;

/// Runs functions in Python.
pub struct Python {
    place: Place,
    cache: CacheState,
    /// How long a request may take.
    limit: Duration,
    /// The kernel cache's folder, below which libraries keep the code that they compile.
    cache_dir: Option<PathBuf>,
    /// Interpreters: one of all programs, and those of programs that have one to themselves.
    interpreters: BTreeMap<Option<Prepared>, Interpreter>,
    /// Interpreters that were started so far.
    started: u64,
    /// The inputs of the problem, once a program needed them.
    inputs: Option<SharedFile>,
    programs: Vec<State>,
    /// The program that ran since inputs were last compared with the given ones.
    last: Option<Prepared>,
}

/// A program.
struct State {
    /// The request that describes it to the interpreter.
    request: Value,
    exe: String,
    /// The number of the interpreter that has it.
    interpreter: u64,
    /// It has an interpreter to itself: it changed one for others, or failed in that of all.
    is_alone: bool,
    /// The times of its first preparation, and what autotuners chose in all calls.
    preparation: Option<Preparation>,
    /// The file that it writes its outputs into.
    outputs: SharedFile,
    /// Its launches are one CUDA graph.
    as_graph: bool,
    /// How often it was called in samples, and the most calls of one sample.
    calls: u64,
    most_calls: u32,
}

/// The judgement of outputs by a function.
#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    /// It says whether they are right.
    Stated {
        /// Whether they are.
        is_right: bool,
        /// Why not, if it says so.
        reason: String,
    },
    /// It says how far they are from what is right.
    Distance {
        /// The distance.
        value: f64,
        /// The greatest that is right.
        bound: f64,
    },
}

impl Python {
    /// A runner whose interpreter is started when it is first needed.
    pub fn new(
        place: Place,
        cache: CacheState,
        limit: Duration,
        cache_dir: Option<PathBuf>,
    ) -> Self {
        Python {
            place,
            cache,
            limit,
            cache_dir,
            interpreters: BTreeMap::new(),
            started: 0,
            inputs: None,
            programs: Vec::new(),
            last: None,
        }
    }

    /// Lets each request from now on take so long.
    pub fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
    }

    /// Calls a function that judges outputs: `given` has tensors called `inputs/NAME`,
    /// `outputs/NAME`, and `expected/NAME` where right ones are known.
    ///
    /// # Errors
    /// A function that fails, takes too long, or returns no judgement.
    pub fn judge(
        &mut self,
        function: &Foreign,
        given: &Tensors,
        knows_expected: bool,
    ) -> Result<Judgement, DeviceError> {
        let mut request: Value = serde_json::from_str(&function.request)
            .map_err(|error| DeviceError::Launch(error.to_string()))?;
        let shared = SharedFile::of_tensors("sweeper-judged", given).map_err(of_system)?;
        let exe = interpreter_of(&request);
        self.open(&exe, None)?;
        request["do"] = json!("judge");
        request["file"] = json!(shared.path());
        request["knows_expected"] = json!(knows_expected);
        let answer = self.ask(None, &request)?;
        let judgement = match (request["bound"].as_f64(), answer["is_right"].as_bool()) {
            (Some(bound), _) => answer["value"].as_str().and_then(|value| {
                let value = value.parse().ok()?;
                Some(Judgement::Distance { value, bound })
            }),
            (None, is_right) => is_right.map(|is_right| Judgement::Stated {
                is_right,
                reason: answer["reason"].as_str().unwrap_or_default().to_owned(),
            }),
        };
        judgement.ok_or_else(|| DeviceError::Foreign {
            status: Status::Error,
            reason: format!("no judgement: {answer}"),
        })
    }

    /// Calls a function that makes a problem's inputs.
    ///
    /// # Errors
    /// A function that fails, takes too long, or returns other tensors than the problem has.
    pub fn generate(&mut self, function: &Foreign) -> Result<Tensors, DeviceError> {
        let mut request: Value = serde_json::from_str(&function.request)
            .map_err(|error| DeviceError::Launch(error.to_string()))?;
        let shared = SharedFile::new("sweeper-made").map_err(of_system)?;
        let exe = interpreter_of(&request);
        self.open(&exe, None)?;
        request["do"] = json!("generate");
        request["file"] = json!(shared.path());
        self.ask(None, &request)?;
        shared.tensors().map_err(of_system)
    }

    /// The tensors of a problem of KernelBench whose source is `files`, the main one first, in
    /// `folder`. Nothing is computed.
    ///
    /// # Errors
    /// A file that fails, or whose shapes can't be found: why.
    pub fn examine(
        &mut self,
        exe: &str,
        files: &[PythonFile],
        folder: &str,
    ) -> Result<Value, DeviceError> {
        self.open(exe, None)?;
        let texts = files.iter().map(|file| {
            let path = format!("{folder}/{}", file.name);
            json!({ "module": file.module, "path": path, "text": file.text })
        });
        let source = json!({ "files": texts.collect::<Vec<_>>(), "load": "all" });
        let what = files.first().map_or("", |file| &file.name);
        self.ask(
            None,
            &json!({ "do": "examine", "source": source, "path": [], "what": what }),
        )
    }
}

impl Python {
    /// What a request that reads a program's outputs has.
    fn read_request(&self, program: Prepared, read: Reading<'_>) -> Value {
        let may_stay = read.may_stay && matches!(self.place, Place::Cuda { .. });
        json!({ "results": self.programs[program.0].outputs.path(), "may_stay": may_stay })
    }

    /// The outputs that such a request yields.
    fn outputs_of(&self, program: Prepared, answer: &Value) -> Result<Outputs, DeviceError> {
        if let Ok(tensors) = serde_json::from_value(answer["on_gpu"].clone()) {
            return Ok(Outputs::Gpu(tensors));
        }
        let file = &self.programs[program.0].outputs;
        file.tensors().map(Outputs::Host).map_err(of_system)
    }
}

impl ForeignRunner for Python {
    fn forget(&mut self) {
        self.programs.clear();
        self.last = None;
        self.inputs = None;
        self.interpreters.retain(|owner, _| owner.is_none());
        if self.interpreters.values().any(|held| held.is_bound) {
            // One that fails is not there any more.
            let _ = self.ask(None, &json!({ "do": "unbind" }));
        }
        for interpreter in self.interpreters.values_mut() {
            interpreter.is_bound = false;
            interpreter.had_others |= !interpreter.programs.is_empty();
            interpreter.programs.clear();
        }
    }

    fn load(&mut self, foreign: &Foreign) {
        // What fails does so again when the program is prepared.
        let _ = self.load_library(foreign);
    }

    fn prepare(&mut self, job: Job<'_>, inputs: &Tensors) -> Result<Prepared, DeviceError> {
        let foreign = job.program.foreign();
        let request = foreign.map_or("", |foreign| &foreign.request);
        let request: Value = serde_json::from_str(request)
            .map_err(|error| DeviceError::Launch(error.to_string()))?;
        if self.inputs.is_none() {
            let shared = SharedFile::of_tensors("sweeper-inputs", inputs);
            self.inputs = Some(shared.map_err(of_system)?);
        }
        let exe = interpreter_of(&request);
        self.programs.push(State {
            request,
            exe,
            interpreter: 0,
            is_alone: false,
            preparation: None,
            outputs: SharedFile::new("sweeper-outputs").map_err(of_system)?,
            as_graph: false,
            calls: 0,
            most_calls: 1,
        });
        let prepared = Prepared(self.programs.len() - 1, Some(Runner::Python));
        // It is got ready for it.
        self.ask_about(prepared, "ready", json!({}))?;
        Ok(prepared)
    }
}

impl RunsPrograms for Python {
    fn preparation(&self, program: Prepared) -> Option<Preparation> {
        self.programs[program.0].preparation.clone()
    }

    fn launch_as_graph(&mut self, program: Prepared) {
        self.programs[program.0].as_graph = matches!(self.place, Place::Cuda { .. });
    }

    fn poison(&mut self, program: Prepared) -> Result<(), DeviceError> {
        self.ask_about(program, "poison", json!({})).map(drop)
    }

    fn least_sample_ns(&self, _program: Prepared) -> f64 {
        match (&self.place, self.cache) {
            (Place::Cpu { .. }, CacheState::Hot) => LEAST_HOT_NS,
            // Each call is by itself, or on a GPU, which does not sleep.
            _ => 0.0,
        }
    }

    fn sample(&mut self, program: Prepared, iterations: u32) -> Result<Sample, DeviceError> {
        self.last = Some(program);
        let request = json!({ "iterations": iterations });
        let answer = self.ask_about(program, "sample", request)?;
        let state = &mut self.programs[program.0];
        state.calls += u64::from(iterations);
        state.most_calls = state.most_calls.max(iterations);
        let elapsed_ns = answer["elapsed_ns"].as_f64().unwrap_or(f64::NAN);
        Ok(Sample {
            is_ungated: answer["ungated"].as_bool().unwrap_or(false),
            waited_ns: answer["waited_ns"].as_f64(),
            ..Sample::new(elapsed_ns, iterations)
        })
    }

    fn results(&mut self, program: Prepared, specs: &[TensorSpec]) -> Result<Tensors, DeviceError> {
        let may_stay = false;
        match self.outputs(program, Reading { specs, may_stay })? {
            Outputs::Host(outputs) => Ok(outputs),
            Outputs::Gpu(_) => Err(of_system(io::Error::other("outputs stayed on the GPU"))),
        }
    }

    fn outputs(&mut self, program: Prepared, read: Reading<'_>) -> Result<Outputs, DeviceError> {
        let request = self.read_request(program, read);
        let answer = self.ask_about(program, "results", request)?;
        self.outputs_of(program, &answer)
    }

    fn fingerprint(&mut self, program: Prepared) -> Result<Option<String>, DeviceError> {
        if !matches!(self.place, Place::Cuda { .. }) {
            return Ok(None);
        }
        let answer = self.ask_about(program, "fingerprint", json!({}))?;
        Ok(answer["sums"].as_str().map(str::to_owned))
    }

    fn restore_inputs(&mut self, _given: &Tensors) -> Result<Vec<String>, DeviceError> {
        let Some(program) = self.last.take() else {
            return Ok(Vec::new());
        };
        let answer = self.ask_about(program, "changed", json!({}))?;
        Ok(serde_json::from_value(answer["changed"].clone()).unwrap_or_default())
    }

    fn run_unseen(
        &mut self,
        program: Prepared,
        inputs: &Tensors,
        read: Reading<'_>,
    ) -> Result<Option<UnseenRun>, DeviceError> {
        let other = SharedFile::of_tensors("sweeper-unseen", inputs).map_err(of_system)?;
        let mut request = self.read_request(program, read);
        request["iterations"] = json!(1);
        request["unseen"] = json!(other.path());
        let answer = self.ask_about(program, "sample", request)?;
        Ok(Some(UnseenRun {
            outputs: self.outputs_of(program, &answer)?,
            elapsed_ns: answer["elapsed_ns"].as_f64().unwrap_or(f64::NAN),
            has_room: answer["has_room"].as_bool().unwrap_or(false),
            is_ungated: answer["ungated"].as_bool().unwrap_or(false),
        }))
    }

    fn run_known(&mut self, program: Prepared, _given: &Tensors) -> Result<f64, DeviceError> {
        let request = json!({ "iterations": 1, "known": true });
        let answer = self.ask_about(program, "sample", request)?;
        Ok(answer["elapsed_ns"].as_f64().unwrap_or(f64::NAN))
    }

    fn library_use(
        &mut self,
        program: Prepared,
        inputs: &Tensors,
    ) -> Result<Option<LibraryUse>, DeviceError> {
        if !matches!(self.place, Place::Cuda { .. }) {
            return Ok(None);
        }
        let unseen = SharedFile::of_tensors("sweeper-unseen", inputs).map_err(of_system)?;
        let request = json!({ "unseen": unseen.path() });
        let answer = self.ask_apart(program, "library_use", request)?;
        Ok(told_use(&answer))
    }

    fn refuse_late_work(&mut self, program: Prepared) -> Result<(), DeviceError> {
        self.ask_about(program, "late_work", json!({})).map(drop)
    }

    fn start_anew(&mut self, program: Prepared) -> Result<bool, DeviceError> {
        // Times on a GPU do not depend on a process's memory: there is nothing to find out.
        if matches!(self.place, Place::Cuda { .. }) {
            return Ok(false);
        }
        let owner = self.owner(program);
        self.interpreters.remove(&owner);
        let state = &mut self.programs[program.0];
        let most_calls = u64::from(state.most_calls);
        let mut left = std::mem::take(&mut state.calls);
        // The rest of the time that the point has is for its audit.
        let (start, most) = (Instant::now(), self.limit / 3);
        while left > 0 && start.elapsed() < most {
            let calls = left.min(most_calls);
            left -= calls;
            self.sample(program, calls as u32)?;
        }
        Ok(true)
    }

    fn memory(&mut self, program: Prepared) -> Result<DeviceMemory, DeviceError> {
        let answer = self.ask_about(program, "memory", json!({}))?;
        let bytes = |name: &str| answer[name].as_u64().unwrap_or(0);
        Ok(DeviceMemory {
            peak_allocated_bytes: bytes("allocated"),
            peak_reserved_bytes: bytes("reserved"),
        })
    }
}

/// The longest name of a kernel, and the most of them, that an interpreter is believed to tell.
const MOST_KERNEL_NAME: usize = 200;
const MOST_KERNELS: usize = 3;

/// The use of libraries that an interpreter has told, which may be that of a function that nobody
/// trusts.
pub(super) fn told_use(answer: &Value) -> Option<LibraryUse> {
    let names = answer["kernels"].as_array()?.iter().take(MOST_KERNELS);
    let short = |name: &Value| Some(name.as_str()?.chars().take(MOST_KERNEL_NAME).collect());
    Some(LibraryUse {
        share: answer["share"].as_f64()?.clamp(0.0, 1.0),
        kernels: names.filter_map(short).collect(),
    })
}

/// The interpreter that a request names.
pub fn interpreter_of(request: &Value) -> String {
    request["exe"].as_str().unwrap_or("python3").to_owned()
}

fn of_system(error: std::io::Error) -> DeviceError {
    DeviceError::Foreign {
        status: Status::Error,
        reason: format!("sharing memory with an interpreter: {error}"),
    }
}
