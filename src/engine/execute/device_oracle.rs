//! The oracle on the device: plain f64 kernels, for problems that take the host long.
//!
//! They are compared with the host's oracle on a smaller problem first. Only a device that agrees
//! computes the answer of the whole problem or, where that is too large, of a smaller copy.

use sweeper_program::check::{Metric, compare};
use sweeper_program::inputs::InputKey;
use sweeper_program::spread;
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Phase, Problem, Tensors};

use super::answers::Answers;
use super::block::Listener;
use super::block_context::{Artifacts, ContextError};
use super::block_inputs::covering_phase;
use super::protocol::{Block, Stage};
use super::refused::failed;
use super::verify::ProblemInstance;
use crate::device::{Artifact, Device, DeviceError, Job, memory};
use sweeper_model::row::outcome::{Outcome, Status};

/// How far the two oracles may lie apart, as a relative L2 error. Both compute in f64, in different
/// orders; the rounding error that comes with some answers is a difference of nearly equal numbers
/// and so less exact.
const AGREEMENT: f64 = 1e-6;

/// Operations of an oracle that a device does in a second, at least.
const OPERATIONS_PER_SECOND: f64 = 1e11;

/// The part of the whole problem's operations that its copies have, at most: a copy stands for the
/// whole by its kernels, not by its size.
const COPY_SHARE: f64 = 1.0 / 8.0;

/// What the device has answered.
pub enum Answered {
    /// The whole problem.
    Whole,
    /// A copy with less depth or a smaller batch.
    Reduced(ProblemInstance),
    /// No problem: it has no memory for the tables, so that the host must compute them.
    Nothing,
}

/// The oracle of a block on its device.
pub struct DeviceOracle<'a> {
    /// The block whose problem it is.
    pub block: &'a Block,
    /// Kernels by key.
    pub artifacts: &'a Artifacts,
    /// Where the answer is kept.
    pub answers: &'a Answers,
}

impl DeviceOracle<'_> {
    /// Compares the device's oracle with the host's on `small`, and computes the answer of `whole`
    /// or, where the device or the host has no memory for it, of a copy. The problem with inputs
    /// that show mistakes gets its answer too, if there is memory for it.
    ///
    /// # Errors
    /// The outcome of all points of the block where the two oracles disagree, or the device fails.
    pub fn answer(
        &self,
        (whole, showing): (&mut ProblemInstance, Option<&mut ProblemInstance>),
        small: &ProblemInstance,
        device: &mut dyn Device,
        listener: &mut dyn Listener,
    ) -> Result<Answered, ContextError> {
        let Some(first) = self.block.points.first() else {
            return Ok(Answered::Whole);
        };
        listener.working(first.number, Stage::Inputs);
        let answered = self
            .answer_largest(whole, small, device)
            .and_then(|answered| {
                if let Some(showing) = showing {
                    self.fill(showing, small, covering_phase(self.block), device)?;
                }
                Ok(answered)
            });
        answered.map_err(|failure| match failure {
            Failed::Device(error @ DeviceError::Lost(_)) => {
                ContextError::LostAt(first.number, error)
            }
            Failed::Device(error) => failed(error).into(),
            Failed::Disagrees(reason) => Outcome::without_measurement(Status::Error, reason).into(),
        })
    }

    fn answer_largest(
        &self,
        whole: &mut ProblemInstance,
        small: &ProblemInstance,
        device: &mut dyn Device,
    ) -> Result<Answered, Failed> {
        let phase = covering_phase(self.block);
        let answers = match self.ask(small, phase, device) {
            Err(Failed::Device(DeviceError::OutOfMemory { .. })) => return Ok(Answered::Nothing),
            answers => answers?,
        };
        self.compare_with_host(small, &answers)?;
        if self.fill(whole, small, phase, device)? {
            return Ok(Answered::Whole);
        }
        if self.block.inputs.is_some() {
            // Inputs of a file are those of the whole problem alone.
            return Ok(Answered::Nothing);
        }
        let operations = self.block.settings.oracle_s * OPERATIONS_PER_SECOND;
        for copy in copies(whole.problem.as_ref(), phase, operations) {
            let inputs = copy.generate(&InputKey(self.block.problem));
            let mut copy = ProblemInstance::without_answer(copy, inputs);
            if self.fill(&mut copy, small, phase, device)? {
                return Ok(Answered::Reduced(copy));
            }
        }
        Ok(Answered::Nothing)
    }

    /// Asks for the answer of a problem. False where it fits neither into the host's memory, which
    /// has it and the outputs in f64, nor into the device's.
    fn fill(
        &self,
        instance: &mut ProblemInstance,
        small: &ProblemInstance,
        phase: Phase,
        device: &mut dyn Device,
    ) -> Result<bool, Failed> {
        let outputs = instance.problem.outputs(phase);
        let elements: u64 = outputs.iter().map(TensorSpec::elements).sum();
        if 16 * elements > memory::available_bytes() {
            return Ok(false);
        }
        let ask = || {
            let mut answers = self.ask(instance, phase, device)?;
            if let Some(known) = &small.expected {
                let smaller = (small.problem.as_ref(), known);
                instance.problem.add_spreads(&mut answers, smaller);
            }
            Ok(answers)
        };
        let id = instance.answer_id(&self.block.problem);
        match self.answers.of(instance.problem.as_ref(), &id, phase, ask) {
            Err(Failed::Device(DeviceError::OutOfMemory { .. })) => Ok(false),
            answers => {
                instance.expected = Some(answers?);
                Ok(true)
            }
        }
    }

    /// Runs the device's oracle of a problem once.
    fn ask(
        &self,
        instance: &ProblemInstance,
        phase: Phase,
        device: &mut dyn Device,
    ) -> Result<Tensors, Failed> {
        let oracle = instance.problem.device_oracle(phase, &device.target());
        let oracle = oracle.ok_or_else(|| {
            let reason = "the problem has no oracle for this device".to_owned();
            DeviceError::Unavailable(reason)
        })?;
        let keys = self.block.oracle_kernels.iter();
        let artifacts: Vec<Artifact> = keys
            .filter_map(|key| self.artifacts.get(key).cloned())
            .collect();
        device.bind(&instance.inputs)?;
        let prepared = device.prepare(Job {
            program: oracle.program,
            artifacts: &artifacts,
            script: None,
        })?;
        device.poison(prepared)?;
        device.sample(prepared, 1)?;
        let mut answers = device.results(prepared, &oracle.answers)?;
        for spec in &oracle.answers {
            spread::finish_sums(&mut answers, &spec.name, &spec.shape);
        }
        Ok(answers)
    }

    /// Compares the device's answers with the host's.
    fn compare_with_host(&self, small: &ProblemInstance, answers: &Tensors) -> Result<(), Failed> {
        let expected = small.expected.iter().flatten();
        // A device need not know how far rounding moves an answer.
        for (name, expected) in expected
            .filter(|(name, _)| answers.contains_key(*name) || !spread::is_name_of_spread(name))
        {
            let found = answers.get(name);
            let check = compare(name, found, expected, Metric::RelativeL2, AGREEMENT);
            if !check.passed() {
                return Err(Failed::Disagrees(format!(
                    "the oracle on the device can't be trusted: on a smaller problem its `{name}` is off by {:.1e} from the \
                     host's, where {AGREEMENT:.0e} is allowed",
                    check.error
                )));
            }
        }
        Ok(())
    }
}

