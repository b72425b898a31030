//! A device with runners beside it: processes for programs that the device itself can't run.

pub mod command;
pub mod python;
pub mod referee;
mod renumbered;

use std::collections::BTreeMap;

use sweeper_program::workload::TensorSpec;
use sweeper_program::{Foreign, Runner, Target, Tensors};

use sweeper_model::hardware::clocks::Clocks;
use sweeper_model::row::outcome::{Checked, LibraryUse};

use super::launcher::LoopDriver;
use super::layout::Damage;
use renumbered::Renumbered;

use super::outputs::{Outputs, Reading};
use super::{
    Device, DeviceError, DeviceIdentity, DeviceMemory, Job, Preparation, Prepared, RunsPrograms,
    Sample, UnseenRun, no_loop,
};

/// Runs foreign kernels. Programs are numbered by each runner from 0 on for each problem.
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

    /// Who runs a program, and its number there.
    fn place(&self, program: Prepared) -> (&dyn RunsPrograms, Prepared) {
        let (owner, program) = self.programs[program.0];
        match owner {
            Owner::Native => (&*self.native, program),
            Owner::Runner(runner) => (&*self.runners[&runner], program),
        }
    }

    /// As [`place`](Self::place), to change it.
    fn place_mut(&mut self, program: Prepared) -> (&mut dyn RunsPrograms, Prepared) {
        let (owner, program) = self.programs[program.0];
        match owner {
            Owner::Native => (&mut *self.native, program),
            Owner::Runner(runner) => match self.runners.get_mut(&runner) {
                Some(runner) => (&mut **runner, program),
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

    fn load_foreign(&mut self, foreign: &Foreign) {
        if let Some(runner) = self.runners.get_mut(&foreign.runner) {
            runner.load(foreign);
        }
    }

    fn prepare_apart(&mut self, job: Job<'_>, inputs: &Tensors) -> Result<Prepared, DeviceError> {
        let name = job.program.runner();
        let held = name.and_then(|name| Some((name, self.runners.get_mut(&name)?)));
        let Some((name, runner)) = held else {
            return self.native.prepare_apart(job, inputs);
        };
        let prepared = runner.prepare(job, inputs)?;
        Ok(self.add(Owner::Runner(name), prepared))
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
}

impl RunsPrograms for WithRunners {
    fn further_preparation_ns(&self, program: Prepared) -> u64 {
        let (runner, program) = self.place(program);
        runner.further_preparation_ns(program)
    }

    fn preparation(&self, program: Prepared) -> Option<Preparation> {
        let (runner, program) = self.place(program);
        runner.preparation(program)
    }

    fn launch_as_graph(&mut self, program: Prepared) {
        let (runner, program) = self.place_mut(program);
        runner.launch_as_graph(program);
    }

    fn poison(&mut self, program: Prepared) -> Result<(), DeviceError> {
        let (runner, program) = self.place_mut(program);
        runner.poison(program)
    }

    fn least_sample_ns(&self, program: Prepared) -> f64 {
        let (runner, program) = self.place(program);
        runner.least_sample_ns(program)
    }

    fn launch_floor_ns(&mut self, program: Prepared, iterations: u32) -> Option<f64> {
        let (runner, program) = self.place_mut(program);
        runner.launch_floor_ns(program, iterations)
    }

    fn sample(&mut self, program: Prepared, iterations: u32) -> Result<Sample, DeviceError> {
        let (owner, _) = self.programs[program.0];
        let (runner, program) = self.place_mut(program);
        let mut sample = runner.sample(program, iterations)?;
        // A function works on this device; a command, wherever it likes.
        if owner != Owner::Runner(Runner::Command) && owner != Owner::Native {
            sample.clocks = self.native.clocks();
        }
        Ok(sample)
    }

    fn results(&mut self, program: Prepared, specs: &[TensorSpec]) -> Result<Tensors, DeviceError> {
        let (runner, program) = self.place_mut(program);
        runner.results(program, specs)
    }

    fn outputs(&mut self, program: Prepared, read: Reading<'_>) -> Result<Outputs, DeviceError> {
        let (runner, program) = self.place_mut(program);
        runner.outputs(program, read)
    }

    fn fingerprint(&mut self, program: Prepared) -> Result<Option<String>, DeviceError> {
        let (runner, program) = self.place_mut(program);
        runner.fingerprint(program)
    }

    fn judged(&self, program: Prepared) -> Option<Checked> {
        let (runner, program) = self.place(program);
        runner.judged(program)
    }

    fn damage(&mut self, program: Prepared) -> Result<Vec<Damage>, DeviceError> {
        let (runner, program) = self.place_mut(program);
        runner.damage(program)
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

    fn rewrite(
        &mut self,
        program: Prepared,
        given: &Tensors,
        keeps_results: bool,
    ) -> Result<bool, DeviceError> {
        let (runner, program) = self.place_mut(program);
        runner.rewrite(program, given, keeps_results)
    }

    fn run_unseen(
        &mut self,
        program: Prepared,
        inputs: &Tensors,
        read: Reading<'_>,
    ) -> Result<Option<UnseenRun>, DeviceError> {
        let (runner, program) = self.place_mut(program);
        runner.run_unseen(program, inputs, read)
    }

    fn calls_together(&self, program: Prepared) -> usize {
        let (runner, program) = self.place(program);
        runner.calls_together(program)
    }

    fn run_together(
        &mut self,
        program: Prepared,
        inputs: &[&Tensors],
        read: Reading<'_>,
    ) -> Result<Vec<UnseenRun>, DeviceError> {
        let (runner, program) = self.place_mut(program);
        runner.run_together(program, inputs, read)
    }

    fn run_known(&mut self, program: Prepared, given: &Tensors) -> Result<f64, DeviceError> {
        let (runner, program) = self.place_mut(program);
        runner.run_known(program, given)
    }

    fn refuse_late_work(&mut self, program: Prepared) -> Result<(), DeviceError> {
        let (runner, program) = self.place_mut(program);
        runner.refuse_late_work(program)
    }

    fn library_use(
        &mut self,
        program: Prepared,
        inputs: &Tensors,
    ) -> Result<Option<LibraryUse>, DeviceError> {
        let (runner, program) = self.place_mut(program);
        runner.library_use(program, inputs)
    }

    fn rest(&mut self, program: Prepared) {
        let (runner, program) = self.place_mut(program);
        runner.rest(program);
    }

    fn start_anew(&mut self, program: Prepared) -> Result<bool, DeviceError> {
        let (runner, program) = self.place_mut(program);
        runner.start_anew(program)
    }

    fn memory(&mut self, program: Prepared) -> Result<DeviceMemory, DeviceError> {
        let (runner, program) = self.place_mut(program);
        runner.memory(program)
    }
}
