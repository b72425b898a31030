//! The plan: canonical shapes, programs and kernels of all points, and their dependencies.
//!
//! Architecture invariant: a plan is a pure function of manifest and device. The cache's content is
//! no part of it; callers add that.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;
use sweeper_program::{
    Arg, BufferId, CanonicalShape, KernelSource, Phase, Problem, Program, Refusal, Step, Target,
};

use crate::grid::{Grid, Point};
use crate::model::manifest::Manifest;
use crate::model::settings::L2;
use canonical::Canonical;
use oracle::BlockOracle;
use selection::Selection;
use sweeper_model::hardware::DeviceKind;
use sweeper_model::identity::{CacheState, Conditions, PointId, ProblemId, point_id};
use sweeper_model::mode::{Launching, Mode};

pub mod canonical;
pub mod published;
pub mod cost;
pub mod deal;
pub mod selection;
pub mod query;
pub mod graph;
pub mod describe;
pub mod oracle;

/// The device of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanDevice {
    /// The kind of device.
    pub kind: DeviceKind,
    /// The target of programs.
    pub target: Target,
}

/// A point of the plan.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The point of the grid.
    pub point: Point,
    /// Identity of its row.
    pub id: PointId,
    /// How its program is run.
    pub mode: Mode,
    /// The point's canonical shape, by position in [`Canonical::shapes`].
    pub shape: u32,
    /// The sources of its compiled kernels, by position in [`Plan::kernels`], in the order of its
    /// program.
    pub kernels: Vec<u32>,
    /// Bytes of its program's buffers.
    pub memory_bytes: u64,
    /// Launches of an iteration.
    pub launches: u64,
    /// A rough guess of one iteration's time, in nanoseconds, for progress bars and budgets.
    pub guess_ns: f64,
    /// Why it has no program, if it has none.
    pub refusal: Option<Refusal>,
}

/// All points of one problem in one case: measured together, by one worker.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedBlock {
    /// The problem.
    pub problem: ProblemId,
    /// The block's points, by position in [`Plan::points`].
    pub points: Vec<u32>,
    /// Its oracle; nobody's where the problem can't be made.
    pub oracle: BlockOracle,
}

/// A plan.
pub struct Plan<'m> {
    /// The grid it was made from.
    pub grid: Grid<'m>,
    /// The device of the plan.
    pub device: PlanDevice,
    /// Points to measure, in the order of the grid.
    pub points: Vec<Planned>,
    /// Canonical shapes of all points of the grid.
    pub canonical: Canonical,
    /// Sources to compile, each once, in the order in which they first appear.
    pub kernels: Vec<KernelSource>,
    /// Blocks, in the order in which they are measured.
    pub blocks: Vec<PlannedBlock>,
    /// Indices of the points in the grid, and the reasons of those left out.
    pub selection: Selection,
}

/// A plan without its programs: which points there are, and their identities. Enough to see whether
/// anything is left to do, at a fraction of a plan's cost.
pub struct Outline<'m> {
    grid: Grid<'m>,
    device: PlanDevice,
    canonical: Canonical,
    selection: Selection,
    blocks: Vec<PlannedBlock>,
}

impl<'m> Outline<'m> {
    /// Outlines a manifest's plan for a device.
    pub fn new(manifest: &'m Manifest, device: PlanDevice) -> Self {
        let grid = Grid::new(manifest);
        let (canonical, (selection, blocks)) = rayon::join(
            || Canonical::of(&grid),
            || {
                let selection = Selection::of(&grid);
                let blocks = blocks(&grid, &selection.chosen);
                (selection, blocks)
            },
        );
        Outline {
            grid,
            device,
            canonical,
            selection,
            blocks,
        }
    }

