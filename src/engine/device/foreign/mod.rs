//! A device with runners beside it: processes for programs that the device itself can't run.

pub mod command;
pub mod python;
pub mod referee;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sweeper_program::workload::TensorSpec;
use sweeper_program::{Foreign, Runner, Target, Tensors};

use sweeper_model::hardware::clocks::Clocks;
use sweeper_model::row::outcome::{Checked, LibraryUse};

use super::launcher::LoopDriver;
use super::layout::Damage;
use super::outputs::{Outputs, Reading};
use super::{
    Device, DeviceError, DeviceIdentity, DeviceMemory, Job, Preparation, Prepared, RunsPrograms,
    Sample, UnseenRun, no_loop,
};

/// Runs foreign kernels. Programs are numbered by each runner from 0 on for each problem, and have
/// its name.
pub trait ForeignRunner: RunsPrograms {
    /// Forgets all programs, and the problem that they are of.
    fn forget(&mut self);

    /// Loads what a program needs before it is prepared, where that takes long.
    fn load(&mut self, _foreign: &Foreign) {}

    /// Gets a program ready. The first of a problem brings its inputs.
    ///
    /// # Errors
    /// [`DeviceError::Foreign`], and those of [`Device::prepare`].
    fn prepare(&mut self, job: Job<'_>, inputs: &Tensors) -> Result<Prepared, DeviceError>;
}

/// A device, and who runs the foreign kernels of its programs.
pub struct WithRunners {
    native: Box<dyn Device>,
    runners: BTreeMap<Runner, Box<dyn ForeignRunner>>,
    running: Duration,
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
            running: Duration::ZERO,
        }
    }

    /// Who runs a program.
    fn place(&self, program: Prepared) -> &dyn RunsPrograms {
        match program.1 {
            None => &*self.native,
            Some(runner) => &*self.runners[&runner],
        }
    }

    /// As [`place`](Self::place), to change it.
    fn place_mut(&mut self, program: Prepared) -> &mut dyn RunsPrograms {
        match program.1 {
            None => &mut *self.native,
            Some(runner) => match self.runners.get_mut(&runner) {
                Some(runner) => &mut **runner,
                None => unreachable!("programs of {runner:?} were made by it"),
            },
        }
    }
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

    fn clocks(&mut self) -> Option<Clocks> {
        self.native.clocks()
    }

    fn running(&self) -> Duration {
        self.running
    }

    fn bind(&mut self, inputs: &Tensors) -> Result<(), DeviceError> {
        for runner in self.runners.values_mut() {
            runner.forget();
        }
        self.native.bind(inputs)
    }

    fn prepare(&mut self, job: Job<'_>) -> Result<Prepared, DeviceError> {
        self.native.prepare(job)
    }

    fn load_foreign(&mut self, foreign: &Foreign) {
        if let Some(runner) = self.runners.get_mut(&foreign.runner) {
            runner.load(foreign);
        }
    }

    fn prepare_apart(&mut self, job: Job<'_>, inputs: &Tensors) -> Result<Prepared, DeviceError> {
        let runner = job.program.runner();
        match runner.and_then(|runner| self.runners.get_mut(&runner)) {
            Some(runner) => runner.prepare(job, inputs),
            None => self.native.prepare_apart(job, inputs),
        }
    }

    fn drive(
        &mut self,
        program: Prepared,
        driver: &mut dyn LoopDriver,
    ) -> Result<Sample, DeviceError> {
        if program.1.is_some() {
            return Err(no_loop());
        }
        let start = Instant::now();
        let sample = self.native.drive(program, driver);
        self.running += start.elapsed();
        sample
    }
}

/// Defines methods that only call who runs a program.
macro_rules! forward_to_runner {
    ($place:ident, $this:ty {
        $(fn $name:ident($($argument:ident: $type:ty),*) $(-> $value:ty)?;)*
    }) => {
        $(fn $name(self: $this, program: Prepared $(, $argument: $type)*) $(-> $value)? {
            self.$place(program).$name(program $(, $argument)*)
        })*
    };
}

impl RunsPrograms for WithRunners {
    forward_to_runner! { place, &Self {
        fn further_preparation_ns() -> u64;
        fn preparation() -> Option<Preparation>;
        fn judged() -> Option<Checked>;
        fn calls_together() -> usize;
        fn least_sample_ns() -> f64;
    }}

    forward_to_runner! { place_mut, &mut Self {
        fn launch_as_graph();
        fn poison() -> Result<(), DeviceError>;
        fn launch_floor_ns(iterations: u32) -> Option<f64>;
        fn results(specs: &[TensorSpec]) -> Result<Tensors, DeviceError>;
        fn outputs(read: Reading<'_>) -> Result<Outputs, DeviceError>;
        fn fingerprint() -> Result<Option<String>, DeviceError>;
        fn damage() -> Result<Vec<Damage>, DeviceError>;
        fn rewrite(given: &Tensors, keeps_results: bool) -> Result<bool, DeviceError>;
        fn run_unseen(
            inputs: &Tensors,
            read: Reading<'_>
        ) -> Result<Option<UnseenRun>, DeviceError>;
        fn run_known(given: &Tensors) -> Result<f64, DeviceError>;
        fn refuse_late_work() -> Result<(), DeviceError>;
        fn library_use(inputs: &Tensors) -> Result<Option<LibraryUse>, DeviceError>;
        fn rest();
        fn start_anew() -> Result<bool, DeviceError>;
        fn memory() -> Result<DeviceMemory, DeviceError>;
    }}

    fn sample(&mut self, program: Prepared, iterations: u32) -> Result<Sample, DeviceError> {
        let start = Instant::now();
        let sample = self.place_mut(program).sample(program, iterations);
        self.running += start.elapsed();
        let mut sample = sample?;
        // A function works on this device; a command, wherever it likes.
        if !matches!(program.1, None | Some(Runner::Command)) {
            sample.clocks = self.native.clocks();
        }
        Ok(sample)
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

    fn run_together(
        &mut self,
        program: Prepared,
        inputs: &[&Tensors],
        read: Reading<'_>,
    ) -> Result<Vec<UnseenRun>, DeviceError> {
        let start = Instant::now();
        let runs = self.place_mut(program).run_together(program, inputs, read);
        self.running += start.elapsed();
        runs
    }
}
