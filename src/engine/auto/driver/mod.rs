//! A loop that runs operation by operation, and decides as it runs.
//!
//! [`plans`] has programs planned and compiled where they pay, [`trial`] lets them take turns with
//! what ran before; [`silence`] says when nothing is recorded.
//!
//! The program of the whole iteration is preferred. Where it does not pay yet, that of its repeated
//! parts may: it has fewer kernels to compile. It then runs until the whole one pays, if it ever
//! does.

mod plans;
mod silence;
mod trial;

use std::time::Instant;

use sweeper_program::workload::{Dispatch, Dispatcher, LoopId, Planner};

use super::decide::{Offer, Work, next_look, plan_pays};
use super::memory::{Decision, Decisions, Refused};
use super::turns::{Side, Turns};
use crate::compile::background::{Background, CompileFailure, News, Scope};
use crate::device::launcher::{Launcher, Moment};
use crate::device::{DeviceError, Prepared};
use silence::Silence;
use sweeper_manifest::settings::PartsRule;
use sweeper_model::row::hot_path::{HotOutcome, HotPath};

/// Plans and compiles beside a loop.
pub(super) trait Helper: Send {
    /// Has a program planned.
    fn plan(&mut self, scope: Scope, planner: Planner);

    /// Has the kernels of the planned program of a scope compiled.
    fn compile(&mut self, scope: Scope);

    /// News, if there are any.
    ///
    /// # Errors
    /// If there will be none.
    fn news(&mut self) -> Result<Option<News>, CompileFailure>;
}

impl Helper for Background {
    fn plan(&mut self, scope: Scope, planner: Planner) {
        Background::plan(self, scope, planner);
    }

    fn compile(&mut self, scope: Scope) {
        Background::compile(self, scope);
    }

    fn news(&mut self) -> Result<Option<News>, CompileFailure> {
        Background::news(self)
    }
}

/// What a loop needs to decide.
pub(super) struct Bench<'a> {
    pub(super) dispatcher: &'a mut dyn Dispatcher,
    pub(super) background: &'a mut dyn Helper,
    /// The program that runs operation by operation, and its work.
    pub(super) eager: Prepared,
    pub(super) eager_work: Work,
    /// Cost of a launch beside its bytes, in nanoseconds.
    pub(super) launch_ns: f64,
    /// Compile after so many iterations, whatever it costs.
    pub(super) threshold: Option<u32>,
    /// When parts are compiled by themselves.
    pub(super) parts: PartsRule,
    /// Loops without a program.
    pub(super) refused: &'a [Refused],
}

/// The stages of a decision.
enum Stage {
    /// No loop was found.
    Searching,
    /// A loop was found; how long does an iteration take?
    Watching {
        id: LoopId,
        /// Two moments, each after so many iterations.
        times: [Option<(Moment, u32)>; 2],
        look: u32,
    },
    /// A program is being planned.
    Planning { id: LoopId, scope: Scope },
    /// Programs are planned; does one pay?
    Weighing {
        id: LoopId,
        offers: Offers,
        look: u32,
    },
    /// Kernels of a program are being compiled.
    Compiling { id: LoopId, scope: Scope },
    /// A program takes turns with what ran before.
    Turning {
        id: LoopId,
        tried: Loaded,
        turns: Turns,
        look: u32,
    },
    /// It is decided.
    Settled,
}

/// What programs that are planned would gain.
#[derive(Clone, Copy, Debug)]
struct Offers {
    whole: Offer,
    parts: Option<Offer>,
}

/// A program of a loop, loaded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Loaded {
    pub(super) id: LoopId,
    pub(super) program: Prepared,
    pub(super) scope: Scope,
}

/// The program of parts that runs in place of single operations.
#[derive(Clone, Copy, Debug)]
struct Base {
    loaded: Loaded,
    /// Time of an iteration, in nanoseconds.
    time_ns: f64,
}

