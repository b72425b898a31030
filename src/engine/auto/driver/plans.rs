//! Programs are planned and compiled beside the loop, where they pay.

use sweeper_program::workload::LoopId;

use super::{Driver, Loaded, Offers, Stage};
use crate::auto::decide::{Offer, Work, next_look};
use crate::auto::turns::Turns;
use crate::compile::background::{CompileFailure, Compiled, News, Planned, Scope};
use crate::device::launcher::Launcher;
use crate::device::{DeviceError, Job};
use sweeper_manifest::settings::PartsRule;
use sweeper_model::row::hot_path::HotOutcome;

impl Driver<'_> {
    /// Has a program planned.
    pub(super) fn plan(&mut self, id: LoopId, scope: Scope) -> Stage {
        let dispatcher = &self.bench.dispatcher;
        let planner = match scope {
            Scope::Whole => dispatcher.planner(id),
            Scope::Parts => dispatcher.planner_by_parts(id),
        };
        match planner {
            Some(planner) => {
                self.bench.background.plan(scope, planner);
                self.asked = self.now;
                Stage::Planning { id, scope }
            }
            None => Stage::Settled,
        }
    }

    /// Takes in a plan, once it is there.
    pub(super) fn planned(&mut self, id: LoopId, scope: Scope) -> Stage {
        let planned = match self.bench.background.news() {
            Ok(Some(News::Planned(of, planned))) if of == scope => planned,
            // Of the loop before, which ended first: its program is this one.
            Ok(Some(News::Compiled(of, Err(failure)))) if of == scope && failure.is_final => {
                Err(failure)
            }
            Ok(_) => return Stage::Planning { id, scope },
            Err(failure) => Err(failure),
        };
        match planned {
            Ok(planned) => match scope {
                Scope::Whole => self.planned_whole(id, &planned),
                Scope::Parts => self.planned_parts(id, &planned),
            },
            Err(failure) => self.fail((id, scope), failure),
        }
    }

    fn offer(&self, planned: &Planned) -> Offer {
        let eager_ns = self.path.eager_ns.unwrap_or_default();
        let program = Work {
            launches: planned.launches,
            bytes: planned.bytes,
        };
        let works = [self.bench.eager_work, program];
        let offer = Offer::of(eager_ns, works, self.bench.launch_ns, planned.price_ns);
        match self.base {
            Some(base) => offer.beyond(eager_ns - base.time_ns),
            None => offer,
        }
    }

    fn planned_whole(&mut self, id: LoopId, planned: &Planned) -> Stage {
        self.path.background_ns += planned.plan_ns;
        let offer = self.offer(planned);
        self.path.predicted_gain_ns = Some(offer.gain_ns);
        self.path.predicted_price_ns = Some(offer.price_ns);
        self.go_on(id, offer)
    }

    /// Weighs the program of the whole iteration against what runs now. That of parts may be
    /// planned first.
    pub(super) fn go_on(&mut self, id: LoopId, whole: Offer) -> Stage {
        let now_ns = match self.base {
            Some(base) => base.time_ns,
            None => self.path.eager_ns.unwrap_or_default(),
        };
        let counts = self.bench.threshold.is_some();
        if !counts && whole.is_worthless(now_ns) {
            if self.base.is_none() {
                self.path.outcome = HotOutcome::Worthless;
            }
            return Stage::Settled;
        }
        let pays = counts || whole.pays(self.iteration);
        let wants_parts = match self.bench.parts {
            PartsRule::First => true,
            PartsRule::Paid => !pays,
            PartsRule::Never => false,
        };
        if wants_parts && !self.has_tried_parts {
            self.has_tried_parts = true;
            self.whole = Some(whole);
            return self.plan(id, Scope::Parts);
        }
        self.weigh(id, Offers { whole, parts: None }, 0)
    }

    fn planned_parts(&mut self, id: LoopId, planned: &Planned) -> Stage {
        self.path.background_ns += planned.plan_ns;
        if self.bench.parts == PartsRule::First {
            return self.compile(id, Scope::Parts);
        }
        let offer = self.offer(planned);
        let eager_ns = self.path.eager_ns.unwrap_or_default();
        let parts = (!offer.is_worthless(eager_ns)).then_some(offer);
        match self.whole {
            Some(whole) => self.weigh(id, Offers { whole, parts }, 0),
            None => Stage::Settled,
        }
    }

    /// Has a program compiled, if one pays by now; the whole one first.
    pub(super) fn weigh(&mut self, id: LoopId, offers: Offers, look: u32) -> Stage {
        let iteration = self.iteration;
        let later = |look| Stage::Weighing { id, offers, look };
        if iteration < look {
            return later(look);
        }
        if self.bench.threshold.is_some() || offers.whole.pays(iteration) {
            return self.compile(id, Scope::Whole);
        }
        if offers.parts.is_some_and(|parts| parts.pays(iteration)) {
            self.whole = Some(offers.whole);
            return self.compile(id, Scope::Parts);
        }
        later(next_look(iteration))
    }

    fn compile(&mut self, id: LoopId, scope: Scope) -> Stage {
        self.bench.background.compile(scope);
        self.asked = self.now;
        Stage::Compiling { id, scope }
    }

    /// Loads a program that is compiled, and lets it take turns.
    pub(super) fn compiled(
        &mut self,
        (id, scope): (LoopId, Scope),
        launcher: &mut dyn Launcher,
    ) -> Result<Stage, DeviceError> {
        let compiled = match self.bench.background.news() {
            Ok(Some(News::Compiled(of, compiled))) if of == scope => compiled,
            Ok(_) => return Ok(Stage::Compiling { id, scope }),
            Err(failure) => Err(failure),
        };
        let Compiled {
            program,
            artifacts,
            compile_ns,
        } = match compiled {
            Ok(compiled) => compiled,
            Err(failure) => return Ok(self.fail((id, scope), failure)),
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
                return Ok(self.fail((id, scope), failure));
            }
        };
        launcher.begin(program)?;
        let tried = Loaded { id, program, scope };
        self.load(tried);
        self.bench.dispatcher.adopt(id);
        let now_ns = self.base.map(|base| base.time_ns).or(self.path.eager_ns);
        Ok(Stage::Turning {
            id,
            tried,
            turns: Turns::new(now_ns.unwrap_or_default()),
            look: 0,
        })
    }

    /// Takes in that there is no program. Without one of parts, the whole one may still pay.
    fn fail(&mut self, (id, scope): (LoopId, Scope), failure: CompileFailure) -> Stage {
        if let (Scope::Parts, Some(whole)) = (scope, self.whole) {
            return self.weigh(id, Offers { whole, parts: None }, 0);
        }
        self.path.note = Some(failure.reason.clone());
        if self.base.is_none() {
            self.path.outcome = HotOutcome::Failed;
        }
        if failure.is_final {
            self.refused = Some((id, failure.reason));
        }
        Stage::Settled
    }
}
