//! What the points of a block share, and the way of a point to the first sample: prepare, run, check.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use sweeper_kernels::workload::TensorSpec;
use sweeper_kernels::{CanonicalShape, Phase, Problem, Program, Refusal, Tensors};

use super::answers::Answers;
use super::block::Listener;
use super::groundwork::{Beside, Groundwork};
use super::on_device::OnDevice;
use super::protocol::{Block, BlockPoint, Stage};
use super::sampling::Sampler;
use super::tensors;
use super::verify::{Posed, Verdict};
use crate::device::{Artifact, Device, DeviceError, Job, Prepared, memory};
use crate::row::outcome::{Cause, Checked, Flag, KernelUse, Measurement, Outcome, Status};

/// Kernels by key.
pub type Artifacts = HashMap<String, Artifact>;

/// What all points of a block share.
pub struct Setting<'a> {
    block: &'a Block,
    posed: Posed,
    /// Programs of points so far, each once, to say where two backends' are the same.
    programs: RefCell<Vec<(Phase, String, Program)>>,
    /// What became of each point's kernels on a smaller problem, by number, where one stands for it.
    reduced: Option<BTreeMap<u32, Result<Verdict, Outcome>>>,
}

/// A point whose program is prepared and right.
pub struct Admitted<'a> {
    /// The point.
    pub point: &'a BlockPoint,
    /// Its program.
    pub prepared: Prepared,
    /// How long the first run took, an iteration.
    pub first_ns: f64,
    specs: Vec<TensorSpec>,
    measurement: Measurement,
    /// Digest of the outputs of the last sample.
    last_digest: Option<String>,
}

/// Why a block has no setting.
pub enum NoSetting {
    /// None of its points can be measured.
    AllOf(Outcome),
    /// The device was lost at one point.
    LostAt(u32, DeviceError),
}

impl From<Outcome> for NoSetting {
    fn from(outcome: Outcome) -> Self {
        NoSetting::AllOf(outcome)
    }
}

impl<'a> Setting<'a> {
    /// Hands the inputs to the device; where a smaller problem stands for the block's, runs every
    /// point's kernels on it first.
    ///
    /// # Errors
    /// What befell all points, or the device at one of them.
    pub fn new(
        block: &'a Block,
        groundwork: Groundwork,
        artifacts: &Artifacts,
        answers: &Answers,
        device: &mut dyn Device,
        listener: &mut dyn Listener,
    ) -> Result<Self, NoSetting> {
        let Groundwork { mut whole, beside } = groundwork;
        let beside = match beside {
            Beside::Trial(small) => {
                let oracle = OnDevice {
                    block,
                    artifacts,
                    answers,
                };
                match oracle.answer(&mut whole, &small, device, listener)? {
                    true => Beside::Nothing,
                    false => {
                        let left_bytes = memory::available_bytes();
                        let by_host = Groundwork::by_host(block, whole, left_bytes, answers);
                        whole = by_host.whole;
                        by_host.beside
                    }
                }
            }
            beside => beside,
        };
        let mut setting = Setting {
            block,
            posed: whole,
            programs: RefCell::default(),
            reduced: None,
        };
        if let Beside::Reduced(small) = &beside {
            setting.reduced = Some(setting.try_reduced(small, artifacts, device, listener)?);
        }
        device.bind(&setting.posed.inputs).map_err(failed)?;
        Ok(setting)
    }

    /// Runs every point's kernels on a smaller problem and judges what they compute.
    fn try_reduced(
        &self,
        small: &Posed,
        artifacts: &Artifacts,
        device: &mut dyn Device,
        listener: &mut dyn Listener,
    ) -> Result<BTreeMap<u32, Result<Verdict, Outcome>>, NoSetting> {
        device.bind(&small.inputs).map_err(failed)?;
        let mut verdicts = BTreeMap::new();
        for point in &self.block.points {
            listener.working(point.number, Stage::Check);
            let verdict = match self.try_point(point, small, artifacts, device) {
                Ok(Err(error @ DeviceError::Lost(_))) => {
                    return Err(NoSetting::LostAt(point.number, error));
                }
                Ok(Err(error)) => Err(failed(error)),
                Ok(Ok(verdict)) => Ok(verdict),
                Err(outcome) => Err(outcome),
            };
            verdicts.insert(point.number, verdict);
        }
        Ok(verdicts)
    }

