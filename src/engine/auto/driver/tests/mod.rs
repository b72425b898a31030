//! Loops on a device whose time is a number, with a compiler that answers when it is told.

mod parts;
mod remembered;

use std::ops::Range;
use std::time::Duration;

use sweeper_program::Program;

use super::*;
use crate::compile::background::{Compiled, Planned};
use crate::device::Job;
use crate::device::launcher::LoopDriver;

/// A loop of three operations, of which the stream knows after two iterations.
struct Three {
    steps: Vec<Range<usize>>,
    recorded: usize,
    adopted: bool,
    /// This operation of all is another one than the loop's.
    interrupted_at: Option<usize>,
    held: usize,
}

impl Three {
    fn new() -> Self {
        Three {
            steps: vec![0..1, 1..2, 2..4],
            recorded: 0,
            adopted: false,
            interrupted_at: None,
            held: 0,
        }
    }
}

const LOOP: LoopId = LoopId(7);

impl Dispatcher for Three {
    fn steps(&self) -> &[Range<usize>] {
        &self.steps
    }

    fn first_operation(&self) -> [u8; 32] {
        [0; 32]
    }

    fn first_family(&self) -> [u8; 32] {
        [0; 32]
    }

    fn signature(&self, _id: LoopId) -> Option<[u8; 32]> {
        Some([3; 32])
    }

    fn restart(&mut self) {}

    fn skip_to(&mut self, at: usize) {
        self.recorded += (at + 3 - self.recorded % 3) % 3;
    }

    fn record(&mut self) -> Dispatch {
        let at = self.recorded % 3;
        self.recorded += 1;
        if self.interrupted_at == Some(self.recorded) {
            let held = std::mem::take(&mut self.held);
            return Dispatch::Flush { held };
        }
        match (self.recorded, at, self.adopted) {
            (6, ..) => Dispatch::Found(LOOP),
            (0..6, ..) => Dispatch::Run,
            (_, 2, true) if self.held == 2 => {
                self.held = 0;
                Dispatch::Replace(LOOP)
            }
            (_, 2, _) => Dispatch::Boundary(LOOP),
            (_, 0, true) => {
                self.held = 1;
                Dispatch::Hold
            }
            (_, _, true) if self.held > 0 => {
                self.held += 1;
                Dispatch::Hold
            }
            _ => Dispatch::Run,
        }
    }

    fn is_whole(&self, id: LoopId) -> bool {
        id == LOOP
    }

    fn planner(&self, _id: LoopId) -> Option<Planner> {
        Some(Box::new(|| Ok(Program::default())))
    }

    fn planner_by_parts(&self, _id: LoopId) -> Option<Planner> {
        Some(Box::new(|| Ok(Program::default())))
    }

    fn bytes(&self, _id: LoopId) -> Option<Vec<u8>> {
        Some(vec![1])
    }

    fn know(&mut self, _bytes: &[u8]) -> Option<LoopId> {
        Some(LOOP)
    }

    fn adopt(&mut self, _id: LoopId) -> bool {
        self.adopted = true;
        true
    }

    fn abandon(&mut self, _id: LoopId) -> usize {
        self.adopted = false;
        std::mem::take(&mut self.held)
    }

    fn flush(&mut self) -> usize {
        std::mem::take(&mut self.held)
    }
}

/// Answers after so many questions.
struct Clerk {
    plans_in: u32,
    compiles_in: u32,
    patience: u32,
    asked: u32,
    work: Option<News>,
    planned: Planned,
    /// The program of parts; without one nothing repeats.
    parts: Option<Planned>,
    compiled: Result<(), CompileFailure>,
    /// What was compiled.
    asked_for: Vec<Scope>,
}

impl Clerk {
    /// Plans a program with so many launches and bytes, whose kernels take so long.
    fn new([launches, bytes]: [u64; 2], price_ns: f64) -> Self {
        Clerk {
            plans_in: 5,
            compiles_in: 5,
            patience: 0,
            asked: 0,
            work: None,
            planned: planned([launches, bytes], price_ns),
            parts: None,
            compiled: Ok(()),
            asked_for: Vec::new(),
        }
    }
}

fn planned([launches, bytes]: [u64; 2], price_ns: f64) -> Planned {
    Planned {
        launches,
        bytes,
        missing: 1,
        price_ns,
        plan_ns: 10.0,
    }
}

