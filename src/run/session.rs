//! A run while it goes on: blocks to workers, outcomes to rows.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use sweeper_cache::Cache;
use sweeper_kernels::Refusal;

use super::pruning::Pruner;
use super::rows::RowMaker;
use super::{Ended, Event, Progress, Request, RunError, compiling};
use crate::compile::CompileError;
use crate::compile::kernels::{Built, Kernels, Toolchain};
use crate::device::{Artifact, DeviceKind};
use crate::execute::outcome::{Outcome, Status};
use crate::execute::protocol::{Block, BlockPoint, Settings, Stage};
use crate::execute::supervisor::{Observer, Supervisor};
use crate::identity::{PointId, RunId};
use crate::manifest::Manifest;
use crate::plan::{Plan, Planned, PlannedBlock};
use crate::record::folder::{FolderError, RunFolder};
use crate::record::journal::{Contents, Journal};

/// Everything that a run holds while it goes on.
pub(super) struct Session<'a> {
    pub(super) manifest: &'a Manifest,
    pub(super) request: &'a Request,
    pub(super) stop: &'a AtomicBool,
    pub(super) progress: &'a dyn Progress,
    pub(super) plan: &'a Plan<'a>,
    pub(super) maker: RowMaker<'a>,
    pub(super) pruner: Pruner,
    pub(super) supervisor: Supervisor,
    pub(super) toolchain: &'a Toolchain,
    pub(super) cache: Option<Cache>,
    pub(super) journal: Journal,
    pub(super) finished: HashSet<PointId>,
    /// Kernels that were asked for, by number.
    pub(super) built: HashMap<u32, Result<Built, CompileError>>,
    pub(super) written: usize,
    pub(super) compiled: usize,
}

impl Session<'_> {
    /// Learns from failures of an earlier, interrupted part of the run.
    pub(super) fn learn(&mut self, contents: &Contents) -> Result<(), RunError> {
        if contents.is_empty() || !self.pruner.is_active() {
            return Ok(());
        }
        for row in contents.rows().map_err(RunError::Impossible)? {
            self.pruner.learn(&row);
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        let mut points = self.plan.points.iter();
        points.all(|point| self.finished.contains(&point.id))
    }

    pub(super) fn open_cache(&mut self) {
        if self.plan.device.kind == DeviceKind::Null {
            return;
        }
        match compiling::open_cache(self.manifest, self.request) {
            Ok(cache) => self.cache = cache,
            Err(warning) => self.progress.event(&Event::Warning(&warning)),
        }
    }

    /// Writes declared skips, compiles ahead, and measures block after block.
    pub(super) fn measure_all(&mut self) -> Result<(), RunError> {
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
                oracle_s: self.manifest.limits.oracle_time.as_secs_f64(),
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
    pub(super) fn end(
        self,
        run: RunId,
        folder: &RunFolder,
        reused: usize,
    ) -> Result<Ended, RunError> {
        let path = folder.path().join("journal.jsonl");
        let contents = Contents::read(&path).map_err(FolderError::from)?;
        let rows = contents
            .rows()
            .map_err(|reason| FolderError::Foreign { path, reason })?;
        folder.write_tables(&rows, &self.manifest.output.exports)?;
        let mut statuses = BTreeMap::new();
        for row in &rows {
            *statuses.entry(row.outcome.status).or_insert(0) += 1;
        }
        Ok(Ended {
            run,
            folder: folder.path().to_owned(),
            statuses,
            reused,
            written: self.written,
            compiled: self.compiled,
            stopped: !self.is_complete(),
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
