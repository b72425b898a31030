//! The oracle on the device: plain f64 kernels, for problems that take the host long.
//!
//! They are compared with the host's oracle on a smaller problem first. Only a device that agrees
//! computes the answer of the whole problem.

use sweeper_program::check::{Metric, compare};
use sweeper_program::{Phase, Tensors};

use super::answers::Answers;
use super::block::Listener;
use super::block_context::{Artifacts, ContextError};
use super::block_inputs::covering_phase;
use super::protocol::{Block, Stage};
use super::refused::failed;
use super::verify::ProblemInstance;
use crate::device::{Artifact, Device, DeviceError, Job};
use crate::row::outcome::{Outcome, Status};

/// How far the two oracles may lie apart, as a relative L2 error. Both compute in f64, in different
/// orders; the rounding error that comes with some answers is a difference of nearly equal numbers
/// and so less exact.
const AGREEMENT: f64 = 1e-6;

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
    /// Compares the device's oracle with the host's on `small`, and computes the answer of `whole`.
    /// False where the device has no memory for its tables, so that the host must compute it.
    ///
    /// # Errors
    /// The outcome of all points of the block where the two oracles disagree, or the device fails.
    pub fn answer(
        &self,
        whole: &mut ProblemInstance,
        small: &ProblemInstance,
        device: &mut dyn Device,
        listener: &mut dyn Listener,
    ) -> Result<bool, ContextError> {
        let Some(first) = self.block.points.first() else {
            return Ok(true);
        };
        listener.working(first.number, Stage::Inputs);
        let phase = covering_phase(self.block);
        let id = &self.block.problem;
        let asked = self.ask(small, phase, device).and_then(|answers| {
            self.compare_with_host(small, &answers)?;
            let ask = || self.ask(whole, phase, device);
            self.answers.of(whole.problem.as_ref(), id, phase, ask)
        });
        match asked {
            Ok(answers) => whole.expected = Some(answers),
            Err(Failed::Device(DeviceError::OutOfMemory { .. })) => return Ok(false),
            Err(Failed::Device(error @ DeviceError::Lost(_))) => {
                return Err(ContextError::LostAt(first.number, error));
            }
            Err(Failed::Device(error)) => return Err(failed(error).into()),
            Err(Failed::Disagrees(reason)) => {
                return Err(Outcome::without_measurement(Status::Error, reason).into());
            }
        }
        Ok(true)
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
        Ok(device.results(prepared, &oracle.answers)?)
    }

    /// Compares the device's answers with the host's.
    fn compare_with_host(&self, small: &ProblemInstance, answers: &Tensors) -> Result<(), Failed> {
        for (name, expected) in small.expected.iter().flatten() {
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
