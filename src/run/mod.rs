//! A run: plan, compile, measure, record. What is finished is not done again.
//!
//! [`compiling`] fills the list of artifacts, [`rows`] turns outcomes into rows, [`pruning`] learns
//! from failures; this file is the order of events.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use sweeper_cache::Cache;
use sweeper_kernels::{Refusal, Target};

use crate::compile::CompileError;
use crate::compile::kernels::{Built, Kernels, Toolchain};
use crate::device::null::Null;
use crate::device::{Artifact, Device, DeviceIdentity, DeviceKind, cpu, cuda};
use crate::execute::outcome::{Outcome, Status};
use crate::execute::protocol::{Block, BlockPoint, DeviceRequest, Settings, Stage};
use crate::execute::supervisor::{Observer, Supervisor, WorkerCommand, WorkerError};
use crate::identity::{PointId, RunId};
use crate::manifest::Manifest;
use crate::manifest::settings::DeviceUse;
use crate::plan::{Plan, PlanDevice, Planned, PlannedBlock, conditions};
use crate::record::environment::{Environment, RunIdentity, surroundings};
use crate::record::folder::{FolderError, RunFolder};
use crate::record::journal::Journal;
use crate::record::row::Row;

pub mod compiling;
pub mod pruning;
pub mod rows;

use pruning::Pruner;
use rows::RowMaker;

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
    let plan = Plan::new(manifest, plan_device(&device));
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
    session.learn(contents.is_empty(), || contents.rows())?;
    let reused = session.reused();
    session.announce(run, &folder, reused);
    if session.is_complete() && folder.path().join("records.csv").exists() {
        return session.end(run, &folder, reused, false);
    }
    write_description(&folder, manifest, request, &plan, identity)?;
    session.open_cache();
    session.measure_all()?;
    let stopped = stop.load(Ordering::Relaxed) && !session.is_complete();
    session.end(run, &folder, reused, !stopped)
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

/// Everything that a run holds while it goes on.
struct Session<'a> {
    manifest: &'a Manifest,
    request: &'a Request,
    stop: &'a AtomicBool,
    progress: &'a dyn Progress,
    plan: &'a Plan<'a>,
    maker: RowMaker<'a>,
    pruner: Pruner,
    supervisor: Supervisor,
    toolchain: &'a Toolchain,
    cache: Option<Cache>,
    journal: Journal,
    finished: HashSet<PointId>,
    /// Kernels that were asked for, by number.
    built: HashMap<u32, Result<Built, CompileError>>,
    written: usize,
    compiled: usize,
}

