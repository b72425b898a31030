//! The oracle on the device: plain f64 kernels answer what takes the host long.
//!
//! They are tried first, on a smaller problem whose answer the host's oracle has found: only a device that agrees with it is
//! asked for the whole problem's.

use sweeper_kernels::check::{Metric, compare};
use sweeper_kernels::{Phase, Tensors};

use super::answers::Answers;
use super::block::Listener;
use super::groundwork::covering_phase;
use super::protocol::{Block, Stage};
use super::setting::{Artifacts, NoSetting, failed};
use super::verify::Posed;
use crate::device::{Artifact, Device, DeviceError, Job};
use crate::row::outcome::{Outcome, Status};

/// How far the two oracles may lie apart, as a relative L2 error. Both compute in f64, in different orders; what an answer's
/// rounding comes to, which is beside some answers, is a difference of nearly equal numbers and as much less exact.
const AGREEMENT: f64 = 1e-6;

/// What asking takes.
pub struct OnDevice<'a> {
    /// The block whose problem it is.
    pub block: &'a Block,
    /// Kernels by key.
    pub artifacts: &'a Artifacts,
    /// Where the answer is kept.
    pub answers: &'a Answers,
}

impl OnDevice<'_> {
    /// Tries the device's oracle on `small`, whose answer is known, and asks it for that of `whole`. False where it has no room for
    /// its tables, so that the host must be asked.
    ///
    /// # Errors
    /// What becomes of all points of the block where the two oracles disagree, or the device fails.
    pub fn answer(
        &self,
        whole: &mut Posed,
        small: &Posed,
        device: &mut dyn Device,
        listener: &mut dyn Listener,
    ) -> Result<bool, NoSetting> {
        let Some(first) = self.block.points.first() else {
            return Ok(true);
        };
        listener.working(first.number, Stage::Inputs);
        let phase = covering_phase(self.block);
        let id = &self.block.problem;
        let asked = self.ask(small, phase, device).and_then(|answers| {
            self.hold(small, &answers)?;
            let ask = || self.ask(whole, phase, device);
            self.answers.of(whole.problem.as_ref(), id, phase, ask)
        });
        match asked {
            Ok(answers) => whole.expected = Some(answers),
            Err(Failed::Device(DeviceError::OutOfMemory { .. })) => return Ok(false),
            Err(Failed::Device(error @ DeviceError::Lost(_))) => {
                return Err(NoSetting::LostAt(first.number, error));
            }
            Err(Failed::Device(error)) => return Err(failed(error).into()),
            Err(Failed::Disagrees(reason)) => {
                return Err(Outcome::without_measurement(Status::Error, reason).into());
            }
        }
        Ok(true)
    }

    /// Runs the device's oracle of a problem once.
    fn ask(&self, posed: &Posed, phase: Phase, device: &mut dyn Device) -> Result<Tensors, Failed> {
        let oracle = posed.problem.device_oracle(phase, &device.target());
        let oracle = oracle.ok_or_else(|| {
            let reason = "the problem has no oracle for this device".to_owned();
            DeviceError::Unavailable(reason)
        })?;
        let keys = self.block.oracle_kernels.iter();
        let artifacts: Vec<Artifact> = keys
            .filter_map(|key| self.artifacts.get(key).cloned())
            .collect();
        device.bind(&posed.inputs)?;
        let prepared = device.prepare(Job {
            program: oracle.program,
            artifacts: &artifacts,
            script: None,
        })?;
        device.poison(prepared)?;
        device.sample(prepared, 1)?;
        Ok(device.results(prepared, &oracle.answers)?)
    }

    /// Holds the device's answers against the host's.
    fn hold(&self, small: &Posed, answers: &Tensors) -> Result<(), Failed> {
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
