//! The process that measures. It reads requests from standard input and answers on standard output.
//!
//! One thread reads requests and generates the inputs of blocks; another has the device. When the
//! main process sends a block while the one before is measured, its inputs are generated meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::env;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use rayon::{ThreadPool, ThreadPoolBuilder};

use super::answers::Answers;
use super::block::{self, Listener};
use super::block_inputs::BlockInputs;
use super::foreign_oracle;
use super::fresh;
use super::protocol::{Block, DeviceRequest, Event, Request, Stage, receive, send};
use crate::device::cpu::identity;
use crate::device::foreign::command::Commands;
use crate::device::foreign::python::Python;
use crate::device::foreign::referee::Referee;
use crate::device::foreign::{ForeignRunner, WithRunners};
use crate::device::nvtx::Ranges;
use crate::device::platform::{Opening, platform};
use crate::device::{Artifact, Device, DeviceError, ceilings};
use sweeper_manifest::user::Declared;
use sweeper_model::hardware::DeviceKind;
use sweeper_model::row::outcome::{FreshStarts, Outcome};
use sweeper_program::Runner;

/// A message from the reading thread to the thread that has the device.
enum Order {
    /// The block_inputs of a block with this first point is begun.
    Begun(u32),
    /// A block, with its inputs or the outcome of all its points.
    Measure(Box<Block>, Box<Result<BlockInputs, Outcome>>),
    /// Measure the device's ceilings.
    Calibrate(Vec<Option<Artifact>>),
    /// Another run begins, on the same device; or it can't, for this reason.
    Reopen(Box<Result<DeviceRequest, String>>),
}

/// Serves requests until the stream ends.
///
/// # Errors
/// Those of the streams; the main process is gone then, or this one must go.
pub fn serve(
    requests: impl Read + Send + 'static,
    mut events: impl Write,
    processors: usize,
) -> io::Result<()> {
    let mut requests = BufReader::new(requests);
    let Some(Request::Open(request)) = receive(&mut requests)? else {
        return Err(io::Error::other("the first request must open a device"));
    };
    let declared = match declared_in(&request) {
        Ok(declared) => declared,
        Err(reason) => return send(&mut events, &Event::NotReady(reason)),
    };
    let device = match open(&request) {
        Ok(device) => device,
        Err(error) => return send(&mut events, &Event::NotReady(error.to_string())),
    };
    if let Err(error) = start_threads(request.kind, processors) {
        let reason = format!("threads can't be started: {error}");
        return send(&mut events, &Event::NotReady(reason));
    }
    send(&mut events, &Event::Ready(device.identity().clone()))?;
    let copies = platform(request.kind).input_copies;
    let answers = Answers::open(request.answers.as_ref().filter(|_| copies > 0));
    let answers = Arc::new(answers);
    let readers_answers = Arc::clone(&answers);
    let (orders, given) = mpsc::channel();
    // Not scoped: where the device is lost, this one must not wait for the next request.
    let threads = thread::Builder::new();
    let unfinished = Arc::<Unfinished>::default();
    let (spare, readers_unfinished) = (request.spare.clone(), Arc::clone(&unfinished));
    let reader = threads.spawn(move || {
        let to = (&orders, &*readers_unfinished);
        let read = || read(requests, copies, &readers_answers, declared, to);
        match pool_on(spare)? {
            Some(pool) => pool.install(read),
            None => read(),
        }
    })?;
    let mut bench = Bench {
        device,
        threads: request.threads,
        request,
        artifacts: HashMap::new(),
        answers,
        unfinished,
        ranges: Ranges::find(),
        events,
    };
    bench.work(&given)?;
    let panicked = |_| io::Error::other("the block_inputs of a block panicked");
    reader.join().map_err(panicked)?
}

/// The workloads that the manifest of a run declares.
fn declared_in(request: &DeviceRequest) -> Result<Vec<&'static Declared>, String> {
    let declared = request.declared.iter();
    declared.map(|json| Declared::of_json(json)).collect()
}

/// Starts the threads that share parallel work, on so many processors.
fn start_threads(kind: DeviceKind, processors: usize) -> Result<(), rayon::ThreadPoolBuildError> {
    let is_told = std::env::var_os("RAYON_NUM_THREADS").is_some();
    let wanted = (platform(kind).host_threads)(processors, is_told);
    let pool = ThreadPoolBuilder::new().num_threads(wanted);
    pool.build_global()
}

