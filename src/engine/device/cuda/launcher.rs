//! Loops whose launches are chosen one after another, in the stream.

use std::ops::Range;

use super::Cuda;
use super::driver::Fault;
use super::run::Runner;
use super::timing::Event;
use crate::device::launcher::{Launcher, Moment};
use crate::device::{Device, DeviceError, Job, Prepared};

/// The device in a loop.
pub(super) struct InStream<'a> {
    cuda: &'a mut Cuda,
    /// Addresses of each program's buffers, where they are known.
    addresses: Vec<Option<Vec<u64>>>,
    moments: Vec<Event>,
}

impl<'a> InStream<'a> {
    pub(super) fn new(cuda: &'a mut Cuda) -> Self {
        InStream {
            cuda,
            addresses: Vec::new(),
            moments: Vec::new(),
        }
    }

    /// Runs `queue` with a runner of a program.
    fn with_runner(
        &mut self,
        program: Prepared,
        queue: impl FnOnce(&Runner<'_>) -> Result<(), Fault>,
    ) -> Result<(), DeviceError> {
        if self.addresses.len() <= program.0 {
            self.addresses.resize(program.0 + 1, None);
        }
        if self.addresses[program.0].is_none() {
            let own = self.cuda.make_room(program)?;
            // Given tensors may have moved to lie one after another.
            self.addresses.fill(None);
            self.addresses[program.0] = Some(own);
        }
        let loaded = &self.cuda.programs[program.0];
        let addresses = self.addresses[program.0].as_deref().unwrap_or_default();
        let (steps, functions) = (&loaded.program, &loaded.functions);
        let runner = Runner::new(&self.cuda.context, steps, functions, addresses);
        queue(&runner).map_err(|fault| self.cuda.means(fault, loaded.layout.bytes))
    }

    /// Makes the arena large enough for all programs of the loop, so that it stays where it is.
    fn settle(&mut self) -> Result<(), DeviceError> {
        let programs = self.cuda.programs.iter();
        let bytes = programs.map(|loaded| loaded.layout.bytes).max();
        self.addresses.clear();
        self.cuda.grow_arena(bytes.unwrap_or(0))
    }
}

impl Launcher for InStream<'_> {
    fn prepare(&mut self, job: Job<'_>) -> Result<Prepared, DeviceError> {
        // Memory that launches still use is given back.
        self.wait()?;
        let prepared = self.cuda.prepare(job);
        self.settle()?;
        prepared
    }

    fn steps(&self, program: Prepared) -> usize {
        self.cuda.programs[program.0].program.steps.len()
    }

    fn begin(&mut self, program: Prepared) -> Result<(), DeviceError> {
        self.with_runner(program, |runner| runner.prologue())
    }

    fn launch(&mut self, program: Prepared, steps: Range<usize>) -> Result<(), DeviceError> {
        self.with_runner(program, |runner| runner.part(steps))
    }

    fn moment(&mut self) -> Result<Moment, DeviceError> {
        let event = Event::new(&self.cuda.context).and_then(|event| {
            event.record()?;
            Ok(event)
        });
        self.moments
            .push(event.map_err(|fault| self.cuda.means(fault, 0))?);
        Ok(Moment(self.moments.len() - 1))
    }

    fn between_ns(&mut self, from: Moment, to: Moment) -> Result<Option<f64>, DeviceError> {
        let (from, to) = (&self.moments[from.0], &self.moments[to.0]);
        let happened = to
            .has_happened()
            .and_then(|has_happened| has_happened.then(|| to.since(from)).transpose());
        happened.map_err(|fault| self.cuda.means(fault, 0))
    }

    fn wait(&mut self) -> Result<(), DeviceError> {
        let idle = self.cuda.context.synchronize();
        idle.map_err(|fault| self.cuda.means(fault, 0))
    }
}
