//! The process of one candidate: an interpreter in a sandbox, which shares memory with the referee.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::{env, fs, io};

use serde_json::{Value, json};
use std::os::fd::AsRawFd;

use super::gpu::{ENTRY, PTX};
use super::page::Page;
use super::protocol::Shared;
use crate::device::DeviceError;
use crate::device::foreign::python::caches;
use crate::device::foreign::python::interpreters::{
    COMPILE_THREADS, variables_of_cpu, variables_of_gpu,
};
use crate::device::foreign::python::process::Child;
use crate::device::foreign::python::{Place, interpreter_of};
use crate::device::memory;
use crate::device::process::{die_with_parent, hand_over, keep_on};
use crate::device::sandbox::Sandbox;
use sweeper_model::scratch::Scratch;

/// Variables that a candidate's process inherits: where programs and libraries are, and how text is
/// written. Others may hold what is not for strangers.
const INHERITED: [&str; 10] = [
    "PATH",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PYTHONHOME",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "LANG",
    "LC_ALL",
    "TZ",
    "KMP_DUPLICATE_LIB_OK",
];

/// The verb by which this program serves as the process of kernels: [`serve`](super::process).
const VERB: &str = "candidate";

/// Where files of the user lie in the folder of a process.
const SOURCES: &str = "sources";

/// Prints the folders that an interpreter loads from.
const FOLDERS: &str = "import json, site, sys\n\
    held = [sys.prefix, sys.base_prefix, sys.executable, *sys.path, site.getusersitepackages()]\n\
    print(json.dumps([path for path in held if path]))";

/// What runs in a process.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Guest {
    /// A function in Python.
    Function {
        /// The interpreter.
        exe: String,
        /// Folders of modules.
        modules: Vec<PathBuf>,
        /// The library of its arrays, and the compiler that it needs.
        libraries: Value,
    },
    /// Kernels in C, which this program calls in a process of its own.
    Kernels,
}

/// Where a candidate runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seat {
    pub(super) guest: Guest,
    /// Its processors.
    pub(super) processors: Vec<usize>,
    /// Folders that it must not see, such as that of right answers.
    pub(super) hidden: Vec<PathBuf>,
    /// The referee has no processor of its own.
    pub(super) yields: bool,
    /// The device.
    pub(super) place: Place,
}

/// A process in which nothing of a candidate has run yet.
pub(super) struct Seated {
    pub(super) child: Child,
    /// The words that it shares with the referee, and on a CPU the tensors.
    pub(super) page: Page,
    /// The folder that it may write into; removed after the process.
    pub(super) scratch: Scratch,
}

impl Guest {
    /// A function by its request.
    pub(super) fn function(request: &Value) -> Self {
        let modules = request["path"].as_array().into_iter().flatten();
        let modules = modules.filter_map(|path| path.as_str().map(PathBuf::from));
        Guest::Function {
            exe: interpreter_of(request),
            modules: modules.collect(),
            libraries: json!({
                "do": "load",
                "arrays": request["arrays"],
                "torch_compile": request["torch_compile"],
            }),
        }
    }

    /// The program that runs it, and its first arguments.
    fn program(&self) -> io::Result<(PathBuf, &'static [&'static str])> {
        match self {
            Guest::Function { exe, .. } => Ok((PathBuf::from(exe), &[])),
            Guest::Kernels => Ok((env::current_exe()?, &[VERB])),
        }
    }

    /// What its process reads beside what all programs do.
    fn reads(&self) -> Vec<PathBuf> {
        match self {
            Guest::Function { exe, modules, .. } => {
                modules.iter().cloned().chain(folders_of(exe)).collect()
            }
            Guest::Kernels => env::current_exe().into_iter().collect(),
        }
    }
}

impl Seat {
    /// Starts the process, and lets it load its libraries. Behind the words of its page there is
    /// room for so many bytes.
    ///
    /// # Errors
    /// An interpreter that can't be started, a library that is missing, no sandbox.
    pub(super) fn start(&self, bytes: usize) -> Result<Seated, DeviceError> {
        let scratch = Scratch::new().map_err(unavailable)?;
        let page = Page::new(bytes).map_err(unavailable)?;
        let mut command = self.command(scratch.path()).map_err(unavailable)?;
        die_with_parent(&mut command);
        let file = page.file().try_clone_to_owned().map_err(unavailable)?;
        let descriptor = file.as_raw_fd();
        hand_over(&mut command, file);
        keep_on(&mut command, &self.processors);
        let mut sandbox = Sandbox::new(scratch.path())
            .reading(self.guest.reads())
            .hiding(self.hidden.iter().cloned());
        if matches!(self.place, Place::Cuda { .. }) {
            sandbox = sandbox.with_gpus();
        }
        sandbox.enclose(&mut command).map_err(unavailable)?;
        let mut child = match self.guest {
            Guest::Function { .. } => Child::start_command(command),
            Guest::Kernels => Child::start_program(command, "process"),
        }?;
        let open = json!({
            "do": "open",
            "device": self.device(),
            // It was pinned from outside, and can't change that.
            "processors": [],
            "flush_bytes": 0,
            "memory_bytes": memory::available_bytes() / 10 * 9,
            "gpu": false,
            "cache": "hot",
            "shared": page.description(descriptor, self.yields),
        });
        child.ask(&open, super::LOADING_LIMIT)?;
        if let Guest::Function { libraries, .. } = &self.guest {
            child.ask(libraries, super::LOADING_LIMIT)?;
        }
        Ok(Seated {
            child,
            page,
            scratch,
        })
    }