/// The threads that make blocks ready where nothing is measured; `None` for those of all work.
fn pool_on(spare: Vec<usize>) -> io::Result<Option<ThreadPool>> {
    if spare.is_empty() {
        return Ok(None);
    }
    let pool = ThreadPoolBuilder::new().num_threads(spare.len());
    let pool = pool.start_handler(move |_| identity::keep_current_thread_on(&spare));
    pool.build().map(Some).map_err(io::Error::other)
}

/// Reads requests and generates the inputs of blocks, until the stream or the other thread ends.
fn read(
    mut requests: impl Read,
    copies: u64,
    answers: &Answers,
    mut declared: Vec<&'static Declared>,
    (orders, unfinished): (&Sender<Order>, &Unfinished),
) -> io::Result<()> {
    while let Some(request) = receive(&mut requests)? {
        let order = match request {
            Request::Measure(block) => {
                if let Some(first) = block.points.first()
                    && orders.send(Order::Begun(first.number)).is_err()
                {
                    return Ok(());
                }
                // What is measured has its memory on the host, too: it must not find that taken.
                if copies > 1 && !BlockInputs::are_small(&block, &declared) {
                    unfinished.wait_for_none();
                }
                unfinished.add();
                let block_inputs = BlockInputs::generate(&block, copies, answers, &declared);
                Order::Measure(block, Box::new(block_inputs))
            }
            Request::Calibrate(kernels) => Order::Calibrate(kernels),
            Request::Open(request) => {
                let reopened = declared_in(&request).map(|found| {
                    declared = found;
                    request
                });
                Order::Reopen(Box::new(reopened))
            }
        };
        if orders.send(order).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// The number of blocks that were made ready and are not measured yet.
#[derive(Default)]
struct Unfinished {
    blocks: Mutex<usize>,
    changed: Condvar,
}

impl Unfinished {
    fn blocks(&self) -> MutexGuard<'_, usize> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self) {
        *self.blocks() += 1;
    }

    fn remove(&self) {
        *self.blocks() -= 1;
        self.changed.notify_all();
    }

    fn wait_for_none(&self) {
        let waited = self.changed.wait_while(self.blocks(), |blocks| *blocks > 0);
        drop(waited);
    }
}

/// A device, and whom it works for.
struct Bench<W> {
    device: Box<dyn Device>,
    threads: u32,
    /// How the device was opened.
    request: DeviceRequest,
    artifacts: HashMap<String, Artifact>,
    answers: Arc<Answers>,
    unfinished: Arc<Unfinished>,
    /// Names for a profiler, where there is one.
    ranges: Option<Ranges>,
    events: W,
}

impl<W: Write> Bench<W> {
    /// Follows orders until there are no more.
    fn work(&mut self, orders: &Receiver<Order>) -> io::Result<()> {
        for order in orders {
            match order {
                Order::Begun(number) => {
                    let stage = Stage::Inputs;
                    send(&mut self.events, &Event::Working { number, stage })?;
                }
                Order::Measure(block, block_inputs) => {
                    self.measure(*block, *block_inputs)?;
                    self.unfinished.remove();
                }
                Order::Calibrate(kernels) => self.calibrate(&kernels)?,
                Order::Reopen(reopened) => self.reopen(*reopened)?,
            }
        }
        Ok(())
    }

    fn reopen(&mut self, reopened: Result<DeviceRequest, String>) -> io::Result<()> {
        match reopened {
            Ok(request) => {
                self.request = request;
                let identity = self.device.identity().clone();
                send(&mut self.events, &Event::Ready(identity))
            }
            Err(reason) => send(&mut self.events, &Event::NotReady(reason)),
        }
    }

    fn calibrate(&mut self, kernels: &[Option<Artifact>]) -> io::Result<()> {
        let measured = ceilings::measure(self.device.as_mut(), self.threads, kernels);
        let lost = matches!(measured, Err(DeviceError::Lost(_)));
        let measured = measured.map_err(|error| error.to_string());
        send(&mut self.events, &Event::Calibrated(measured))?;
        match lost {
            true => Err(io::Error::other("the device is lost")),
            false => Ok(()),
        }
    }

    fn measure(
        &mut self,
        mut block: Block,
        block_inputs: Result<BlockInputs, Outcome>,
    ) -> io::Result<()> {
        for artifact in std::mem::take(&mut block.artifacts) {
            self.artifacts.insert(artifact.key.clone(), artifact);
        }
        let mut reporter = Reporter {
            events: &mut self.events,
            broken: None,
            block: &block,
            ranges: self.ranges.as_mut(),
            fresh_starts: BTreeMap::new(),
        };
        if self.device.computes() {
            let artifacts = &self.artifacts;
            reporter.fresh_starts = fresh::starts(&block, artifacts, &self.request, &mut reporter);
        }
        let before = self.device.running();
        let artifacts = &self.artifacts;
        let answers = &self.answers;
        let measured = block::measure(
            &block,
            block_inputs,
            artifacts,
            answers,
            self.device.as_mut(),
            &mut reporter,
        );
        let running = self.device.running() - before;
        let broken = reporter.broken.take();
        if let Some(ranges) = reporter.ranges {
            ranges.end();
        }
        if let Some(error) = broken {
            return Err(error);
        }
        measured.map_err(io::Error::other)?;
        send(&mut self.events, &Event::BlockDone { running })
    }
}

/// Opens a device.
///
/// # Errors
/// The missing part.
pub fn open(request: &DeviceRequest) -> Result<Box<dyn Device>, DeviceError> {
    let (device, place) = (platform(request.kind).open)(&Opening {
        ordinal: request.ordinal,
        threads: request.threads,
        cache: request.cache,
    })?;
    let Some(place) = place else {
        return Ok(device);
    };
    if request.kind.facts().is_gpu {
        foreign_oracle::use_gpu(device.identity());
    }
    let limit = request.silence_limit;
    let below_cache = request.answers.as_ref().map(|cache| cache.dir.clone());
    let cache_dir = request.compiled_code.clone().or(below_cache);
    let hidden = hidden_folders(request, cache_dir.as_deref());
    let commands = Commands::hiding(hidden.clone());
    let referee = Referee::new(place.clone(), request.cache, limit, hidden);
    let python = Python::new(place, request.cache, limit, cache_dir);
    let runners: [(Runner, Box<dyn ForeignRunner>); 3] = [
        (Runner::Referee, Box::new(referee)),
        (Runner::Command, Box::new(commands)),
        (Runner::Python, Box::new(python)),
    ];
    Ok(Box::new(WithRunners::new(device, runners)))
}

/// Folders that functions that are not trusted don't see: they have right answers, and results.
fn hidden_folders(request: &DeviceRequest, compiled_code: Option<&Path>) -> Vec<PathBuf> {
    let answers = request.answers.iter().map(|cache| cache.dir.clone());
    let code = compiled_code.map(Path::to_owned);
    answers.chain(code).chain(env::current_dir()).collect()
}

/// Turns the messages of a measurement into frames. The first error is kept, and ends the worker.
struct Reporter<'a, W> {
    events: &'a mut W,
    broken: Option<io::Error>,
    block: &'a Block,
    /// Names for a profiler, where there is one.
    ranges: Option<&'a mut Ranges>,
    /// Starting times of each point's program in processes of its own.
    fresh_starts: BTreeMap<u32, FreshStarts>,
}

impl<W: Write> Reporter<'_, W> {
    fn say(&mut self, event: &Event) {
        if self.broken.is_none() {
            self.broken = send(self.events, event).err();
        }
    }

    /// Opens a range in a profiler's time line.
    fn name(&mut self, number: u32, stage: Stage) {
        let Some(ranges) = &mut self.ranges else {
            return;
        };
        let mut points = self.block.points.iter();
        if let Some(point) = points.find(|point| point.number == number) {
            let (workload, backend) = (&self.block.workload, &point.backend);
            let (phase, stage) = (point.phase, stage.name());
            ranges.begin(&format!("{workload} {backend} {phase} {number}: {stage}"));
        }
    }
}

impl<W: Write> Listener for Reporter<'_, W> {
    fn working(&mut self, number: u32, stage: Stage) {
        self.name(number, stage);
        self.say(&Event::Working { number, stage });
    }

    fn finished(&mut self, number: u32, mut outcome: Outcome) {
        if let Some(found) = &mut outcome.measurement {
            let starts = self.fresh_starts.remove(&number).unwrap_or_default();
            (found.fresh_starts, found.cold_starts) = (starts.warm, starts.cold);
        }
        self.say(&Event::Finished { number, outcome });
    }
}
