//! The backend `auto`: a loop runs operation by operation at once, and becomes compiled while it
//! runs, where that pays.
//!
//! [`driver`] runs a loop, [`decide`] weighs gains and prices, [`turns`] finds out whether the
//! program is faster, [`memory`] keeps the decisions beside the kernels. Loops are found by the
//! compiler's stream of operations, behind [`sweeper_program::workload::Dispatcher`]; kernels are
//! compiled by [`crate::compile::background`].

mod decide;
mod driver;
mod memory;
mod turns;

use std::time::{Duration, Instant};

use sweeper_program::workload::{Dispatch, Dispatcher, LoopId, TensorSpec};
use sweeper_program::{KernelSource, Program, Tensors};

use crate::compile::CachePlace;
use crate::compile::background::{Background, CompileFailure, News, Opening, Scope};
use crate::device::{Device, DeviceError, Job, Prepared, Sample};
use sweeper_manifest::settings::AutoRules;
use sweeper_model::row::hot_path::HotPath;
use sweeper_model::word::Word as _;

use decide::{Work, launch_ns};
use driver::{Bench, Driven, Driver, Loaded};
use memory::{Decision, Decisions, Memory, Refused, Remembered};

/// Iterations of the loop that is run to see that results stay right when the program takes over;
/// it does so in the middle.
pub const SWITCHED_ITERATIONS: u32 = 6;

/// Operations that are recorded at most to find out how long detecting takes.
const MOST_RECORDED: usize = 1 << 20;

/// A loop that is known from before.
struct Known {
    bytes: Vec<u8>,
    decisions: Decisions,
    /// Its program on the device, if one is to be used.
    program: Option<(Scope, Prepared)>,
}

/// One point of the backend `auto`.
pub struct Auto {
    dispatcher: Box<dyn Dispatcher>,
    background: Background,
    /// What the process that compiles is told first.
    opening: Opening,
    memory: Memory,
    rules: AutoRules,
    eager: Prepared,
    eager_work: Work,
    launch_ns: f64,
    iterations: u32,
    known: Option<Known>,
    /// Loops without a program.
    refused: Vec<Refused>,
    /// The signature of the loop that ended before its program was compiled.
    pending: Option<[u8; 32]>,
    /// Programs that were loaded, with the loop that each is of.
    loaded: Vec<(Vec<u8>, Scope, Prepared)>,
    detection_ns: Option<f64>,
    first: Option<HotPath>,
    last: Prepared,
}

/// The surroundings of a loop.
pub struct Place<'a> {
    /// The cache of kernels and decisions.
    pub cache: Option<CachePlace>,
    /// How long compiling one kernel may take.
    pub limit: Duration,
    /// How to decide.
    pub rules: AutoRules,
    /// The program that runs operation by operation, as it was prepared.
    pub eager: (&'a Program, Prepared),
}

/// The decision on a program that was not compiled when the loop ended.
const GOES_ON: &str = "the loop ended first; compiling went on beside the next one";
const GIVEN_UP: &str = "the loop ended first; compiling was given up";

/// How long a kernel that is still being compiled after the last loop is waited for, so that the
/// next run has it.
const FINISH_WITHIN: Duration = Duration::from_secs(1);

impl Drop for Auto {
    fn drop(&mut self) {
        if !self.rules.remembers {
            return;
        }
        let failure = self.background.finish(FINISH_WITHIN);
        let failure = failure.filter(|failure| failure.is_final);
        if let (Some(signature), Some(CompileFailure { reason, .. })) = (self.pending, failure) {
            self.memory.refuse(&Refused { signature, reason });
        }
    }
}

fn start(opening: &Opening) -> Result<Background, DeviceError> {
    let started = Background::start(opening);
    started.map_err(|error| DeviceError::Interrupted(format!("the process that compiles: {error}")))
}

impl Auto {
    /// A loop of so many iterations. Looks for loops of earlier runs, and loads their programs.
    ///
    /// # Errors
    /// A process that can't be started, a lost device.
    pub fn new(
        dispatcher: Box<dyn Dispatcher>,
        place: Place<'_>,
        iterations: u32,
        device: &mut dyn Device,
    ) -> Result<Self, DeviceError> {
        let Place {
            cache,
            limit,
            rules,
            eager: (program, eager),
        } = place;
        let identity = device.identity().clone();
        let alike: Vec<KernelSource> = program.sources().into_iter().cloned().collect();
        let opening = Opening {
            cache: cache.clone(),
            compiles_all: !rules.remembers,
            device: identity.clone(),
            limit,
            alike,
        };
        let background = start(&opening)?;
        let settings = format!("{:?} {}", rules.threshold, rules.parts.word());
        let memory = Memory::open(
            cache.as_ref().filter(|_| rules.remembers),
            (&identity, &background.compiler),
            [dispatcher.first_operation(), dispatcher.first_family()],
            &settings,
        );
        let totals = program.totals();
        let mut auto = Auto {
            dispatcher,
            background,
            opening,
            memory,
            rules,
            eager,
            eager_work: Work {
                launches: totals.launches,
                bytes: totals.read_bytes + totals.written_bytes,
            },
            launch_ns: launch_ns(identity.kind.facts().is_gpu),
            iterations,
            known: None,
            refused: vec![],
            pending: None,
            loaded: Vec::new(),
            detection_ns: None,
            first: None,
            last: eager,
        };
        auto.detection_ns = auto.time_of_detection();
        auto.recall(device)?;
        auto.refused = auto.memory.refused();
        auto.dispatcher.restart();
        Ok(auto)
    }

