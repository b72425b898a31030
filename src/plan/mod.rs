//! The plan: canonical shapes, programs and kernels of all points, and what depends on what.
//!
//! Architecture invariant: a plan is a pure function of manifest and device. What the cache holds is
//! laid over it by whoever asks, and is not part of it.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use rayon::prelude::*;
use sweeper_kernels::program::KernelSource;
use sweeper_kernels::{CanonicalShape, Phase, Problem, Refusal, Target, registry};

use crate::device::DeviceKind;
use crate::grid::{Grid, Point};
use crate::identity::{Conditions, PointId, ProblemId, point_id};
use crate::manifest::Manifest;
use crate::manifest::settings::{self, L2, Launching, Word};

pub mod canonical;
pub mod published;
pub mod cost;
pub mod graph;
pub mod describe;

use canonical::Canonical;
use published::Sampling;

/// What a plan is made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanDevice {
    /// The kind of device.
    pub kind: DeviceKind,
    /// What programs are made for.
    pub target: Target,
}

/// A point of the plan.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The point of the grid.
    pub point: Point,
    /// Identity of its row.
    pub id: PointId,
    /// How the device is told what to do.
    pub mode: Launching,
    /// Its canonical shape, by position in [`Canonical::shapes`].
    pub shape: u32,
    /// The sources of its compiled kernels, by position in [`Plan::kernels`], in the order of its program.
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
    /// Its points, by position in [`Plan::points`].
    pub points: Vec<u32>,
    /// Operations of its oracle, in all; none where the problem can't be made.
    pub oracle_operations: f64,
}

/// A plan.
pub struct Plan<'m> {
    /// The grid it was made from.
    pub grid: Grid<'m>,
    /// What it was made for.
    pub device: PlanDevice,
    /// Points to measure, in the order of the grid.
    pub points: Vec<Planned>,
    /// Canonical shapes of all points of the grid.
    pub canonical: Canonical,
    /// Sources to compile, each once, in the order in which they first appear.
    pub kernels: Vec<KernelSource>,
    /// Blocks, in the order in which they are measured.
    pub blocks: Vec<PlannedBlock>,
    /// Points of the grid that sampling left out.
    pub sampled_out: u64,
}

/// A plan without its programs: which points there are, and their identities. Enough to see whether
/// anything is left to do, at a fraction of a plan's cost.
pub struct Outline<'m> {
    grid: Grid<'m>,
    device: PlanDevice,
    canonical: Canonical,
    chosen: Vec<u32>,
    blocks: Vec<PlannedBlock>,
}

impl<'m> Outline<'m> {
    /// Outlines a manifest's plan for a device.
    pub fn new(manifest: &'m Manifest, device: PlanDevice) -> Self {
        let grid = Grid::new(manifest);
        let canonical = Canonical::of(&grid);
        let chosen = choose(&grid);
        let blocks = blocks(&grid, &chosen);
        Outline {
            grid,
            device,
            canonical,
            chosen,
            blocks,
        }
    }

    /// Identities of the points that are measured, in the order of the grid.
    pub fn points(&self) -> Vec<PointId> {
        let manifest = self.grid.manifest();
        let modes = modes(manifest, self.device.kind);
        let id = |index: u32, mode| {
            let point = self.grid.points()[index as usize];
            let problem = self.grid.problem_id(index as usize);
            let canonical = self.canonical.shape(index as usize);
            let backend = self.grid.backend(point).name;
            let conditions = conditions(manifest, self.device.kind, mode);
            point_id(problem, backend, point.phase, canonical, conditions)
        };
        self.chosen
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
            chosen,
            mut blocks,
        } = self;
        let sampled_out = (grid.points().len() - chosen.len()) as u64;
        let position: HashMap<u32, u32> = chosen
            .iter()
            .zip(0..)
            .map(|(&index, new)| (index, new))
            .collect();
        let (drafts, operations): (Vec<Vec<Draft>>, Vec<f64>) = blocks
            .par_iter()
            .map(|block| draft_block(&grid, &device, &canonical, block))
            .unzip();
        for (block, operations) in blocks.iter_mut().zip(operations) {
            block.oracle_operations = operations;
        }
        let mut plan = Plan {
            grid,
            device,
            points: Vec::with_capacity(chosen.len()),
            canonical,
            kernels: Vec::new(),
            blocks,
            sampled_out,
        };
        plan.fill(drafts, &position);
        plan
    }
}

