//! The context that the points of a block share; it prepares, runs and verifies each point before
//! its first sample.

mod answered;
mod libraries;
mod notes;
mod reduced;
mod verified;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use sweeper_program::check::{Metric, TensorCheck};
use sweeper_program::workload::TensorSpec;
use sweeper_program::{CanonicalShape, Phase, Problem, Program, Runner, Tensors};

use answered::{answered_by_device, answered_by_reference};
use notes::{note_changes, note_choices, note_preparation};

use crate::device::outputs::{Outputs, Reading};
use crate::device::{Artifact, Device, DeviceError, Job, Prepared, busy};
use crate::execute::answers::Answers;
use crate::execute::audit::{Audit, Audited, CallInputs, Calls};
use crate::execute::auto_point;
use crate::execute::block::Listener;
use crate::execute::block_inputs::{BlockInputs, SmallerProblem, covering_phase};
use crate::execute::device_oracle::DeviceOracle;
use crate::execute::foreign_oracle;
use crate::execute::judge::{Judge, verdict_on};
use crate::execute::protocol::{Block, BlockPoint};
use crate::execute::refused::{check_mode, failed, refused, scripted, wrong};
use crate::execute::rounds;
use crate::execute::sampling::{Sampler, Source};
use crate::execute::tensors;
use crate::execute::trespass::{self, overwritten};
use crate::execute::trial;
use crate::execute::verify::{ProblemInstance, Verdict};
use sweeper_model::row::outcome::{Cause, Checked, Flag, KernelUse, Measurement, Outcome, Status};

/// Kernels by key.
pub type Artifacts = HashMap<String, Artifact>;

/// Before one of so many first samples a kernel of the user runs on poisoned results.
const SURPRISES: u64 = 5;

/// The context of a block's points.
pub struct BlockContext<'a> {
    block: &'a Block,
    instance: ProblemInstance,
    /// Who judges outputs in place of tolerances.
    judge: Option<Judge<'a>>,
    /// Programs of points so far, each once, to find equal programs of two backends.
    programs: RefCell<Vec<(Phase, String, Program)>>,
    /// The verdict on each point's kernels on a smaller problem, by number, where there is one.
    reduced: Option<BTreeMap<u32, Result<Verdict, Outcome>>>,
    /// The verdict on each point's kernels on inputs that show mistakes, by number.
    showing: BTreeMap<u32, Result<Verdict, Outcome>>,
    /// The problem with these inputs, if functions can run on them.
    for_functions: Option<ProblemInstance>,
    audit: Audit,
    /// Inputs of calls of programs that nobody trusts, once there is one.
    call_inputs: RefCell<Option<Rc<CallInputs>>>,
    answers: &'a Answers,
    /// The point whose kernel left threads at work in this process, whatever runs.
    busy: Cell<Option<u32>>,
}

/// A point whose program is prepared and whose outputs are right.
pub struct VerifiedPoint<'a> {
    /// The point.
    pub point: &'a BlockPoint,
    /// The program of the point.
    pub prepared: Prepared,
    /// How long the first run took, an iteration.
    pub first_ns: f64,
    specs: Vec<TensorSpec>,
    measurement: Measurement,
    /// What tells the outputs of the first sample and those of the last from others.
    first_bits: Option<String>,
    last_bits: Option<String>,
    /// The program is a user's, who may write what is only to be read.
    is_users: bool,
    /// Inputs that it had overwritten when its samples were taken.
    changed_inputs: Vec<String>,
    /// It is a function or a kernel of the user, which might keep its results.
    is_audited: bool,
    /// It is a function in Python: kernels of libraries that it calls may sum in an order of
    /// chance.
    is_function: bool,
    /// It runs on the device itself, and not in another process.
    is_kernel: bool,
    /// So many samples are taken before it runs on poisoned results between two of them.
    surprised_at: usize,
    /// Two runs give equal bits.
    is_deterministic: bool,
    /// It writes given tensors: an iteration of a loop begins with what the one before left.
    carries_state: bool,
    /// The complaint of the audit.
    complaint: Option<String>,
    /// What it is refused for although it is right.
    refusal: Option<(Status, String)>,
    /// Its calls, if nobody trusts it.
    calls: Option<Rc<Calls>>,
    /// Who takes its samples, until they are taken.
    pub source: Option<Source>,
}