impl Helper for Clerk {
    fn plan(&mut self, scope: Scope, planner: Planner) {
        planner().unwrap();
        (self.asked, self.patience) = (0, self.plans_in);
        let nothing = || CompileFailure {
            reason: "no part repeats".to_owned(),
            is_final: true,
        };
        let planned = match scope {
            Scope::Whole => Ok(self.planned.clone()),
            Scope::Parts => self.parts.clone().ok_or_else(nothing),
        };
        self.work = Some(News::Planned(scope, planned));
    }

    fn compile(&mut self, scope: Scope) {
        (self.asked, self.patience) = (0, self.compiles_in);
        self.asked_for.push(scope);
        let compiled = self.compiled.clone().map(|()| Compiled {
            program: Program::default(),
            artifacts: Vec::new(),
            compile_ns: 1000.0,
        });
        self.work = Some(News::Compiled(scope, compiled));
    }

    fn news(&mut self) -> Result<Option<News>, CompileFailure> {
        self.asked += 1;
        match self.asked > self.patience {
            true => Ok(self.work.take()),
            false => Ok(None),
        }
    }
}

const EAGER: Prepared = Prepared(0, None);
const COMPILED: Prepared = Prepared(1, None);
/// The second program that is loaded.
const SECOND: Prepared = Prepared(2, None);

/// A device that counts launches, and on which each step takes its time. The host's clock is the
/// device's.
struct Counting {
    start: Instant,
    /// Time of a step, by program, in nanoseconds.
    step_ns: [f64; 3],
    loaded: usize,
    now_ns: f64,
    moments: Vec<f64>,
    /// Steps in the order of their launches.
    launched: Vec<(Prepared, usize)>,
    /// The device is so many nanoseconds behind.
    behind_ns: f64,
    refuses: bool,
}

impl Counting {
    fn new(step_ns: [f64; 3]) -> Self {
        Counting {
            start: Instant::now(),
            step_ns,
            loaded: 0,
            now_ns: 0.0,
            moments: Vec::new(),
            launched: Vec::new(),
            behind_ns: 0.0,
            refuses: false,
        }
    }
}

impl Launcher for Counting {
    fn prepare(&mut self, _job: Job<'_>) -> Result<Prepared, DeviceError> {
        match self.refuses {
            true => Err(DeviceError::Launch("too many registers".to_owned())),
            false => {
                self.loaded += 1;
                Ok(Prepared(self.loaded, None))
            }
        }
    }

    fn steps(&self, _program: Prepared) -> usize {
        4
    }

    fn begin(&mut self, _program: Prepared) -> Result<(), DeviceError> {
        Ok(())
    }

    fn launch(&mut self, program: Prepared, steps: Range<usize>) -> Result<(), DeviceError> {
        for step in steps {
            self.now_ns += self.step_ns[program.0];
            self.launched.push((program, step));
        }
        Ok(())
    }

    fn moment(&mut self) -> Result<Moment, DeviceError> {
        self.moments.push(self.now_ns);
        Ok(Moment(self.moments.len() - 1))
    }

    fn between_ns(&mut self, from: Moment, to: Moment) -> Result<Option<f64>, DeviceError> {
        let has_passed = self.moments[to.0] + self.behind_ns <= self.now_ns;
        Ok(has_passed.then(|| self.moments[to.0] - self.moments[from.0]))
    }

    fn wait(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn now(&self) -> Instant {
        self.start + Duration::from_nanos(self.now_ns as u64)
    }
}

/// A loop of so many iterations; what became of it, and the launches.
struct Run {
    driven: Driven,
    launched: Vec<(Prepared, usize)>,
    /// Operations that were recorded.
    recorded: usize,
    /// What was compiled.
    asked_for: Vec<Scope>,
}

struct Setting {
    dispatcher: Three,
    clerk: Clerk,
    step_ns: [f64; 3],
    behind_ns: f64,
    refuses: bool,
    threshold: Option<u32>,
    parts: PartsRule,
    refused: Vec<Refused>,
}

impl Setting {
    /// Half of the bytes: twice as fast.
    fn new([eager_ns, compiled_ns]: [f64; 2]) -> Self {
        Setting {
            dispatcher: Three::new(),
            clerk: Clerk::new([4, 500], 1e6),
            step_ns: [eager_ns, compiled_ns, compiled_ns],
            behind_ns: 0.0,
            refuses: false,
            threshold: None,
            parts: PartsRule::Paid,
            refused: vec![],
        }
    }

