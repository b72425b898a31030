//! The outcomes of points: why they are not tried, rows of the tried points, and the final tables.

use std::time::{Duration, Instant};

use super::session::Session;
use super::shards;
use super::tables::{self, Tally};
use super::{Ended, Event, RunError, ceilings_file, standings};
use sweeper_engine::compile::CompileError;
use sweeper_engine::execute::refused::refused;
use sweeper_manifest::plan::Planned;
use sweeper_model::identity::RunId;
use sweeper_model::proc_stat::CpuPressure;
use sweeper_model::row::Row;
use sweeper_model::row::outcome::{Cause, Outcome, Status};
use sweeper_model::shard::Part;
use sweeper_results::guides::{About, CALIBRATION_PROFILE};
use sweeper_results::record::contents::Contents;
use sweeper_results::record::folder::{FolderError, RunFolder};
use sweeper_results::record::recorded::contents_of;
use sweeper_results::record::state::End;
use sweeper_results::record::usage::{DeviceUsage, Pressure, RunUsage};

/// The file that says how the devices' time was used.
pub(super) const USAGE: &str = "usage.json";

impl Session<'_> {
    /// Why a point is not even tried, if that is so.
    pub(super) fn refuse(&self, point: &Planned) -> Option<Outcome> {
        if let Some(refusal) = &point.refusal {
            return Some(refused(refusal.clone()));
        }
        if let Some(limit) = self.manifest.limits.max_memory_bytes
            && point.memory_bytes > limit
        {
            let reason = format!(
                "needs {} bytes, max_memory_gb allows {limit}",
                point.memory_bytes
            );
            return Some(Outcome::without_measurement(Status::PredictedOom, reason));
        }
        if let Some(outcome) = self.prune(point) {
            return Some(outcome);
        }
        let failed = point
            .kernels
            .iter()
            .find_map(|number| match self.built.get(number) {
                Some(Err(error)) => Some(error),
                _ => None,
            });
        failed.map(not_compiled)
    }

    /// The outcome of a point that is skipped because a smaller point failed.
    fn prune(&self, point: &Planned) -> Option<Outcome> {
        if !self.pruner.has_failures() {
            return None;
        }
        let id = self.pruner.covers(&self.maker.describe(point))?;
        let reason = format!("the smaller point {id} failed");
        Some(Outcome::without_measurement(Status::Pruned, reason))
    }

    /// Writes the row of a point that a worker finished. A block that was handed out ahead may hold
    /// points that are pruned by a failure in the block before: their measured outcomes are
    /// dropped, so that no row depends on which process was faster. Points of one block never prune
    /// each other: they have the same sizes, and differ in backend or phase.
    pub(super) fn finish_measured(
        &mut self,
        number: u32,
        outcome: Outcome,
        worker: usize,
    ) -> Result<(), RunError> {
        let pruned = self.prune(&self.plan.points[number as usize]);
        let (status, cause) = (outcome.status, outcome.cause);
        self.finish(number, pruned.unwrap_or(outcome), worker)?;
        if cause.is_none() {
            self.doubt_kernels(number, status);
        }
        Ok(())
    }

    /// Sets the kernels of a point aside in the cache if the device could not load them or if the
    /// point crashed its worker: they may be broken, and a later run compiles them again. This run
    /// does so once for each kernel: if the fault is in the source, compiling again does not help.
    fn doubt_kernels(&mut self, number: u32, status: Status) {
        if !matches!(status, Status::Crashed | Status::LaunchError) {
            return;
        }
        let plan = self.plan;
        let mut kernels = plan.points[number as usize].kernels.clone();
        for &kernel in &kernels {
            self.kernels().set_aside(&plan.kernels[kernel as usize]);
        }
        kernels.retain(|&kernel| self.doubted.insert(kernel));
        // A worker that survives keeps its loaded kernels.
        if status == Status::Crashed {
            kernels
                .iter()
                .for_each(|kernel| _ = self.built.remove(kernel));
            // Where blocks wait for their kernels, no other code would compile these; elsewhere
            // compiling disturbs measurements, and is done before the block that needs them.
            if self.compiles_beside() {
                self.compile(kernels.to_vec());
            }
        }
    }

    pub(super) fn finish(
        &mut self,
        number: u32,
        outcome: Outcome,
        worker: usize,
    ) -> Result<(), RunError> {
        let point = &self.plan.points[number as usize];
        let mut row = self.maker.row(point, outcome, &self.built, worker);
        self.count_try(&mut row);
        self.pruner.learn(&row);
        self.contests.learn(&row);
        self.keeper.check()?;
        self.journal.write(&row).map_err(FolderError::from)?;
        self.finished.insert(row.point);
        self.written += 1;
        let label = self.plan.label(point);
        let now_ns = self.began.elapsed().as_nanos() as f64;
        self.remaining.done(number, now_ns, row.sampled_ns());
        let left_ns = self.remaining.left_ns();
        self.keeper
            .row(&row, &label, Some(left_ns / 1e9), self.journal.bytes());
        let done = self.finished.len().min(self.plan.points.len()) - self.elsewhere;
        self.progress.event(&Event::Row {
            row: &row,
            label: &label,
            done,
            left: Duration::from_nanos(left_ns as u64),
        });
        Ok(())
    }

    /// Writes into a row which try of its point it is, and who tries points again.
    pub(super) fn count_try(&self, row: &mut Row) {
        row.earlier_rows = self.tries.get(&row.point).copied().unwrap_or(0);
        row.retried_in = self.request.retry.job().map(str::to_owned);
    }

    /// Writes the devices' ceilings before anything is measured: a killed run has no end.
    pub(super) fn begin(&mut self, folder: &RunFolder) -> Result<(), FolderError> {
        match folder.path().join(USAGE).exists() {
            true => Ok(()),
            false => folder.write_json(USAGE, &self.usage()),
        }
    }

    /// The use of the devices' time so far.
    fn usage(&mut self) -> RunUsage {
        // On the null device no time passes.
        let passes_time = self.plan.device.kind.facts().computes;
        let seconds = |time: Duration| match passes_time {
            true => (time.as_secs_f64() * 1e6).round() / 1e6,
            false => 0.0,
        };
        let devices = self.devices.iter().zip(&self.usage).enumerate();
        let devices = devices.map(|(worker, (device, usage))| DeviceUsage {
            kind: device.kind,
            name: device.name.clone(),
            unit: device.unit.clone(),
            blocks: usage.blocks,
            at_work_s: seconds(usage.at_work),
            running_s: seconds(usage.running),
            ceilings: self.maker.ceilings(worker).cloned(),
        });
        let anchors = self.anchors.take_readings();
        let wall_s = seconds(self.wall);
        let pressure = self
            .pressure
            .zip(CpuPressure::now())
            .map(|(before, now)| Pressure {
                before_percent: before.recent_percent,
                during_percent: match wall_s > 0.0 {
                    true => (100.0 * (now.total_s - before.total_s) / wall_s).clamp(0.0, 100.0),
                    false => 0.0,
                },
            });
        let usage = RunUsage::new(wall_s, self.compiled, devices.collect(), anchors);
        RunUsage {
            pressure: pressure.filter(|_| passes_time),
            ..usage
        }
    }

    /// Writes the tables and adds up.
    pub(super) fn end(
        mut self,
        run: RunId,
        folder: &RunFolder,
        reused: usize,
    ) -> Result<Ended, RunError> {
        let about = About::new(run, self.manifest, self.devices);
        let exports = &self.manifest.output.exports;
        let usage = self.usage();
        let is_complete = self.is_complete();
        let end = if is_complete { End::Done } else { End::Stopped };
        self.keeper
            .end(end, |state| state.usage = Some(usage.clone()));
        let standings = match folder.part() {
            Part::Whole => {
                let contents = contents_of(folder.path())?;
                let order = tables::order(self.plan.points.iter().map(|point| point.id));
                let rows = tables::write(folder, &contents, &order, &about, exports)?;
                self.teach(run, &rows.unwrap_or_default());
                if self.written > 0 {
                    folder.write_json(USAGE, &usage)?;
                }
                standings(&contents, folder)?
            }
            Part::Shard(shard) => {
                match is_complete {
                    true => shards::finish(folder, shard, &about, exports)?,
                    false => self.leave_tables(folder, &about),
                }
                let own = folder.part().journal(folder.path());
                let own = Contents::read(&own).map_err(FolderError::from)?;
                standings(&own, folder)?
            }
        };
        Ok(Ended {
            run,
            folder: folder.path().to_owned(),
            tally: Tally::of(standings),
            reused,
            written: self.written,
            taken: self.taken,
            unmeasured: self.unmeasured,
            compiled: self.compiled,
            usage,
            stopped: !is_complete,
        })
    }

    /// Makes tables and exports of a shared run's rows so far, where time suffices: a shard that
    /// ends early may go on much later, or never.
    fn leave_tables(&self, folder: &RunFolder, about: &About<'_>) {
        let left = self.request.allowed.job_left(Instant::now());
        // Slurm is told to start the job again after this.
        let time = left.map_or(shards::SHORT, |left| (left / 2).min(shards::SHORT));
        let exports = &self.manifest.output.exports;
        let reason = match shards::make_within(folder.path(), about, exports, time) {
            Ok(true) => return,
            Ok(false) => "there is no time for it".to_owned(),
            Err(error) => error.to_string(),
        };
        self.progress.event(&Event::Warning(&format!(
            "tables and exports of the rows so far are not made: {reason}; `sweeper report` makes them"
        )));
    }

    /// A finished calibration raises the ceilings of its devices. The rows of this run are held
    /// against the earlier ceilings, which `usage.json` contains.
    fn teach(&self, run: RunId, rows: &[Row]) {
        let exports = &self.manifest.output.exports;
        let Some(folder) = self.request.cache_dir.as_deref() else {
            return;
        };
        if !self.is_complete() || !exports.contains(&CALIBRATION_PROFILE) {
            return;
        }
        for (worker, device) in self.devices.iter().enumerate() {
            let name = self.maker.device_name(worker);
            let own: Vec<&Row> = rows.iter().filter(|row| row.device_name == name).collect();
            let threads = self.manifest.device.threads;
            match ceilings_file::learn(folder, device, threads, &own, run) {
                Ok(all) => all.iter().for_each(|raised| {
                    let device = &name;
                    self.progress.event(&Event::Raised { device, raised });
                }),
                Err(error) => {
                    let text = format!("what was measured can't be remembered: {error}");
                    self.progress.event(&Event::Warning(&text));
                }
            }
        }
    }
}

/// The outcome of a point one of whose kernels was not compiled.
pub(super) fn not_compiled(error: &CompileError) -> Outcome {
    let (status, cause) = match error {
        CompileError::Rejected { .. } => (Status::CompileError, None),
        CompileError::Timeout { .. } => (Status::CompileTimeout, None),
        CompileError::Unavailable(_) => (Status::Unavailable, Some(Cause::Surroundings)),
        CompileError::Surroundings(_) | CompileError::Stopped => {
            (Status::Error, Some(Cause::Surroundings))
        }
    };
    Outcome {
        cause,
        ..Outcome::without_measurement(status, error.to_string())
    }
}
