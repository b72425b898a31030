//! Measures the points of one problem, inside a worker.
//!
//! The recipe: make inputs once, prepare every program, check its outputs against the oracle, warm
//! up, take samples in interleaved rounds, check that the outputs are still the same.

use std::collections::{BTreeSet, HashMap};

use sweeper_kernels::inputs::InputKey;
use sweeper_kernels::program::Kernel;
use sweeper_kernels::workload::TensorSpec;
use sweeper_kernels::{
    CanonicalShape, Parameters, Phase, Problem, Program, Refusal, Tensors, registry,
};

use super::outcome::{Flag, KernelUse, Measurement, Outcome, Status};
use super::protocol::{Block, BlockPoint, Stage};
use super::sampling::Sampler;
use super::verify::{Answer, Verdict};
use super::{rounds, tensors};
use crate::device::{Artifact, Device, DeviceError, Job, Prepared};
use crate::manifest::settings::Order;

/// What the measurer says while it works.
pub trait Listener {
    /// What follows concerns this point.
    fn working(&mut self, number: u32, stage: Stage);
    /// A point is finished.
    fn finished(&mut self, number: u32, outcome: Outcome);
}

/// Measures all points of a block. Every point is finished exactly once, whatever happens, as long
/// as the process lives.
///
/// # Errors
/// [`DeviceError::Lost`], after which the process must end; the point at work is finished, others may
/// not be.
pub fn measure(
    block: &Block,
    artifacts: &HashMap<String, Artifact>,
    device: &mut dyn Device,
    listener: &mut dyn Listener,
) -> Result<(), DeviceError> {
    if let Some(first) = block.points.first() {
        listener.working(first.number, Stage::Inputs);
    }
    let setting = match Setting::new(block, device) {
        Ok(setting) => setting,
        Err(outcome) => {
            for point in &block.points {
                refuse(listener, point.number, outcome.clone())?;
            }
            return Ok(());
        }
    };
    let mut running = Vec::new();
    for point in &block.points {
        listener.working(point.number, Stage::Check);
        match setting.admit(point, artifacts, device) {
            Ok(admitted) => running.push(admitted),
            Err(outcome) => refuse(listener, point.number, outcome)?,
        }
    }
    let mut admitted = Vec::new();
    for one in running {
        listener.working(one.point.number, Stage::Warmup);
        let started = Sampler::start(device, one.prepared, block.settings.warmup, one.first_ns);
        match started {
            Ok(sampler) => admitted.push((one, sampler)),
            Err(error) => fail(listener, one.point.number, error)?,
        }
    }
    let failed = sample(block, device, listener, &mut admitted)?;
    let clock_resolution_ns = device.clock_resolution_ns();
    for (one, sampler) in admitted {
        if !failed.contains(&one.point.number) {
            let number = one.point.number;
            listener.finished(number, setting.conclude(one, sampler, clock_resolution_ns));
        }
    }
    Ok(())
}

/// Takes samples until every program has enough; the points that failed meanwhile.
fn sample(
    block: &Block,
    device: &mut dyn Device,
    listener: &mut dyn Listener,
    running: &mut [(Admitted<'_>, Sampler)],
) -> Result<BTreeSet<u32>, DeviceError> {
    let stop = block.settings.stop;
    let mut failed = BTreeSet::new();
    let sequential = !matches!(block.settings.order, Order::Interleaved);
    let mut order: Vec<usize> = (0..running.len()).collect();
    if matches!(block.settings.order, Order::Random) {
        rounds::shuffle(&mut order, &block.problem, 0);
    }
    for round in 0.. {
        if !sequential {
            rounds::shuffle(&mut order, &block.problem, round);
        }
        let mut busy = false;
        for &index in &order {
            let (one, sampler) = &mut running[index];
            let number = one.point.number;
            while !failed.contains(&number) && !sampler.is_done(stop) {
                busy = true;
                listener.working(number, Stage::Sample);
                let taken = sampler
                    .take(device)
                    .and_then(|()| match sampler.is_done(stop) {
                        true => one.read_last(device),
                        false => Ok(()),
                    });
                if let Err(error) = taken {
                    fail(listener, number, error)?;
                    failed.insert(number);
                }
                if !sequential {
                    break;
                }
            }
        }
        if !busy {
            break;
        }
    }
    Ok(failed)
}

/// Finishes a point with an error; hands a lost device on.
fn fail(listener: &mut dyn Listener, number: u32, error: DeviceError) -> Result<(), DeviceError> {
    listener.finished(number, outcome_of(&error));
    match error {
        DeviceError::Lost(_) => Err(error),
        _ => Ok(()),
    }
}

/// Finishes a point that can't be run; hands a lost device on.
fn refuse(listener: &mut dyn Listener, number: u32, outcome: Outcome) -> Result<(), DeviceError> {
    let lost = outcome.status == Status::Crashed;
    let reason = outcome.reason.clone().unwrap_or_default();
    listener.finished(number, outcome);
    match lost {
        true => Err(DeviceError::Lost(reason)),
        false => Ok(()),
    }
}

fn outcome_of(error: &DeviceError) -> Outcome {
    let status = match error {
        DeviceError::OutOfMemory { .. } => Status::Oom,
        DeviceError::Launch(_) => Status::LaunchError,
        DeviceError::Lost(_) => Status::Crashed,
        DeviceError::Unavailable(_) => Status::Unavailable,
    };
    Outcome::without_measurement(status, error.to_string())
}

/// What all points of a block share.
struct Setting<'a> {
    block: &'a Block,
    problem: Box<dyn Problem>,
    /// The oracle's answer, where outputs are checked.
    answer: Option<Answer>,
}

/// A point whose program is prepared and right.
struct Admitted<'a> {
    point: &'a BlockPoint,
    prepared: Prepared,
    specs: Vec<TensorSpec>,
    /// How long the first run took, an iteration.
    first_ns: f64,
    measurement: Measurement,
    /// Digest of the outputs of the last sample.
    last_digest: Option<String>,
}