/// Why a block has no context.
pub enum ContextError {
    /// No point of the block can be measured.
    AllPoints(Outcome),
    /// The device was lost at one point.
    LostAt(u32, DeviceError),
}

impl From<Outcome> for ContextError {
    fn from(outcome: Outcome) -> Self {
        ContextError::AllPoints(outcome)
    }
}

impl<'a> BlockContext<'a> {
    /// Gives the inputs to the device; where only a smaller problem's answer is known, runs every
    /// point's kernels on it first.
    ///
    /// # Errors
    /// The outcome of all points, or the loss of the device at one of them.
    pub fn new(
        block: &'a Block,
        block_inputs: BlockInputs,
        artifacts: &Artifacts,
        answers: &'a Answers,
        device: &mut dyn Device,
        listener: &mut dyn Listener,
    ) -> Result<Self, ContextError> {
        let oracle = DeviceOracle {
            block,
            artifacts,
            answers,
        };
        let block_inputs = answered_by_device(&oracle, block_inputs, device, listener)?;
        let BlockInputs {
            mut whole,
            smaller,
            showing,
        } = block_inputs;
        let mut judge = None;
        if block.settings.verify && device.computes() {
            answered_by_reference(&oracle, &mut whole, device, listener)?;
            judge = Judge::of(block, whole.problem.as_ref());
            trial::check(block, &whole, judge.as_ref(), covering_phase(block))?;
        }
        let mut context = BlockContext {
            block,
            instance: whole,
            judge,
            programs: RefCell::default(),
            reduced: None,
            showing: BTreeMap::new(),
            for_functions: None,
            audit: Audit::default(),
            call_inputs: RefCell::default(),
            answers,
            busy: Cell::default(),
        };
        if let SmallerProblem::Reduced(small) = &smaller {
            context.reduced = Some(context.verify_on(small, artifacts, device, listener)?);
        }
        if let Some(showing) = showing.filter(|it| device.computes() && it.expected.is_some()) {
            context.showing = context.verify_on(&showing, artifacts, device, listener)?;
            context.for_functions = Some(showing).filter(|it| context.has_sizes_of(it));
        }
        // Functions and commands get inputs from their runners: nothing else reads them there.
        let none = Tensors::new();
        let inputs = match context.has_kernels(device) {
            true => &context.instance.inputs,
            false => &none,
        };
        device.bind(inputs).map_err(failed)?;
        Ok(context)
    }

    /// Whether the device itself runs the program of some point.
    fn has_kernels(&self, device: &dyn Device) -> bool {
        let problem = self.instance.problem.as_ref();
        let mut programs = self
            .block
            .points
            .iter()
            .map(|point| program(problem, point, device));
        let is_here = |program: Program| program.runner().is_none() || !device.computes();
        programs.any(|program| program.is_ok_and(is_here))
    }

    /// Whether another problem's tensors have the shapes of this one's.
    fn has_sizes_of(&self, other: &ProblemInstance) -> bool {
        let own = self.instance.inputs.iter();
        let mut pairs = own.zip(&other.inputs);
        pairs.all(|((_, own), (_, other))| own.shape() == other.shape())
    }

    /// Whether threads of a kernel are at work in this process, so that nothing but that kernel
    /// can be measured here.
    pub fn is_spoiled(&self) -> bool {
        self.busy.get().is_some()
    }

    /// Whether this process measures a point: any, or only the one that left threads at work.
    pub fn measures(&self, point: &BlockPoint) -> bool {
        self.busy.get().is_none_or(|busy| busy == point.number)
    }

