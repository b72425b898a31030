//! A device that counts how long it runs programs: the rest of a run's time it waits for its host.

use std::time::{Duration, Instant};

use sweeper_program::workload::TensorSpec;
use sweeper_program::{Foreign, Target, Tensors};

use super::launcher::LoopDriver;
use super::layout::Damage;
use super::outputs::{Outputs, Reading};
use super::{
    Device, DeviceError, DeviceIdentity, DeviceMemory, Job, Preparation, Prepared, RunsPrograms,
    Sample, UnseenRun,
};
use sweeper_model::hardware::clocks::Clocks;
use sweeper_model::row::outcome::Checked;

/// A device, and the time that it spends on programs.
pub struct BusyTimeDevice<'a> {
    device: &'a mut dyn Device,
    running: Duration,
}

impl<'a> BusyTimeDevice<'a> {
    /// Measures a device from now on.
    pub fn new(device: &'a mut dyn Device) -> Self {
        BusyTimeDevice {
            device,
            running: Duration::ZERO,
        }
    }

    /// How long it ran programs so far, by the host's clock; none where no time passes.
    pub fn running(&self) -> Duration {
        match self.device.computes() {
            true => self.running,
            false => Duration::ZERO,
        }
    }
}

impl Device for BusyTimeDevice<'_> {
    fn identity(&self) -> &DeviceIdentity {
        self.device.identity()
    }

    fn target(&self) -> Target {
        self.device.target()
    }

    fn computes(&self) -> bool {
        self.device.computes()
    }

    fn clock_resolution_ns(&self) -> f64 {
        self.device.clock_resolution_ns()
    }

    fn clocks(&mut self) -> Option<Clocks> {
        self.device.clocks()
    }

    fn bind(&mut self, inputs: &Tensors) -> Result<(), DeviceError> {
        self.device.bind(inputs)
    }

    fn prepare(&mut self, job: Job<'_>) -> Result<Prepared, DeviceError> {
        self.device.prepare(job)
    }

    fn load_foreign(&mut self, foreign: &Foreign) {
        self.device.load_foreign(foreign);
    }

    fn prepare_apart(&mut self, job: Job<'_>, inputs: &Tensors) -> Result<Prepared, DeviceError> {
        self.device.prepare_apart(job, inputs)
    }

    fn run_loop(&mut self, program: Prepared, iterations: u32) -> Result<Sample, DeviceError> {
        let start = Instant::now();
        let sample = self.device.run_loop(program, iterations);
        self.running += start.elapsed();
        sample
    }

    fn drive(
        &mut self,
        program: Prepared,
        driver: &mut dyn LoopDriver,
    ) -> Result<Sample, DeviceError> {
        let start = Instant::now();
        let sample = self.device.drive(program, driver);
        self.running += start.elapsed();
        sample
    }
}

impl RunsPrograms for BusyTimeDevice<'_> {
    fn further_preparation_ns(&self, program: Prepared) -> u64 {
        self.device.further_preparation_ns(program)
    }

    fn preparation(&self, program: Prepared) -> Option<Preparation> {
        self.device.preparation(program)
    }

    fn launch_as_graph(&mut self, program: Prepared) {
        self.device.launch_as_graph(program);
    }

    fn poison(&mut self, program: Prepared) -> Result<(), DeviceError> {
        self.device.poison(program)
    }

    fn least_sample_ns(&self, program: Prepared) -> f64 {
        self.device.least_sample_ns(program)
    }

    fn launch_floor_ns(&mut self, program: Prepared, iterations: u32) -> Option<f64> {
        self.device.launch_floor_ns(program, iterations)
    }

    fn sample(&mut self, program: Prepared, iterations: u32) -> Result<Sample, DeviceError> {
        let start = Instant::now();
        let sample = self.device.sample(program, iterations);
        self.running += start.elapsed();
        sample
    }

    fn results(&mut self, program: Prepared, specs: &[TensorSpec]) -> Result<Tensors, DeviceError> {
        self.device.results(program, specs)
    }

    fn outputs(&mut self, program: Prepared, read: Reading<'_>) -> Result<Outputs, DeviceError> {
        self.device.outputs(program, read)
    }

    fn fingerprint(&mut self, program: Prepared) -> Result<Option<String>, DeviceError> {
        self.device.fingerprint(program)
    }

    fn judged(&self, program: Prepared) -> Option<Checked> {
        self.device.judged(program)
    }

    fn damage(&mut self, program: Prepared) -> Result<Vec<Damage>, DeviceError> {
        self.device.damage(program)
    }

    fn restore_inputs(&mut self, given: &Tensors) -> Result<Vec<String>, DeviceError> {
        self.device.restore_inputs(given)
    }

    fn rewrite(
        &mut self,
        program: Prepared,
        given: &Tensors,
        keeps_results: bool,
    ) -> Result<bool, DeviceError> {
        self.device.rewrite(program, given, keeps_results)
    }

    fn run_unseen(
        &mut self,
        program: Prepared,
        inputs: &Tensors,
        read: Reading<'_>,
    ) -> Result<Option<UnseenRun>, DeviceError> {
        self.device.run_unseen(program, inputs, read)
    }

    fn calls_together(&self, program: Prepared) -> usize {
        self.device.calls_together(program)
    }

    fn run_together(
        &mut self,
        program: Prepared,
        inputs: &[&Tensors],
        read: Reading<'_>,
    ) -> Result<Vec<UnseenRun>, DeviceError> {
        let start = Instant::now();
        let runs = self.device.run_together(program, inputs, read);
        self.running += start.elapsed();
        runs
    }

    fn run_known(&mut self, program: Prepared, given: &Tensors) -> Result<f64, DeviceError> {
        self.device.run_known(program, given)
    }

    fn refuse_late_work(&mut self, program: Prepared) -> Result<(), DeviceError> {
        self.device.refuse_late_work(program)
    }

    fn rest(&mut self, program: Prepared) {
        self.device.rest(program);
    }

    fn start_anew(&mut self, program: Prepared) -> Result<bool, DeviceError> {
        self.device.start_anew(program)
    }

    fn memory(&mut self, program: Prepared) -> Result<DeviceMemory, DeviceError> {
        self.device.memory(program)
    }
}
