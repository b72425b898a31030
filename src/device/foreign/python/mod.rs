//! Functions in Python, in an interpreter that stays: the worker's side of it.
//!
//! [`process`] is the process, `child/*.py` its program. It imports the user's source, gets
//! the problem's inputs once, and times calls as the device here times kernels. A function that
//! ends the process, or never returns, costs its own point: another interpreter is started, and
//! gets the programs that are still measured when they are next asked for.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Foreign, Program, Tensors};

use super::ForeignRunner;
use crate::declared::python::declaration::PythonFile;
use crate::device::cpu::flush::Flush;
use crate::device::cpu::identity as processors;
use crate::device::{
    DeviceError, DeviceMemory, Preparation, Prepared, RunsPrograms, Sample, Unseen,
};
use crate::identity::CacheState;
use crate::row::outcome::Status;

mod caches;
mod process;
pub mod identity;
mod page;
pub mod reference;
mod shared_file;

use page::Page;
use process::{Child, Failure};
use shared_file::SharedFile;

/// The kernel that reads a GPU's cache clean.
const READ_PTX: &str = include_str!("../../cuda/read.ptx");

/// Where functions run, and how their time is taken.
#[derive(Clone, Debug)]
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

/// Runs functions in Python.
pub struct Python {
    place: Place,
    cache: CacheState,
    /// How long a request may take.
    limit: Duration,
    /// The kernel cache's folder, below which libraries keep the code that they compile.
    cache_dir: Option<PathBuf>,
    interpreter: Option<Interpreter>,
    /// Interpreters that were started so far.
    started: u64,
    /// The inputs of the problem, once a program needed them.
    inputs: Option<SharedFile>,
    programs: Vec<State>,
    /// The program that ran since inputs were last compared with the given ones.
    last: Option<Prepared>,
}

/// A process that was told where functions run.
struct Interpreter {
    child: Child,
    exe: String,
    /// It has the inputs of the problem.
    is_bound: bool,
    /// Watched as long as the process lives.
    _page: Option<Page>,
}

/// A program.
struct State {
    /// The request that describes it to the interpreter.
    request: Value,
    exe: String,
    /// The number of the interpreter that has it.
    interpreter: u64,
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
            interpreter: None,
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

    /// An interpreter that was told where functions run.
    fn open(&mut self, exe: &str) -> Result<(), DeviceError> {
        if self
            .interpreter
            .as_ref()
            .is_some_and(|held| held.exe == exe)
        {
            return Ok(());
        }
        self.interpreter = None;
        self.started += 1;
        let (mut request, mut variables, page) = match &self.place {
            Place::Cpu {
                processors,
                flush_bytes,
                gpu,
            } => {
                let memory_bytes = crate::device::memory::available_bytes() / 10 * 9;
                let request = json!({
                    "device": "cpu",
                    "processors": processors,
                    "flush_bytes": flush_bytes,
                    // A GPU's driver reserves addresses for far more than there is.
                    "memory_bytes": gpu.is_none().then_some(memory_bytes),
                    "gpu": gpu.is_some(),
                });
                (
                    request,
                    variables_of_cpu(processors.len(), gpu.as_deref()),
                    None,
                )
            }
            Place::Cuda { unit } => {
                let page = Page::new().map_err(of_system)?;
                let request = json!({
                    "device": "cuda",
                    "page": page.path(),
                    "read_ptx": READ_PTX,
                });
                (request, variables_of_gpu(unit), Some(page))
            }
        };
        if let Some(cache) = &self.cache_dir {
            let device = request["device"].as_str().unwrap_or_default();
            variables.extend(caches::variables(cache, exe, device));
        }
        request["do"] = json!("open");
        request["cache"] = json!(self.cache.word());
        let mut child = Child::start(exe, &variables).map_err(failed)?;
        let limit = self.limit.max(reference::LOADING_LIMIT);
        child.ask(&request, limit).map_err(failed)?;
        self.interpreter = Some(Interpreter {
            child,
            exe: exe.to_owned(),
            is_bound: false,
            _page: page,
        });
        Ok(())
    }

    /// Asks the open interpreter.
    fn ask(&mut self, request: &Value) -> Result<Value, DeviceError> {
        self.ask_within(request, self.limit)
    }