impl<'m> Plan<'m> {
    /// Plans a manifest for a device.
    pub fn new(manifest: &'m Manifest, device: PlanDevice) -> Self {
        Outline::new(manifest, device).fill()
    }

    /// Numbers kernels, and puts points in the order of the grid.
    fn fill(&mut self, drafts: Vec<Vec<Draft>>, position: &HashMap<u32, u32>) {
        let mut kernels = Kernels::default();
        let modes = modes(self.manifest(), self.device.kind);
        let mut points: Vec<Option<Planned>> = vec![None; position.len() * modes.len()];
        for (block, drafts) in self.blocks.iter_mut().zip(drafts) {
            let mut numbers = Vec::with_capacity(block.points.len() * modes.len());
            for (index, draft) in block.points.iter().zip(drafts) {
                let mut planned = draft.planned;
                planned.kernels = draft
                    .kernels
                    .into_iter()
                    .map(|source| kernels.intern(source))
                    .collect();
                // A point's modes follow one another; the draft has the identity of the first.
                for (way, &mode) in modes.iter().enumerate() {
                    let number = position[index] * modes.len() as u32 + way as u32;
                    numbers.push(number);
                    points[number as usize] = Some(Planned {
                        id: draft.ids[way],
                        mode,
                        ..planned.clone()
                    });
                }
            }
            block.points = numbers;
        }
        self.points = points.into_iter().flatten().collect();
        self.kernels = kernels.sources;
    }

    /// The manifest.
    pub fn manifest(&self) -> &'m Manifest {
        self.grid.manifest()
    }

    /// A point in words; how the device is told what to do is one of them where there are several ways.
    pub fn label(&self, point: &Planned) -> String {
        let label = self.grid.label(point.point);
        match modes(self.manifest(), self.device.kind).len() {
            1 => label,
            _ => format!("{label} {}", point.mode.word()),
        }
    }

    /// The canonical shape of a point.
    pub fn shape(&self, point: &Planned) -> &CanonicalShape {
        &self.canonical.shapes()[point.shape as usize]
    }

    /// The problem of a point, made anew.
    ///
    /// # Errors
    /// What the workload has against the parameters.
    pub fn problem(&self, point: Point) -> Result<Box<dyn Problem>, String> {
        problem(&self.grid, point)
    }
}

/// The ways in which a device is told what to do. A CPU knows one.
pub fn modes(manifest: &Manifest, kind: DeviceKind) -> Vec<Launching> {
    match kind {
        DeviceKind::Cpu => vec![Launching::Launch],
        DeviceKind::Cuda | DeviceKind::Null => manifest.measure.modes.clone(),
    }
}

/// The measurement settings that are part of a point's identity.
pub fn conditions(manifest: &Manifest, kind: DeviceKind, mode: Launching) -> Conditions {
    let cold = match manifest.measure.l2 {
        L2::Auto => kind == DeviceKind::Cuda,
        L2::Cold => true,
        L2::Hot => false,
    };
    Conditions {
        cold,
        graph: mode == Launching::Graph,
        threads: manifest.device.threads,
    }
}

fn problem(grid: &Grid<'_>, point: Point) -> Result<Box<dyn Problem>, String> {
    let case = grid.case(point);
    let workload = registry::workload(case.workload.name)
        .ok_or_else(|| format!("there is no workload `{}`", case.workload.name))?;
    workload
        .problem(&grid.parameters(point), case.dtype)
        .map_err(|error| error.to_string())
}