    /// The grid.
    pub fn grid(&self) -> &Grid<'m> {
        &self.grid
    }

    /// Which points of the grid are measured.
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Identities of the points that are measured, in the order of the grid.
    pub fn points(&self) -> Vec<PointId> {
        let manifest = self.grid.manifest();
        let modes = modes(manifest, self.device.kind);
        let id = |index: u32, mode| {
            let point = self.grid.points()[index as usize];
            let problem = self.grid.problem_id(index as usize);
            let canonical = self.canonical.shape(index as usize);
            let backend = self.grid.implementation(point);
            let conditions = conditions(manifest, self.device.kind, mode);
            point_id(problem, backend, point.phase, canonical, conditions)
        };
        let chosen = &self.selection.chosen;
        chosen
            .par_iter()
            .flat_map_iter(|&index| modes.iter().map(move |&mode| id(index, mode)))
            .collect()
    }

    /// The plan: every point's program, and the kernels of all.
    pub fn fill(self) -> Plan<'m> {
        let Outline {
            grid,
            device,
            canonical,
            selection,
            mut blocks,
        } = self;
        let mut position = vec![0; grid.points().len()];
        for (&index, new) in selection.chosen.iter().zip(0..) {
            position[index as usize] = new;
        }
        let kernels = Mutex::new(Kernels::default());
        let (points, oracles): (Vec<Vec<Planned>>, Vec<BlockOracle>) = blocks
            .par_iter()
            .map(|block| plan_block(&grid, &device, &canonical, block, &kernels))
            .unzip();
        for (block, oracle) in blocks.iter_mut().zip(oracles) {
            block.oracle = oracle;
        }
        let mut plan = Plan {
            grid,
            device,
            points: Vec::with_capacity(selection.chosen.len()),
            canonical,
            kernels: Vec::new(),
            blocks,
            selection,
        };
        let kernels = kernels.into_inner().unwrap_or_else(PoisonError::into_inner);
        plan.fill(points, &position, kernels);
        plan
    }
}

impl<'m> Plan<'m> {
    /// Plans a manifest for a device.
    pub fn new(manifest: &'m Manifest, device: PlanDevice) -> Self {
        Outline::new(manifest, device).fill()
    }

    /// Numbers kernels in the order in which they first appear, whichever thread met them first,
    /// and puts points in the order of the grid.
    fn fill(&mut self, planned: Vec<Vec<Planned>>, position: &[u32], met: Kernels) {
        let ways = modes(self.manifest(), self.device.kind).len() as u32;
        let mut sources: Vec<Option<KernelSource>> = met.sources.into_iter().map(Some).collect();
        let mut numbers: Vec<u32> = vec![0; sources.len()];
        let count: usize = planned.iter().map(Vec::len).sum();
        let mut points: Vec<Planned> = Vec::with_capacity(count);
        let mut places: Vec<u32> = Vec::with_capacity(count);
        let kernels = &mut self.kernels;
        let mut number = |kernel: &mut u32| {
            let met = *kernel as usize;
            if let Some(source) = sources[met].take() {
                numbers[met] = kernels.len() as u32;
                kernels.push(source);
            }
            *kernel = numbers[met];
        };
        for (block, planned) in self.blocks.iter_mut().zip(planned) {
            let indices = block.points.iter();
            // A point's modes follow one another.
            let own: Vec<u32> = indices
                .flat_map(|&index| (0..ways).map(move |way| position[index as usize] * ways + way))
                .collect();
            for mut point in planned {
                point.kernels.iter_mut().for_each(&mut number);
                points.push(point);
            }
            block.oracle.kernels.iter_mut().for_each(&mut number);
            places.extend(&own);
            block.points = own;
        }
        // Blocks mostly follow the grid: then nothing moves.
        for at in 0..places.len() {
            while places[at] as usize != at {
                let place = places[at] as usize;
                points.swap(at, place);
                places.swap(at, place);
            }
        }
        self.points = points;
    }

    /// The manifest.
    pub fn manifest(&self) -> &'m Manifest {
        self.grid.manifest()
    }

    /// A point in words; the way in which steps are given to the device is one of them where there
    /// are several ways.
    pub fn label(&self, point: &Planned) -> String {
        let label = self.grid.label(point.point);
        match modes(self.manifest(), self.device.kind).len() {
            1 => label,
            _ => format!("{label} {}", point.mode),
        }
    }

    /// The kernels that measuring some points of a block takes: those of the points, and of the
    /// block's oracle.
    pub fn kernels_of<'p>(
        &'p self,
        block: &'p PlannedBlock,
        points: impl IntoIterator<Item = u32> + 'p,
    ) -> impl Iterator<Item = u32> + 'p {
        let points = points.into_iter();
        let of_points = points.flat_map(|point| &self.points[point as usize].kernels);
        block.oracle.kernels.iter().chain(of_points).copied()
    }

    /// The canonical shape of a point.
    pub fn shape(&self, point: &Planned) -> &CanonicalShape {
        &self.canonical.shapes()[point.shape as usize]
    }

    /// The problem of a point, made anew.
    ///
    /// # Errors
    /// The workload's objection to the parameters.
    pub fn problem(&self, point: Point) -> Result<Box<dyn Problem>, String> {
        problem(&self.grid, point)
    }
}