    fn device(&self) -> &'static str {
        match self.place {
            Place::Cpu { .. } => "cpu",
            Place::Cuda { .. } => "cuda",
        }
    }

    fn command(&self, scratch: &Path) -> io::Result<Command> {
        let (exe, args) = self.guest.program()?;
        let mut command = Command::new(&exe);
        command.args(args).env_clear();
        for name in INHERITED {
            command.envs(env::var_os(name).map(|value| (name, value)));
        }
        let text = scratch.to_string_lossy().into_owned();
        let own = ["HOME", "TMPDIR", "XDG_CACHE_HOME"].map(|name| (name.to_owned(), text.clone()));
        let variables = match &self.place {
            Place::Cpu { .. } => variables_of_cpu(self.processors.len(), None),
            Place::Cuda { unit, .. } => variables_of_gpu(unit),
        };
        command
            .envs(own)
            .envs(variables)
            .envs(caches::variables(
                scratch,
                &exe.to_string_lossy(),
                self.device(),
            ))
            .env(COMPILE_THREADS, "1")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .current_dir(scratch);
        Ok(command)
    }
}

/// Writes the files of the user that a request has into a folder which the process reads, and has
/// the request name them there: compilers read the text of a function from its file.
///
/// # Errors
/// The system's.
pub(super) fn move_files(request: &mut Value, scratch: &Path) -> io::Result<()> {
    match request {
        Value::Array(items) => items
            .iter_mut()
            .try_for_each(|item| move_files(item, scratch)),
        Value::Object(held) => {
            if let (Some(Value::String(path)), Some(Value::String(text))) =
                (held.get("path"), held.get("text"))
            {
                let below = Path::new(path).components();
                let below = below.filter(|part| matches!(part, Component::Normal(_)));
                let place = scratch.join(SOURCES).join(below.collect::<PathBuf>());
                if let Some(folder) = place.parent() {
                    fs::create_dir_all(folder)?;
                }
                fs::write(&place, text)?;
                let place = place.to_string_lossy().into_owned();
                held.insert("path".to_owned(), place.into());
            }
            held.values_mut()
                .try_for_each(|value| move_files(value, scratch))
        }
        _ => Ok(()),
    }
}

/// What a process is told of the tensors that it shares with the referee.
///
/// # Errors
/// Memory of a GPU that can't be shared.
pub(super) fn description(shared: &Shared, most_calls: usize) -> Result<Value, DeviceError> {
    let mut told = json!({
        "do": "share",
        "tensors": shared.places.description(),
        "sets": most_calls,
    });
    if let Some(gpu) = &shared.gpu {
        told["handle"] = gpu.handle()?.into();
        told["kernel"] = json!([PTX, ENTRY]);
    }
    Ok(told)
}

/// The folders that an interpreter loads programs, libraries and modules from; it is asked once.
fn folders_of(exe: &str) -> Vec<PathBuf> {
    static KNOWN: Mutex<BTreeMap<String, Vec<PathBuf>>> = Mutex::new(BTreeMap::new());
    let mut all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let ask = || -> Option<Vec<PathBuf>> {
        let mut command = Command::new(exe);
        let output = command.args(["-c", FOLDERS]).stdin(Stdio::null()).output();
        let found: Vec<PathBuf> = serde_json::from_slice(&output.ok()?.stdout).ok()?;
        // A link in a folder of environments leads to the program itself.
        let real = found.iter().filter_map(|path| path.canonicalize().ok());
        Some(real.chain(found.clone()).collect())
    };
    // Where it can't be asked it can't be started either, which is told then.
    let known = all.entry(exe.to_owned());
    known.or_insert_with(|| ask().unwrap_or_default()).clone()
}

fn unavailable(error: impl std::fmt::Display) -> DeviceError {
    super::unavailable(&error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_user_lie_where_the_process_reads() {
        let folder = tempfile::tempdir().unwrap();
        let mut request = json!({
            "source": { "files": [
                { "path": "/home/me/../k/f.py", "text": "a = 1\n", "module": "f" },
                { "path": "pkg/__init__.py", "text": "" },
            ] },
            "path": ["/home/me"],
        });
        move_files(&mut request, folder.path()).unwrap();
        let path = |number: usize| request["source"]["files"][number]["path"].as_str().unwrap();
        let own = folder.path().join(SOURCES);
        assert_eq!(Path::new(path(0)), own.join("home/me/k/f.py"));
        assert_eq!(Path::new(path(1)), own.join("pkg/__init__.py"));
        assert_eq!(fs::read_to_string(path(0)).unwrap(), "a = 1\n");
        assert_eq!(request["path"], json!(["/home/me"]));
        assert_eq!(request["source"]["files"][0]["module"], "f");
    }
}