    fn ask_within(&mut self, request: &Value, limit: Duration) -> Result<Value, DeviceError> {
        let Some(interpreter) = &mut self.interpreter else {
            return Err(DeviceError::Foreign {
                status: Status::Error,
                reason: "there is no interpreter".to_owned(),
            });
        };
        let answer = interpreter.child.ask(request, limit);
        if answer.as_ref().is_err_and(|failure| failure.is_lost) {
            self.interpreter = None;
        }
        answer.map_err(failed)
    }

    /// Asks about a program, which the interpreter gets first if it is another than it was.
    fn ask_about(
        &mut self,
        program: Prepared,
        verb: &str,
        mut more: Value,
    ) -> Result<Value, DeviceError> {
        self.get_ready(program)?;
        more["do"] = json!(verb);
        more["id"] = json!(program.0);
        more["as_graph"] = json!(self.programs[program.0].as_graph);
        self.ask(&more)
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
        self.open(&exe)?;
        request["do"] = json!("judge");
        request["file"] = json!(shared.path());
        request["knows_expected"] = json!(knows_expected);
        let answer = self.ask(&request)?;
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
        self.open(&exe)?;
        request["do"] = json!("generate");
        request["file"] = json!(shared.path());
        self.ask(&request)?;
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
        self.open(exe)?;
        let texts = files.iter().map(|file| {
            let path = format!("{folder}/{}", file.name);
            json!({ "module": file.module, "path": path, "text": file.text })
        });
        let source = json!({ "files": texts.collect::<Vec<_>>(), "load": "all" });
        let what = files.first().map_or("", |file| &file.name);
        self.ask(&json!({ "do": "examine", "source": source, "path": [], "what": what }))
    }

    /// Lets the open interpreter have a program, if it does not have it yet.
    fn get_ready(&mut self, program: Prepared) -> Result<(), DeviceError> {
        let exe = self.programs[program.0].exe.clone();
        self.open(&exe)?;
        if self.programs[program.0].interpreter == self.started {
            return Ok(());
        }
        let is_bound = self.interpreter.as_ref().is_some_and(|held| held.is_bound);
        if let (false, Some(inputs)) = (is_bound, &self.inputs) {
            let request = json!({ "do": "bind", "file": inputs.path() });
            self.ask(&request)?;
            if let Some(interpreter) = &mut self.interpreter {
                interpreter.is_bound = true;
            }
        }
        let mut request = self.programs[program.0].request.clone();
        request["do"] = json!("prepare");
        request["id"] = json!(program.0);
        let answer = self.ask(&request)?;
        let state = &mut self.programs[program.0];
        state.interpreter = self.started;
        state.preparation = state.preparation.take().or_else(|| {
            Some(Preparation {
                import_ns: answer["import_ns"].as_u64()?,
                first_call_ns: Some(answer["first_ns"].as_u64()?),
                unlisted: texts(&answer["unlisted"]).collect(),
                autotuned: BTreeSet::new(),
            })
        });
        state.note_choices(&answer);
        Ok(())
    }
}

impl State {
    /// Keeps what an answer says of configurations that autotuners chose. Another interpreter may
    /// choose others, and has a part of the samples then.
    fn note_choices(&mut self, answer: &Value) {
        if let Some(preparation) = &mut self.preparation {
            preparation.autotuned.extend(texts(&answer["autotuned"]));
        }
    }
}

/// The texts of a list.
fn texts(list: &Value) -> impl Iterator<Item = String> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned))
}

impl ForeignRunner for Python {
    fn forget(&mut self) {
        self.programs.clear();
        self.last = None;
        self.inputs = None;
        if let Some(interpreter) = &mut self.interpreter {
            interpreter.is_bound = false;
        }
    }

