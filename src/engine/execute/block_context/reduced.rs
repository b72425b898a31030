//! Points whose kernels run on another problem than their own, whose answer is known: a smaller one
//! where their own is too large for any oracle, and one with inputs that show mistakes.

use std::collections::BTreeMap;

use sweeper_program::{Program, Tensors};

use super::{Artifacts, BlockContext, ContextError, program};
use crate::device::outputs::Outputs;
use crate::device::{Artifact, Device, DeviceError, Job, busy};
use crate::execute::block::Listener;
use crate::execute::protocol::{BlockPoint, Stage};
use crate::execute::refused::failed;
use crate::execute::verify::{ProblemInstance, Verdict};
use sweeper_model::row::outcome::{Checked, Outcome};

impl BlockContext<'_> {
    /// Runs every point's kernels on another problem and judges their outputs.
    pub(super) fn verify_on(
        &self,
        other: &ProblemInstance,
        artifacts: &Artifacts,
        device: &mut dyn Device,
        listener: &mut dyn Listener,
    ) -> Result<BTreeMap<u32, Result<Verdict, Outcome>>, ContextError> {
        device.bind(&other.inputs).map_err(failed)?;
        let mut verdicts = BTreeMap::new();
        for point in self.points() {
            listener.working(point.number, Stage::Check);
            let verdict = match self.run_on(point, other, artifacts, device) {
                Ok(Err(error @ DeviceError::Lost(_))) => {
                    return Err(ContextError::LostAt(point.number, error));
                }
                Ok(Err(error)) => Err(failed(error)),
                Ok(Ok(verdict)) => Ok(verdict),
                Err(outcome) => Err(outcome),
            };
            verdicts.insert(point.number, verdict);
        }
        Ok(verdicts)
    }

    fn run_on(
        &self,
        point: &BlockPoint,
        other: &ProblemInstance,
        artifacts: &Artifacts,
        device: &mut dyn Device,
    ) -> Result<Result<Verdict, DeviceError>, Outcome> {
        if point.scripted_status.is_some() {
            return Ok(Ok(Verdict::UNCHECKED));
        }
        let whole = program(self.instance.problem.as_ref(), point, device)?;
        let program = program(other.problem.as_ref(), point, device)?;
        // A process that runs a program gets inputs once, with the first of its programs.
        if program.runner().is_some() {
            return Ok(Ok(Verdict::UNCHECKED));
        }
        // Other kernels than the point's prove nothing about it.
        let Some(order) = positions(&whole, &program) else {
            return Ok(Ok(Verdict::UNCHECKED));
        };
        let keys = order.iter().filter_map(|&at| point.kernels.get(at));
        let artifacts: Vec<Artifact> = keys.filter_map(|key| artifacts.get(key).cloned()).collect();
        let specs = other.problem.outputs(point.phase);
        let is_users = program.has_kernels_of_the_user();
        let before = is_users.then(|| busy::of_this_group(false));
        let run = || {
            let prepared = device.prepare(Job {
                program,
                artifacts: &artifacts,
                script: None,
            })?;
            device.poison(prepared)?;
            device.sample(prepared, 1)?;
            let outputs = device.results(prepared, &specs)?;
            if is_users {
                // It may have overwritten what others read.
                device.restore_inputs(&other.inputs)?;
            }
            Ok(outputs)
        };
        let outputs = run();
        self.note_threads(point, before);
        let judge =
            |outputs: Tensors| other.judge(&Outputs::Host(outputs), point, Checked::Reduced);
        Ok(outputs.and_then(judge))
    }
}

/// For each source of a smaller program, where it is among those of the whole one; `None` where one
/// of the two has a source that the other lacks. Kernels of fewer layers may come in another order.
fn positions(whole: &Program, smaller: &Program) -> Option<Vec<usize>> {
    let sources = whole.sources();
    let own = smaller.sources();
    let position = |source| {
        let mut held = sources.iter();
        held.position(|held| held.same_source(source))
    };
    let positions: Option<Vec<usize>> = own.iter().map(|source| position(source)).collect();
    positions.filter(|_| own.len() == sources.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sweeper_program::{CanonicalShape, Dtype, Parameters, Phase, Target};
    use sweeper_workloads::registry;

    fn step(layers: i64, d_model: i64) -> Program {
        let sizes = [("d_model", d_model), ("d_ff", 256), ("heads", 2)];
        let batch = [("layers", layers), ("batch", 4), ("context", 64)];
        let sizes = sizes.into_iter().chain(batch).chain([("vocabulary", 512)]);
        let parameters: Parameters = sizes.collect();
        let workload = registry::workload("transformer").unwrap();
        let problem = workload.problem(&parameters, Dtype::F32).unwrap();
        let target = Target::Cuda {
            arch: "sm_90a".to_owned(),
        };
        let program = problem.program("compiled", Phase::Step, &CanonicalShape::default(), &target);
        program.unwrap()
    }

    /// On a GPU kernels of the whole were once given to a copy in the whole's order.
    #[test]
    fn each_kernel_of_a_copy_is_found_among_those_of_the_whole() {
        let (whole, copy) = (step(5, 128), step(2, 128));
        let (sources, own) = (whole.sources(), copy.sources());
        let places = positions(&whole, &copy).unwrap();
        for (source, &place) in own.iter().zip(&places) {
            assert!(source.same_source(sources[place]));
        }
        let mut all = places.clone();
        all.sort_unstable();
        assert_eq!(all, Vec::from_iter(0..sources.len()));
        assert_eq!(positions(&whole, &step(2, 36)), None);
    }
}