    fn try_point(
        &self,
        point: &BlockPoint,
        small: &Posed,
        artifacts: &Artifacts,
        device: &mut dyn Device,
    ) -> Result<Result<Verdict, DeviceError>, Outcome> {
        let whole = program(self.posed.problem.as_ref(), point, device)?;
        let program = program(small.problem.as_ref(), point, device)?;
        // Other kernels would prove nothing.
        if !whole.compiled().eq(program.compiled()) {
            return Ok(Ok(Verdict::UNCHECKED));
        }
        let specs = small.problem.outputs(point.phase);
        let run = || {
            let artifacts = artifacts_of(point, artifacts);
            let prepared = device.prepare(Job {
                program,
                artifacts: &artifacts,
                script: None,
            })?;
            device.poison(prepared)?;
            device.sample(prepared, 1)?;
            device.results(prepared, &specs)
        };
        Ok(run().map(|outputs| small.judge(&outputs, point.phase, Checked::Reduced)))
    }

    /// Prepares a point's program and checks what it computes.
    ///
    /// # Errors
    /// What became of the point instead.
    pub fn admit(
        &self,
        point: &'a BlockPoint,
        artifacts: &Artifacts,
        device: &mut dyn Device,
    ) -> Result<Admitted<'a>, Outcome> {
        if let Some(status) = point.scripted_status {
            return Err(scripted(status));
        }
        let program = program(self.posed.problem.as_ref(), point, device)?;
        let mut measurement = self.describe(point, &program);
        let artifacts = artifacts_of(point, artifacts);
        let job = Job {
            program,
            artifacts: &artifacts,
            script: point.script,
        };
        let start = Instant::now();
        let prepared = device.prepare(job).map_err(failed)?;
        let prepare_ns = start.elapsed().as_nanos() as u64;
        if point.graph {
            device.launch_as_graph(prepared);
        }
        device.poison(prepared).map_err(failed)?;
        let first_ns = device
            .sample(prepared, 1)
            .map_err(failed)?
            .per_iteration_ns();
        if device.computes() {
            let further_ns = device.further_preparation_ns(prepared);
            measurement.prepare_ns = Some(prepare_ns + further_ns);
        }
        let specs = self.posed.problem.outputs(point.phase);
        if device.computes() {
            let outputs = device.results(prepared, &specs).map_err(failed)?;
            self.judge(point, &outputs, &mut measurement)?;
        }
        measurement.device_memory = device.memory(prepared).map_err(failed)?;
        let by_role = measurement.memory_bytes.values().sum();
        if !agree(by_role, measurement.device_memory.peak_allocated_bytes) {
            measurement.flags.push(Flag::MemoryMismatch);
        }
        Ok(Admitted {
            point,
            prepared,
            specs,
            first_ns,
            measurement,
            last_digest: None,
        })
    }

    /// What is known of a program before it runs.
    fn describe(&self, point: &BlockPoint, program: &Program) -> Measurement {
        let work = self.posed.problem.work(point.phase);
        let kernels = program.kernels.iter().zip(program.source_positions());
        let kernels = kernels
            .map(|(kernel, position)| KernelUse {
                name: kernel.name().into(),
                key: position
                    .and_then(|position| Some(point.kernels.get(position)?.as_str().into())),
            })
            .collect();
        Measurement {
            same_program_as: self.same_program_as(point, program),
            memory_bytes: program.memory_by_role(),
            totals: program.totals(),
            kernels,
            flops: work.flops,
            compulsory_bytes: work.compulsory_bytes,
            ..Measurement::default()
        }
    }

    /// The backend of the first point before this one whose program was the same, unless it is this one's
    /// own, launched in another way. It is measured all the same: how far the times of one program lie apart
    /// is what a control is for.
    fn same_program_as(&self, point: &BlockPoint, program: &Program) -> Option<String> {
        let mut programs = self.programs.borrow_mut();
        let same = programs
            .iter()
            .find(|(phase, _, held)| *phase == point.phase && held == program);
        let same = same.map(|(_, backend, _)| backend.clone());
        if same.is_none() {
            programs.push((point.phase, point.backend.clone(), program.clone()));
        }
        same.filter(|backend| *backend != point.backend)
    }

    fn judge(
        &self,
        point: &BlockPoint,
        outputs: &Tensors,
        measurement: &mut Measurement,
    ) -> Result<(), Outcome> {
        measurement.output_digest = Some(tensors::digest(outputs));
        if let Some(folder) = &self.block.save_tensors {
            tensors::write_outputs(folder, &point.folder, outputs).map_err(|reason| {
                let error = Outcome::without_measurement(Status::Error, reason);
                error.because_of(Cause::Surroundings)
            })?;
        }
        let Verdict {
            checked,
            check,
            complaint,
        } = match &self.reduced {
            None => self.posed.judge(outputs, point.phase, Checked::Full),
            Some(verdicts) => match verdicts.get(&point.number) {
                Some(verdict) => verdict.clone()?,
                None => Verdict::UNCHECKED,
            },
        };
        measurement.checked = checked;
        measurement.check = check;
        match complaint {
            None => Ok(()),
            Some(reason) => Err(wrong(reason, std::mem::take(measurement))),
        }
    }

    /// What became of a point whose samples were taken: timing must not have changed its outputs.
    pub fn conclude(
        &self,
        one: Admitted<'_>,
        sampler: Sampler,
        clock_resolution_ns: f64,
    ) -> Outcome {
        let mut measurement = one.measurement;
        if measurement.output_digest != one.last_digest {
            return wrong(
                "the outputs changed while it was timed".to_owned(),
                measurement,
            );
        }
        let taken = sampler.finish(self.block.settings.stop, clock_resolution_ns);
        measurement.samples_ns = taken.samples_ns;
        measurement.iterations = taken.iterations;
        measurement.first_runs = Some(taken.first_runs);
        measurement.warmup_samples = taken.warmup_samples;
        measurement.clocks = taken.clocks;
        measurement.flags.extend(taken.flags);
        Outcome::measured(measurement)
    }
}

