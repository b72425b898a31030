//! The main process's side of a worker: starts it, feeds it blocks, survives its death.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGABRT, SIGKILL};
use sweeper_program::Workload as _;

use super::peer;
use super::protocol::{Block, DeviceRequest, Event, Request, Stage, receive, send};
use crate::device::platform::platform;
use crate::device::process::{LastWords, in_own_session, is_of_others, kill_session, signal_name};
use crate::device::{Artifact, memory};
use sweeper_manifest::user::Declared;
use sweeper_model::hardware::DeviceIdentity;
use sweeper_model::hardware::ceilings::Ceilings;
use sweeper_model::proc_stat::stat_of;
use sweeper_model::row::outcome::{Cause, Outcome, Status};
use sweeper_model::scratch;

/// How a worker is started.
#[derive(Clone, Debug)]
pub struct WorkerCommand {
    /// The program; normally this one.
    pub program: PathBuf,
    /// The arguments of the program.
    pub args: Vec<String>,
    /// Where workers wait for the next run; none to end them with theirs.
    pub idle: Option<IdleWorkers>,
}

/// Workers whose run is over: the next one on the same device goes on with them, and with what they
/// have loaded. The system ends a worker with the thread that started it, so each thread has its
/// own.
#[derive(Clone, Debug, Default)]
pub struct IdleWorkers(Arc<Mutex<Vec<(DeviceRequest, Worker)>>>);

impl IdleWorkers {
    fn all(&self) -> MutexGuard<'_, Vec<(DeviceRequest, Worker)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker on a device, whichever workloads the manifest of its run declared.
    fn take(&self, device: &DeviceRequest) -> Option<Worker> {
        let mut all = self.all();
        let is_alike = |held: &DeviceRequest| {
            let declared = device.declared.clone();
            *device
                == DeviceRequest {
                    declared,
                    ..held.clone()
                }
        };
        let at = all.iter().position(|(held, _)| is_alike(held))?;
        Some(all.swap_remove(at).1)
    }
}

/// Why there is no worker.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The worker could not be started, or its pipes broke.
    #[error("worker: {0}")]
    Io(#[from] io::Error),
    /// The worker's device did not answer.
    #[error("{0}")]
    NoDevice(String),
}

/// Observes the measurement of a block in the main process.
pub trait Observer {
    /// A point is worked on.
    fn working(&mut self, number: u32, stage: Stage);
    /// A point is finished.
    fn finished(&mut self, number: u32, outcome: Outcome);
    /// True if the block should be left where it is.
    fn is_stopped(&self) -> bool;
    /// The task that comes after this block and `others` more, once it is known and if it may be
    /// made ready meanwhile.
    fn next(&mut self, others: usize) -> Option<&Task>;
}

/// A block, and the compiled kernels of its points.
pub struct Task {
    /// The block.
    pub block: Block,
    /// The kernels, each once.
    pub artifacts: Vec<Artifact>,
}

impl Task {
    /// Numbers of its points; the first names it.
    fn points(&self) -> impl Iterator<Item = u32> {
        self.block.points.iter().map(|point| point.number)
    }
}

/// How often a wait looks whether it should stop.
const TICK: Duration = Duration::from_millis(50);

/// How long a worker has to open its device: a driver that has just lost a process takes a while.
const OPENING_LIMIT: Duration = Duration::from_secs(120);

/// Time limit of probing a device's ceilings.
const CALIBRATION_LIMIT: Duration = Duration::from_secs(60);

/// How long a killed process may take to go: one that hangs in a driver is left to the system.
const LEAVING_LIMIT: Duration = Duration::from_secs(10);

/// A worker for one device, replaced whenever it dies.
pub struct Supervisor {
    command: WorkerCommand,
    device: DeviceRequest,
    worker: Option<Worker>,
    identity: DeviceIdentity,
    /// How long a worker may be silent.
    limit: Duration,
    usage: Usage,
}