    /// How long recording takes until the loop is found, in nanoseconds, if it is found: without
    /// running anything.
    fn time_of_detection(&mut self) -> Option<f64> {
        let operations = self.dispatcher.steps().len();
        let most = operations.saturating_mul(self.iterations as usize);
        self.dispatcher.restart();
        let start = Instant::now();
        for _ in 0..most.min(MOST_RECORDED) {
            if let Dispatch::Found(id) = self.dispatcher.record() {
                let elapsed_ns = start.elapsed().as_nanos() as f64;
                if self.dispatcher.is_whole(id) {
                    return Some(elapsed_ns);
                }
            }
        }
        None
    }

    /// Takes in what was found out about the loop in earlier runs. Where a program was faster, it
    /// is loaded; if that fails, the loop is as good as unknown.
    fn recall(&mut self, device: &mut dyn Device) -> Result<(), DeviceError> {
        let all = self.memory.all();
        for first in &all {
            self.dispatcher.restart();
            let Some(id) = self.dispatcher.know(&first.bytes) else {
                continue;
            };
            let mut decisions = Decisions::default();
            let of_loop = all.iter().filter(|held| held.bytes == first.bytes);
            of_loop.for_each(|held| decisions.add(held.decision));
            let kept = decisions.kept().map(|kept| kept.scope);
            let planner = kept.and_then(|scope| match scope {
                Scope::Whole => self.dispatcher.planner(id),
                Scope::Parts => self.dispatcher.planner_by_parts(id),
            });
            let program = match (kept, planner) {
                (Some(scope), Some(planner)) => {
                    self.background.plan(scope, planner);
                    match self.load(scope, device)? {
                        Some(program) => Some((scope, program)),
                        None => return Ok(()),
                    }
                }
                _ => None,
            };
            self.known = Some(Known {
                bytes: first.bytes.clone(),
                decisions,
                program,
            });
            return Ok(());
        }
        Ok(())
    }

    /// Waits for a program that is being planned, and loads it.
    fn load(
        &mut self,
        scope: Scope,
        device: &mut dyn Device,
    ) -> Result<Option<Prepared>, DeviceError> {
        let Ok(News::Planned(_, Ok(_))) = self.background.wait() else {
            return Ok(None);
        };
        self.background.compile(scope);
        let Ok(News::Compiled(_, Ok(compiled))) = self.background.wait() else {
            return Ok(None);
        };
        let prepared = device.prepare(Job {
            program: compiled.program,
            artifacts: &compiled.artifacts,
            script: None,
        });
        match prepared {
            Ok(program) => Ok(Some(program)),
            Err(lost @ DeviceError::Lost(_)) => Err(lost),
            Err(_) => Ok(None),
        }
    }