impl Admitted<'_> {
    /// Keeps the digest of the outputs of the last sample, which is the one before.
    ///
    /// # Errors
    /// A lost device.
    pub fn read_last(&mut self, device: &mut dyn Device) -> Result<(), DeviceError> {
        if device.computes() {
            let outputs = device.results(self.prepared, &self.specs)?;
            self.last_digest = Some(tensors::digest(&outputs));
        }
        Ok(())
    }
}

/// A point's program for a problem.
fn program(
    problem: &dyn Problem,
    point: &BlockPoint,
    device: &dyn Device,
) -> Result<Program, Outcome> {
    let canonical = CanonicalShape::new(point.canonical.iter().cloned());
    problem
        .program(&point.backend, point.phase, &canonical, &device.target())
        .map_err(|refusal| match refusal {
            Refusal::Undefined(reason) => Outcome::without_measurement(Status::Skipped, reason),
            Refusal::Unavailable(reason) => {
                Outcome::without_measurement(Status::Unavailable, reason).because_of(Cause::Device)
            }
        })
}

/// What is compiled for a point, in the order of its program.
fn artifacts_of(point: &BlockPoint, artifacts: &Artifacts) -> Vec<Artifact> {
    let keys = point.kernels.iter();
    keys.filter_map(|key| artifacts.get(key).cloned()).collect()
}

