//! From planned blocks to the requests of workers.

use std::collections::{BTreeSet, HashMap};

use super::Request;
use super::contests::Contests;
use super::points::not_compiled;
use super::rows::RowMaker;
use sweeper_engine::compile::CompileError;
use sweeper_engine::compile::kernels::Built;
use sweeper_engine::device::Artifact;
use sweeper_engine::execute::protocol::{Block, BlockPoint, InputFile, Settings};
use sweeper_manifest::plan::{Plan, PlannedBlock};
use sweeper_model::row::outcome::Outcome;

/// Kernels that were asked for, by number.
pub(super) type BuiltKernels = HashMap<u32, Result<Built, CompileError>>;

/// The sources of blocks.
pub(super) struct Blocks<'a> {
    pub(super) plan: &'a Plan<'a>,
    pub(super) request: &'a Request,
    pub(super) maker: &'a RowMaker<'a>,
    pub(super) built: &'a BuiltKernels,
    pub(super) contests: &'a Contests,
}

impl Blocks<'_> {
    /// A block of the points called `numbers`, at least one.
    pub(super) fn block(&self, planned: &PlannedBlock, first: u32, numbers: &[u32]) -> Block {
        let grid = &self.plan.grid;
        let first = self.plan.points[first as usize].point;
        let case = grid.case(first);
        let manifest = self.plan.manifest();
        let parameters = grid.parameters(first);
        let parameters = parameters.iter();
        let tuned = self.contests.tuned(self.plan, planned, numbers);
        let points = numbers.iter().map(|&number| BlockPoint {
            tuned: tuned.get(&number).copied(),
            ..self.point(number)
        });
        Block {
            workload: case.workload.name.to_owned(),
            parameters: parameters
                .map(|(name, value)| (name.to_string(), value.clone()))
                .collect(),
            dtype: case.dtype,
            problem: *planned.problem.0.bytes(),
            inputs: case.inputs.as_ref().map(|file| InputFile {
                path: file.path.clone(),
                digest: *file.digest.bytes(),
            }),
            save_tensors: self.request.save_tensors.clone(),
            settings: Settings {
                stop: manifest.measure.stopping,
                warmup: manifest.measure.warmup,
                fresh_starts: manifest.measure.fresh_starts,
                verify: manifest.measure.verify,
                oracle_s: manifest.limits.oracle_time.as_secs_f64(),
                order: manifest.plan.order,
                auto: manifest.measure.auto,
                compile_limit: manifest.limits.compile_timeout,
            },
            points: points.collect(),
            rivals: self.contests.rivals(self.plan, planned, numbers),
            oracle_kernels: self.oracle_keys(planned),
            oracle_failure: self.oracle_failure(planned),
            artifacts: Vec::new(),
        }
    }

    fn point(&self, number: u32) -> BlockPoint {
        let plan = self.plan;
        let point = &plan.points[number as usize];
        let key = |kernel: &u32| Some(self.artifact(*kernel)?.key.clone());
        let (script, scripted_status) = self.maker.script(point);
        let canonical = plan.shape(point).iter();
        let backend = plan.grid.backend(point.point).name;
        let declared = plan.grid.case(point.point).workload.declared;
        BlockPoint {
            number,
            backend: backend.to_owned(),
            phase: point.point.phase,
            mode: point.mode,
            canonical: canonical
                .map(|(name, bound)| (name.to_owned(), bound))
                .collect(),
            kernels: point.kernels.iter().filter_map(key).collect(),
            folder: point.id.to_string(),
            tolerance_factor: declared.map_or(1.0, |held| held.tolerance_factor(backend)),
            tuned: None,
            script,
            scripted_status,
        }
    }

    /// Keys of the kernels of the device's oracle; none if one of them was not compiled, so that
    /// the host's oracle is used.
    fn oracle_keys(&self, planned: &PlannedBlock) -> Vec<String> {
        let kernels = planned.oracle.kernels.iter();
        let keys = kernels.map(|&kernel| Some(self.artifact(kernel)?.key.clone()));
        keys.collect::<Option<Vec<String>>>().unwrap_or_default()
    }

    /// Why a kernel of the oracle was not compiled, if one was not.
    fn oracle_failure(&self, planned: &PlannedBlock) -> Option<Outcome> {
        let mut kernels = planned.oracle.kernels.iter();
        let failed = kernels.find_map(|kernel| self.built.get(kernel)?.as_ref().err());
        failed.map(not_compiled)
    }

    fn artifact(&self, kernel: u32) -> Option<&Artifact> {
        let built = self.built.get(&kernel)?.as_ref().ok()?;
        Some(&built.artifact)
    }

    /// The compiled kernels of some points of a block and of its oracle, each kernel once.
    pub(super) fn artifacts(&self, planned: &PlannedBlock, numbers: &[u32]) -> Vec<Artifact> {
        let kernels = self.plan.kernels_of(planned, numbers.iter().copied());
        let kernels: BTreeSet<u32> = kernels.collect();
        let artifacts = kernels.into_iter();
        artifacts
            .filter_map(|kernel| self.artifact(kernel).cloned())
            .collect()
    }
}