/// The use of a device's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Blocks that were measured, in whole or in part.
    pub blocks: u32,
    /// How long a worker had a block.
    pub at_work: Duration,
    /// How long the device ran programs, by workers that lived to say so.
    pub running: Duration,
}

impl Supervisor {
    /// Starts the first worker.
    ///
    /// # Errors
    /// If it can't be started or its device does not answer.
    pub fn start(
        command: WorkerCommand,
        device: DeviceRequest,
        limit: Duration,
    ) -> Result<Self, WorkerError> {
        let mut all = Supervisor::start_all(&command, vec![device], limit)?;
        let none = || WorkerError::NoDevice("there is no worker".to_owned());
        all.pop().ok_or_else(none)
    }

    /// Starts the first worker of each device; they open their devices concurrently.
    ///
    /// The thread that calls it must live as long as the workers: the system ends a worker with the
    /// thread that started it.
    ///
    /// # Errors
    /// If one can't be started or its device does not answer.
    pub fn start_all(
        command: &WorkerCommand,
        devices: Vec<DeviceRequest>,
        limit: Duration,
    ) -> Result<Vec<Self>, WorkerError> {
        let launched: Vec<Worker> = devices
            .iter()
            .map(|device| Worker::launch(command, device))
            .collect::<Result<_, _>>()?;
        let supervisors = launched.into_iter().zip(devices);
        let supervisors = supervisors.map(|(mut worker, device)| {
            Ok(Supervisor {
                command: command.clone(),
                device,
                identity: worker.opened()?,
                worker: Some(worker),
                limit,
                usage: Usage::default(),
            })
        });
        supervisors.collect()
    }

    /// The use of the device's time so far.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Measures the device's ceilings, with the kernels of its probes in their order.
    ///
    /// # Errors
    /// Why the ceilings are not known. The next block can be measured anyway.
    pub fn calibrate(&mut self, kernels: Vec<Option<Artifact>>) -> Result<Ceilings, String> {
        let worker = self.worker().map_err(|error| error.to_string())?;
        let measured = worker.calibrate(kernels);
        // A worker that failed at it may be in any state.
        if measured.is_err() {
            self.worker = None;
        }
        measured
    }

    /// Greatest number of blocks that a worker has.
    pub fn depth(&self) -> usize {
        let [usual, with_spare] = platform(self.device.kind).blocks_at_once;
        match self.device.spare.is_empty() {
            true => usual,
            false => with_spare,
        }
    }

    /// The device.
    pub fn identity(&self) -> &DeviceIdentity {
        &self.identity
    }

    /// Measures a block. Every point is finished once, unless the observer stops it; a worker that
    /// dies or falls silent costs the point it was at, and the rest goes to the next one. The task
    /// that the observer names as next must be measured next.
    ///
    /// # Errors
    /// If no new worker can be started.
    pub fn measure(&mut self, task: &Task, observer: &mut dyn Observer) -> Result<(), WorkerError> {
        let start = Instant::now();
        let measured = self.measure_parts(task, observer);
        self.usage.blocks += 1;
        self.usage.at_work += start.elapsed();
        measured
    }

