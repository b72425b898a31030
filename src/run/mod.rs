//! A run: plan, compile, measure, record. Finished points are not measured again.
//!
//! [`devices`] chooses the devices, [`calibration`] and [`ceilings_file`] find their ceilings;
//! [`compiling`] opens the cache, [`schedule`] deals out blocks, [`rows`] turns outcomes into rows,
//! [`pruning`] learns from failures, [`repeats`] repeats runs; this file orders the events.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde::Serialize;

use sweeper_engine::compile::CachePlace;
use sweeper_engine::compile::CompileError;
use sweeper_engine::compile::kernels::Built;
use sweeper_engine::compile::toolchain::Toolchain;
use sweeper_engine::device::platform::platform;
use sweeper_engine::execute::protocol::{DeviceRequest, Stage};
use sweeper_engine::execute::supervisor::{Supervisor, WorkerCommand, WorkerError};
use sweeper_manifest::Manifest;
use sweeper_manifest::plan::{Outline, Plan};
use sweeper_model::hardware::DeviceIdentity;
use sweeper_model::identity::{PointId, RunId};
use sweeper_model::row::Row;
use sweeper_model::shard::Part;
use sweeper_results::record::contents::{Contents, Standing};
use sweeper_results::record::environment::{self, Environment, RunIdentity};
use sweeper_results::record::exports;
use sweeper_results::record::folder::{FolderError, RunFolder};
use sweeper_results::record::state::End;

pub mod devices;
pub mod anchors;
mod dispatch;
pub mod calibration;
pub mod ceilings_file;
pub mod compiling;
pub mod schedule;
pub mod pruning;
pub mod rows;
pub mod repeats;
mod blocks;
mod contests;
mod workers;
mod session;
mod surroundings;
mod points;
mod remaining;
mod resume;
mod work;
pub mod reuse;
mod timed;
mod telling;
pub mod time;
mod keeper;
pub mod shards;
pub mod retry;
pub mod tables;

pub use devices::{
    device_request, device_requests, interpreters, likely_kind, local_device, local_devices,
    plan_device, toolchain_for,
};

use calibration::Calibrator;
use keeper::Keeper;
use resume::Resumed;
use retry::Retry;
use reuse::Reuse;
use rows::Measured;
use session::Session;
use surroundings::{Parts, Surroundings};
use sweeper_results::record::usage::RunUsage;
use tables::Tally;
use time::Allowed;
use work::Work;

/// The options of a run beside its manifest.
pub struct Request {
    /// The command that starts a worker.
    pub worker: WorkerCommand,
    /// The resolved manifest, as text.
    pub resolved: String,
    /// The command line, to be written down.
    pub command: Vec<String>,
    /// Measure all again, in a folder `attempt-N`; the last one if it was left unfinished.
    pub fresh: bool,
    /// The points without a result that are tried again.
    pub retry: Retry,
    /// The part of the run that this process measures.
    pub part: Part,
    /// How long the run may take.
    pub allowed: Allowed,
    /// The earlier runs whose results are taken where they are those of this one.
    pub reuse: Reuse,
    /// Fail instead of compiling.
    pub require_cached: bool,
    /// Compile when a block needs it, not all ahead.
    pub skip_precompile: bool,
    /// Write inputs and outputs below this folder.
    pub save_tensors: Option<PathBuf>,
    /// Folder of the kernel cache; none for no cache.
    pub cache_dir: Option<PathBuf>,
    /// Threads that compile.
    pub compile_threads: usize,
}

/// An event of a run, for displays.
#[derive(Debug)]
pub enum Event<'a> {
    /// The identity of the run is known, and its remaining work.
    Started {
        /// The run.
        run: RunId,
        /// Folder of the run.
        folder: &'a std::path::Path,
        /// Points of the plan.
        points: usize,
        /// Points that have rows already.
        finished: usize,
        /// Points that the plan leaves out of the grid.
        left_out: LeftOut,
        /// The device.
        device: &'a str,
    },
    /// Kernels are compiled ahead.
    Compiling {
        /// Number of needed kernels.
        kernels: usize,
    },
    /// One kernel is there, or is not.
    Compiled {
        /// Entry point and defines of the kernel.
        name: &'a str,
        /// Origin of the kernel, or the reason why it is missing.
        result: Result<&'a Built, &'a CompileError>,
        /// Estimate of the rest of the run.
        left: Duration,
    },
    /// A point is worked on.
    Working {
        /// The point's label.
        label: &'a str,
        /// The stage of the work on the point.
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
        /// Estimate of the rest of the run.
        left: Duration,
    },
    /// A calibration measured more than was known to be possible.
    Raised {
        /// The device.
        device: &'a str,
        /// The raised ceilings.
        raised: &'a ceilings_file::Raised,
    },
    /// Sources were edited since an earlier run: which, and what is measured again.
    Edited(&'a str),
    /// Something that people should know.
    Warning(&'a str),
}

/// Numbers of points of the grid that a run does not measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Skipped by the manifest's rules.
    pub skipped: usize,
    /// Left out by the published sampling.
    pub sampled_out: u64,
    /// Beyond `limits.max_points`.
    pub over_budget: u64,
}

