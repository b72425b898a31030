//! When a loop's operations are recorded, and when they are not because nothing depends on it.
//!
//! Between kernels, which take the caches, recording costs 50 to 150 ns an operation. A loop that
//! has just begun is not recorded, and one whose next decision is some iterations away rests until
//! then.

use std::time::Duration;

use super::{Driver, HotOutcome, Stage};
use crate::device::DeviceError;
use crate::device::launcher::{Launcher, LoopDriver};

/// A loop that ended before would not have been looked at: no plan is asked for as early, and until
/// a loop is found some operations cost a microsecond.
const YOUNG: Duration = Duration::from_millis(1);

/// The clock of a young loop is read after so many operations, and then whenever twice as many
/// have run.
const FIRST_LOOK: usize = 4;

/// The background is asked for news so often, in nanoseconds, but not before this share of the time
/// that it has worked: what is ready is used that much later.
const NEWS_NS: f64 = 100e3;
const NEWS_SHARE: f64 = 1.0 / 32.0;

/// The longest rest, in iterations.
const MOST_ITERATIONS: u32 = 1024;

/// A shorter rest saves nothing.
const LEAST_ITERATIONS: u32 = 2;

/// Why operations are not recorded.
#[derive(Clone, Copy, Debug)]
pub(super) enum Silence {
    /// The loop has just begun. The clock is read when `look` operations have run.
    Young { done: usize, look: usize },
    /// Nothing is decided for so many iterations.
    Rest { iterations: u32 },
}

impl Driver<'_> {
    /// Begins without recording, unless a program is there or iterations are counted.
    fn begin_silence(&mut self) {
        let is_waited_for = self.loaded.is_some() || self.bench.threshold.is_some();
        self.silence = (!is_waited_for).then_some(Silence::Young {
            done: 0,
            look: FIRST_LOOK,
        });
    }

    /// Rests after an iteration until the next decision.
    pub(super) fn rest(&mut self) {
        let iterations = match &self.stage {
            Stage::Watching { look, .. } | Stage::Weighing { look, .. } => {
                look.saturating_sub(self.iteration + 1)
            }
            // By a threshold the program is to be used as early as it can be.
            Stage::Planning { .. } | Stage::Compiling { .. } if self.bench.threshold.is_none() => {
                let worked_ns = (self.now - self.asked).as_nanos() as f64;
                let rest_ns = NEWS_NS.max(NEWS_SHARE * worked_ns);
                (rest_ns / self.path.eager_ns.unwrap_or_default().max(1.0)) as u32
            }
            // Other work may follow: now and then the stream has to see that the loop still runs.
            Stage::Settled if self.has_given_up() => {
                self.rest = (2 * self.rest).min(MOST_ITERATIONS);
                self.rest
            }
            _ => 0,
        };
        if iterations >= LEAST_ITERATIONS {
            let iterations = iterations.min(MOST_ITERATIONS);
            self.silence = Some(Silence::Rest { iterations });
        }
    }

    /// Whether it is settled that there is no program for the loop.
    fn has_given_up(&self) -> bool {
        matches!(
            self.path.outcome,
            HotOutcome::Worthless | HotOutcome::Failed | HotOutcome::Back
        )
    }

    /// Launches operations from a position of the iteration on that are not recorded, and returns
    /// how many these are.
    fn launch_silently(
        &mut self,
        at: usize,
        silence: Silence,
        launcher: &mut dyn Launcher,
    ) -> Result<usize, DeviceError> {
        let operations = self.bench.dispatcher.steps().len();
        let left = operations - at;
        let (count, then) = match silence {
            Silence::Young { done, look } => {
                let count = left.min(look - done);
                let done = done + count;
                (count, Some(Silence::Young { done, look }))
            }
            Silence::Rest { iterations } => {
                let iterations = iterations - 1;
                (
                    left,
                    (iterations > 0).then_some(Silence::Rest { iterations }),
                )
            }
        };
        let steps = self.bench.dispatcher.steps();
        let steps = steps[at].start..steps[at + count - 1].end;
        if !steps.is_empty() {
            launcher.launch(self.bench.eager, steps)?;
        }
        self.silence = match then {
            Some(Silence::Young { done, look }) if done == look => {
                let is_young = launcher.now() - self.start < YOUNG;
                is_young.then_some(Silence::Young {
                    done,
                    look: 2 * look,
                })
            }
            then => then,
        };
        if self.silence.is_none() {
            self.bench.dispatcher.skip_to((at + count) % operations);
        }
        Ok(count)
    }

    /// Adopts the loaded program, if that is to be done before this iteration.
    fn begin_iteration(&mut self) {
        if self.adopt_at == Some(self.iteration)
            && let Some(loaded) = self.loaded
        {
            self.bench.dispatcher.adopt(loaded.id);
        }
    }
}

impl LoopDriver for Driver<'_> {
    fn run(&mut self, launcher: &mut dyn Launcher) -> Result<Duration, DeviceError> {
        launcher.begin(self.bench.eager)?;
        if let Some(loaded) = self.loaded {
            launcher.begin(loaded.program)?;
        }
        launcher.wait()?;
        let operations = self.bench.dispatcher.steps().len();
        self.begin_silence();
        self.start = launcher.now();
        for iteration in 1..=self.iterations {
            self.iteration = iteration;
            self.begin_iteration();
            let mut at = 0;
            while at < operations {
                at += match self.silence {
                    Some(silence) => self.launch_silently(at, silence, launcher)?,
                    None => {
                        self.operation(at, launcher)?;
                        1
                    }
                };
            }
        }
        let held = self.bench.dispatcher.flush();
        self.flush(0, held, launcher)?;
        launcher.wait()?;
        self.now = launcher.now();
        Ok(self.now - self.start)
    }

    fn iterations(&self) -> u32 {
        self.iterations
    }
}
