//! From planned points and outcomes to rows.

use std::collections::{BTreeMap, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

use sweeper_program::Value;

use sweeper_engine::compile::CompileError;
use sweeper_engine::compile::kernels::{Built, Origin};
use sweeper_engine::compile::wall::wall_ns;
use sweeper_engine::device::Script;
use sweeper_manifest::grid::{Grid, Point};
use sweeper_manifest::plan::{Plan, Planned, conditions, modes};
use sweeper_model::hardware::ceilings::Ceilings;
use sweeper_model::hardware::{DeviceIdentity, DeviceKind};
use sweeper_model::identity::{InputSource, PointId, ProblemId, point_id, problem_id};
use sweeper_model::mode::Mode;
use sweeper_model::row::outcome::{Flag, Outcome, Status};
use sweeper_model::row::{CompileUse, Row};

/// A device that rows are measured on.
pub struct Measured {
    /// Identity of the device.
    pub device: DeviceIdentity,
    /// Ceilings of the device, if they are known.
    pub ceilings: Option<Ceilings>,
}

/// Makes rows of one plan.
pub struct RowMaker<'a> {
    plan: &'a Plan<'a>,
    /// The devices, by worker.
    devices: Vec<Measured>,
    /// The problem of each planned point, by its identity.
    problems: HashMap<PointId, ProblemId>,
}

impl<'a> RowMaker<'a> {
    /// Rows measured on `devices`, by the worker of each.
    pub fn new(plan: &'a Plan<'a>, devices: Vec<Measured>) -> Self {
        let problems = plan
            .blocks
            .iter()
            .flat_map(|block| block.points.iter().map(|&point| (point, block.problem)))
            .map(|(point, problem)| (plan.points[point as usize].id, problem))
            .collect();
        RowMaker {
            plan,
            devices,
            problems,
        }
    }

    /// The ceilings of a worker's device, if they are known.
    pub fn ceilings(&self, worker: usize) -> Option<&Ceilings> {
        self.devices[worker].ceilings.as_ref()
    }

    /// The name of a worker's device in rows.
    pub fn device_name(&self, worker: usize) -> String {
        self.devices[worker].device.name_in_rows()
    }

    /// The row of a point that a worker finished.
    pub fn row(
        &self,
        point: &Planned,
        outcome: Outcome,
        built: &HashMap<u32, Result<Built, CompileError>>,
        worker: usize,
    ) -> Row {
        let mut row = self.describe(point);
        row.outcome = outcome;
        row.device_name = self.devices[worker].device.name_in_rows();
        self.hold_against_ceilings(&mut row, worker);
        row.unix_time_s = now_unix_s(self.plan.device.kind);
        let used = point
            .kernels
            .iter()
            .filter_map(|kernel| built.get(kernel)?.as_ref().ok());
        let (mut spilled_bytes, mut read_ns) = (0, Some(0));
        let mut compilations = Vec::new();
        for kernel in used {
            row.compile.kernels += 1;
            row.compile.hits += u32::from(kernel.origin == Origin::Hit);
            row.compile.compile_ns += kernel.compile_ns;
            compilations.push((kernel.compiled_at_ns, kernel.compile_ns));
            spilled_bytes += kernel.spilled_bytes();
            read_ns = read_ns.zip(kernel.read_ns).map(|(sum, one)| sum + one);
        }
        if let Some(found) = &mut row.outcome.measurement
            && spilled_bytes > 0
        {
            found.flags.push(Flag::Spills);
        }
        row.compile.wall_ns = (row.compile.kernels > 0).then(|| wall_ns(compilations));
        row.compile.read_ns = read_ns.filter(|_| row.compile.kernels > 0);
        row
    }

    /// Adds the rates that the ceilings allow to a row, and flags a row that exceeds them.
    fn hold_against_ceilings(&self, row: &mut Row, worker: usize) {
        let median_ns = row.summary().map(|summary| summary.median);
        let kind = row.arithmetic().to_owned();
        let (Some(ceilings), Some(found)) = (self.ceilings(worker), &mut row.outcome.measurement)
        else {
            return;
        };
        let (flops, bytes) = (found.flops, found.compulsory_bytes);
        row.roofline_ns = ceilings.roofline_ns(&kind, flops, bytes);
        row.ceiling_flops_per_s = ceilings.flops_per_s.get(&kind).copied();
        let surpasses = |time_ns| ceilings.are_surpassed(&kind, flops, bytes, time_ns);
        if median_ns.is_some_and(surpasses) {
            found.flags.push(Flag::AboveRoofline);
        }
    }

