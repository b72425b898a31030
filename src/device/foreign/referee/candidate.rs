//! The process of one candidate: an interpreter in a sandbox, which shares memory with the referee.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use serde_json::json;
use std::os::fd::AsRawFd;

use super::gpu::{ENTRY, PTX};
use super::protocol::Shared;
use crate::device::DeviceError;
use crate::device::foreign::python::Place;
use crate::device::foreign::python::caches;
use crate::device::foreign::python::interpreters::{
    COMPILE_THREADS, variables_of_cpu, variables_of_gpu,
};
use crate::device::foreign::python::process::{Child, Failure};
use crate::device::memory;
use crate::device::process::{die_with_parent, hand_over, keep_on};
use crate::device::sandbox::Sandbox;
use crate::row::outcome::Status;

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

/// Prints the folders that an interpreter loads from.
const FOLDERS: &str = "import json, site, sys\n\
    held = [sys.prefix, sys.base_prefix, sys.executable, *sys.path, site.getusersitepackages()]\n\
    print(json.dumps([path for path in held if path]))";

/// Where a candidate runs.
pub(super) struct Seat<'a> {
    /// The interpreter.
    pub(super) exe: &'a str,
    /// The folder that it may write into.
    pub(super) scratch: &'a Path,
    /// Its processors.
    pub(super) processors: &'a [usize],
    /// Folders that it must not see, such as that of right answers.
    pub(super) hidden: &'a [PathBuf],
    /// Folders of modules.
    pub(super) modules: Vec<PathBuf>,
    /// The referee has no processor of its own.
    pub(super) yields: bool,
    /// The device.
    pub(super) place: &'a Place,
    /// So many calls have tensors of their own.
    pub(super) most_calls: usize,
}

impl Seat<'_> {
    /// Starts the process. Nothing of the candidate has run in it yet.
    ///
    /// # Errors
    /// An interpreter that can't be started, a machine without a sandbox.
    pub(super) fn start(&self, shared: &Shared) -> Result<Child, DeviceError> {
        let page = &shared.page;
        let mut command = Command::new(self.exe);
        command.env_clear();
        for name in INHERITED {
            command.envs(env::var_os(name).map(|value| (name, value)));
        }
        let scratch = self.scratch.to_string_lossy().into_owned();
        let own =
            ["HOME", "TMPDIR", "XDG_CACHE_HOME"].map(|name| (name.to_owned(), scratch.clone()));
        let (device, variables) = match self.place {
            Place::Cpu { .. } => ("cpu", variables_of_cpu(self.processors.len(), None)),
            Place::Cuda { unit, .. } => ("cuda", variables_of_gpu(unit)),
        };
        command
            .envs(own)
            .envs(variables)
            .envs(caches::variables(self.scratch, self.exe, device))
            .env(COMPILE_THREADS, "1")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .current_dir(self.scratch);
        die_with_parent(&mut command);
        let file = page.file().try_clone_to_owned().map_err(unavailable)?;
        let descriptor = file.as_raw_fd();
        hand_over(&mut command, file);
        keep_on(&mut command, self.processors);
        let mut sandbox = Sandbox::new(self.scratch)
            .reading(self.modules.iter().cloned().chain(folders_of(self.exe)))
            .hiding(self.hidden.iter().cloned());
        if matches!(self.place, Place::Cuda { .. }) {
            sandbox = sandbox.with_gpus();
        }
        sandbox.enclose(&mut command).map_err(unavailable)?;
        let mut child = Child::start_command(command)?;
        let mut told = page.description(descriptor, self.yields);
        let more = [
            ("tensors", shared.places.description()),
            ("sets", self.most_calls.into()),
        ];
        for (name, value) in more {
            told[name] = value;
        }
        if let Some(gpu) = &shared.gpu {
            told["handle"] = gpu.handle()?.into();
            told["kernel"] = json!([PTX, ENTRY]);
        }
        let open = json!({
            "device": device,
            "do": "open",
            // It was pinned from outside, and can't change that.
            "processors": [],
            "flush_bytes": 0,
            "memory_bytes": memory::available_bytes() / 10 * 9,
            "gpu": false,
            "cache": "hot",
            "shared": told,
        });
        child.ask(&open, super::LOADING_LIMIT)?;
        Ok(child)
    }
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

fn unavailable(error: impl std::fmt::Display) -> Failure {
    Failure {
        status: Status::Unavailable,
        reason: error.to_string(),
        is_lost: true,
        is_from_outside: false,
    }
}