/// A loop on its way.
pub(super) struct Driver<'a> {
    bench: Bench<'a>,
    iterations: u32,
    stage: Stage,
    /// The program that runs iterations of an adopted loop.
    loaded: Option<Loaded>,
    /// All programs that were loaded.
    all_loaded: Vec<Loaded>,
    base: Option<Base>,
    /// Whether the program of parts was planned, or is known to be no faster.
    has_tried_parts: bool,
    /// What the whole program would gain, while that of parts is tried.
    whole: Option<Offer>,
    /// Adopt the loaded program in this iteration, and decide nothing.
    adopt_at: Option<u32>,
    /// The iteration that runs, from 1 on.
    iteration: u32,
    /// The program that ran the last iteration.
    last: Prepared,
    /// The host's clock when the loop began, when it was last decided something, and when the
    /// background was last asked for a plan or a program.
    start: Instant,
    now: Instant,
    asked: Instant,
    /// Operations run without being recorded.
    silence: Option<Silence>,
    /// The length of the next rest of a loop that is settled, in iterations.
    rest: u32,
    has_parts: bool,
    path: HotPath,
    decisions: Vec<(LoopId, Decision)>,
    refused: Option<(LoopId, String)>,
}

/// The end of a loop.
pub(super) struct Driven {
    pub(super) path: HotPath,
    /// Programs that were loaded.
    pub(super) loaded: Vec<Loaded>,
    /// What is to be remembered.
    pub(super) decisions: Vec<(LoopId, Decision)>,
    /// The loop for which there is no program, and why, if another try would fail as well.
    pub(super) refused: Option<(LoopId, String)>,
    /// The program that ran the last iteration.
    pub(super) last: Prepared,
    /// The loop, if the background still works for it.
    pub(super) pending: Option<LoopId>,
}

impl<'a> Driver<'a> {
    /// A loop of which nothing is known.
    pub(super) fn new(bench: Bench<'a>, iterations: u32) -> Self {
        let now = Instant::now();
        Driver {
            last: bench.eager,
            bench,
            iterations,
            stage: Stage::Searching,
            loaded: None,
            all_loaded: Vec::new(),
            base: None,
            has_tried_parts: false,
            whole: None,
            adopt_at: None,
            iteration: 0,
            start: now,
            now,
            asked: now,
            silence: None,
            rest: 1,
            has_parts: false,
            path: HotPath::default(),
            decisions: Vec::new(),
            refused: None,
        }
    }

    /// A loop about which it was decided before. The program that is to run is loaded; without it
    /// the loop is as good as unknown.
    pub(super) fn remembering(
        mut self,
        (id, decisions): (LoopId, &Decisions),
        loaded: Option<Loaded>,
    ) -> Self {
        let parts = decisions.get(Scope::Parts);
        self.has_tried_parts = parts.is_some();
        let whole = decisions.get(Scope::Whole);
        let Some(told) = whole.or(parts) else {
            return self;
        };
        self.path.eager_ns = Some(told.eager_ns);
        self.path.compiled_ns = Some(told.compiled_ns);
        match (decisions.kept(), loaded) {
            (Some(kept), Some(loaded)) => {
                self.run_from_start(kept, loaded);
                if whole.is_none() {
                    self.stage = watching(id);
                }
            }
            (Some(_), None) => self.stage = Stage::Settled,
            (None, _) if whole.is_some() => {
                self.stage = Stage::Settled;
                self.path.outcome = HotOutcome::Back;
            }
            // Parts are no faster, and the whole was not tried.
            (None, _) => self.stage = watching(id),
        }
        self
    }

    fn run_from_start(&mut self, kept: Decision, loaded: Loaded) {
        self.stage = Stage::Settled;
        self.path.outcome = HotOutcome::Remembered;
        self.load(loaded);
        self.adopt_at = Some(1);
        if kept.scope == Scope::Parts {
            let time_ns = kept.compiled_ns;
            self.base = Some(Base { loaded, time_ns });
        }
    }

    /// Lets a program run the iterations of an adopted loop.
    fn load(&mut self, loaded: Loaded) {
        self.loaded = Some(loaded);
        if !self.all_loaded.contains(&loaded) {
            self.all_loaded.push(loaded);
        }
    }