    fn measure_parts(
        &mut self,
        task: &Task,
        observer: &mut dyn Observer,
    ) -> Result<(), WorkerError> {
        let (limit, depth) = (self.limit, self.depth());
        let mut has_died_idle = false;
        let mut left: BTreeSet<u32> = task.points().collect();
        while !left.is_empty() && !observer.is_stopped() {
            let ending = self
                .worker()?
                .measure(task, (limit, depth), &mut left, observer);
            let (culprit, outcome) = match ending {
                Ending::Done(running) => {
                    self.usage.running += running;
                    return Ok(());
                }
                Ending::Stopped => break,
                // The worker died before it began: no point is to blame, unless it happens again.
                Ending::Died(None, ..) if !has_died_idle => {
                    has_died_idle = true;
                    self.worker = None;
                    continue;
                }
                Ending::Died(culprit, stage, outcome) => {
                    (culprit, self.at_stage(task, stage, outcome))
                }
                Ending::Silent(culprit, stage) => {
                    let reason = format!("no progress within {limit:?}");
                    let outcome = Outcome::without_measurement(Status::Timeout, reason);
                    (culprit, self.at_stage(task, stage, outcome))
                }
                Ending::Suspended(culprit) => {
                    let reason = format!("the worker was suspended for more than {limit:?}");
                    let outcome = Outcome::without_measurement(Status::Timeout, reason);
                    (culprit, outcome.because_of(Cause::Surroundings))
                }
            };
            self.worker = None;
            let culprit = culprit.or(left.first().copied());
            if let Some(number) = culprit.filter(|number| left.remove(number)) {
                observer.finished(number, outcome);
            }
        }
        self.worker = None;
        Ok(())
    }

    /// The outcome of a point that ended a worker: where its reference did, it says so.
    fn at_stage(&self, task: &Task, stage: Stage, outcome: Outcome) -> Outcome {
        if stage != Stage::Reference {
            return outcome;
        }
        let declared = self.device.declared.iter();
        let mut declared = declared.filter_map(|json| Declared::of_json(json).ok());
        let workload = declared.find(|it| it.info().name == task.block.workload);
        match workload.and_then(Declared::peer) {
            Some(name) => peer::named(&task.block, name, outcome),
            None => outcome,
        }
    }

    fn worker(&mut self) -> Result<&mut Worker, WorkerError> {
        if self.worker.is_none() {
            let mut worker = Worker::launch(&self.command, &self.device)?;
            worker.opened()?;
            self.worker = Some(worker);
        }
        match &mut self.worker {
            Some(worker) => Ok(worker),
            None => Err(WorkerError::NoDevice("there is no worker".to_owned())),
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let (Some(idle), Some(worker)) = (&self.command.idle, self.worker.take())
            && worker.ahead == 0
        {
            idle.all().push((self.device.clone(), worker));
        }
    }
}

/// How a block ended in one worker.
enum Ending {
    Done(Duration),
    Stopped,
    Died(Option<u32>, Stage, Outcome),
    Silent(Option<u32>, Stage),
    Suspended(Option<u32>),
}

/// One process.
#[derive(Debug)]
struct Worker {
    child: Child,
    requests: ChildStdin,
    events: Receiver<io::Result<Option<Event>>>,
    last_words: LastWords,
    /// Keys of the kernels that it has.
    sent: HashSet<String>,
    /// Number of blocks that it was given ahead of their time.
    ahead: usize,
    /// How often the system had ended processes of the control group for their memory before it.
    kills_before: u64,
}

impl Worker {
    /// Starts a process, or takes one that waits, and tells it to open its device.
    fn launch(command: &WorkerCommand, device: &DeviceRequest) -> Result<Self, WorkerError> {
        if let Some(mut worker) = command.idle.as_ref().and_then(|idle| idle.take(device))
            && send(&mut worker.requests, &Request::Open(device.clone())).is_ok()
        {
            return Ok(worker);
        }
        let mut process = Command::new(&command.program);
        process
            .args(&command.args)
            // CUDA then loads kernels when it is told to, not when they are first launched.
            .env("CUDA_MODULE_LOADING", "EAGER")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        in_own_session(&mut process);
        let mut child = process.spawn()?;
        let missing = || io::Error::other("a pipe is missing");
        let requests = child.stdin.take().ok_or_else(missing)?;
        let mut stdout = io::BufReader::new(child.stdout.take().ok_or_else(missing)?);
        let stderr = child.stderr.take().ok_or_else(missing)?;
        let (sender, events) = mpsc::sync_channel(64);
        let threads = std::thread::Builder::new;
        threads().spawn(move || {
            loop {
                let event = receive(&mut stdout);
                let is_last = !matches!(event, Ok(Some(_)));
                if sender.send(event).is_err() || is_last {
                    return;
                }
            }
        })?;
        let last_words = LastWords::of(stderr)?;
        let mut worker = Worker {
            child,
            requests,
            events,
            last_words,
            sent: HashSet::new(),
            ahead: 0,
            kills_before: memory::group_kills(),
        };
        send(&mut worker.requests, &Request::Open(device.clone()))?;
        Ok(worker)
    }