/// The modes in which each point is measured on a device: loops where the manifest has any, else
/// the ways of launching. A CPU has one of those.
pub fn modes(manifest: &Manifest, kind: DeviceKind) -> Vec<Mode> {
    let loops = &manifest.measure.loops;
    if !loops.is_empty() {
        return loops.iter().copied().map(Mode::Loop).collect();
    }
    if !kind.facts().has_launch_modes {
        return vec![Mode::Each(Launching::Launch)];
    }
    let ways = manifest.measure.modes.iter();
    ways.copied().map(Mode::Each).collect()
}

/// The measurement settings that are part of a point's identity.
pub fn conditions(manifest: &Manifest, kind: DeviceKind, mode: Mode) -> Conditions {
    let cache = match (manifest.measure.l2, kind.facts().is_gpu) {
        // Iterations follow one another.
        _ if mode.iterations().is_some() => CacheState::Hot,
        (L2::Auto, true) | (L2::Cold, _) => CacheState::Cold,
        (L2::Auto, false) | (L2::Hot, _) => CacheState::Hot,
        (L2::Clean, _) => CacheState::Clean,
    };
    Conditions {
        cache,
        mode,
        threads: manifest.device.threads,
    }
}

fn problem(grid: &Grid<'_>, point: Point) -> Result<Box<dyn Problem>, String> {
    let case = grid.case(point);
    let workload = case
        .workload
        .workload()
        .ok_or_else(|| format!("there is no workload `{}`", case.workload.name))?;
    workload
        .problem(&grid.parameters(point), case.dtype)
        .map_err(|error| error.to_string())
}

/// Points by case and problem, in the order in which they first appear.
fn blocks(grid: &Grid<'_>, chosen: &[u32]) -> Vec<PlannedBlock> {
    let mut blocks: Vec<PlannedBlock> = Vec::new();
    let mut block_of: HashMap<(u16, usize), usize> = HashMap::new();
    for &index in chosen {
        let case = grid.points()[index as usize].case;
        let key = (case, grid.problem_number(index as usize));
        let block = *block_of.entry(key).or_insert_with(|| {
            let problem = grid.problem_id(index as usize);
            blocks.push(PlannedBlock {
                problem,
                points: Vec::new(),
                oracle: BlockOracle::default(),
            });
            blocks.len() - 1
        });
        blocks[block].points.push(index);
    }
    blocks
}