/// What becomes of a point that a device refused.
pub fn failed(error: DeviceError) -> Outcome {
    let status = match error {
        DeviceError::OutOfMemory { .. } => Status::Oom,
        DeviceError::Launch(_) => Status::LaunchError,
        DeviceError::Lost(_) => Status::Crashed,
        DeviceError::Unavailable(_) => Status::Unavailable,
    };
    Outcome::without_measurement(status, error.to_string())
}

/// Two accounts of memory agree within 1 % or 2 MiB, whichever is more: devices round sizes up.
fn agree(program_bytes: u64, device_bytes: u64) -> bool {
    let slack = (program_bytes / 100).max(2 << 20);
    program_bytes.abs_diff(device_bytes) <= slack
}

fn wrong(reason: String, measurement: Measurement) -> Outcome {
    Outcome {
        status: Status::Wrong,
        reason: Some(reason),
        cause: None,
        measurement: Some(Box::new(measurement)),
    }
}

/// What the null device pretends. A crash and a hang are real: the main process must survive them.
fn scripted(status: Status) -> Outcome {
    match status {
        Status::Crashed => std::process::abort(),
        Status::Timeout => loop {
            std::thread::park();
        },
        other => Outcome::without_measurement(other, "scripted"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::null::Null;
    use crate::execute::protocol::Settings;
    use crate::manifest::settings::{Order, Stopping, Warmup};
    use sweeper_kernels::inputs::InputKey;
    use sweeper_kernels::{Dtype, Parameters, registry};

    struct Nobody;

    impl Listener for Nobody {
        fn working(&mut self, _number: u32, _stage: Stage) {}
        fn finished(&mut self, _number: u32, _outcome: Outcome) {}
    }

    fn posed(fault: &str) -> Posed {
        let parameters: Parameters = [("fault", fault)].into_iter().collect();
        let workload = registry::workload("faults").unwrap();
        let problem = workload.problem(&parameters, Dtype::F32).unwrap();
        let inputs = problem.generate(&InputKey([7; 32]));
        let expected = Some(problem.oracle(&inputs, Phase::Forward));
        Posed {
            problem,
            inputs,
            expected,
        }
    }

    fn point(number: u32, backend: &str) -> BlockPoint {
        BlockPoint {
            number,
            backend: backend.to_owned(),
            phase: Phase::Forward,
            graph: false,
            canonical: Vec::new(),
            kernels: Vec::new(),
            folder: String::new(),
            script: None,
            scripted_status: None,
        }
    }

    #[test]
    fn a_smaller_problem_proves_nothing_of_other_kernels() {
        let block = Block {
            workload: "faults".to_owned(),
            parameters: Vec::new(),
            dtype: Dtype::F32,
            problem: [7; 32],
            inputs: None,
            save_tensors: None,
            settings: Settings {
                stop: Stopping::Repeats(1),
                warmup: Warmup::Runs(0),
                fresh_starts: 0,
                verify: true,
                oracle_s: 0.0,
                order: Order::Interleaved,
            },
            points: vec![point(0, "faulty"), point(1, "sound")],
            oracle_kernels: Vec::new(),
            artifacts: Vec::new(),
        };
        let setting = Setting {
            block: &block,
            posed: posed("none"),
            programs: RefCell::default(),
            reduced: None,
        };
        // Kernels of `faulty` are others for another fault; those of `sound` are not.
        let mut device = Null::default();
        let small = posed("wrong");
        let verdicts = setting.try_reduced(&small, &Artifacts::new(), &mut device, &mut Nobody);
        let Ok(verdicts) = verdicts else {
            panic!("the null device is never lost");
        };
        let checked: Vec<Checked> = verdicts
            .values()
            .map(|verdict| verdict.as_ref().unwrap().checked)
            .collect();
        assert_eq!(checked, [Checked::None, Checked::Reduced]);
    }
}