    fn run(mut self, iterations: u32) -> Run {
        let mut launcher = Counting {
            behind_ns: self.behind_ns,
            refuses: self.refuses,
            ..Counting::new(self.step_ns)
        };
        let bench = Bench {
            dispatcher: &mut self.dispatcher,
            background: &mut self.clerk,
            eager: EAGER,
            eager_work: Work {
                launches: 4,
                bytes: 1000,
            },
            launch_ns: 10.0,
            threshold: self.threshold,
            parts: self.parts,
            refused: &self.refused,
        };
        let mut driver = Driver::new(bench, iterations);
        let _: Duration = driver.run(&mut launcher).unwrap();
        Run {
            driven: driver.finish(launcher.now_ns),
            launched: launcher.launched,
            recorded: self.dispatcher.recorded,
            asked_for: self.clerk.asked_for,
        }
    }
}

impl Run {
    fn outcome(&self) -> HotOutcome {
        self.driven.path.outcome
    }

    /// What is to be remembered of the loop: programs, and whether each is faster.
    fn decisions(&self) -> Vec<(Scope, bool)> {
        let decisions = self.driven.decisions.iter();
        let decisions = decisions.filter(|(id, _)| *id == LOOP);
        decisions
            .map(|(_, held)| (held.scope, held.is_faster))
            .collect()
    }

