//! A program takes turns with what ran before, until it is known which is faster.

use sweeper_program::workload::LoopId;

use super::{Base, Driver, Loaded, Stage};
use crate::auto::decide::next_look;
use crate::auto::memory::Decision;
use crate::auto::turns::{Next, Side, Turns};
use crate::compile::background::Scope;
use crate::device::DeviceError;
use crate::device::launcher::Launcher;
use sweeper_model::row::hot_path::HotOutcome;

impl Driver<'_> {
    /// Takes turns until one of both is known to be faster.
    pub(super) fn turn(
        &mut self,
        tried: Loaded,
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
            self.change(tried, turns.side(), launcher)?;
        }
        let turning = |turns, look| Stage::Turning {
            id: tried.id,
            tried,
            turns,
            look,
        };
        if !is_time {
            return Ok(turning(turns, look));
        }
        turns.read(|from, to| launcher.between_ns(from, to))?;
        let Some(is_faster) = turns.verdict() else {
            let look = next_look(self.iteration);
            return Ok(turning(turns, look));
        };
        self.settle(tried, is_faster, &turns, launcher)
    }

    /// Lets one of both run the next iterations.
    fn change(
        &mut self,
        tried: Loaded,
        side: Side,
        launcher: &mut dyn Launcher,
    ) -> Result<(), DeviceError> {
        let next = match side {
            Side::Compiled => Some(tried),
            Side::Eager => self.base.map(|base| base.loaded),
        };
        match next {
            Some(next) => {
                self.load(next);
                self.bench.dispatcher.adopt(tried.id);
                Ok(())
            }
            // Between two iterations nothing is kept.
            None => match self.bench.dispatcher.abandon(tried.id) {
                0 => Ok(()),
                held => self.flush(0, held, launcher),
            },
        }
    }

    fn settle(
        &mut self,
        tried: Loaded,
        is_faster: bool,
        turns: &Turns,
        launcher: &mut dyn Launcher,
    ) -> Result<Stage, DeviceError> {
        let [before_ns, compiled_ns] = turns.medians_ns().unwrap_or_default();
        if self.base.is_none() {
            self.path.eager_ns = Some(before_ns);
        }
        self.path.compiled_ns = Some(compiled_ns);
        let side = if is_faster {
            Side::Compiled
        } else {
            Side::Eager
        };
        self.change(tried, side, launcher)?;
        self.path.regressions += u32::from(!is_faster);
        let eager_ns = self.path.eager_ns.unwrap_or_default();
        let decision = Decision {
            scope: tried.scope,
            is_faster,
            eager_ns,
            compiled_ns,
        };
        self.decisions.push((tried.id, decision));
        Ok(match tried.scope {
            Scope::Whole => {
                self.settled(is_faster);
                Stage::Settled
            }
            Scope::Parts => self.settled_parts(tried, decision),
        })
    }

    fn settled(&mut self, is_faster: bool) {
        if is_faster {
            self.path.outcome = HotOutcome::Kept;
        } else if self.base.is_none() {
            self.path.outcome = HotOutcome::Back;
        }
    }

    /// Goes on to the program of the whole iteration, which has to be faster than that of parts
    /// where this one stays.
    fn settled_parts(&mut self, tried: Loaded, decision: Decision) -> Stage {
        let id: LoopId = tried.id;
        let mut whole = self.whole.take();
        if decision.is_faster {
            self.path.outcome = HotOutcome::KeptParts;
            self.base = Some(Base {
                loaded: tried,
                time_ns: decision.compiled_ns,
            });
            let gained_ns = decision.eager_ns - decision.compiled_ns;
            whole = whole.map(|whole| whole.beyond(gained_ns));
        }
        match whole {
            Some(whole) => self.go_on(id, whole),
            None => Stage::Settled,
        }
    }
}
