//! Loops whose launches are chosen one after another, on the threads that run programs.

use std::ops::Range;
use std::time::Instant;

use super::Cpu;
use super::run::Runner;
use crate::device::launcher::{Launcher, Moment};
use crate::device::{Device, DeviceError, Job, Prepared};

/// The device in a loop. Launches are done when they return.
pub(super) struct OnThreads<'a> {
    cpu: &'a mut Cpu,
    /// Addresses of each program's buffers, where they are known.
    addresses: Vec<Option<Vec<usize>>>,
    moments: Vec<Instant>,
}

impl<'a> OnThreads<'a> {
    pub(super) fn new(cpu: &'a mut Cpu) -> Self {
        OnThreads {
            cpu,
            addresses: Vec::new(),
            moments: Vec::new(),
        }
    }

    /// A runner of a program.
    fn runner(&mut self, program: Prepared) -> Runner<'_> {
        if self.addresses.len() <= program.0 {
            self.addresses.resize(program.0 + 1, None);
        }
        let loaded = &self.cpu.programs[program.0];
        let own = &mut self.addresses[program.0];
        let addresses = own.get_or_insert_with(|| self.cpu.addresses(loaded));
        Runner::new(&loaded.program, &loaded.entries, addresses)
    }
}

impl Launcher for OnThreads<'_> {
    fn prepare(&mut self, job: Job<'_>) -> Result<Prepared, DeviceError> {
        // Memory may lie elsewhere afterwards.
        self.addresses.clear();
        self.cpu.prepare(job)
    }

    fn steps(&self, program: Prepared) -> usize {
        self.cpu.programs[program.0].program.steps.len()
    }

    fn begin(&mut self, program: Prepared) -> Result<(), DeviceError> {
        self.runner(program).prologue();
        Ok(())
    }

    fn launch(&mut self, program: Prepared, steps: Range<usize>) -> Result<(), DeviceError> {
        self.runner(program).part(steps);
        Ok(())
    }

    fn moment(&mut self) -> Result<Moment, DeviceError> {
        self.moments.push(Instant::now());
        Ok(Moment(self.moments.len() - 1))
    }

    fn between_ns(&mut self, from: Moment, to: Moment) -> Result<Option<f64>, DeviceError> {
        let span = self.moments[to.0].duration_since(self.moments[from.0]);
        Ok(Some(span.as_nanos() as f64))
    }

    fn wait(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
}
