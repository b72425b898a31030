//! Starting times of programs, in processes of their own.
//!
//! The first program of a process pays for more than itself: a library makes its tables, the system
//! its pages, the processor its frequency. A user's loop pays for that, too, with any backend. So a
//! worker starts further workers, one for each start, in which nothing else ever runs.

use std::collections::BTreeMap;
use std::time::Duration;

use super::block::Listener;
use super::block_context::Artifacts;
use super::protocol::{Block, BlockPoint, DeviceRequest, Settings, Stage};
use super::supervisor::{Observer, Supervisor, Task, WorkerCommand};
use sweeper_manifest::settings::{Stopping, Warmup};
use sweeper_model::mode::Mode;
use sweeper_model::row::outcome::{FreshStart, FreshStarts, Outcome, Status};
use sweeper_model::scratch::Scratch;

/// The main process loses its patience sooner, and ends this worker with all that it started.
const LIMIT: Duration = Duration::from_secs(3600);

/// Starts every program of a block as often as its settings say, in turns, so that slow changes
/// affect all alike. A start that fails is left out: the measurement reports the program's fault.
///
/// A function in Python is started twice each time: its libraries find an empty folder for what
/// they compile, and then the one that they filled.
pub(super) fn starts(
    block: &Block,
    artifacts: &Artifacts,
    device: &DeviceRequest,
    listener: &mut dyn Listener,
) -> BTreeMap<u32, FreshStarts> {
    let mut found: BTreeMap<u32, FreshStarts> = BTreeMap::new();
    for _ in 0..block.settings.fresh_starts {
        for point in &block.points {
            let task = alone(block, point, artifacts);
            let Ok(folder) = Scratch::new() else {
                continue;
            };
            let device = DeviceRequest {
                compiled_code: Some(folder.path().to_owned()),
                ..device.clone()
            };
            let mut next = || {
                listener.working(point.number, Stage::Warmup);
                start(&task, &device)
            };
            let first = next();
            let starts = found.entry(point.number).or_default();
            match first {
                Some((start, true)) => {
                    starts.cold.push(start);
                    starts.warm.extend(next().map(|(start, _)| start));
                }
                first => starts.warm.extend(first.map(|(start, _)| start)),
            }
        }
    }
    found
}

/// One point with the least that starting it needs: no oracle, one sample.
fn alone(block: &Block, point: &BlockPoint, artifacts: &Artifacts) -> Task {
    let artifacts = point.kernels.iter().filter_map(|key| artifacts.get(key));
    Task {
        artifacts: artifacts.cloned().collect(),
        block: Block {
            settings: Settings {
                stop: Stopping::Repeats(1),
                warmup: Warmup::Runs(0),
                fresh_starts: 0,
                verify: false,
                ..block.settings
            },
            save_tensors: None,
            points: vec![by_itself(point)],
            oracle_kernels: Vec::new(),
            oracle_failure: None,
            artifacts: Vec::new(),
            ..block.clone()
        }
        .by_itself(),
    }
}

/// A point whose loop is as short as its first iteration.
fn by_itself(point: &BlockPoint) -> BlockPoint {
    let mode = match point.mode {
        Mode::Loop(_) => Mode::Loop(1),
        each @ Mode::Each(_) => each,
    };
    BlockPoint {
        mode,
        ..point.clone()
    }
}

/// Starts a program in a process that ends after it; and whether it is a function in Python.
fn start(task: &Task, device: &DeviceRequest) -> Option<(FreshStart, bool)> {
    let command = WorkerCommand {
        program: std::env::current_exe().ok()?,
        args: std::env::args().skip(1).collect(),
        idle: None,
    };
    let mut only = Only::default();
    let mut supervisor = Supervisor::start(command, device.clone(), LIMIT).ok()?;
    supervisor.measure(task, &mut only).ok()?;
    let outcome = only.0.filter(|outcome| outcome.status == Status::Ok)?;
    let found = outcome.measurement?;
    let start = FreshStart {
        prepare_ns: found.own_prepare_ns()?,
        first_runs: found.first_runs?,
    };
    Some((start, found.first_call_ns.is_some()))
}

/// The outcome of the only point.
#[derive(Default)]
struct Only(Option<Outcome>);

impl Observer for Only {
    fn working(&mut self, _number: u32, _stage: Stage) {}

    fn finished(&mut self, _number: u32, outcome: Outcome) {
        self.0 = Some(outcome);
    }

    fn is_stopped(&self) -> bool {
        false
    }

    fn next(&mut self, _: usize) -> Option<&Task> {
        None
    }
}