/// Copies of a problem whose oracle takes at most so many operations, larger ones first.
fn copies(
    problem: &dyn Problem,
    phase: Phase,
    operations: f64,
) -> impl Iterator<Item = Box<dyn Problem>> {
    let mut operations = operations.min(COPY_SHARE * problem.oracle_operations(phase, 1));
    std::iter::from_fn(move || {
        let copy = problem.reduced(phase, operations, 1)?;
        operations = copy.oracle_operations(phase, 1) / 2.0;
        Some(copy)
    })
}

/// Why there is no answer.
enum Failed {
    Device(DeviceError),
    Disagrees(String),
}

impl From<DeviceError> for Failed {
    fn from(error: DeviceError) -> Self {
        Failed::Device(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sweeper_program::{Dtype, Parameters};
    use sweeper_workloads::registry;

    #[test]
    fn copies_become_smaller_until_there_is_no_smaller_one() {
        let sizes = [("d_model", 32), ("d_ff", 64), ("heads", 2), ("layers", 64)];
        let batch = [("batch", 8), ("context", 64), ("vocabulary", 16)];
        let parameters: Parameters = sizes.into_iter().chain(batch).collect();
        let workload = registry::workload("transformer").unwrap();
        let whole = workload.problem(&parameters, Dtype::F32).unwrap();
        let cost = |problem: &dyn Problem| problem.oracle_operations(Phase::Step, 1);
        let found = |operations: f64| -> Vec<f64> {
            let copies = copies(whole.as_ref(), Phase::Step, operations);
            copies.map(|copy| cost(copy.as_ref())).collect()
        };
        let all = found(f64::INFINITY);
        let most = COPY_SHARE * cost(whole.as_ref());
        assert!(all.len() > 2 && all[0] <= most, "{all:?}, {most}");
        assert!(
            all.windows(2).all(|pair| pair[1] <= pair[0] / 2.0),
            "{all:?}"
        );
        assert_eq!(found(all[1]), all[1..], "by the time that there is");
        assert_eq!(found(1.0), [0.0; 0]);
    }
}