impl LeftOut {
    fn of(outline: &Outline<'_>) -> Self {
        LeftOut {
            skipped: outline.grid().skips().len(),
            sampled_out: outline.selection().sampled_out,
            over_budget: outline.selection().over_budget,
        }
    }
}

/// Displays events.
pub trait Progress: Sync {
    /// Something happened.
    fn event(&self, event: &Event<'_>);
}

/// The end of a run.
#[derive(Debug)]
pub struct Ended {
    /// The run.
    pub run: RunId,
    /// Folder of the run.
    pub folder: PathBuf,
    /// Points of this run's journal, by status.
    pub tally: Tally,
    /// Points that had rows before.
    pub reused: usize,
    /// Rows written now.
    pub written: usize,
    /// Rows of these that were taken from earlier runs.
    pub taken: usize,
    /// Rows of these that say that there was no time to measure a point.
    pub unmeasured: usize,
    /// Kernels compiled now.
    pub compiled: usize,
    /// The use of the devices' time.
    pub usage: RunUsage,
    /// True if it was stopped before the end.
    pub stopped: bool,
}

impl Ended {
    fn with_nothing_to_do(run: RunId, folder: &RunFolder, tally: Tally, reused: usize) -> Self {
        Ended {
            run,
            folder: folder.path().to_owned(),
            tally,
            reused,
            written: 0,
            taken: 0,
            unmeasured: 0,
            compiled: 0,
            usage: RunUsage::default(),
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
    /// The run was stopped before its identity was known.
    #[error("stopped before the first point; run again to go on")]
    Stopped,
    /// Another process measures it.
    #[error(
        "another process has taken {0} while this one was suspended or could not be heard of; what was measured is kept"
    )]
    Lost(Part),
    /// The folder or the journal.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The workers.
    #[error(transparent)]
    Worker(#[from] WorkerError),
}

/// Runs a manifest.
///
/// # Errors
/// A [`RunError`]; points that were measured before are recorded.
pub fn run(
    manifest: &Manifest,
    request: &Request,
    stop: &'static AtomicBool,
    progress: &dyn Progress,
) -> Result<Ended, RunError> {
    exports::check(&manifest.output.exports).map_err(RunError::Impossible)?;
    let requests = requests_with_answers(manifest, request)?;
    let plan_device = plan_device(&requests[0]);
    let found = Toolchain::here_until(
        std::env::var_os("CC").map(PathBuf::from),
        request.cache_dir.as_deref(),
        stop,
    );
    let toolchain = toolchain_for(requests[0].kind, &found);
    let _ahead = toolchain.look_ahead(requests[0].kind);
    let limit = manifest.limits.point_timeout;
    let supervisors = Supervisor::start_all(&request.worker, requests, limit)?;
    let identities = supervisors.iter().map(|supervisor| supervisor.identity());
    let devices: Vec<DeviceIdentity> = identities.cloned().collect();
    let kind = devices[0].kind;
    let outline = Outline::new(manifest, plan_device);
    let identity = RunIdentity::new(
        manifest.hash(),
        devices.clone(),
        toolchain.identity(kind),
        interpreters(manifest)?,
    );
    // A stop may have prevented a compiler's answer, without which this would be another run.
    if stop.load(Ordering::Relaxed) {
        return Err(RunError::Stopped);
    }
    let left_out = LeftOut::of(&outline);
    let work = Work::of(outline, request.part);
    let resumed = Resumed::open(identity.run, manifest, request, &work, progress)?;
    resumed.announce(left_out, &devices, progress);
    let mut keeper = Keeper::begin(&resumed.folder, resumed.state(&work), kind, stop)?;
    if resumed.is_complete() {
        keeper.end(End::Done, |_| {});
        return resumed.end(manifest, &devices);
    }
    let (mut plan, own) = work.plan();
    write_description(&resumed.folder, manifest, request, &plan, &identity)?;
    let elsewhere = own.keep(&mut plan);
    let cache = compiling::cache_of(kind, manifest, request, progress);
    let surroundings = Surroundings {
        manifest,
        request,
        stop,
        progress,
        devices: &devices,
        toolchain: &toolchain,
        cache: cache.as_ref(),
    };
    let begun = Begun {
        resumed,
        keeper,
        elsewhere,
        has_skips: own.has_skips(),
        identity,
    };
    measure(&surroundings, &plan, begun, supervisors)
}

/// A run whose work is known.
struct Begun {
    resumed: Resumed,
    keeper: Keeper,
    /// Points of other shards.
    elsewhere: HashSet<PointId>,
    /// True if this process writes the rows of points that the manifest leaves out.
    has_skips: bool,
    identity: RunIdentity,
}

/// Measures the rest of a plan.
fn measure(
    surroundings: &Surroundings<'_>,
    plan: &Plan<'_>,
    begun: Begun,
    mut supervisors: Vec<Supervisor>,
) -> Result<Ended, RunError> {
    let calibrator = surroundings.calibrator(plan.device.target.clone());
    let measured = calibrate(&calibrator, &mut supervisors, surroundings.progress);
    let reused = begun.resumed.reused();
    let Resumed {
        run,
        folder,
        journal,
        contents,
        finished,
        tries,
        ..
    } = begun.resumed;
    let parts = Parts {
        journal,
        keeper: begun.keeper,
        finished,
        elsewhere: begun.elsewhere,
        tries,
        has_skips: begun.has_skips,
    };
    let mut session = Session::new(surroundings, plan, measured, parts);
    session.learn(&contents)?;
    session.begin(&folder)?;
    session.reuse(&begun.identity)?;
    session.reopen_contests();
    session.measure_all(supervisors)?;
    session.end(run, &folder, reused)
}

/// The devices of a manifest, with the cache of the oracle's answers.
fn requests_with_answers(
    manifest: &Manifest,
    request: &Request,
) -> Result<Vec<DeviceRequest>, RunError> {
    let mut requests = device_requests(manifest)?;
    // Code of users may start processes, which must not be taken for what another one left.
    let is_ours = manifest.declared().next().is_none();
    for device in &mut requests {
        if is_ours {
            let processors = rayon::current_num_threads();
            let threads = device.threads as usize;
            device.spare = (platform(device.kind).spare_processors)(threads, processors);
        }
        device.answers = request.cache_dir.as_ref().map(|dir| CachePlace {
            dir: dir.clone(),
            capacity_bytes: manifest.cache.size_bytes,
            upstream: manifest.cache.upstream.clone(),
        });
    }
    Ok(requests)
}

/// The result of a thread; its panic goes on here.
fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The identities of devices, and their ceilings.
fn calibrate(
    calibrator: &Calibrator<'_>,
    supervisors: &mut [Supervisor],
    progress: &dyn Progress,
) -> Vec<Measured> {
    let calibrate = |supervisor: &mut Supervisor| {
        let ceilings = calibrator.ceilings(supervisor).map_err(|reason| {
            let warning = format!("what the device can do at most is not known: {reason}");
            progress.event(&Event::Warning(&warning));
        });
        Measured {
            device: supervisor.identity().clone(),
            ceilings: ceilings.ok(),
        }
    };
    if let [only] = supervisors {
        return vec![calibrate(only)];
    }
    thread::scope(|scope| {
        let all = supervisors.iter_mut();
        let measured: Vec<_> = all.map(|each| scope.spawn(|| calibrate(each))).collect();
        measured.into_iter().map(joined).collect()
    })
}

/// The run's folder, or for a fresh run an attempt in it.
fn open_folder(
    manifest: &Manifest,
    run: RunId,
    request: &Request,
    points: &[PointId],
    progress: &dyn Progress,
) -> Result<RunFolder, FolderError> {
    let name = RunFolder::name(&manifest.name, run);
    let path = manifest.output.dir.join(name);
    if !request.fresh {
        let part = request.part;
        return RunFolder::open_part(&path, part, &|holder, patience| {
            let waits = format!(
                "{holder} had a hold on this run; it is on another machine, so that only its signs of life tell: \
                 waiting {} s for one",
                patience.as_secs()
            );
            progress.event(&Event::Warning(&waits));
        });
    }
    // A journal that can't be used is kept: the next attempt gets another one.
    let is_finished = |folder: &RunFolder| match folder.journal(run, None) {
        Ok((_, contents)) => {
            let held: HashSet<PointId> = contents.points().collect();
            points.iter().all(|point| held.contains(point)) && folder.is_described()
        }
        Err(_) => true,
    };
    RunFolder::open_attempt(&path, is_finished)
}

/// The standings of a journal's points.
fn standings(contents: &Contents, folder: &RunFolder) -> Result<Vec<Standing>, FolderError> {
    let foreign = |reason| FolderError::Foreign {
        path: folder.path().join("journal.jsonl"),
        reason,
    };
    contents.standings().map_err(foreign)
}

fn write_description(
    folder: &RunFolder,
    manifest: &Manifest,
    request: &Request,
    plan: &Plan<'_>,
    identity: &RunIdentity,
) -> Result<(), FolderError> {
    if folder.is_described() {
        return Ok(());
    }
    let (host, variables) = environment::surroundings();
    let environment = Environment {
        started_unix_s: rows::now_unix_s(plan.device.kind),
        identity: identity.clone(),
        name: manifest.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: request.command.clone(),
        host,
        variables,
    };
    for (path, text) in manifest.sources() {
        folder.write_below(path, text.as_bytes())?;
    }
    folder.write("manifest.toml", request.resolved.as_bytes())?;
    folder.write_json(
        "plan.json",
        &sweeper_manifest::plan::describe::Described(plan),
    )?;
    folder.write_json("environment.json", &environment)
}
