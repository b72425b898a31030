//! A run while it goes on: blocks to workers, outcomes to rows.

mod kernels;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use sweeper_cache::Cache;

use super::anchors::{ANCHOR, Anchors, Place};
use super::blocks::{Blocks, BuiltKernels};
use super::compiling::WarningKind;
use super::contests::Contests;
use super::dispatch::Dispatch;
use super::keeper::Keeper;
use super::pruning::Pruner;
use super::remaining::Remaining;
use super::rows::{Measured, RowMaker};
use super::schedule::Schedule;
use super::surroundings::{Parts, Surroundings};
use super::telling;
use super::time::Over;
use super::workers::{Message, serve};
use super::{Event, Progress, Request, RunError};
use sweeper_engine::compile::CompileError;
use sweeper_engine::compile::toolchain::Toolchain;
use sweeper_engine::execute::supervisor::{Supervisor, Task, Usage, WorkerError};
use sweeper_manifest::Manifest;
use sweeper_manifest::plan::{Plan, PlannedBlock};
use sweeper_model::hardware::DeviceIdentity;
use sweeper_model::identity::PointId;
use sweeper_model::proc_stat::CpuPressure;
use sweeper_model::row::outcome::Outcome;
use sweeper_results::record::contents::Contents;
use sweeper_results::record::folder::FolderError;
use sweeper_results::record::journal::Journal;

/// Interval at which the main thread checks whether it should stop.
const TICK: Duration = Duration::from_millis(50);
/// Least time between two reports of the current work: people can't read faster.
const SHOWN_EVERY: Duration = Duration::from_millis(40);

/// Everything that a run holds while it goes on.
pub(super) struct Session<'a> {
    pub(super) manifest: &'a Manifest,
    pub(super) request: &'a Request,
    pub(super) stop: &'a AtomicBool,
    pub(super) progress: &'a dyn Progress,
    pub(super) plan: &'a Plan<'a>,
    pub(super) maker: RowMaker<'a>,
    pub(super) pruner: Pruner,
    pub(super) contests: Contests,
    pub(super) devices: &'a [DeviceIdentity],
    pub(super) toolchain: &'a Toolchain,
    pub(super) cache: Option<&'a Cache>,
    pub(super) journal: Journal,
    pub(super) keeper: Keeper,
    /// Points that are not measured: they have rows, or are other shards'.
    pub(super) finished: HashSet<PointId>,
    /// How many of them are other shards'.
    pub(super) elsewhere: usize,
    /// Numbers of earlier rows of points that are tried again.
    pub(super) tries: HashMap<PointId, u32>,
    has_skips: bool,
    /// Why there is no time for another point.
    pub(super) over: Option<Over>,
    /// Rows that were taken from earlier runs.
    pub(super) taken: usize,
    /// Rows of points that there was no time for.
    pub(super) unmeasured: usize,
    /// Kernels that were asked for, by number.
    pub(super) built: BuiltKernels,
    /// Kernels that were set aside because a point that uses them crashed.
    pub(super) doubted: HashSet<u32>,
    /// Warnings that were shown: each once.
    pub(super) warned: HashSet<WarningKind>,
    /// Time of the last report of the current work.
    pub(super) shown: Instant,
    /// How much the machine's processes waited for processors before the first block.
    pub(super) pressure: Option<CpuPressure>,
    pub(super) anchors: Anchors,
    /// The use of each device's time.
    pub(super) usage: Vec<Usage>,
    /// Duration of the measuring.
    pub(super) wall: Duration,
    pub(super) written: usize,
    pub(super) compiled: usize,
    /// When measuring began.
    pub(super) began: Instant,
    /// Estimate of the remaining time.
    pub(super) remaining: Remaining,
}

impl<'a> Session<'a> {
    /// Before the first measurement of a plan.
    pub(super) fn new(
        surroundings: &Surroundings<'a>,
        plan: &'a Plan<'a>,
        measured: Vec<Measured>,
        parts: Parts,
    ) -> Self {
        let Parts {
            journal,
            keeper,
            mut finished,
            elsewhere,
            tries,
            has_skips,
        } = parts;
        let others = elsewhere.len();
        finished.extend(elsewhere);
        let Surroundings {
            manifest,
            request,
            stop,
            progress,
            devices,
            toolchain,
            cache,
        } = *surroundings;
        Session {
            manifest,
            request,
            stop,
            progress,
            plan,
            maker: RowMaker::new(plan, measured),
            pruner: Pruner::new(manifest.limits.prune.as_ref()),
            contests: Contests::new(plan),
            devices,
            toolchain,
            cache,
            journal,
            keeper,
            finished,
            elsewhere: others,
            tries,
            has_skips,
            over: None,
            taken: 0,
            unmeasured: 0,
            built: HashMap::new(),
            doubted: HashSet::new(),
            warned: HashSet::new(),
            shown: Instant::now(),
            anchors: Anchors::new(manifest.limits.anchor_interval, devices.len()),
            usage: vec![Usage::default(); devices.len()],
            wall: Duration::ZERO,
            written: 0,
            compiled: 0,
            began: Instant::now(),
            pressure: CpuPressure::now(),
            remaining: Remaining::default(),
        }
    }