    fn bench(&mut self) -> Bench<'_> {
        Bench {
            dispatcher: self.dispatcher.as_mut(),
            background: &mut self.background,
            eager: self.eager,
            eager_work: self.eager_work,
            launch_ns: self.launch_ns,
            threshold: self.rules.threshold,
            parts: self.rules.parts,
            refused: &self.refused,
        }
    }

    /// Runs the loop once, as a client that has just begun.
    ///
    /// # Errors
    /// A refused launch or a lost device.
    pub fn sample(&mut self, device: &mut dyn Device) -> Result<Sample, DeviceError> {
        let (iterations, eager) = (self.iterations, self.eager);
        let known = self.known.take();
        let id = known
            .as_ref()
            .and_then(|known| self.dispatcher.know(&known.bytes));
        let mut driver = Driver::new(self.bench(), iterations);
        if let Some((known, id)) = known.as_ref().zip(id) {
            let loaded = known.program;
            let loaded = loaded.map(|(scope, program)| Loaded { id, program, scope });
            driver = driver.remembering((id, &known.decisions), loaded);
        }
        let sample = device.drive(eager, &mut driver);
        let elapsed_ns = sample.as_ref().map_or(0.0, |sample| sample.elapsed_ns);
        let driven = driver.finish(elapsed_ns);
        self.known = known;
        let learned = self.learn(driven);
        // Not right before a loop: a new stream takes the caches, and `eager` begins with its own.
        self.dispatcher.restart();
        // A device that was lost is more than a compiler that can't start.
        let sample = sample?;
        learned?;
        Ok(sample)
    }

    /// Takes in the end of a loop. Nobody waits for a program that is still being compiled: where
    /// kernels are kept, compiling goes on beside the next loop, which asks anew and finds them.
    fn learn(&mut self, driven: Driven) -> Result<(), DeviceError> {
        let mut path = driven.path;
        if let Some(id) = driven.pending {
            path.note = Some(match self.rules.remembers {
                true => {
                    self.pending = self.dispatcher.signature(id);
                    GOES_ON.to_owned()
                }
                false => {
                    self.background = start(&self.opening)?;
                    GIVEN_UP.to_owned()
                }
            });
        }
        path.detection_ns = self.detection_ns;
        self.first.get_or_insert(path);
        self.last = driven.last;
        for loaded in driven.loaded {
            let Some(bytes) = self.dispatcher.bytes(loaded.id) else {
                continue;
            };
            let found = (bytes, loaded.scope, loaded.program);
            if !self.loaded.contains(&found) {
                self.loaded.push(found);
            }
        }
        self.refuse(driven.refused);
        if self.rules.remembers {
            for (id, decision) in driven.decisions {
                self.decide(id, decision);
            }
        }
        Ok(())
    }

    /// Remembers the decision on a program.
    fn decide(&mut self, id: LoopId, decision: Decision) {
        let Some(bytes) = self.dispatcher.bytes(id) else {
            return;
        };
        let known = self.known.take().filter(|known| known.bytes == bytes);
        let mut known = known.unwrap_or_else(|| Known {
            bytes: bytes.clone(),
            decisions: Decisions::default(),
            program: None,
        });
        known.decisions.add(decision);
        let mut loaded = self.loaded.iter().rev();
        known.program = known.decisions.kept().and_then(|kept| {
            let is_kept =
                |held: &&(Vec<u8>, Scope, Prepared)| held.0 == bytes && held.1 == kept.scope;
            let (_, scope, program) = loaded.find(is_kept)?;
            Some((*scope, *program))
        });
        self.known = Some(known);
        self.memory.keep(&Remembered { bytes, decision });
    }

    /// Remembers that there is no program for a loop.
    fn refuse(&mut self, refused: Option<(LoopId, String)>) {
        let refused = refused.filter(|_| self.rules.remembers);
        let refused = refused.and_then(|(id, reason)| {
            let signature = self.dispatcher.signature(id)?;
            Some(Refused { signature, reason })
        });
        if let Some(refused) = refused {
            self.memory.refuse(&refused);
            self.refused.push(refused);
        }
    }

    /// The results of the last iteration of the last loop.
    ///
    /// # Errors
    /// A lost device.
    pub fn results(
        &self,
        device: &mut dyn Device,
        specs: &[TensorSpec],
    ) -> Result<Tensors, DeviceError> {
        device.results(self.last, specs)
    }

    /// For each program that was loaded, the results of a short loop in the middle of which it
    /// takes over, and those of one that runs operation by operation alone.
    ///
    /// # Errors
    /// A refused launch or a lost device.
    pub fn switched_results(
        &mut self,
        device: &mut dyn Device,
        specs: &[TensorSpec],
    ) -> Result<Vec<[Tensors; 2]>, DeviceError> {
        let mut results = Vec::new();
        for (bytes, scope, program) in self.loaded.clone() {
            self.dispatcher.restart();
            let Some(id) = self.dispatcher.know(&bytes) else {
                continue;
            };
            let loaded = Loaded { id, program, scope };
            results.push(self.switched(loaded, device, specs)?);
        }
        Ok(results)
    }

    fn switched(
        &mut self,
        loaded: Loaded,
        device: &mut dyn Device,
        specs: &[TensorSpec],
    ) -> Result<[Tensors; 2], DeviceError> {
        let eager = self.eager;
        let driver = Driver::new(self.bench(), SWITCHED_ITERATIONS);
        let mut driver = driver.switching(loaded, SWITCHED_ITERATIONS / 2 + 1);
        device.drive(eager, &mut driver)?;
        let driven = driver.finish(0.0);
        if driven.last != loaded.program {
            return Err(DeviceError::Launch(
                "the program did not take over".to_owned(),
            ));
        }
        let switched = device.results(loaded.program, specs)?;
        device.run_loop(eager, SWITCHED_ITERATIONS)?;
        Ok([switched, device.results(eager, specs)?])
    }

    /// The record of the first loop.
    pub fn first(&self) -> Option<&HotPath> {
        self.first.as_ref()
    }
}