impl Session<'_> {
    /// Learns from failures of an earlier, interrupted part of the run.
    fn learn(
        &mut self,
        is_new: bool,
        rows: impl FnOnce() -> Result<Vec<Row>, String>,
    ) -> Result<(), RunError> {
        if is_new || !self.pruner.is_active() || self.is_complete() {
            return Ok(());
        }
        for row in rows().map_err(RunError::Impossible)? {
            self.pruner.learn(&row);
        }
        Ok(())
    }

    fn reused(&self) -> usize {
        self.plan
            .points
            .iter()
            .filter(|point| self.finished.contains(&point.id))
            .count()
    }

    fn is_complete(&self) -> bool {
        self.plan
            .points
            .iter()
            .all(|point| self.finished.contains(&point.id))
    }

    fn announce(&self, run: RunId, folder: &RunFolder, finished: usize) {
        let device = &self.supervisor.identity().name;
        self.progress.event(&Event::Started {
            run,
            folder: folder.path(),
            points: self.plan.points.len(),
            finished,
            device,
        });
    }

    fn open_cache(&mut self) {
        if self.plan.device.kind == DeviceKind::Null {
            return;
        }
        match compiling::open_cache(self.manifest, self.request) {
            Ok(cache) => self.cache = cache,
            Err(warning) => self.progress.event(&Event::Warning(&warning)),
        }
    }

    /// Writes declared skips, compiles ahead, and measures block after block.
    fn measure_all(&mut self) -> Result<(), RunError> {
        for row in self.maker.skips() {
            if self.finished.insert(row.point) {
                self.journal.write(&row).map_err(FolderError::from)?;
            }
        }
        let plan = self.plan;
        let left: Vec<&PlannedBlock> = plan
            .blocks
            .iter()
            .filter(|block| {
                let mut ids = block
                    .points
                    .iter()
                    .map(|&point| plan.points[point as usize].id);
                ids.any(|id| !self.finished.contains(&id))
            })
            .collect();
        if !self.request.skip_precompile {
            let points = left.iter().flat_map(|block| &block.points);
            let wanted: Vec<u32> = points
                .flat_map(|&point| plan.points[point as usize].kernels.clone())
                .collect();
            self.compile(wanted);
        }
        for block in left {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            self.measure(block)?;
        }
        self.journal.sync().map_err(FolderError::from)?;
        Ok(())
    }

    /// Gets the kernels of these numbers that were not asked for before.
    fn compile(&mut self, mut wanted: Vec<u32>) {
        wanted.sort_unstable();
        wanted.dedup();
        wanted.retain(|number| !self.built.contains_key(number));
        if wanted.is_empty() || self.plan.device.kind == DeviceKind::Null {
            return;
        }
        self.progress.event(&Event::Compiling {
            kernels: wanted.len(),
        });
        let kernels = Kernels {
            toolchain: self.toolchain,
            cache: self.cache.as_ref(),
            device: self.supervisor.identity(),
            limit: self.manifest.limits.compile_timeout,
            require_cached: self.request.require_cached,
        };
        let sources: Vec<_> = wanted
            .iter()
            .map(|&number| &self.plan.kernels[number as usize])
            .collect();
        let progress = self.progress;
        let done = |position: usize, result: &Result<Built, CompileError>| {
            let name = compiling::name(sources[position]);
            progress.event(&Event::Compiled {
                name: &name,
                result: result.as_ref(),
            });
        };
        let results = kernels.get_all(&sources, self.request.compile_threads, &done);
        self.compiled += compiling::count_built(&results);
        if let Some(warning) = compiling::first_warning(&results) {
            self.progress.event(&Event::Warning(&warning));
        }
        self.built.extend(wanted.into_iter().zip(results));
    }

    /// Measures what is left of a block.
    fn measure(&mut self, planned: &PlannedBlock) -> Result<(), RunError> {
        let plan = self.plan;
        let left = |number: &&u32| !self.finished.contains(&plan.points[**number as usize].id);
        let left: Vec<u32> = planned.points.iter().filter(left).copied().collect();
        let kernels = left
            .iter()
            .flat_map(|&number| plan.points[number as usize].kernels.clone());
        self.compile(kernels.collect());
        let mut admitted = Vec::new();
        for &number in &left {
            match self.refuse(&plan.points[number as usize]) {
                Some(outcome) => self.finish(number, outcome)?,
                None => admitted.push(number),
            }
        }
        let Some(&first) = admitted.first() else {
            return Ok(());
        };
        let block = self.block(planned, first, &admitted);
        let artifacts = self.artifacts(&admitted);
        let mut listener = Listener {
            stop: self.stop,
            progress: self.progress,
            plan,
            finished: Vec::new(),
        };
        let result = self.supervisor.measure(&block, &artifacts, &mut listener);
        for (number, outcome) in listener.finished {
            self.finish(number, outcome)?;
        }
        Ok(result?)
    }

    /// Why a point is not even tried, if that is so.
    fn refuse(&self, point: &Planned) -> Option<Outcome> {
        let left_out = |status, reason: String| Some(Outcome::without_measurement(status, reason));
        match &point.refusal {
            Some(Refusal::Undefined(reason)) => return left_out(Status::Skipped, reason.clone()),
            Some(Refusal::Unavailable(reason)) => {
                return left_out(Status::Unavailable, reason.clone());
            }
            None => {}
        }
        if let Some(limit) = self.manifest.limits.max_memory_bytes
            && point.memory_bytes > limit
        {
            let reason = format!(
                "needs {} bytes, max_memory_gb allows {limit}",
                point.memory_bytes
            );
            return left_out(Status::PredictedOom, reason);
        }
        if let Some(id) = self.pruner.covers(&self.maker.describe(point)) {
            return left_out(Status::Pruned, format!("the smaller point {id} failed"));
        }
        let failed = point
            .kernels
            .iter()
            .find_map(|number| match self.built.get(number) {
                Some(Err(error)) => Some(error),
                _ => None,
            });
        failed.map(|error| {
            let status = match error {
                CompileError::Rejected { .. } => Status::CompileError,
                CompileError::Timeout { .. } => Status::CompileTimeout,
                CompileError::Unavailable(_) => Status::Unavailable,
                CompileError::Surroundings(_) => Status::Error,
            };
            Outcome::without_measurement(status, error.to_string())
        })
    }

    fn finish(&mut self, number: u32, outcome: Outcome) -> Result<(), RunError> {
        let point = &self.plan.points[number as usize];
        let row = self.maker.row(point, outcome, &self.built);
        self.pruner.learn(&row);
        self.journal.write(&row).map_err(FolderError::from)?;
        self.finished.insert(row.point);
        self.written += 1;
        let label = self.plan.grid.label(point.point);
        let done = self.finished.len().min(self.plan.points.len());
        self.progress.event(&Event::Row {
            row: &row,
            label: &label,
            done,
        });
        Ok(())
    }

    fn block(&self, planned: &PlannedBlock, first: u32, numbers: &[u32]) -> Block {
        let plan = self.plan;
        let first = plan.points[first as usize].point;
        let case = plan.grid.case(first);
        let measure = &self.manifest.measure;
        Block {
            workload: case.workload.name.to_owned(),
            parameters: plan
                .grid
                .parameters(first)
                .iter()
                .map(|(name, value)| (name.to_string(), value.clone()))
                .collect(),
            dtype: case.dtype,
            problem: *planned.problem.0.bytes(),
            inputs: case.inputs.as_ref().map(|file| file.path.clone()),
            save_tensors: self.request.save_tensors.clone(),
            settings: Settings {
                stop: measure.stopping,
                warmup: measure.warmup,
                verify: measure.verify,
                order: self.manifest.plan.order,
            },
            points: numbers
                .iter()
                .map(|&number| self.block_point(number))
                .collect(),
            artifacts: Vec::new(),
        }
    }

    fn block_point(&self, number: u32) -> BlockPoint {
        let plan = self.plan;
        let point = &plan.points[number as usize];
        let key = |kernel: &u32| match self.built.get(kernel) {
            Some(Ok(built)) => Some(built.artifact.key.clone()),
            _ => None,
        };
        let (script, scripted_status) = self.maker.script(point);
        BlockPoint {
            number,
            backend: plan.grid.backend(point.point).name.to_owned(),
            phase: point.point.phase,
            canonical: plan
                .shape(point)
                .iter()
                .map(|(name, bound)| (name.to_owned(), bound))
                .collect(),
            kernels: point.kernels.iter().filter_map(key).collect(),
            folder: point.id.to_string(),
            script,
            scripted_status,
        }
    }

    fn artifacts(&self, numbers: &[u32]) -> Vec<Artifact> {
        let mut kernels: Vec<u32> = numbers
            .iter()
            .flat_map(|&number| self.plan.points[number as usize].kernels.clone())
            .collect();
        kernels.sort_unstable();
        kernels.dedup();
        let artifact = |kernel: &u32| match self.built.get(kernel) {
            Some(Ok(built)) => Some(built.artifact.clone()),
            _ => None,
        };
        kernels.iter().filter_map(artifact).collect()
    }

    /// Writes the tables and adds up.
    fn end(
        self,
        run: RunId,
        folder: &RunFolder,
        reused: usize,
        write_tables: bool,
    ) -> Result<Ended, RunError> {
        let mut statuses = BTreeMap::new();
        let stopped = !self.is_complete();
        if write_tables || self.written > 0 {
            let path = folder.path().join("journal.jsonl");
            let contents =
                crate::record::journal::Contents::read(&path).map_err(FolderError::from)?;
            let rows = contents
                .rows()
                .map_err(|reason| FolderError::Foreign { path, reason })?;
            for row in &rows {
                *statuses.entry(row.outcome.status).or_insert(0) += 1;
            }
            folder.write_tables(&rows, &self.manifest.output.exports)?;
        }
        Ok(Ended {
            run,
            folder: folder.path().to_owned(),
            statuses,
            reused,
            written: self.written,
            compiled: self.compiled,
            stopped,
        })
    }
}

/// Collects what a block yields; rows are written when it ends.
struct Listener<'a> {
    stop: &'a AtomicBool,
    progress: &'a dyn Progress,
    plan: &'a Plan<'a>,
    finished: Vec<(u32, Outcome)>,
}

impl Observer for Listener<'_> {
    fn working(&mut self, number: u32, stage: Stage) {
        if stage != Stage::Sample {
            let label = self
                .plan
                .grid
                .label(self.plan.points[number as usize].point);
            self.progress.event(&Event::Working {
                label: &label,
                stage,
            });
        }
    }

    fn finished(&mut self, number: u32, outcome: Outcome) {
        self.finished.push((number, outcome));
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
