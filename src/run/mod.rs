//! A run: plan, compile, measure, record. What is finished is not done again.
//!
//! [`compiling`] fills the list of artifacts, [`rows`] turns outcomes into rows, [`pruning`] learns
//! from failures; this file is the order of events.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use sweeper_kernels::Target;

use crate::compile::CompileError;
use crate::compile::kernels::{Built, Toolchain};
use crate::device::null::Null;
use crate::device::{Device, DeviceIdentity, DeviceKind, cpu, cuda};
use crate::execute::outcome::Status;
use crate::execute::protocol::{DeviceRequest, Stage};
use crate::execute::supervisor::{Supervisor, WorkerCommand, WorkerError};
use crate::identity::{PointId, RunId};
use crate::manifest::Manifest;
use crate::manifest::settings::DeviceUse;
use crate::plan::{Outline, Plan, PlanDevice, conditions};
use crate::record::environment::{Environment, RunIdentity, surroundings};
use crate::record::folder::{FolderError, RunFolder};
use crate::record::row::Row;

pub mod compiling;
pub mod pruning;
pub mod rows;
mod session;

use pruning::Pruner;
use rows::RowMaker;
use session::Session;

/// What a run is asked for, beside its manifest.
pub struct Request {
    /// How workers are started.
    pub worker: WorkerCommand,
    /// The resolved manifest, as text.
    pub resolved: String,
    /// The command line, to be written down.
    pub command: Vec<String>,
    /// Measure all again, in a folder `attempt-N` beside.
    pub fresh: bool,
    /// Fail instead of compiling.
    pub require_cached: bool,
    /// Compile when a block needs it, not all ahead.
    pub skip_precompile: bool,
    /// Write inputs and outputs below this folder.
    pub save_tensors: Option<PathBuf>,
    /// Where the kernel cache is; none for no cache.
    pub cache_dir: Option<PathBuf>,
    /// Threads that compile.
    pub compile_threads: usize,
}

/// What happens during a run, for whoever shows it.
#[derive(Debug)]
pub enum Event<'a> {
    /// The run is known, and how much of it is left.
    Started {
        /// The run.
        run: RunId,
        /// Its folder.
        folder: &'a std::path::Path,
        /// Points of the plan.
        points: usize,
        /// Points that have rows already.
        finished: usize,
        /// The device.
        device: &'a str,
    },
    /// Kernels are compiled ahead.
    Compiling {
        /// How many are needed.
        kernels: usize,
    },
    /// One kernel is there, or is not.
    Compiled {
        /// Its entry point and what it was specialised for.
        name: &'a str,
        /// Where it came from, or why it is missing.
        result: Result<&'a Built, &'a CompileError>,
    },
    /// A point is worked on.
    Working {
        /// The point's label.
        label: &'a str,
        /// What is done.
        stage: Stage,
    },
    /// A row was written.
    Row {
        /// The row.
        row: &'a Row,
        /// The point's label.
        label: &'a str,
        /// Rows of the plan's points, this one included.
        done: usize,
    },
    /// Something that people should know.
    Warning(&'a str),
}

/// Shows what happens.
pub trait Progress: Sync {
    /// Something happened.
    fn event(&self, event: &Event<'_>);
}

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    /// The run.
    pub run: RunId,
    /// Its folder.
    pub folder: PathBuf,
    /// Rows of this run's journal, by status.
    pub statuses: BTreeMap<Status, usize>,
    /// Points that had rows before.
    pub reused: usize,
    /// Rows written now.
    pub written: usize,
    /// Kernels compiled now.
    pub compiled: usize,
    /// True if it was stopped before the end.
    pub stopped: bool,
}

impl Ended {
    fn with_nothing_to_do(run: RunId, folder: &RunFolder, reused: usize) -> Self {
        Ended {
            run,
            folder: folder.path().to_owned(),
            statuses: BTreeMap::new(),
            reused,
            written: 0,
            compiled: 0,
            stopped: false,
        }
    }
}

/// Why a run did not end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// This place can't do it.
    #[error("{0}")]
    Impossible(String),
    /// The folder or the journal.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The workers.
    #[error(transparent)]
    Worker(#[from] WorkerError),
}

/// Which device a manifest asks for.
///
/// # Errors
/// If this program has no such device.
pub fn device_request(manifest: &Manifest) -> Result<DeviceRequest, RunError> {
    let (kind, ordinal) = match &manifest.device.use_ {
        DeviceUse::Auto if cuda::identity::all().is_ok() => (DeviceKind::Cuda, 0),
        DeviceUse::Auto | DeviceUse::Cpu => (DeviceKind::Cpu, 0),
        DeviceUse::Null => (DeviceKind::Null, 0),
        DeviceUse::Cuda(ordinals) => (DeviceKind::Cuda, ordinals.first().copied().unwrap_or(0)),
        DeviceUse::AllCuda => (DeviceKind::Cuda, 0),
    };
    if kind == DeviceKind::Cuda {
        cuda::identity::of(ordinal).map_err(RunError::Impossible)?;
    }
    Ok(DeviceRequest {
        kind,
        ordinal,
        threads: manifest.device.threads,
        cold: conditions(manifest, kind).cold,
    })
}

/// What to say of devices that a manifest asks for and this version leaves idle.
fn idle_devices(manifest: &Manifest) -> Option<String> {
    let wanted = match &manifest.device.use_ {
        DeviceUse::Cuda(ordinals) => ordinals.len(),
        DeviceUse::AllCuda => cuda::identity::all().map_or(0, <[_]>::len),
        DeviceUse::Auto | DeviceUse::Cpu | DeviceUse::Null => 1,
    };
    (wanted > 1).then(|| {
        format!("{wanted} devices are asked for; this version uses the first, a later one all")
    })
}