    /// Each iteration ran once, by one of all, with its steps in order.
    fn assert_each_ran_once(&self, iterations: u32) {
        assert_eq!(self.launched.len(), 4 * iterations as usize);
        let mut by_program = 0;
        for iteration in self.launched.chunks(4) {
            let program = iteration[0].0;
            let expected: Vec<_> = (0..4).map(|step| (program, step)).collect();
            assert_eq!(iteration, expected);
            by_program += u32::from(program != EAGER);
        }
        assert_eq!(by_program, self.driven.path.replaced);
    }
}

/// Long enough for everything that is decided, where a step takes a microsecond or more: no plan is
/// asked for in the first 10 ms.
const LONG: u32 = 10_000;

#[test]
fn a_faster_program_takes_over() {
    for behind_ns in [0.0, 1e6] {
        let mut setting = Setting::new([1e5, 5e4]);
        setting.behind_ns = behind_ns;
        let run = setting.run(LONG);
        assert_eq!(run.outcome(), HotOutcome::Kept);
        run.assert_each_ran_once(LONG);
        let path = &run.driven.path;
        assert!(path.detected_at.unwrap() > 2, "{path:?}");
        assert!(path.switched_at.unwrap() > 10, "{path:?}");
        assert!(path.replaced > LONG - 200, "{path:?}");
        assert_eq!(path.regressions, 0);
        assert_eq!(path.eager_ns, Some(4e5));
        assert_eq!(path.compiled_ns, Some(2e5));
        assert_eq!(run.decisions(), [(Scope::Whole, true)], "it is remembered");
        assert_eq!(run.driven.last, COMPILED);
    }
}

#[test]
fn a_program_that_is_not_faster_is_given_up() {
    let run = Setting::new([1e5, 1.01e5]).run(LONG);
    assert_eq!(run.outcome(), HotOutcome::Back);
    run.assert_each_ran_once(LONG);
    let path = &run.driven.path;
    assert_eq!(path.regressions, 1);
    assert!(path.replaced < 200, "{path:?}");
    assert_eq!(run.driven.last, EAGER);
    assert_eq!(run.decisions(), [(Scope::Whole, false)], "it is remembered");
}

#[test]
fn what_cannot_pay_is_not_compiled() {
    let mut setting = Setting::new([1e5, 1e5]);
    setting.clerk = Clerk::new([4, 1000], 1e6);
    let run = setting.run(LONG);
    assert_eq!(run.outcome(), HotOutcome::Worthless);
    assert_eq!(run.driven.path.replaced, 0);
    let mut setting = Setting::new([1e5, 5e4]);
    setting.clerk = Clerk::new([4, 500], 1e15);
    let run = setting.run(LONG);
    assert_eq!(run.outcome(), HotOutcome::Unpaid);
    assert_eq!(run.driven.path.replaced, 0);
    run.assert_each_ran_once(LONG);
}

#[test]
fn nothing_is_recorded_of_a_loop_that_has_just_begun() {
    let run = Setting::new([1e4, 5e3]).run(10);
    assert_eq!((run.outcome(), run.recorded), (HotOutcome::Short, 0));
    run.assert_each_ran_once(10);
    let mut setting = Setting::new([1e5, 5e4]);
    setting.threshold = Some(20);
    let run = setting.run(10);
    assert_eq!(run.driven.path.detected_at, Some(2), "iterations count");
}

/// A loop rests where nothing is to be decided, and is looked at again.
#[test]
fn a_loop_that_was_given_up_is_hardly_recorded() {
    let mut setting = Setting::new([1e5, 1e5]);
    setting.clerk = Clerk::new([4, 1000], 1e6);
    let run = setting.run(LONG);
    assert_eq!(run.outcome(), HotOutcome::Worthless);
    run.assert_each_ran_once(LONG);
    let recorded = run.recorded / 3;
    assert!((30..70).contains(&recorded), "{recorded} iterations");
}

/// While a compiler works, a loop asks for the program more and more rarely, and uses it soon after
/// it is there.
#[test]
fn a_loop_that_waits_for_its_program_is_hardly_recorded() {
    let mut setting = Setting::new([1e4, 5e3]);
    setting.clerk.compiles_in = 100;
    let run = setting.run(LONG);
    assert_eq!(run.outcome(), HotOutcome::Kept);
    run.assert_each_ran_once(LONG);
    let path = &run.driven.path;
    // Rests of two iterations, 0.1 ms, become some of a thirty-second of the time.
    let switched_at = path.switched_at.unwrap() as usize;
    assert!(switched_at > 1000, "{path:?}");
    let recorded = run.recorded / 3 - (LONG as usize - switched_at);
    assert!(recorded < switched_at / 3, "{recorded} of {switched_at}");
}

#[test]
fn a_threshold_counts_iterations_alone() {
    for threshold in [20, 3000] {
        let mut setting = Setting::new([1.0, 0.5]);
        setting.clerk = Clerk::new([4, 1000], 1e15);
        setting.threshold = Some(threshold);
        let run = setting.run(LONG);
        assert_eq!(run.outcome(), HotOutcome::Kept);
        let switched_at = run.driven.path.switched_at.unwrap();
        let soon = threshold..threshold + 40;
        assert!(soon.contains(&switched_at), "{threshold}: {switched_at}");
    }
    let mut setting = Setting::new([1.0, 0.5]);
    setting.threshold = Some(LONG + 1);
    let run = setting.run(LONG);
    assert_eq!(run.outcome(), HotOutcome::Short);
    let recorded = run.recorded / 3;
    assert!(
        recorded < 20,
        "{recorded} iterations, of which none decides"
    );
}

#[test]
fn there_may_be_no_program() {
    let mut setting = Setting::new([1e5, 5e4]);
    setting.clerk.compiled = Err(CompileFailure {
        reason: "the compiler refused the kernel".to_owned(),
        is_final: true,
    });
    let run = setting.run(LONG);
    assert_eq!(run.outcome(), HotOutcome::Failed);
    let (id, reason) = run.driven.refused.clone().expect("it is remembered");
    assert_eq!(id, LOOP);
    run.assert_each_ran_once(LONG);
    // The next loop, of this size or another one of its bucket, is not compiled.
    let mut setting = Setting::new([1e5, 5e4]);
    setting.refused = vec![Refused {
        signature: [3; 32],
        reason: reason.clone(),
    }];
    let run = setting.run(LONG);
    assert_eq!(run.outcome(), HotOutcome::Failed);
    assert_eq!(run.driven.path.note, Some(reason));
    assert_eq!(run.driven.path.background_ns, 0.0);
    run.assert_each_ran_once(LONG);

    let mut setting = Setting::new([1e5, 5e4]);
    setting.clerk.compiled = Err(CompileFailure {
        reason: "the process ended".to_owned(),
        is_final: false,
    });
    let run = setting.run(LONG);
    assert!(run.driven.refused.is_none(), "another try may work");
    assert_eq!(run.driven.path.note.as_deref(), Some("the process ended"));

    let mut setting = Setting::new([1e5, 5e4]);
    setting.refuses = true;
    assert_eq!(setting.run(LONG).outcome(), HotOutcome::Failed);
}

#[test]
fn an_interrupted_iteration_runs_by_operations() {
    let mut setting = Setting::new([1e5, 5e4]);
    // In the middle of an iteration that the program would have run.
    setting.dispatcher.interrupted_at = Some(3 * 5000 - 1);
    let run = setting.run(LONG);
    assert_eq!(run.outcome(), HotOutcome::Kept);
    run.assert_each_ran_once(LONG);
}
