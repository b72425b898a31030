//! A loop that runs operation by operation, and decides as it runs.

mod silence;

use std::time::Instant;

use sweeper_program::workload::{Dispatch, Dispatcher, LoopId, Planner};

use super::decide::{Offer, Work, next_look, plan_pays};
use super::memory::{Decision, Refused};
use super::turns::{Next, Side, Turns};
use crate::compile::background::{Background, CompileFailure, Compiled, News, Planned};
use crate::device::launcher::{Launcher, Moment};
use crate::device::{DeviceError, Job, Prepared};
use crate::row::hot_path::{HotOutcome, HotPath};
use silence::Silence;

/// Plans and compiles beside a loop.
pub(super) trait Helper: Send {
    /// Has a program planned.
    fn plan(&mut self, planner: Planner);

    /// Has the kernels of the planned program compiled.
    fn compile(&mut self);

    /// News, if there are any.
    ///
    /// # Errors
    /// If there will be none.
    fn news(&mut self) -> Result<Option<News>, CompileFailure>;
}

impl Helper for Background {
    fn plan(&mut self, planner: Planner) {
        Background::plan(self, planner);
    }

    fn compile(&mut self) {
        Background::compile(self);
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
    Planning { id: LoopId },
    /// A program is planned; does it pay?
    Weighing { id: LoopId, offer: Offer, look: u32 },
    /// Its kernels are being compiled.
    Compiling { id: LoopId, since: Instant },
    /// Both run in turns.
    Turning { id: LoopId, turns: Turns, look: u32 },
    /// It is decided.
    Settled,
}

/// The program of a loop, loaded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loaded {
    pub(super) id: LoopId,
    pub(super) program: Prepared,
}

/// A loop on its way.
pub(super) struct Driver<'a> {
    bench: Bench<'a>,
    iterations: u32,
    stage: Stage,
    loaded: Option<Loaded>,
    /// Adopt the loaded program in this iteration, and decide nothing.
    adopt_at: Option<u32>,
    /// The iteration that runs, from 1 on.
    iteration: u32,
    /// The program that ran the last iteration.
    last: Prepared,
    start: Instant,
    /// Operations run without being recorded.
    silence: Option<Silence>,
    /// The length of the next rest of a loop that is settled, in iterations.
    rest: u32,
    has_parts: bool,
    path: HotPath,
    decision: Option<(LoopId, Decision)>,
    refused: Option<(LoopId, String)>,
}