    /// Learns from an earlier, interrupted part of the run: failures, and configurations of tuned
    /// backends.
    pub(super) fn learn(&mut self, contents: &Contents) -> Result<(), RunError> {
        let learns = self.pruner.is_active() || self.contests.is_active();
        if contents.is_empty() || !learns {
            return Ok(());
        }
        for row in contents.rows().map_err(RunError::Impossible)? {
            // A point that is tried again has proved nothing.
            if self.finished.contains(&row.point) {
                self.pruner.learn(&row);
                self.contests.learn(&row);
            }
        }
        Ok(())
    }

    /// Measures configurations again that may be the best of their backend and could not be
    /// measured a second time, because others were not measured yet: time was over, or the manifest
    /// has more of them now.
    pub(super) fn reopen_contests(&mut self) {
        for (point, earlier_rows) in self.contests.open(self.plan, &self.finished) {
            self.finished.remove(&point);
            self.tries.insert(point, earlier_rows + 1);
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        let mut points = self.plan.points.iter();
        points.all(|point| self.finished.contains(&point.id))
    }

    /// On a GPU kernels are compiled while others are measured; a CPU would be disturbed by it.
    pub(super) fn compiles_beside(&self) -> bool {
        self.plan.device.kind.facts().is_gpu && !self.request.skip_precompile
    }

    /// Writes declared skips, compiles ahead, and measures block after block.
    pub(super) fn measure_all(&mut self, supervisors: Vec<Supervisor>) -> Result<(), RunError> {
        let skips = match self.has_skips {
            true => self.maker.skips(),
            false => Vec::new(),
        };
        for row in skips {
            if self.finished.insert(row.point) {
                self.journal.write(&row).map_err(FolderError::from)?;
            }
        }
        let mut blocks = self.left();
        let is_given = self.request.allowed.is_given();
        if is_given {
            telling::sort(self.plan, &mut blocks);
        }
        let cost = |block: &&PlannedBlock| {
            let points = block.points.iter();
            points
                .map(|&point| self.plan.points[point as usize].guess_ns)
                .sum()
        };
        let costs = blocks.iter().map(cost).collect();
        let schedule = match is_given {
            true => Schedule::in_order(costs, supervisors.len()),
            false => Schedule::new(costs, supervisors.len()),
        };
        self.expect(&blocks, &schedule);
        let threads = rayon::current_num_threads();
        self.remaining = Remaining::of(self.plan, threads, |point| {
            !self.finished.contains(&point.id)
        });
        // Compiling all ahead could take all of a time that is given.
        if !self.request.skip_precompile && !self.compiles_beside() && !is_given {
            let wanted = self.kernels_of(&blocks, &schedule);
            self.compile(wanted);
        }
        self.began = Instant::now();
        self.keeper.measures();
        let measured = self.measure(blocks, schedule, supervisors);
        self.wall = self.began.elapsed();
        measured?;
        self.declare_unmeasured()?;
        self.journal.sync().map_err(FolderError::from)?;
        Ok(())
    }

    /// Blocks of which a point has no row.
    fn left(&self) -> Vec<&'a PlannedBlock> {
        let plan = self.plan;
        let is_left = |block: &&PlannedBlock| {
            let mut points = block.points.iter();
            points.any(|&point| !self.finished.contains(&plan.points[point as usize].id))
        };
        plan.blocks.iter().filter(is_left).collect()
    }