    /// A loop that switches to a loaded program before an iteration, to see that the results stay
    /// right.
    pub(super) fn switching(mut self, loaded: Loaded, at: u32) -> Self {
        self.stage = Stage::Settled;
        self.load(loaded);
        self.adopt_at = Some(at);
        self
    }

    /// The end.
    pub(super) fn finish(mut self, elapsed_ns: f64) -> Driven {
        let (outcome, pending) = match self.stage {
            Stage::Searching if self.silence.is_some() => (HotOutcome::Short, None),
            Stage::Searching if self.has_parts => (HotOutcome::Parts, None),
            Stage::Searching => (HotOutcome::Undetected, None),
            Stage::Planning { id, .. } if self.base.is_some() => (self.path.outcome, Some(id)),
            Stage::Watching { .. } | Stage::Weighing { .. } if self.base.is_some() => {
                (self.path.outcome, None)
            }
            Stage::Watching { .. } => (HotOutcome::Short, None),
            Stage::Planning {
                id,
                scope: Scope::Whole,
            } => (HotOutcome::Short, Some(id)),
            Stage::Planning { .. } | Stage::Weighing { .. } => (HotOutcome::Unpaid, None),
            Stage::Compiling { id, .. } => {
                self.path.background_ns += (self.now - self.asked).as_nanos() as f64;
                (HotOutcome::Compiling, Some(id))
            }
            Stage::Turning { .. } => (HotOutcome::Trying, None),
            Stage::Settled => (self.path.outcome, None),
        };
        self.path.outcome = outcome;
        self.path.total_ns = elapsed_ns;
        Driven {
            path: self.path,
            loaded: self.all_loaded,
            decisions: self.decisions,
            refused: self.refused,
            last: self.last,
            pending,
        }
    }

    /// Runs the operation at a position of the iteration, as the dispatcher says.
    fn operation(&mut self, at: usize, launcher: &mut dyn Launcher) -> Result<(), DeviceError> {
        match self.bench.dispatcher.record() {
            Dispatch::Run => self.launch(at, launcher),
            Dispatch::Hold => Ok(()),
            Dispatch::Found(id) => {
                self.launch(at, launcher)?;
                self.found(id);
                Ok(())
            }
            Dispatch::Boundary(id) => {
                self.launch(at, launcher)?;
                self.last = self.bench.eager;
                self.ended(id, Side::Eager, launcher)?;
                if at + 1 == self.bench.dispatcher.steps().len() {
                    self.rest();
                }
                Ok(())
            }
            Dispatch::Replace(id) => {
                let Some(loaded) = self.loaded.filter(|loaded| loaded.id == id) else {
                    return Err(DeviceError::Launch(
                        "a loop was adopted whose program is not loaded".to_owned(),
                    ));
                };
                launcher.launch(loaded.program, 0..launcher.steps(loaded.program))?;
                self.last = loaded.program;
                let first = match loaded.scope {
                    Scope::Whole => &mut self.path.switched_at,
                    Scope::Parts => &mut self.path.parts_at,
                };
                first.get_or_insert(self.iteration);
                self.path.replaced += 1;
                let is_base = self.base.is_some_and(|base| base.loaded == loaded);
                let side = if is_base { Side::Eager } else { Side::Compiled };
                self.ended(id, side, launcher)
            }
            Dispatch::Flush { held } => {
                self.flush(at, held, launcher)?;
                self.launch(at, launcher)
            }
        }
    }

    fn launch(&self, at: usize, launcher: &mut dyn Launcher) -> Result<(), DeviceError> {
        let steps = self.bench.dispatcher.steps()[at].clone();
        match steps.is_empty() {
            true => Ok(()),
            false => launcher.launch(self.bench.eager, steps),
        }
    }

