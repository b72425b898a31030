//! The interpreters of functions: one of all, and those of functions that have one to themselves,
//! because they changed it for others or failed where others ran.

use std::collections::BTreeSet;
use std::env;
use std::time::Duration;

use serde_json::{Value, json};

use super::page::Page;
use super::process::{Child, Failure};
use super::{Place, Python, READ_PTX, caches, of_system, reference};
use crate::device::busy;
use crate::device::{DeviceError, Preparation, Prepared};
use sweeper_model::row::outcome::Status;

/// A process that was told where functions run.
pub(super) struct Interpreter {
    child: Child,
    exe: String,
    /// Its number, from 1 on.
    number: u64,
    /// It has the inputs of the problem.
    pub(super) is_bound: bool,
    /// Programs of this problem that it has, and whether it had some of others.
    pub(super) programs: BTreeSet<Prepared>,
    pub(super) had_others: bool,
    /// Watched as long as the process lives.
    _page: Option<Page>,
}

/// How many kernels PyTorch's compiler compiles at once. With more than one it starts a pool of
/// processes, which take processors from programs that are measured for seconds after the first
/// call of a function, and compile for it or not as they are ready by then.
pub(in crate::device::foreign) const COMPILE_THREADS: &str = "TORCHINDUCTOR_COMPILE_THREADS";

impl Python {
    /// The interpreter of a program, or of all, that was told where functions run.
    pub(super) fn open(&mut self, exe: &str, owner: Option<Prepared>) -> Result<(), DeviceError> {
        let held = self.interpreters.get(&owner);
        if held.is_some_and(|held| held.exe == exe) {
            return Ok(());
        }
        self.interpreters.remove(&owner);
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
                let variables = variables_of_cpu(processors.len(), gpu.as_deref());
                (request, variables, None)
            }
            Place::Cuda { unit, .. } => {
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
        if env::var_os(COMPILE_THREADS).is_none() {
            variables.push((COMPILE_THREADS.to_owned(), "1".to_owned()));
        }
        request["do"] = json!("open");
        request["cache"] = json!(self.cache.word());
        let mut child = Child::start(exe, &variables).map_err(failed)?;
        let limit = self.limit.max(reference::LOADING_LIMIT);
        child.ask(&request, limit).map_err(failed)?;
        let interpreter = Interpreter {
            child,
            exe: exe.to_owned(),
            number: self.started,
            is_bound: false,
            programs: BTreeSet::new(),
            had_others: false,
            _page: page,
        };
        self.interpreters.insert(owner, interpreter);
        Ok(())
    }

    /// Asks an open interpreter. One that a program has to itself is suspended between its turns,
    /// with all that it has left at work.
    pub(super) fn ask(
        &mut self,
        owner: Option<Prepared>,
        request: &Value,
    ) -> Result<Value, DeviceError> {
        self.ask_within(owner, request, self.limit)
    }

    pub(super) fn ask_within(
        &mut self,
        owner: Option<Prepared>,
        request: &Value,
        limit: Duration,
    ) -> Result<Value, DeviceError> {
        let Some(interpreter) = self.interpreters.get_mut(&owner) else {
            return Err(DeviceError::Foreign {
                status: Status::Error,
                reason: "its interpreter ended in a request before this one".to_owned(),
            });
        };
        interpreter.child.resume();
        let answer = interpreter.child.ask(request, limit);
        if owner.is_some() {
            interpreter.child.suspend();
        }
        if answer.as_ref().is_err_and(|failure| failure.is_lost) {
            self.interpreters.remove(&owner);
        }
        answer.map_err(failed)
    }

    /// Whose interpreter a program is in.
    pub(super) fn owner(&self, program: Prepared) -> Option<Prepared> {
        self.programs[program.0].is_alone.then_some(program)
    }

    /// Asks about a program, which the interpreter gets first if it is another than it was. One
    /// that fails where others ran before it is tried once more in an interpreter of its own: it
    /// may be they that changed theirs.
    pub(super) fn ask_about(
        &mut self,
        program: Prepared,
        verb: &str,
        more: Value,
    ) -> Result<Value, DeviceError> {
        let interpreter = self.interpreters.get(&self.owner(program));
        let has_company = interpreter.is_some_and(|held| held.has_company(program));
        let answer = self.ask_once(program, verb, &more);
        let Err(DeviceError::Foreign { status, .. }) = &answer else {
            return answer;
        };
        let may_be_of_others = matches!(status, Status::Error | Status::Crashed | Status::Oom);
        if !has_company || !may_be_of_others || self.programs[program.0].is_alone {
            return answer;
        }
        self.programs[program.0].is_alone = true;
        if verb == "results" {
            self.ask_once(program, "sample", &json!({ "iterations": 1 }))?;
        }
        let again = self.ask_once(program, verb, &more);
        if again.is_err() {
            self.interpreters.remove(&Some(program));
        }
        again
    }