    /// The points that this process measures.
    pub fn points(&self) -> impl Iterator<Item = &'a BlockPoint> {
        let points = self.block.points.iter();
        points.filter(|point| self.measures(point))
    }

    /// Notes whether a point's kernel left threads at work beside those of `before`.
    fn note_threads(&self, point: &BlockPoint, before: Option<busy::Threads>) {
        let is_busy = |before| busy::is_at_work(|| &busy::of_this_group(true) - &before);
        if before.is_some_and(is_busy) {
            self.busy.set(Some(point.number));
        }
    }

    /// Prepares a point's program, runs it once and checks its outputs.
    ///
    /// # Errors
    /// The point's outcome.
    pub fn prepare_and_verify(
        &self,
        point: &'a BlockPoint,
        artifacts: &Artifacts,
        device: &mut dyn Device,
    ) -> Result<VerifiedPoint<'a>, Outcome> {
        if let Some(status) = point.scripted_status {
            return Err(scripted(status));
        }
        if self.judge.is_none() {
            trial::check_factor(&self.instance, point)?;
        }
        let problem = self.instance.problem.as_ref();
        let program = program(problem, point, device)?;
        let undecided = auto_point::undecided(problem, point, &program, device)?;
        let mut measurement = self.describe(point, &program);
        // A loop that decides itself begins with `eager`'s program, and may not stay with it.
        measurement.same_program_as.take_if(|_| undecided.is_some());
        check_mode(point.mode, &program)?;
        let carries_state = program.updated().next().is_some();
        let runner = program.runner().filter(|_| device.computes());
        let foreign = program.foreign().filter(|_| device.computes());
        let is_deterministic = foreign.is_none_or(|foreign| foreign.is_deterministic);
        let is_refereed = runner.is_some() && program.is_untrusted();
        let is_users = program.foreign().is_some() || program.has_kernels_of_the_user();
        let is_users_kernel = is_users && runner.is_none() && device.computes();
        let before = is_users_kernel.then(|| busy::of_this_group(false));
        let start = Instant::now();
        let prepared = self
            .prepare(point, program, artifacts, device)
            .map_err(failed)?;
        let prepare_ns = start.elapsed().as_nanos() as u64;
        let specs = self.instance.problem.outputs(point.phase);
        let run = (point, prepared, &specs[..]);
        let first_ns = self.first_run_ns(run, (is_users, prepare_ns), &mut measurement, device);
        self.note_threads(point, before);
        let (first_ns, first_bits) = first_ns?;
        measurement.device_memory = device.memory(prepared).map_err(failed)?;
        self.flag(&mut measurement, (runner, is_refereed));
        let cache = self.answers.place();
        let auto = undecided.map(|own| own.begin((self.block, point), cache, prepared, device));
        let auto = auto.transpose()?;
        let (calls, source) = self.source(runner, auto, &specs)?;
        Ok(VerifiedPoint {
            calls,
            source: Some(source),
            point,
            prepared,
            specs,
            first_ns,
            measurement,
            first_bits,
            last_bits: None,
            is_users,
            changed_inputs: Vec::new(),
            is_function: matches!(runner, Some(Runner::Python | Runner::Referee)),
            is_audited: is_users && runner != Some(Runner::Command),
            is_kernel: runner.is_none(),
            surprised_at: rounds::chance(&self.block.problem, &point.backend, SURPRISES),
            is_deterministic,
            carries_state,
            complaint: None,
            refusal: None,
        })
    }

    /// Flags what is to be known of a program that has run once.
    fn flag(&self, measurement: &mut Measurement, (runner, is_refereed): (Option<Runner>, bool)) {
        // A program can't state the memory of another process.
        if runner.is_none() && !has_expected_memory(measurement) {
            measurement.flags.push(Flag::MemoryMismatch);
        }
        if self.is_spoiled() {
            note_changes(measurement, vec![busy::WORDS.to_owned()]);
        }
        if is_refereed {
            measurement.flags.push(Flag::Refereed);
        }
    }

    /// Runs a point's program for the first time, and judges it; the nanoseconds of the run.
    fn first_run_ns(
        &self,
        run: (&BlockPoint, Prepared, &[TensorSpec]),
        (is_users, prepare_ns): (bool, u64),
        measurement: &mut Measurement,
        device: &mut dyn Device,
    ) -> Result<(f64, Option<String>), Outcome> {
        let (point, prepared, _) = run;
        if point.mode.is_graph() {
            device.launch_as_graph(prepared);
        }
        let first_ns = first_run_ns(prepared, device).map_err(failed)?;
        if !device.computes() {
            return Ok((first_ns, None));
        }
        note_preparation(measurement, prepare_ns, prepared, device);
        let bits = self.judge_first_run(run, is_users, measurement, device)?;
        Ok((first_ns, bits))
    }

    /// How outputs are read: they stay on the GPU if their answer is there.
    fn reading<'b>(&self, specs: &'b [TensorSpec]) -> Reading<'b> {
        let opens = foreign_oracle::opens_outputs(self.instance.expected.as_ref());
        Reading {
            specs,
            may_stay: opens && self.block.save_tensors.is_none(),
        }
    }

    /// Judges the outputs of a point's program, which has just run for the first time, and what
    /// else the program of a user wrote. Yields what tells the outputs from others.
    fn judge_first_run(
        &self,
        (point, prepared, specs): (&BlockPoint, Prepared, &[TensorSpec]),
        is_users: bool,
        measurement: &mut Measurement,
        device: &mut dyn Device,
    ) -> Result<Option<String>, Outcome> {
        let bits = device.fingerprint(prepared).map_err(failed)?;
        let outputs = device.outputs(prepared, self.reading(specs));
        let mut outputs = outputs.map_err(failed)?;
        if !foreign_oracle::can_read(&outputs) {
            outputs = device
                .results(prepared, specs)
                .map(Outputs::Host)
                .map_err(failed)?;
        }
        // Inputs are restored even where outputs are wrong: other programs read them.
        let trespass = match is_users {
            true => trespass::complaint(prepared, &self.instance.inputs, device),
            false => Ok(None),
        };
        let trespass = trespass.map_err(failed)?;
        match device.judged(prepared) {
            Some(checked) => measurement.checked = checked,
            None => self
                .judge(point, &outputs, measurement)
                .map_err(|outcome| trespass::explained(outcome, trespass.as_deref()))?,
        }
        match trespass {
            Some(reason) => Err(wrong(reason, std::mem::take(measurement))),
            None => Ok(bits.or_else(|| measurement.output_digest.clone())),
        }
    }

    /// Gets a point's program ready, on the device or where another process runs it.
    fn prepare(
        &self,
        point: &BlockPoint,
        program: Program,
        artifacts: &Artifacts,
        device: &mut dyn Device,
    ) -> Result<Prepared, DeviceError> {
        let runner = program.runner().filter(|_| device.computes());
        let job = Job {
            program,
            artifacts: &artifacts_of(point, artifacts),
            script: point.script,
        };
        match runner {
            Some(_) => device.prepare_apart(job, &self.instance.inputs),
            None => device.prepare(job),
        }
    }

    /// The properties of a program before it runs.
    fn describe(&self, point: &BlockPoint, program: &Program) -> Measurement {
        let work = self.instance.problem.work(point.phase);
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
            input_digest: self.instance.input_digest.clone(),
            memory_bytes: program.memory_by_role(),
            totals: program.foreign().is_none().then(|| program.totals()),
            kernels,
            flops: work.flops,
            compulsory_bytes: work.compulsory_bytes,
            ..Measurement::default()
        }
    }

    /// The backend of the first point before this one with an equal program, unless it is this
    /// one's own, launched in another way. The point is measured anyway, as a control: by how much
    /// times of one program differ.
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
        outputs: &Outputs,
        measurement: &mut Measurement,
    ) -> Result<(), Outcome> {
        measurement.output_digest = Some(tensors::digest_of_outputs(outputs));
        if let (Some(folder), Some(outputs)) = (&self.block.save_tensors, outputs.on_host()) {
            tensors::write_outputs(folder, &point.folder, outputs).map_err(|reason| {
                let error = Outcome::without_measurement(Status::Error, reason);
                error.because_of(Cause::Surroundings)
            })?;
        }
        let verdict = match &self.reduced {
            None => self.verdict(point, outputs).map_err(failed)?,
            Some(verdicts) => match verdicts.get(&point.number) {
                Some(verdict) => verdict.clone()?,
                None => Verdict::UNCHECKED,
            },
        };
        let showing = self.showing.get(&point.number);
        let Verdict {
            checked,
            check,
            complaint,
        } = match showing {
            Some(showing) => verdict.and_on_showing(showing.clone()?),
            None => verdict,
        };
        measurement.checked = checked;
        let mut tensors = check.iter().flat_map(|check| &check.tensors);
        let is_below_rounding = |one: &TensorCheck| match (one.notices, one.metric) {
            (Some(least), _) => least >= 1.0,
            (None, metric) => metric == Metric::RelativeL2 && one.tolerance >= 1.0,
        };
        if tensors.any(is_below_rounding) {
            measurement.flags.push(Flag::BelowRounding);
        }
        if check
            .iter()
            .flat_map(|check| &check.tensors)
            .any(|one| one.is_inexact)
        {
            measurement.flags.push(Flag::Inexact);
        }
        let mut expected = self.instance.expected.iter();
        if expected.any(|held| held.contains_key(foreign_oracle::UNMODELLED)) {
            measurement.flags.push(Flag::UnmodelledRounding);
        }
        measurement.check = check;
        match complaint {
            None => Ok(()),
            Some(reason) => Err(wrong(reason, std::mem::take(measurement))),
        }
    }

    /// Judges the outputs of a point.
    ///
    /// # Errors
    /// A judge that fails.
    fn verdict(&self, point: &BlockPoint, outputs: &Outputs) -> Result<Verdict, DeviceError> {
        verdict_on(&self.instance, self.judge.as_ref(), point, outputs)
    }

    /// The outcome of a point whose samples were taken, with those of a second measurement where it
    /// had one. Timing must not have changed its outputs.
    pub fn finish(
        &self,
        one: VerifiedPoint<'_>,
        (sampler, again): (Sampler, Option<Sampler>),
        clock_resolution_ns: f64,
    ) -> Outcome {
        if let Some(reason) = one.complaint() {
            return wrong(reason, one.measurement);
        }
        if let Some((status, reason)) = one.refusal {
            return Outcome {
                measurement: Some(Box::new(one.measurement)),
                ..Outcome::without_measurement(status, reason)
            };
        }
        let mut measurement = one.measurement;
        let stop = self.block.settings.stop;
        let taken = sampler.finish(stop, clock_resolution_ns);
        measurement.samples_ns = taken.samples_ns;
        measurement.metrics = taken.metrics;
        measurement.iterations = taken.iterations;
        measurement.first_runs = Some(taken.first_runs);
        measurement.warmup_samples = taken.warmup_samples;
        measurement.launch_floor_ns = taken.launch_floor_ns;
        measurement.waited_share = taken.waited_share;
        measurement.clocks = taken.clocks;
        measurement.flags.extend(taken.flags);
        if let Some(again) = again {
            let taken = again.finish(stop, clock_resolution_ns);
            measurement.again_samples_ns = taken.samples_ns;
            for flag in taken.flags {
                if !measurement.flags.contains(&flag) {
                    measurement.flags.push(flag);
                }
            }
        }
        Outcome::measured(measurement)
    }
}

/// Runs a program once, on poisoned memory; the time of an iteration, in nanoseconds.
fn first_run_ns(program: Prepared, device: &mut dyn Device) -> Result<f64, DeviceError> {
    device.poison(program)?;
    Ok(device.sample(program, 1)?.per_iteration_ns())
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
        .map_err(refused)
}

/// The artifacts of a point, in the order of its program.
fn artifacts_of(point: &BlockPoint, artifacts: &Artifacts) -> Vec<Artifact> {
    let keys = point.kernels.iter();
    keys.filter_map(|key| artifacts.get(key).cloned()).collect()
}

/// The program's and the device's accounts of memory agree within 1 % or 2 MiB, whichever is more:
/// devices round sizes up.
fn has_expected_memory(measurement: &Measurement) -> bool {
    let program_bytes: u64 = measurement.memory_bytes.values().sum();
    let slack = (program_bytes / 100).max(2 << 20);
    program_bytes.abs_diff(measurement.device_memory.peak_allocated_bytes) <= slack
}

#[cfg(test)]
mod tests;