impl<'a> Setting<'a> {
    /// Makes the problem, its inputs and the oracle's answer.
    fn new(block: &'a Block, device: &mut dyn Device) -> Result<Self, Outcome> {
        let error = |reason: String| Outcome::without_measurement(Status::Error, reason);
        let workload = registry::workload(&block.workload)
            .ok_or_else(|| error(format!("there is no workload `{}`", block.workload)))?;
        let parameters: Parameters = block
            .parameters
            .iter()
            .map(|(name, value)| (name.as_str(), value.clone()))
            .collect();
        let problem = workload
            .problem(&parameters, block.dtype)
            .map_err(|reason| error(reason.to_string()))?;
        if !device.computes() {
            device
                .bind(&Tensors::new())
                .map_err(|error| outcome_of(&error))?;
            return Ok(Setting {
                block,
                problem,
                answer: None,
            });
        }
        let inputs = match &block.inputs {
            Some(path) => tensors::read_inputs(path, problem.as_ref()).map_err(error)?,
            None => problem.generate(&InputKey(block.problem)),
        };
        device.bind(&inputs).map_err(|error| outcome_of(&error))?;
        let answer = block.settings.verify.then(|| {
            let phase = block
                .points
                .iter()
                .map(|point| point.phase)
                .find(|phase| phase.has_gradients())
                .map_or(Phase::Forward, |_| Phase::Both);
            Answer::of(problem.as_ref(), &inputs, phase)
        });
        if let Some(folder) = &block.save_tensors {
            tensors::write_inputs(folder, &block.problem, &inputs).map_err(error)?;
        }
        Ok(Setting {
            block,
            problem,
            answer,
        })
    }

    fn program(&self, point: &BlockPoint, device: &dyn Device) -> Result<Program, Outcome> {
        let canonical = CanonicalShape::new(point.canonical.iter().cloned());
        self.problem
            .program(&point.backend, point.phase, &canonical, &device.target())
            .map_err(|refusal| match refusal {
                Refusal::Undefined(reason) => Outcome::without_measurement(Status::Skipped, reason),
                Refusal::Unavailable(reason) => {
                    Outcome::without_measurement(Status::Unavailable, reason)
                }
            })
    }

    /// Prepares a point's program and checks what it computes.
    fn admit(
        &self,
        point: &'a BlockPoint,
        artifacts: &HashMap<String, Artifact>,
        device: &mut dyn Device,
    ) -> Result<Admitted<'a>, Outcome> {
        if let Some(status) = point.scripted_status {
            return Err(scripted(status));
        }
        let program = self.program(point, device)?;
        let mut measurement = self.describe(point, &program);
        let artifacts: Vec<Artifact> = point
            .kernels
            .iter()
            .filter_map(|key| artifacts.get(key).cloned())
            .collect();
        let failed = |error: DeviceError| outcome_of(&error);
        let job = Job {
            program,
            artifacts: &artifacts,
            script: point.script,
        };
        let prepared = device.prepare(job).map_err(failed)?;
        device.poison(prepared).map_err(failed)?;
        let first_ns = device
            .sample(prepared, 1)
            .map_err(failed)?
            .per_iteration_ns();
        let specs = self.problem.outputs(point.phase);
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
        let work = self.problem.work(point.phase);
        let mut keys = point.kernels.iter();
        let kernels = program
            .kernels
            .iter()
            .map(|kernel| KernelUse {
                name: kernel.name().to_owned(),
                key: match kernel {
                    Kernel::Builtin(_) => None,
                    Kernel::Compiled(_) => keys.next().cloned(),
                },
            })
            .collect();
        Measurement {
            memory_bytes: program.memory_by_role(),
            totals: program.totals(),
            kernels,
            flops: work.flops,
            compulsory_bytes: work.compulsory_bytes,
            ..Measurement::default()
        }
    }

    fn judge(
        &self,
        point: &BlockPoint,
        outputs: &Tensors,
        measurement: &mut Measurement,
    ) -> Result<(), Outcome> {
        measurement.output_digest = Some(tensors::digest(outputs));
        if let Some(folder) = &self.block.save_tensors {
            tensors::write_outputs(folder, &point.folder, outputs)
                .map_err(|reason| Outcome::without_measurement(Status::Error, reason))?;
        }
        let Some(answer) = &self.answer else {
            return Ok(());
        };
        let Verdict {
            checked,
            check,
            complaint,
        } = answer.judge(self.problem.as_ref(), outputs, point.phase);
        measurement.checked = checked;
        measurement.check = check;
        match complaint {
            None => Ok(()),
            Some(reason) => Err(wrong(reason, std::mem::take(measurement))),
        }
    }

    /// What became of a point whose samples were taken: timing must not have changed its outputs.
    fn conclude(&self, one: Admitted<'_>, sampler: Sampler, clock_resolution_ns: f64) -> Outcome {
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
        measurement.warmup_samples = taken.warmup_samples;
        measurement.clocks = taken.clocks;
        measurement.flags.extend(taken.flags);
        Outcome::measured(measurement)
    }
}

impl Admitted<'_> {
    /// Keeps the digest of the outputs of the last sample, which is the one before.
    fn read_last(&mut self, device: &mut dyn Device) -> Result<(), DeviceError> {
        if device.computes() {
            let outputs = device.results(self.prepared, &self.specs)?;
            self.last_digest = Some(tensors::digest(&outputs));
        }
        Ok(())
    }
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