/// What a plan for that device is made for.
pub fn plan_device(request: &DeviceRequest) -> PlanDevice {
    let target = match request.kind {
        DeviceKind::Cpu | DeviceKind::Null => Target::Cpu,
        DeviceKind::Cuda => Target::Cuda {
            arch: local_device(request).details["arch"].clone(),
        },
    };
    PlanDevice {
        kind: request.kind,
        target,
    }
}

/// The compilers that count for a device.
pub fn toolchain_for(kind: DeviceKind, found: &Toolchain) -> Toolchain {
    match kind {
        DeviceKind::Null => Toolchain::none("the null device compiles nothing"),
        DeviceKind::Cpu | DeviceKind::Cuda => found.clone(),
    }
}

/// The identity of this machine's device, without a worker.
///
/// # Panics
/// If a CUDA device is asked for that is not there: [`device_request`] does not.
pub fn local_device(request: &DeviceRequest) -> DeviceIdentity {
    match request.kind {
        DeviceKind::Null => Null::default().identity().clone(),
        DeviceKind::Cpu => cpu::identity::host(),
        DeviceKind::Cuda => match cuda::identity::of(request.ordinal) {
            Ok(device) => device.clone(),
            Err(reason) => unreachable!("`device_request` found the device: {reason}"),
        },
    }
}

/// Runs a manifest.
///
/// # Errors
/// A [`RunError`]; whatever was measured before is recorded.
pub fn run(
    manifest: &Manifest,
    request: &Request,
    stop: &AtomicBool,
    progress: &dyn Progress,
) -> Result<Ended, RunError> {
    let device = device_request(manifest)?;
    let supervisor = Supervisor::start(
        request.worker.clone(),
        device.clone(),
        manifest.limits.point_timeout,
    )?;
    if let Some(warning) = idle_devices(manifest) {
        progress.event(&Event::Warning(&warning));
    }
    let toolchain = match device.kind {
        DeviceKind::Null => Toolchain::none("the null device compiles nothing"),
        _ => Toolchain::find(std::env::var_os("CC").map(PathBuf::from)),
    };
    let outline = Outline::new(manifest, plan_device(&device));
    let identity = RunIdentity::new(
        manifest.hash(),
        vec![supervisor.identity().clone()],
        &toolchain,
    );
    let run = identity.run;
    let folder = open_folder(manifest, run, request.fresh)?;
    let (journal, contents) = folder.journal(run)?;
    if contents.torn_bytes > 0 {
        let torn = format!(
            "the journal's last line was torn; {} bytes dropped",
            contents.torn_bytes
        );
        progress.event(&Event::Warning(&torn));
    }
    let finished: HashSet<PointId> = contents.points().collect();
    let ids = outline.points();
    let reused = ids.iter().filter(|id| finished.contains(id)).count();
    progress.event(&Event::Started {
        run,
        folder: folder.path(),
        points: ids.len(),
        finished: reused,
        device: &supervisor.identity().name,
    });
    if reused == ids.len() && folder.path().join("records.csv").exists() {
        return Ok(Ended::with_nothing_to_do(run, &folder, reused));
    }
    let plan = outline.fill();
    write_description(&folder, manifest, request, &plan, identity)?;
    let mut session = Session {
        manifest,
        request,
        stop,
        progress,
        maker: RowMaker::new(&plan, supervisor.identity()),
        pruner: Pruner::new(manifest.limits.prune.as_ref()),
        plan: &plan,
        supervisor,
        toolchain: &toolchain,
        cache: None,
        journal,
        finished,
        built: HashMap::new(),
        written: 0,
        compiled: 0,
    };
    session.learn(&contents)?;
    session.open_cache();
    session.measure_all()?;
    session.end(run, &folder, reused)
}

/// The run's folder, or for a fresh run the first `attempt-N` beside it that does not exist.
fn open_folder(manifest: &Manifest, run: RunId, fresh: bool) -> Result<RunFolder, FolderError> {
    let path = manifest
        .output
        .dir
        .join(RunFolder::name(&manifest.name, run));
    if !fresh {
        return RunFolder::open(&path);
    }
    let attempt = (1..)
        .map(|number| path.join(format!("attempt-{number}")))
        .find(|attempt| !attempt.exists());
    RunFolder::open(&attempt.unwrap_or(path))
}

fn write_description(
    folder: &RunFolder,
    manifest: &Manifest,
    request: &Request,
    plan: &Plan<'_>,
    identity: RunIdentity,
) -> Result<(), FolderError> {
    if folder.path().join("environment.json").exists() {
        return Ok(());
    }
    let (host, variables) = surroundings();
    let environment = Environment {
        started_unix_s: rows::now_unix_s(plan.device.kind),
        identity,
        name: manifest.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: request.command.clone(),
        host,
        variables,
    };
    let json = |value: serde_json::Result<Vec<u8>>| {
        value.map_err(|error| FolderError::Io {
            path: folder.path().to_owned(),
            error: error.into(),
        })
    };
    folder.write("manifest.toml", request.resolved.as_bytes())?;
    folder.write(
        "plan.json",
        &json(serde_json::to_vec_pretty(&crate::plan::describe::json(
            plan,
        )))?,
    )?;
    folder.write(
        "environment.json",
        &json(serde_json::to_vec_pretty(&environment))?,
    )
}