    /// Launches the last operations before the one at a position.
    fn flush(
        &self,
        at: usize,
        held: usize,
        launcher: &mut dyn Launcher,
    ) -> Result<(), DeviceError> {
        let operations = self.bench.dispatcher.steps().len();
        for back in (1..=held).rev() {
            self.launch((at + operations - back % operations) % operations, launcher)?;
        }
        Ok(())
    }

    fn found(&mut self, id: LoopId) {
        let is_whole = self.bench.dispatcher.is_whole(id);
        self.has_parts |= !is_whole;
        if is_whole && matches!(self.stage, Stage::Searching) {
            self.path.detected_at = Some(self.iteration);
            if let Some(refused) = self.refusal(id) {
                self.path.outcome = HotOutcome::Failed;
                self.path.note = Some(refused.reason.clone());
                self.stage = Stage::Settled;
                return;
            }
            self.stage = watching(id);
        }
    }

    /// Why there is no program for a loop, if that is known.
    fn refusal(&self, id: LoopId) -> Option<&'a Refused> {
        let refused = self.bench.refused;
        if refused.is_empty() {
            // Signatures of large models take milliseconds.
            return None;
        }
        let signature = self.bench.dispatcher.signature(id)?;
        refused.iter().find(|held| held.signature == signature)
    }

    /// Decides after an iteration of a loop.
    fn ended(
        &mut self,
        id: LoopId,
        side: Side,
        launcher: &mut dyn Launcher,
    ) -> Result<(), DeviceError> {
        if matches!(self.stage, Stage::Searching | Stage::Settled) {
            return Ok(());
        }
        self.now = launcher.now();
        let stage = std::mem::replace(&mut self.stage, Stage::Settled);
        self.stage = match stage {
            Stage::Watching {
                id: own,
                times,
                look,
            } if own == id => self.watch(id, times, look, launcher)?,
            Stage::Planning { id: own, scope } if own == id => self.planned(id, scope),
            Stage::Weighing {
                id: own,
                offers,
                look,
            } if own == id => self.weigh(id, offers, look),
            Stage::Compiling { id: own, scope } if own == id => {
                self.compiled((id, scope), launcher)?
            }
            Stage::Turning {
                id: own,
                tried,
                turns,
                look,
            } if own == id => self.turn(tried, side, (turns, look), launcher)?,
            other => other,
        };
        Ok(())
    }

    /// Measures an iteration; has a program planned once that may pay.
    fn watch(
        &mut self,
        id: LoopId,
        times: [Option<(Moment, u32)>; 2],
        look: u32,
        launcher: &mut dyn Launcher,
    ) -> Result<Stage, DeviceError> {
        let iteration = self.iteration;
        let watching = |times, look| Stage::Watching { id, times, look };
        if iteration < look {
            return Ok(watching(times, look));
        }
        let operations = self.bench.dispatcher.steps().len();
        let (pays, next) = match self.bench.threshold {
            Some(threshold) => (iteration >= threshold, threshold),
            None => {
                let elapsed_ns = (self.now - self.start).as_nanos() as f64;
                (plan_pays(operations, elapsed_ns), next_look(iteration))
            }
        };
        if !pays {
            return Ok(watching(times, next));
        }
        let (from, to) = match times {
            [Some(from), Some(to)] => (from, to),
            [from, _] => {
                let now = Some((launcher.moment()?, iteration));
                let times = if from.is_none() {
                    [now, None]
                } else {
                    [from, now]
                };
                return Ok(watching(times, iteration + 1));
            }
        };
        // The device may be behind.
        let Some(elapsed_ns) = launcher.between_ns(from.0, to.0)? else {
            return Ok(watching(times, iteration + 1));
        };
        let time_ns = elapsed_ns / f64::from(to.1 - from.1);
        match &mut self.base {
            Some(base) => base.time_ns = time_ns,
            None => self.path.eager_ns = Some(time_ns),
        }
        Ok(self.plan(id, Scope::Whole))
    }
}

/// The stage of a loop that was just found.
fn watching(id: LoopId) -> Stage {
    Stage::Watching {
        id,
        times: [None; 2],
        look: 0,
    }
}

#[cfg(test)]
mod tests;