/// The points of a block, each in all modes, with kernels numbered as `kernels` met them; and the
/// block's oracle.
fn plan_block(
    grid: &Grid<'_>,
    device: &PlanDevice,
    canonical: &Canonical,
    block: &PlannedBlock,
    kernels: &Mutex<Kernels>,
) -> (Vec<Planned>, BlockOracle) {
    let made = match block.points.first() {
        Some(&first) => problem(grid, grid.points()[first as usize]),
        None => return (Vec::new(), BlockOracle::default()),
    };
    let modes = modes(grid.manifest(), device.kind);
    let mut points = Vec::with_capacity(block.points.len() * modes.len());
    for &index in &block.points {
        let point = grid.points()[index as usize];
        let shape = canonical.shape(index as usize);
        let backend = grid.backend(point).name;
        let implementation = grid.implementation(point);
        let facts = match &made {
            Ok(problem) => {
                let program = problem.program(backend, point.phase, shape, &device.target);
                let program = program.and_then(|program| as_loop(program, modes[0]));
                program.map(|it| Facts::of(&it, problem.as_ref(), point, device, kernels))
            }
            Err(reason) => Err(Refusal::Undefined(reason.clone())),
        };
        let (facts, refusal) = match facts {
            Ok(facts) => (facts, None),
            Err(refusal) => (Facts::default(), Some(refusal)),
        };
        points.extend(modes.iter().map(|&mode| {
            let conditions = conditions(grid.manifest(), device.kind, mode);
            Planned {
                point,
                id: point_id(
                    block.problem,
                    implementation,
                    point.phase,
                    shape,
                    conditions,
                ),
                mode,
                shape: canonical.number(index as usize) as u32,
                kernels: facts.kernels.clone(),
                memory_bytes: facts.memory_bytes,
                launches: facts.launches,
                guess_ns: facts.guess_ns,
                refusal: refusal.clone(),
            }
        }));
    }
    let is_judged = grid.manifest().measure.verify;
    let oracle = made.as_ref().ok().filter(|_| is_judged).map(|problem| {
        let phases = points.iter().map(|planned| planned.point.phase);
        let shape = canonical.shape(block.points[0] as usize);
        BlockOracle::of(
            problem.as_ref(),
            Phase::covering(phases),
            shape,
            device,
            kernels,
        )
    });
    (points, oracle.unwrap_or_default())
}

/// Properties of a point's program that are known without running it.
#[derive(Default)]
struct Facts {
    kernels: Vec<u32>,
    memory_bytes: u64,
    launches: u64,
    guess_ns: f64,
}

/// The program, unless it is to be a loop and an iteration changes what is prepared before it: only
/// the first one would compute what it should.
fn as_loop(program: Program, mode: Mode) -> Result<Program, Refusal> {
    let [prepared, changed] = [&program.prologue, &program.steps].map(|steps| written(steps));
    if mode.iterations().is_none() || prepared.is_disjoint(&changed) {
        return Ok(program);
    }
    Err(Refusal::Undefined(
        "iterations of a loop would begin from what the first one leaves of the values that are prepared \
         before it: take the phase `both`"
            .to_owned(),
    ))
}

/// The buffers that steps write.
fn written(steps: &[Step]) -> BTreeSet<BufferId> {
    let of_step = |step: &Step| match step {
        Step::Launch { args, .. } => {
            let written = args.iter().filter_map(|arg| match arg {
                Arg::Write(view) => Some(view.buffer),
                _ => None,
            });
            written.collect()
        }
        Step::Copy { to: view, .. } | Step::Fill { view, .. } => BTreeSet::from([view.buffer]),
        Step::Repeat { body, .. } => written(body),
    };
    steps.iter().flat_map(of_step).collect()
}

impl Facts {
    fn of(
        program: &Program,
        problem: &dyn Problem,
        point: Point,
        device: &PlanDevice,
        kernels: &Mutex<Kernels>,
    ) -> Self {
        let totals = program.totals();
        let flops = problem.work(point.phase).flops;
        let sources = program.sources();
        let mut numbers = Vec::new();
        if !sources.is_empty() {
            let mut kernels = kernels.lock().unwrap_or_else(PoisonError::into_inner);
            numbers.extend(sources.into_iter().map(|source| kernels.intern(source)));
        }
        Facts {
            kernels: numbers,
            memory_bytes: program.memory_bytes(),
            launches: totals.launches,
            guess_ns: cost::iteration_ns(device.kind, &totals, flops),
        }
    }
}

/// Gives equal sources one number. Texts are long and shared, so they are compared last.
#[derive(Default)]
struct Kernels {
    by_hash: HashMap<u64, Vec<u32>>,
    sources: Vec<KernelSource>,
}

impl Kernels {
    fn intern(&mut self, source: &KernelSource) -> u32 {
        let mut hasher = DefaultHasher::new();
        (source.main_file(), &source.defines, source.language).hash(&mut hasher);
        let candidates = self.by_hash.entry(hasher.finish()).or_default();
        let held = candidates
            .iter()
            .find(|&&number| self.sources[number as usize].same_source(source));
        if let Some(&number) = held {
            return number;
        }
        let number = self.sources.len() as u32;
        candidates.push(number);
        self.sources.push(source.clone());
        number
    }
}