/// The end of a loop.
pub(super) struct Driven {
    pub(super) path: HotPath,
    pub(super) loaded: Option<Loaded>,
    /// What is to be remembered.
    pub(super) decision: Option<(LoopId, Decision)>,
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
        Driver {
            last: bench.eager,
            bench,
            iterations,
            stage: Stage::Searching,
            loaded: None,
            adopt_at: None,
            iteration: 0,
            start: Instant::now(),
            silence: None,
            rest: 1,
            has_parts: false,
            path: HotPath::default(),
            decision: None,
            refused: None,
        }
    }

    /// A loop about which it was decided before. Where the program was faster, it is loaded.
    pub(super) fn remembering(mut self, decision: &Decision, loaded: Option<Loaded>) -> Self {
        self.stage = Stage::Settled;
        self.loaded = loaded;
        let times = match decision {
            Decision::Kept { .. } if loaded.is_none() => return self,
            Decision::Kept {
                eager_ns,
                compiled_ns,
            } => {
                self.path.outcome = HotOutcome::Remembered;
                self.adopt_at = Some(1);
                (*eager_ns, *compiled_ns)
            }
            Decision::Back {
                eager_ns,
                compiled_ns,
            } => {
                self.path.outcome = HotOutcome::Back;
                (*eager_ns, *compiled_ns)
            }
        };
        self.path.eager_ns = Some(times.0);
        self.path.compiled_ns = Some(times.1);
        self
    }

    /// A loop that switches to a loaded program before an iteration, to see that the results stay
    /// right.
    pub(super) fn switching(mut self, loaded: Loaded, at: u32) -> Self {
        self.stage = Stage::Settled;
        self.loaded = Some(loaded);
        self.adopt_at = Some(at);
        self
    }

    /// The end.
    pub(super) fn finish(mut self, elapsed_ns: f64) -> Driven {
        let (outcome, pending) = match self.stage {
            Stage::Searching if self.silence.is_some() => (HotOutcome::Short, None),
            Stage::Searching if self.has_parts => (HotOutcome::Parts, None),
            Stage::Searching => (HotOutcome::Undetected, None),
            Stage::Watching { .. } => (HotOutcome::Short, None),
            Stage::Planning { id } => (HotOutcome::Short, Some(id)),
            Stage::Weighing { .. } => (HotOutcome::Unpaid, None),
            Stage::Compiling { id, since } => {
                self.path.background_ns += since.elapsed().as_nanos() as f64;
                (HotOutcome::Compiling, Some(id))
            }
            Stage::Turning { .. } => (HotOutcome::Trying, None),
            Stage::Settled => (self.path.outcome, None),
        };
        self.path.outcome = outcome;
        self.path.total_ns = elapsed_ns;
        Driven {
            path: self.path,
            loaded: self.loaded,
            decision: self.decision,
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
                self.path.switched_at.get_or_insert(self.iteration);
                self.path.replaced += 1;
                self.ended(id, Side::Compiled, launcher)
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
            self.stage = Stage::Watching {
                id,
                times: [None; 2],
                look: 0,
            };
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
        let stage = std::mem::replace(&mut self.stage, Stage::Settled);
        self.stage = match stage {
            Stage::Watching {
                id: own,
                times,
                look,
            } if own == id => self.watch(id, times, look, launcher)?,
            Stage::Planning { id: own } if own == id => self.planned(id),
            Stage::Weighing {
                id: own,
                offer,
                look,
            } if own == id => self.weigh(id, offer, look),
            Stage::Compiling { id: own, since } if own == id => {
                self.compiled(id, since, launcher)?
            }
            Stage::Turning {
                id: own,
                turns,
                look,
            } if own == id => self.turn(id, side, (turns, look), launcher)?,
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
        let pays = match self.bench.threshold {
            Some(threshold) => iteration >= threshold,
            None => plan_pays(operations, self.start.elapsed().as_nanos() as f64),
        };
        if !pays {
            return Ok(watching(times, next_look(iteration)));
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
        self.path.eager_ns = Some(elapsed_ns / f64::from(to.1 - from.1));
        match self.bench.dispatcher.planner(id) {
            Some(planner) => self.bench.background.plan(planner),
            None => return Ok(Stage::Settled),
        }
        Ok(Stage::Planning { id })
    }

    fn planned(&mut self, id: LoopId) -> Stage {
        let planned = match self.bench.background.news() {
            Ok(Some(News::Planned(planned))) => planned,
            // Of the loop before, which ended first: its program is this one.
            Ok(Some(News::Compiled(Err(failure)))) if failure.is_final => Err(failure),
            Ok(_) => return Stage::Planning { id },
            Err(failure) => Err(failure),
        };
        let planned = match planned {
            Ok(planned) => planned,
            Err(failure) => return self.fail(id, failure),
        };
        let Planned {
            launches,
            bytes,
            price_ns,
            plan_ns,
            ..
        } = planned;
        self.path.background_ns += plan_ns;
        let eager_ns = self.path.eager_ns.unwrap_or_default();
        let works = [self.bench.eager_work, Work { launches, bytes }];
        let offer = Offer::of(eager_ns, works, self.bench.launch_ns, price_ns);
        self.path.predicted_gain_ns = Some(offer.gain_ns);
        self.path.predicted_price_ns = Some(offer.price_ns);
        if self.bench.threshold.is_some() {
            return self.compile(id);
        }
        if offer.is_worthless(eager_ns) {
            self.path.outcome = HotOutcome::Worthless;
            return Stage::Settled;
        }
        self.weigh(id, offer, 0)
    }

    fn weigh(&mut self, id: LoopId, offer: Offer, look: u32) -> Stage {
        let iteration = self.iteration;
        if iteration < look || !offer.pays(iteration) {
            let look = match iteration < look {
                true => look,
                false => next_look(iteration),
            };
            return Stage::Weighing { id, offer, look };
        }
        self.compile(id)
    }

    fn compile(&mut self, id: LoopId) -> Stage {
        self.bench.background.compile();
        let since = Instant::now();
        Stage::Compiling { id, since }
    }

    /// Loads a program that is compiled, and lets it take turns.
    fn compiled(
        &mut self,
        id: LoopId,
        since: Instant,
        launcher: &mut dyn Launcher,
    ) -> Result<Stage, DeviceError> {
        let compiled = match self.bench.background.news() {
            Ok(Some(News::Compiled(compiled))) => compiled,
            Ok(_) => return Ok(Stage::Compiling { id, since }),
            Err(failure) => Err(failure),
        };
        let Compiled {
            program,
            artifacts,
            compile_ns,
        } = match compiled {
            Ok(compiled) => compiled,
            Err(failure) => return Ok(self.fail(id, failure)),
        };
        self.path.background_ns += compile_ns;
        let job = Job {
            program,
            artifacts: &artifacts,
            script: None,
        };
        let program = match launcher.prepare(job) {
            Ok(program) => program,
            Err(lost @ DeviceError::Lost(_)) => return Err(lost),
            Err(error) => {
                let failure = CompileFailure {
                    reason: error.to_string(),
                    is_final: matches!(error, DeviceError::Launch(_)),
                };
                return Ok(self.fail(id, failure));
            }
        };
        launcher.begin(program)?;
        self.loaded = Some(Loaded { id, program });
        self.bench.dispatcher.adopt(id);
        Ok(Stage::Turning {
            id,
            turns: Turns::new(self.path.eager_ns.unwrap_or_default()),
            look: 0,
        })
    }

    /// Takes turns until one of both is known to be faster.
    fn turn(
        &mut self,
        id: LoopId,
        side: Side,
        (mut turns, look): (Turns, u32),
        launcher: &mut dyn Launcher,
    ) -> Result<Stage, DeviceError> {
        let mut is_time = false;
        if turns.are_enough() {
            // The device has not passed all turns yet.
            is_time = self.iteration >= look;
        } else if turns.ended(side) == Next::Note && turns.note(launcher.moment()?) {
            is_time = true;
            self.change(id, turns.side(), launcher)?;
        }
        if !is_time {
            return Ok(Stage::Turning { id, turns, look });
        }
        turns.read(|from, to| launcher.between_ns(from, to))?;
        let Some(is_faster) = turns.verdict() else {
            let look = next_look(self.iteration);
            return Ok(Stage::Turning { id, turns, look });
        };
        self.settle(id, is_faster, &turns, launcher)?;
        Ok(Stage::Settled)
    }

    /// Lets one of both run the next iterations.
    fn change(
        &mut self,
        id: LoopId,
        side: Side,
        launcher: &mut dyn Launcher,
    ) -> Result<(), DeviceError> {
        match side {
            Side::Compiled => {
                self.bench.dispatcher.adopt(id);
                Ok(())
            }
            // Between two iterations nothing is kept.
            Side::Eager => match self.bench.dispatcher.abandon(id) {
                0 => Ok(()),
                held => self.flush(0, held, launcher),
            },
        }
    }

    fn settle(
        &mut self,
        id: LoopId,
        is_faster: bool,
        turns: &Turns,
        launcher: &mut dyn Launcher,
    ) -> Result<(), DeviceError> {
        let [eager_ns, compiled_ns] = turns.medians_ns().unwrap_or_default();
        self.path.eager_ns = Some(eager_ns);
        self.path.compiled_ns = Some(compiled_ns);
        let decision = match is_faster {
            true => {
                self.path.outcome = HotOutcome::Kept;
                self.change(id, Side::Compiled, launcher)?;
                Decision::Kept {
                    eager_ns,
                    compiled_ns,
                }
            }
            false => {
                self.path.outcome = HotOutcome::Back;
                self.path.regressions += 1;
                self.change(id, Side::Eager, launcher)?;
                Decision::Back {
                    eager_ns,
                    compiled_ns,
                }
            }
        };
        self.remember(id, decision);
        Ok(())
    }

    fn fail(&mut self, id: LoopId, failure: CompileFailure) -> Stage {
        self.path.outcome = HotOutcome::Failed;
        self.path.note = Some(failure.reason.clone());
        if failure.is_final {
            self.refused = Some((id, failure.reason));
        }
        Stage::Settled
    }

    fn remember(&mut self, id: LoopId, decision: Decision) {
        self.decision = Some((id, decision));
    }
}

#[cfg(test)]
mod tests;