/// The points that are measured, ascending.
fn choose(grid: &Grid<'_>) -> Vec<u32> {
    let all = 0..grid.points().len() as u32;
    let mut chosen: Vec<u32> = match grid.manifest().plan.canonical {
        settings::Canonical::Dominating => all.collect(),
        settings::Canonical::Published {
            max_canonical_shapes,
            samples_per_shape,
        } => {
            let sampling = Sampling::of(grid, max_canonical_shapes, samples_per_shape);
            all.filter(|&index| sampling.kept[index as usize]).collect()
        }
    };
    if let Some(budget) = grid.manifest().limits.max_points {
        chosen.truncate(usize::try_from(budget).unwrap_or(usize::MAX));
    }
    chosen
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
                oracle_operations: 0.0,
            });
            blocks.len() - 1
        });
        blocks[block].points.push(index);
    }
    blocks
}

/// A planned point whose kernels have no numbers yet.
struct Draft {
    planned: Planned,
    /// Identities, one for each way in which the device is told what to do.
    ids: Vec<PointId>,
    kernels: Vec<KernelSource>,
}

fn draft_block(
    grid: &Grid<'_>,
    device: &PlanDevice,
    canonical: &Canonical,
    block: &PlannedBlock,
) -> (Vec<Draft>, f64) {
    let modes = modes(grid.manifest(), device.kind);
    let made = match block.points.first() {
        Some(&first) => problem(grid, grid.points()[first as usize]),
        None => return (Vec::new(), 0.0),
    };
    let draft = |&index: &u32| {
        let point = grid.points()[index as usize];
        let shape = canonical.number(index as usize) as u32;
        let canonical = canonical.shape(index as usize);
        let backend = grid.backend(point).name;
        let id = |&mode: &Launching| {
            let conditions = conditions(grid.manifest(), device.kind, mode);
            point_id(block.problem, backend, point.phase, canonical, conditions)
        };
        let ids: Vec<PointId> = modes.iter().map(id).collect();
        let planned = Planned {
            point,
            id: ids[0],
            mode: modes[0],
            shape,
            kernels: Vec::new(),
            memory_bytes: 0,
            launches: 0,
            guess_ns: 0.0,
            refusal: None,
        };
        let refused = |refusal| Draft {
            ids: ids.clone(),
            planned: Planned {
                refusal: Some(refusal),
                ..planned.clone()
            },
            kernels: Vec::new(),
        };
        let problem = match &made {
            Ok(problem) => problem,
            Err(reason) => return refused(Refusal::Undefined(reason.clone())),
        };
        match problem.program(backend, point.phase, canonical, &device.target) {
            Err(refusal) => refused(refusal),
            Ok(program) => {
                let totals = program.totals();
                let flops = problem.work(point.phase).flops;
                Draft {
                    ids: ids.clone(),
                    planned: Planned {
                        memory_bytes: program.memory_bytes(),
                        launches: totals.launches,
                        guess_ns: cost::iteration_ns(device.kind, &totals, flops),
                        ..planned
                    },
                    kernels: program.sources().into_iter().cloned().collect(),
                }
            }
        }
    };
    let drafts = block.points.iter().map(draft).collect();
    let operations = made.as_ref().map_or(0.0, |problem| {
        let phases = block.points.iter();
        let phase = Phase::covering(phases.map(|&index| grid.points()[index as usize].phase));
        problem.oracle_operations(phase, 1)
    });
    (drafts, operations)
}

/// Gives equal sources one number. Texts are long and shared, so they are compared last.
#[derive(Default)]
struct Kernels {
    by_hash: HashMap<u64, Vec<u32>>,
    sources: Vec<KernelSource>,
}

impl Kernels {
    fn intern(&mut self, source: KernelSource) -> u32 {
        let mut hasher = DefaultHasher::new();
        (source.main_file(), &source.defines, source.language).hash(&mut hasher);
        let candidates = self.by_hash.entry(hasher.finish()).or_default();
        let held = candidates
            .iter()
            .find(|&&number| self.sources[number as usize].same_source(&source));
        if let Some(&number) = held {
            return number;
        }
        let number = self.sources.len() as u32;
        candidates.push(number);
        self.sources.push(source);
        number
    }
}