    /// Asks about a program in an interpreter that is started for this request alone.
    pub(super) fn ask_apart(
        &mut self,
        program: Prepared,
        verb: &str,
        more: Value,
    ) -> Result<Value, DeviceError> {
        let own = self.interpreters.remove(&Some(program));
        let state = &mut self.programs[program.0];
        let before = (state.is_alone, state.as_graph, state.interpreter);
        (state.is_alone, state.as_graph) = (true, false);
        let answer = self.ask_once(program, verb, &more);
        self.interpreters.remove(&Some(program));
        self.interpreters
            .extend(own.map(|own| (Some(program), own)));
        let state = &mut self.programs[program.0];
        (state.is_alone, state.as_graph, state.interpreter) = before;
        answer
    }

    fn ask_once(
        &mut self,
        program: Prepared,
        verb: &str,
        more: &Value,
    ) -> Result<Value, DeviceError> {
        self.get_ready(program)?;
        let mut request = more.clone();
        request["do"] = json!(verb);
        request["id"] = json!(program.0);
        request["as_graph"] = json!(self.programs[program.0].as_graph);
        let owner = self.owner(program);
        let answer = self.ask(owner, &request)?;
        self.note(program, &answer);
        Ok(answer)
    }

    /// Keeps what an answer says of autotuners' choices, and of what the program changed in its
    /// process. Where some of that is left, the interpreter is its own from now on, and others get
    /// a new one.
    fn note(&mut self, program: Prepared, answer: &Value) {
        let state = &mut self.programs[program.0];
        if let Some(preparation) = &mut state.preparation {
            // Another interpreter may choose others, and has a part of the samples then.
            preparation.autotuned.extend(texts(&answer["autotuned"]));
            preparation
                .changed
                .extend(texts(&answer["process_changes"]));
        }
        if answer["is_left"].as_bool().unwrap_or(false) {
            self.keep_to_itself(program);
        }
    }

    fn keep_to_itself(&mut self, program: Prepared) {
        if std::mem::replace(&mut self.programs[program.0].is_alone, true) {
            return;
        }
        if let Some(mut interpreter) = self.interpreters.remove(&None) {
            interpreter.child.suspend();
            self.interpreters.insert(Some(program), interpreter);
        }
    }

    /// Lets the interpreter of a program have it, if it does not have it yet.
    fn get_ready(&mut self, program: Prepared) -> Result<(), DeviceError> {
        let (exe, owner) = (self.programs[program.0].exe.clone(), self.owner(program));
        self.open(&exe, owner)?;
        let number = self.interpreters.get(&owner).map_or(0, |held| held.number);
        if self.programs[program.0].interpreter == number {
            return Ok(());
        }
        let is_bound = self
            .interpreters
            .get(&owner)
            .is_some_and(|held| held.is_bound);
        if let (false, Some(inputs)) = (is_bound, &self.inputs) {
            let request = json!({ "do": "bind", "file": inputs.path() });
            self.ask(owner, &request)?;
        }
        if let Some(interpreter) = self.interpreters.get_mut(&owner) {
            interpreter.is_bound = true;
            interpreter.programs.insert(program);
        }
        let mut request = self.programs[program.0].request.clone();
        request["do"] = json!("prepare");
        request["id"] = json!(program.0);
        let answer = self.ask(owner, &request)?;
        let state = &mut self.programs[program.0];
        state.interpreter = number;
        state.preparation = state.preparation.take().or_else(|| {
            Some(Preparation {
                import_ns: answer["import_ns"].as_u64()?,
                first_call_ns: Some(answer["first_ns"].as_u64()?),
                unlisted: texts(&answer["unlisted"]).collect(),
                ..Preparation::default()
            })
        });
        self.note(program, &answer);
        self.look_for_busy(program);
        Ok(())
    }

    /// Gives a program that left threads or processes at work an interpreter of its own.
    fn look_for_busy(&mut self, program: Prepared) {
        let owner = self.owner(program);
        let Some(interpreter) = self.interpreters.get_mut(&owner) else {
            return;
        };
        let group = interpreter.child.id();
        interpreter.child.resume();
        let is_busy = busy::is_at_work(|| busy::runnable_of_group(group));
        if owner.is_some() {
            interpreter.child.suspend();
        }
        if is_busy {
            if let Some(preparation) = &mut self.programs[program.0].preparation {
                preparation.changed.insert(busy::WORDS.to_owned());
            }
            self.keep_to_itself(program);
        }
    }
}

impl Interpreter {
    /// Whether functions other than a program's ran in it.
    fn has_company(&self, program: Prepared) -> bool {
        self.had_others || self.programs.iter().any(|other| *other != program)
    }
}

/// The texts of a list.
fn texts(list: &Value) -> impl Iterator<Item = String> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned))
}

/// Variables of an interpreter whose functions have so many threads.
pub(in crate::device::foreign) fn variables_of_cpu(
    threads: usize,
    gpu: Option<&str>,
) -> Vec<(String, String)> {
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
pub(in crate::device::foreign) fn variables_of_gpu(unit: &str) -> Vec<(String, String)> {
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

impl From<Failure> for DeviceError {
    fn from(failure: Failure) -> Self {
        if failure.is_from_outside {
            return DeviceError::Interrupted(failure.reason);
        }
        DeviceError::Foreign {
            status: failure.status,
            reason: failure.reason,
        }
    }
}

pub(in crate::device::foreign) fn failed(failure: Failure) -> DeviceError {
    failure.into()
}