    /// Waits until the device is open.
    fn opened(&mut self) -> Result<DeviceIdentity, WorkerError> {
        match self.events.recv_timeout(OPENING_LIMIT) {
            Ok(Ok(Some(Event::Ready(identity)))) => Ok(identity),
            Ok(Ok(Some(Event::NotReady(reason)))) => Err(WorkerError::NoDevice(reason)),
            Err(RecvTimeoutError::Timeout) => Err(WorkerError::NoDevice(format!(
                "the device did not open within {OPENING_LIMIT:?}"
            ))),
            _ => Err(WorkerError::NoDevice(self.obituary().to_string())),
        }
    }

    /// Sends those points of a task that are wanted, and the kernels that this process has not
    /// seen.
    fn give(&mut self, task: &Task, wanted: impl Fn(u32) -> bool) -> io::Result<()> {
        let mut block = task.block.clone();
        block.points.retain(|point| wanted(point.number));
        let new = |artifact: &&Artifact| self.sent.insert(artifact.key.clone());
        block.artifacts = task.artifacts.iter().filter(new).cloned().collect();
        send(&mut self.requests, &Request::Measure(Box::new(block)))
    }

    /// Sends the next tasks that are known and were not sent yet, so that it has `depth` blocks. A
    /// pipe that is broken is heard of as the end of all events.
    fn give_ahead(&mut self, depth: usize, observer: &mut dyn Observer) {
        while self.ahead + 1 < depth
            && let Some(next) = observer.next(self.ahead)
        {
            self.ahead += 1;
            let _ = self.give(next, |_| true);
        }
    }