    /// Measures blocks by all workers at once, and compiles meanwhile if this disturbs no clock.
    fn measure(
        &mut self,
        blocks: Vec<&'a PlannedBlock>,
        schedule: Schedule,
        supervisors: Vec<Supervisor>,
    ) -> Result<(), RunError> {
        let ahead = self.ahead(&blocks, &schedule);
        let depth = supervisors.first().map_or(1, Supervisor::depth);
        let (sender, messages) = mpsc::channel();
        let stop = self.stop;
        let threads = thread::Builder::new;
        let no_thread = |error| RunError::from(WorkerError::Io(error));
        thread::scope(|scope| {
            let mut tasks = Vec::new();
            for (worker, supervisor) in supervisors.into_iter().enumerate() {
                let (task, given) = mpsc::channel();
                tasks.push(task);
                let sender = sender.clone();
                let work = move || serve(worker, supervisor, &given, &sender, stop);
                threads().spawn_scoped(scope, work).map_err(no_thread)?;
            }
            for _ in 0..self.compilers(&ahead, tasks.len()) {
                let (sender, ahead) = (sender.clone(), &ahead);
                let work = move || ahead.compile(&sender, stop);
                threads().spawn_scoped(scope, work).map_err(no_thread)?;
            }
            // The channel closes when all workers and compilers are gone.
            drop(sender);
            let mut of_case = BTreeMap::new();
            for block in &blocks {
                *of_case.entry(self.case_of(block)).or_insert(0) += 1;
            }
            let mut dispatch = Dispatch {
                hands: vec![VecDeque::new(); tasks.len()],
                depth,
                lost: vec![false; tasks.len()],
                blocks,
                schedule,
                tasks,
                of_case,
            };
            let measured = self.attend(&mut dispatch, &messages);
            ahead.end();
            measured
        })
    }