    fn prepare(
        &mut self,
        _program: &Program,
        foreign: &Foreign,
        inputs: &Tensors,
    ) -> Result<Prepared, DeviceError> {
        let request: Value = serde_json::from_str(&foreign.request)
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
            preparation: None,
            outputs: SharedFile::new("sweeper-outputs").map_err(of_system)?,
            as_graph: false,
            calls: 0,
            most_calls: 1,
        });
        let prepared = Prepared(self.programs.len() - 1);
        self.get_ready(prepared)?;
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

    fn sample(&mut self, program: Prepared, iterations: u32) -> Result<Sample, DeviceError> {
        self.last = Some(program);
        let request = json!({ "iterations": iterations });
        let answer = self.ask_about(program, "sample", request)?;
        let state = &mut self.programs[program.0];
        state.note_choices(&answer);
        state.calls += u64::from(iterations);
        state.most_calls = state.most_calls.max(iterations);
        let elapsed_ns = answer["elapsed_ns"].as_f64().unwrap_or(f64::NAN);
        Ok(Sample {
            is_ungated: answer["ungated"].as_bool().unwrap_or(false),
            ..Sample::new(elapsed_ns, iterations)
        })
    }

    fn results(
        &mut self,
        program: Prepared,
        _specs: &[TensorSpec],
    ) -> Result<Tensors, DeviceError> {
        let path = self.programs[program.0].outputs.path();
        self.ask_about(program, "results", json!({ "file": path }))?;
        self.programs[program.0]
            .outputs
            .tensors()
            .map_err(of_system)
    }

    fn restore_inputs(&mut self, _given: &Tensors) -> Result<Vec<String>, DeviceError> {
        let Some(program) = self.last.take() else {
            return Ok(Vec::new());
        };
        let answer = self.ask_about(program, "changed", json!({}))?;
        Ok(serde_json::from_value(answer["changed"].clone()).unwrap_or_default())
    }

    fn audit(
        &mut self,
        program: Prepared,
        (inputs, timed): (&Tensors, Option<&Tensors>),
        slowest_ns: f64,
    ) -> Result<Option<Unseen>, DeviceError> {
        self.ask_about(program, "late_work", json!({}))?;
        let timed = timed.map(|inputs| SharedFile::of_tensors("sweeper-timed", inputs));
        let timed = timed.transpose().map_err(of_system)?;
        let other = SharedFile::of_tensors("sweeper-unseen", inputs).map_err(of_system)?;
        let outputs = &self.programs[program.0].outputs;
        let request = json!({
            "file": other.path(),
            "timed": timed.as_ref().map(SharedFile::path),
            "results": outputs.path(),
            "slowest_ns": slowest_ns,
        });
        let answer = self.ask_about(program, "audit", request)?;
        let outputs = &self.programs[program.0].outputs;
        Ok(Some(Unseen {
            outputs: outputs.tensors().map_err(of_system)?,
            is_as_fast: answer["is_as_fast"].as_bool().unwrap_or(false),
            least_ns: answer["least_ns"].as_f64().unwrap_or(f64::NAN),
            usual_ns: answer["usual_ns"].as_f64().unwrap_or(f64::NAN),
        }))
    }

    fn start_anew(&mut self, program: Prepared) -> Result<bool, DeviceError> {
        // Times on a GPU do not depend on a process's memory: there is nothing to find out.
        if matches!(self.place, Place::Cuda { .. }) {
            return Ok(false);
        }
        self.interpreter = None;
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

/// The interpreter that a request names.
pub fn interpreter_of(request: &Value) -> String {
    request["exe"].as_str().unwrap_or("python3").to_owned()
}

/// Variables of an interpreter whose functions have so many threads.
fn variables_of_cpu(threads: usize, gpu: Option<&str>) -> Vec<(String, String)> {
    let names = ["OMP", "MKL", "OPENBLAS", "NUMEXPR"];
    let threads = names.map(|name| (format!("{name}_NUM_THREADS"), threads.to_string()));
    let gpu = gpu.unwrap_or_default().to_owned();
    let visible = ("CUDA_VISIBLE_DEVICES".to_owned(), gpu);
    // Of large tensors that come and go, pieces of memory are left that none fits into.
    let segments = "expandable_segments:True".to_owned();
    let segments = ("PYTORCH_CUDA_ALLOC_CONF".to_owned(), segments);
    // JAX would start every kind of device that it has a plug-in for.
    let platforms = ("JAX_PLATFORMS".to_owned(), "cpu".to_owned());
    threads
        .into_iter()
        .chain([visible, segments, platforms])
        .collect()
}

/// Variables of an interpreter whose functions run on a GPU.
fn variables_of_gpu(unit: &str) -> Vec<(String, String)> {
    [
        ("CUDA_VISIBLE_DEVICES", unit),
        // Libraries have thousands of kernels, of which few are launched.
        ("CUDA_MODULE_LOADING", "LAZY"),
        // JAX would take three quarters of the memory, and leave other libraries the rest.
        ("XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec()
}

fn failed(failure: Failure) -> DeviceError {
    if failure.is_from_outside {
        return DeviceError::Interrupted(failure.reason);
    }
    DeviceError::Foreign {
        status: failure.status,
        reason: failure.reason,
    }
}

fn of_system(error: std::io::Error) -> DeviceError {
    DeviceError::Foreign {
        status: Status::Error,
        reason: format!("sharing memory with an interpreter: {error}"),
    }
}
