//! A device with runners beside it: processes for programs that the device itself can't run.

pub mod command;
pub mod python;
mod renumbered;

use std::collections::BTreeMap;

use sweeper_program::workload::TensorSpec;
use sweeper_program::{Foreign, Program, Runner, Target, Tensors};

use crate::row::outcome::Checked;

use super::launcher::LoopDriver;
use renumbered::Renumbered;

use super::{
    Device, DeviceError, DeviceIdentity, DeviceMemory, Job, Preparation, Prepared, Sample, Unseen,
    needs_runner, no_loop,
};

/// Runs foreign kernels. Programs are numbered by each runner from 0 on for each problem.
pub trait ForeignRunner {
    /// Forgets all programs, and the problem that they are of.
    fn forget(&mut self);

    /// Gets a program ready. The first of a problem brings its inputs.
    ///
    /// # Errors
    /// [`DeviceError::Foreign`], and those of [`Device::prepare`].
    fn prepare(
        &mut self,
        program: &Program,
        foreign: &Foreign,
        inputs: &Tensors,
    ) -> Result<Prepared, DeviceError>;

    /// As [`Device::further_preparation_ns`].
    fn further_preparation_ns(&self, _program: Prepared) -> u64 {
        0
    }

    /// As [`Device::preparation`].
    fn preparation(&self, _program: Prepared) -> Option<Preparation> {
        None
    }

    /// As [`Device::launch_as_graph`].
    fn launch_as_graph(&mut self, _program: Prepared) {}

    /// As [`Device::poison`].
    ///
    /// # Errors
    /// [`DeviceError::Foreign`].
    fn poison(&mut self, program: Prepared) -> Result<(), DeviceError>;

    /// As [`Device::sample`].
    ///
    /// # Errors
    /// [`DeviceError::Foreign`].
    fn sample(&mut self, program: Prepared, iterations: u32) -> Result<Sample, DeviceError>;

    /// As [`Device::results`].
    ///
    /// # Errors
    /// [`DeviceError::Foreign`].
    fn results(&mut self, program: Prepared, specs: &[TensorSpec]) -> Result<Tensors, DeviceError>;

    /// As [`Device::judged`].
    fn judged(&self, _program: Prepared) -> Option<Checked> {
        None
    }

    /// As [`Device::restore_inputs`].
    ///
    /// # Errors
    /// [`DeviceError::Foreign`].
    fn restore_inputs(&mut self, given: &Tensors) -> Result<Vec<String>, DeviceError>;

    /// As [`Device::audit`].
    ///
    /// # Errors
    /// [`DeviceError::Foreign`].
    fn audit(
        &mut self,
        _program: Prepared,
        _inputs: (&Tensors, Option<&Tensors>),
        _slowest_ns: f64,
    ) -> Result<Option<Unseen>, DeviceError> {
        Ok(None)
    }

    /// As [`Device::memory`].
    ///
    /// # Errors
    /// [`DeviceError::Foreign`].
    fn memory(&mut self, program: Prepared) -> Result<DeviceMemory, DeviceError>;
}

/// A device, and who runs the foreign kernels of its programs.
pub struct WithRunners {
    native: Box<dyn Device>,
    runners: BTreeMap<Runner, Box<dyn ForeignRunner>>,
    /// Whose program each is, and its number there.
    programs: Vec<(Owner, Prepared)>,
}

/// Who runs a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Native,
    Runner(Runner),
}

impl WithRunners {
    /// A device with runners.
    pub fn new(
        native: Box<dyn Device>,
        runners: impl IntoIterator<Item = (Runner, Box<dyn ForeignRunner>)>,
    ) -> Self {
        WithRunners {
            native,
            runners: runners.into_iter().collect(),
            programs: Vec::new(),
        }
    }

    fn add(&mut self, owner: Owner, program: Prepared) -> Prepared {
        self.programs.push((owner, program));
        Prepared(self.programs.len() - 1)
    }

    /// Whose a program is; the device's number of it, or the runner and its number.
    fn place(&mut self, program: Prepared) -> Place<'_> {
        match self.programs[program.0] {
            (Owner::Native, program) => Place::Native(self.native.as_mut(), program),
            (Owner::Runner(runner), program) => match self.runners.get_mut(&runner) {
                Some(runner) => Place::Runner(runner.as_mut(), program),
                None => unreachable!("programs of {runner:?} were made by it"),
            },
        }
    }
}