    /// Gives workers blocks and writes rows, until all is done or it should stop.
    fn attend(
        &mut self,
        dispatch: &mut Dispatch<'a>,
        messages: &Receiver<Message>,
    ) -> Result<(), RunError> {
        loop {
            for worker in 0..dispatch.hands.len() {
                self.give(worker, dispatch)?;
            }
            self.heed_time();
            let is_stopped = self.stop.load(Ordering::Relaxed) || self.over.is_some();
            if dispatch.is_idle() && (is_stopped || dispatch.schedule.is_empty()) {
                return Ok(());
            }
            match messages.recv_timeout(TICK) {
                Ok(message) => self.hear(message, dispatch)?,
                Err(RecvTimeoutError::Timeout) => {}
                // The last worker is gone, and blocks are left that no worker can measure.
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    fn hear(&mut self, message: Message, dispatch: &mut Dispatch<'a>) -> Result<(), RunError> {
        match message {
            Message::Working { .. } if self.shown.elapsed() < SHOWN_EVERY => {}
            Message::Working { number, stage } => {
                self.shown = Instant::now();
                let label = self.plan.label(&self.plan.points[number as usize]);
                let label = &label;
                self.progress.event(&Event::Working { label, stage });
            }
            Message::Compiled {
                result: Err(CompileError::Stopped),
                ..
            } => {}
            Message::Compiled { number, result } => {
                let name = self.plan.kernels[number as usize].title();
                let event = Event::Compiled {
                    name: &name,
                    result: result.as_ref(),
                    left: Duration::from_nanos(self.remaining.left_ns() as u64),
                };
                self.progress.event(&event);
                self.keep(number, result);
            }
            Message::Finished {
                worker,
                block: ANCHOR,
                outcome,
                ..
            } => self.anchors.read(worker, &outcome),
            Message::Finished {
                worker,
                block,
                number,
                outcome,
            } => {
                self.offer_anchor(dispatch.blocks[block], worker, number, &outcome);
                self.finish_measured(number, outcome, worker)?;
            }
            Message::Done {
                worker,
                block,
                usage,
                result,
            } => {
                dispatch.hands[worker].retain(|&held| held != block);
                self.usage[worker] = usage;
                match result {
                    Ok(()) if block == ANCHOR => {}
                    Ok(()) => self.done(block, dispatch),
                    Err(error) => self.lose(worker, block, error, dispatch)?,
                }
            }
        }
        Ok(())
    }

    fn case_of(&self, block: &PlannedBlock) -> u16 {
        let first = block.points.first();
        first.map_or(0, |&point| self.plan.points[point as usize].point.case)
    }

    pub(super) fn done(&self, block: usize, dispatch: &mut Dispatch<'a>) {
        let case = self.case_of(dispatch.blocks[block]);
        if let Some(left) = dispatch.of_case.get_mut(&case) {
            *left -= 1;
        }
    }

    /// A worker can't be replaced: others take its blocks, if there are others.
    fn lose(
        &mut self,
        worker: usize,
        block: usize,
        error: WorkerError,
        dispatch: &mut Dispatch<'a>,
    ) -> Result<(), RunError> {
        dispatch.lost[worker] = true;
        if block != ANCHOR {
            dispatch.schedule.put_back(worker, block);
        }
        if dispatch.lost.iter().all(|&lost| lost) {
            return Err(error.into());
        }
        let device = &self.devices[worker];
        let lost = format!("{} {} is given up: {error}", device.name, device.unit);
        self.progress.event(&Event::Warning(&lost));
        Ok(())
    }

    /// Gives a worker blocks while it has room; a block that needs no worker is finished at once.
    fn give(&mut self, worker: usize, dispatch: &mut Dispatch<'a>) -> Result<(), RunError> {
        let is_over =
            |session: &Self| session.stop.load(Ordering::Relaxed) || session.over.is_some();
        while dispatch.has_room(worker) && !is_over(self) {
            let left_ns = self.left_ns(worker, dispatch);
            let (blocks, of_case) = (&dispatch.blocks, &dispatch.of_case);
            let is_ready = |block: usize| self.is_ready(blocks[block], of_case);
            let fits = |block: usize| self.fits(blocks[block], left_ns);
            let whole = |block: usize| is_ready(block) && fits(block);
            let Some(block) = dispatch.schedule.next(worker, whole) else {
                return self.give_part(worker, dispatch);
            };
            if let Some(place) = self.anchors.due(worker) {
                dispatch.give(worker, ANCHOR, self.anchor(place));
            }
            match self.task(dispatch.blocks[block], worker, f64::INFINITY)? {
                None => self.done(block, dispatch),
                Some(task) => dispatch.give(worker, block, task),
            }
        }
        Ok(())
    }

    /// An anchor point, to be measured again.
    fn anchor(&self, place: Place) -> Task {
        let numbers = [place.number];
        let blocks = self.blocks();
        let planned = &self.plan.blocks[place.block];
        Task {
            block: blocks.block(planned, place.number, &numbers).by_itself(),
            artifacts: blocks.artifacts(planned, &numbers),
        }
    }

    /// Makes one of a worker's first points its anchor, if it has none.
    fn offer_anchor(
        &mut self,
        block: &PlannedBlock,
        worker: usize,
        number: u32,
        outcome: &Outcome,
    ) {
        if self.anchors.has(worker) {
            return;
        }
        let mut blocks = self.plan.blocks.iter();
        let Some(position) = blocks.position(|held| std::ptr::eq(held, block)) else {
            return;
        };
        let place = Place {
            block: position,
            number,
            point: self.plan.points[number as usize].id,
        };
        self.anchors.offer(worker, place, outcome);
    }

    /// True if a block's kernels are there, and the cases that it needs are done.
    pub(super) fn is_ready(&self, block: &PlannedBlock, of_case: &BTreeMap<u16, usize>) -> bool {
        let needs = &self.manifest.cases[usize::from(self.case_of(block))].needs;
        let is_done = |case: &usize| of_case.get(&(*case as u16)).is_none_or(|&left| left == 0);
        let are_there = || {
            let is_left = |point: &u32| {
                let id = &self.plan.points[*point as usize].id;
                !self.finished.contains(id)
            };
            let left = block.points.iter().copied().filter(is_left);
            let mut kernels = self.plan.kernels_of(block, left);
            kernels.all(|kernel| self.built.contains_key(&kernel))
        };
        needs.iter().all(is_done) && (!self.compiles_beside() || are_there())
    }

    /// The rest of a block for a worker, if there is one; of points that end within `left_ns`.
    pub(super) fn task(
        &mut self,
        planned: &PlannedBlock,
        worker: usize,
        left_ns: f64,
    ) -> Result<Option<Task>, RunError> {
        let plan = self.plan;
        let left = self.within(planned, left_ns);
        let kernels = plan.kernels_of(planned, left.iter().copied());
        self.compile(kernels.collect());
        if self.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut admitted = Vec::new();
        for number in left {
            match self.refuse(&plan.points[number as usize]) {
                Some(outcome) => self.finish(number, outcome, worker)?,
                None => admitted.push(number),
            }
        }
        let Some(&first) = admitted.first() else {
            return Ok(None);
        };
        let blocks = self.blocks();
        Ok(Some(Task {
            block: blocks.block(planned, first, &admitted),
            artifacts: blocks.artifacts(planned, &admitted),
        }))
    }

    fn blocks(&self) -> Blocks<'_> {
        Blocks {
            plan: self.plan,
            request: self.request,
            maker: &self.maker,
            built: &self.built,
            contests: &self.contests,
        }
    }
}