    fn calibrate(&mut self, kernels: Vec<Option<Artifact>>) -> Result<Ceilings, String> {
        send(&mut self.requests, &Request::Calibrate(kernels))
            .map_err(|_| self.obituary().to_string())?;
        match self.events.recv_timeout(CALIBRATION_LIMIT) {
            Ok(Ok(Some(Event::Calibrated(measured)))) => measured,
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("no answer within {CALIBRATION_LIMIT:?}"))
            }
            _ => Err(self.obituary().to_string()),
        }
    }

    fn measure(
        &mut self,
        task: &Task,
        (limit, depth): (Duration, usize),
        left: &mut BTreeSet<u32>,
        observer: &mut dyn Observer,
    ) -> Ending {
        // A task that was given ahead is whole: a worker that lost a point is another one.
        let is_given = self.ahead > 0;
        self.ahead = self.ahead.saturating_sub(1);
        if !is_given && self.give(task, |number| left.contains(&number)).is_err() {
            return Ending::Died(None, Stage::Inputs, self.obituary().outcome());
        }
        let mut current = None;
        let mut stage = Stage::Inputs;
        let mut silent = Duration::ZERO;
        let mut has_left = false;
        loop {
            let waiting = Instant::now();
            let event = match self.events.recv_timeout(TICK) {
                Ok(Ok(Some(event))) => event,
                Ok(_) | Err(RecvTimeoutError::Disconnected) => {
                    let outcome = self.obituary().outcome();
                    return Ending::Died(current, stage, outcome);
                }
                Err(RecvTimeoutError::Timeout) if observer.is_stopped() => return Ending::Stopped,
                // Its stream does not end as long as a process has it that a kernel has forked.
                Err(RecvTimeoutError::Timeout) if has_left => {
                    let outcome = self.obituary().outcome();
                    return Ending::Died(current, stage, outcome);
                }
                Err(RecvTimeoutError::Timeout) => {
                    // What it wrote before is heard of within one more wait.
                    has_left = matches!(self.child.try_wait(), Ok(Some(_)));
                    // A wait that took much longer was one of this process, which was suspended.
                    silent += waiting.elapsed().min(4 * TICK);
                    // A function that hangs costs its point before, and not the worker.
                    match silent > limit + limit / 3 {
                        true if is_suspended(self.child.id()) => return Ending::Suspended(current),
                        true => return Ending::Silent(current, stage),
                        false => continue,
                    }
                }
            };
            silent = Duration::ZERO;
            self.give_ahead(depth, observer);
            match event {
                Event::Working { number, stage: at } => {
                    (current, stage) = (Some(number), at);
                    observer.working(number, at);
                }
                Event::Finished { number, outcome } => {
                    if left.remove(&number) {
                        observer.finished(number, outcome);
                    }
                }
                Event::BlockDone { running } => return Ending::Done(running),
                Event::Ready(_) | Event::NotReady(_) | Event::Calibrated(_) => {}
            }
            if observer.is_stopped() {
                return Ending::Stopped;
            }
        }
    }

    /// The process's exit status and its last words on standard error.
    fn obituary(&mut self) -> Obituary {
        // The process may still be ending; it has a moment, then it is killed.
        for _ in 0..100 {
            if let Ok(Some(_)) = self.child.try_wait() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let status = end(&mut self.child);
        Obituary {
            signal: status.and_then(|status| status.signal()),
            code: status.and_then(|status| status.code()),
            words: self.last_words.text().trim().to_owned(),
            was_out_of_memory: memory::group_kills() > self.kills_before,
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Kills a worker with all that it and functions and programs of the user have started, and waits
/// for it, for as long as that can take. What they left in folders goes, too.
fn end(child: &mut Child) -> Option<ExitStatus> {
    // A process that is gone already can't be killed; that is as well.
    let _ = child.kill();
    let others = kill_session(child.id());
    let status = ended(child);
    scratch::remove_of(&(&others | &BTreeSet::from([child.id()])));
    status
}

fn ended(child: &mut Child) -> Option<ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < LEAVING_LIMIT {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    None
}

/// True for a process that a signal has stopped until another one lets it go on.
fn is_suspended(process: u32) -> bool {
    stat_of(process).is_some_and(|stat| stat.starts_with(['T', 't']))
}

struct Obituary {
    signal: Option<i32>,
    code: Option<i32>,
    words: String,
    /// The system ended a process of the control group for its memory while the worker lived.
    was_out_of_memory: bool,
}

impl Obituary {
    /// The outcome of the point at work.
    fn outcome(&self) -> Outcome {
        let reason = self.to_string();
        let crashed = Outcome::without_measurement(Status::Crashed, &*reason);
        match self.signal {
            Some(SIGKILL) if self.was_out_of_memory => {
                Outcome::without_measurement(Status::Oom, reason)
            }
            Some(SIGABRT) if self.words.contains(ALLOCATION_FAILED) => {
                Outcome::without_measurement(Status::Oom, reason)
            }
            Some(signal) if is_of_others(signal) => crashed.because_of(Cause::Surroundings),
            _ => crashed,
        }
    }
}

/// The message of the standard library before it aborts a process that gets no memory.
const ALLOCATION_FAILED: &str = "memory allocation of ";

impl fmt::Display for Obituary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.signal, self.code) {
            (Some(signal), _) => {
                let name = signal_name(signal);
                write!(out, "the worker was ended by signal {signal}{name}")?;
            }
            (None, Some(code)) => write!(out, "the worker ended with code {code}")?,
            (None, None) => out.write_str("the worker is gone")?,
        }
        if !self.words.is_empty() {
            write!(out, ": {}", self.words)?;
        }
        Ok(())
    }
}