    /// A point's row before the point has an outcome.
    pub fn describe(&self, point: &Planned) -> Row {
        let canonical = self.plan.shape(point).iter();
        let canonical = canonical
            .map(|(name, bound)| (name.to_owned(), bound))
            .collect();
        let problem = self.problems[&point.id];
        self.blank(point.point, point.mode, point.id, problem, canonical)
    }

    fn blank(
        &self,
        point: Point,
        mode: Mode,
        id: PointId,
        problem: ProblemId,
        canonical: BTreeMap<String, u64>,
    ) -> Row {
        let grid = &self.plan.grid;
        let conditions = conditions(self.plan.manifest(), self.plan.device.kind, mode);
        let case = grid.case(point);
        let (parameters, values) = named_values(grid, point);
        Row {
            point: id,
            problem,
            case: case.name.to_string(),
            workload: case.workload.name.to_owned(),
            parameters,
            values,
            dtype: case.dtype,
            backend: grid.backend(point).name.to_owned(),
            phase: point.phase,
            canonical,
            device: self.plan.device.kind,
            device_name: self.devices[0].device.name_in_rows(),
            l2: conditions.cache.word().to_owned(),
            mode: mode.to_string(),
            roofline_ns: None,
            ceiling_flops_per_s: None,
            threads: self.plan.manifest().device.threads,
            unix_time_s: 0.0,
            compile: CompileUse::default(),
            earlier_rows: 0,
            retried_in: None,
            reused_from: None,
            outcome: Outcome {
                status: Status::Skipped,
                reason: None,
                cause: None,
                measurement: None,
            },
        }
    }

    /// Rows of the points that the manifest leaves out.
    pub fn skips(&self) -> Vec<Row> {
        let grid = &self.plan.grid;
        let manifest = self.plan.manifest();
        let modes = modes(manifest, self.plan.device.kind);
        let skip = |skip: &sweeper_manifest::grid::Skip, mode: Mode| {
            let case = grid.case(skip.point);
            let inputs = match &case.inputs {
                Some(file) => InputSource::File(file.digest),
                None => InputSource::Seed(manifest.seed),
            };
            let parameters = grid.parameters(skip.point);
            let workload = case.workload.identity();
            let problem = problem_id(&workload, &parameters, case.dtype, inputs);
            let backend = grid.implementation(skip.point);
            let shape = sweeper_program::CanonicalShape::default();
            let conditions = conditions(manifest, self.plan.device.kind, mode);
            let id = point_id(problem, backend, skip.point.phase, &shape, conditions);
            let mut row = self.blank(skip.point, mode, id, problem, BTreeMap::new());
            row.outcome = Outcome::without_measurement(Status::Skipped, &*skip.reason);
            row.unix_time_s = now_unix_s(self.plan.device.kind);
            row
        };
        let skips = grid.skips().iter();
        skips
            .flat_map(|each| modes.iter().map(|&mode| skip(each, mode)))
            .collect()
    }

    /// The script of the null device for a point.
    pub fn script(&self, point: &Planned) -> (Option<Script>, Option<Status>) {
        if self.plan.device.kind.facts().computes {
            return (None, None);
        }
        let answer = match self.plan.grid.null_answer(point.point) {
            Ok(Some(answer)) => answer,
            Ok(None) => return (None, None),
            Err(_) => return (None, Some(Status::Error)),
        };
        let status = (answer.status != Status::Ok).then_some(answer.status);
        let bytes = point.id.0.bytes();
        let seed = u64::from_le_bytes([
            bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
        ]);
        let script = Script {
            time_ns: answer.time_ns,
            noise: answer.noise,
            seed,
            memory_bytes: answer.memory_bytes.map(|bytes| bytes as u64),
        };
        (Some(script), status)
    }
}

/// Parameters of the workload, and all else that has a name.
fn named_values(
    grid: &Grid<'_>,
    point: Point,
) -> (BTreeMap<String, Value>, BTreeMap<String, Value>) {
    let parameters: BTreeMap<String, Value> = grid
        .parameters(point)
        .iter()
        .map(|(name, value)| (name.to_string(), value.clone()))
        .collect();
    let axes = grid
        .axes(point)
        .map(|(name, value)| (name.to_string(), value.clone()));
    let derived = grid
        .derived(point)
        .into_iter()
        .map(|(name, value)| (name.to_string(), value));
    let values = axes
        .chain(derived)
        .filter(|(name, _)| !parameters.contains_key(name))
        .collect();
    (parameters, values)
}

/// Seconds since 1970. On the null device no time passes: its files are equal every time.
pub fn now_unix_s(kind: DeviceKind) -> f64 {
    if !kind.facts().computes {
        return 0.0;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    (now.map_or(0.0, |now| now.as_secs_f64()) * 1e3).round() / 1e3
}