/// A program where it runs.
enum Place<'a> {
    Native(&'a mut dyn Device, Prepared),
    Runner(&'a mut dyn ForeignRunner, Prepared),
}

impl Device for WithRunners {
    fn identity(&self) -> &DeviceIdentity {
        self.native.identity()
    }

    fn target(&self) -> Target {
        self.native.target()
    }

    fn computes(&self) -> bool {
        self.native.computes()
    }

    fn clock_resolution_ns(&self) -> f64 {
        self.native.clock_resolution_ns()
    }

    fn bind(&mut self, inputs: &Tensors) -> Result<(), DeviceError> {
        self.programs.clear();
        for runner in self.runners.values_mut() {
            runner.forget();
        }
        self.native.bind(inputs)
    }

    fn prepare(&mut self, job: Job<'_>) -> Result<Prepared, DeviceError> {
        let program = self.native.prepare(job)?;
        Ok(self.add(Owner::Native, program))
    }

    fn prepare_foreign(
        &mut self,
        program: &Program,
        foreign: &Foreign,
        inputs: &Tensors,
    ) -> Result<Prepared, DeviceError> {
        let Some(runner) = self.runners.get_mut(&foreign.runner) else {
            return Err(needs_runner(foreign));
        };
        let prepared = runner.prepare(program, foreign, inputs)?;
        Ok(self.add(Owner::Runner(foreign.runner), prepared))
    }

    fn further_preparation_ns(&self, program: Prepared) -> u64 {
        match self.programs[program.0] {
            (Owner::Native, program) => self.native.further_preparation_ns(program),
            (Owner::Runner(runner), program) => self
                .runners
                .get(&runner)
                .map_or(0, |runner| runner.further_preparation_ns(program)),
        }
    }

    fn preparation(&self, program: Prepared) -> Option<Preparation> {
        match self.programs[program.0] {
            (Owner::Native, program) => self.native.preparation(program),
            (Owner::Runner(runner), program) => self.runners.get(&runner)?.preparation(program),
        }
    }

    fn launch_as_graph(&mut self, program: Prepared) {
        match self.place(program) {
            Place::Native(device, program) => device.launch_as_graph(program),
            Place::Runner(runner, program) => runner.launch_as_graph(program),
        }
    }

    fn poison(&mut self, program: Prepared) -> Result<(), DeviceError> {
        match self.place(program) {
            Place::Native(device, program) => device.poison(program),
            Place::Runner(runner, program) => runner.poison(program),
        }
    }

    fn sample(&mut self, program: Prepared, iterations: u32) -> Result<Sample, DeviceError> {
        match self.place(program) {
            Place::Native(device, program) => device.sample(program, iterations),
            Place::Runner(runner, program) => runner.sample(program, iterations),
        }
    }

    fn drive(
        &mut self,
        program: Prepared,
        driver: &mut dyn LoopDriver,
    ) -> Result<Sample, DeviceError> {
        let (Owner::Native, native) = self.programs[program.0] else {
            return Err(no_loop());
        };
        let mut renumbered = Renumbered {
            driver,
            programs: &mut self.programs,
        };
        self.native.drive(native, &mut renumbered)
    }

    fn results(&mut self, program: Prepared, specs: &[TensorSpec]) -> Result<Tensors, DeviceError> {
        match self.place(program) {
            Place::Native(device, program) => device.results(program, specs),
            Place::Runner(runner, program) => runner.results(program, specs),
        }
    }

    fn judged(&self, program: Prepared) -> Option<Checked> {
        match self.programs[program.0] {
            (Owner::Native, program) => self.native.judged(program),
            (Owner::Runner(runner), program) => self.runners.get(&runner)?.judged(program),
        }
    }

    fn restore_inputs(&mut self, given: &Tensors) -> Result<Vec<String>, DeviceError> {
        let mut changed = self.native.restore_inputs(given)?;
        for runner in self.runners.values_mut() {
            changed.extend(runner.restore_inputs(given)?);
        }
        changed.sort();
        changed.dedup();
        Ok(changed)
    }

    fn audit(
        &mut self,
        program: Prepared,
        inputs: (&Tensors, Option<&Tensors>),
        slowest_ns: f64,
    ) -> Result<Option<Unseen>, DeviceError> {
        match self.place(program) {
            Place::Native(device, program) => device.audit(program, inputs, slowest_ns),
            Place::Runner(runner, program) => runner.audit(program, inputs, slowest_ns),
        }
    }

    fn memory(&mut self, program: Prepared) -> Result<DeviceMemory, DeviceError> {
        match self.place(program) {
            Place::Native(device, program) => device.memory(program),
            Place::Runner(runner, program) => runner.memory(program),
        }
    }
}
