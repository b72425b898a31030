//! Points of the backend `auto`: loops that decide themselves whether to compile.

use sweeper_program::check::TensorCheck;
use sweeper_program::workload::{Dispatcher, Problem, TensorSpec};
use sweeper_program::{CanonicalShape, Program, Tensors};

use super::protocol::{Block, BlockPoint};
use super::refused::{failed, refused};
use super::verify::{ProblemInstance, Verdict};
use crate::auto::{Auto, Place, SWITCHED_ITERATIONS};
use crate::compile::CachePlace;
use crate::device::outputs::Outputs;
use crate::device::{Device, DeviceError, Prepared};
use sweeper_model::row::outcome::{Checked, Outcome, Status};

/// A loop that decides itself, before its program is prepared.
pub(super) struct Undecided {
    dispatcher: Box<dyn Dispatcher>,
    /// The program that runs operation by operation.
    program: Program,
}

/// The loop of a point whose backend decides itself; none for any other.
///
/// # Errors
/// The point's outcome: it has no loop.
pub(super) fn undecided(
    problem: &dyn Problem,
    point: &BlockPoint,
    program: &Program,
    device: &dyn Device,
) -> Result<Option<Undecided>, Outcome> {
    if !device.computes() {
        return Ok(None);
    }
    let canonical = CanonicalShape::new(point.canonical.iter().cloned());
    let target = device.target();
    let made = problem.dispatcher(&point.backend, point.phase, &canonical, &target);
    let Some(dispatcher) = made.map_err(refused)? else {
        return Ok(None);
    };
    if point.mode.iterations().is_none() {
        let reason = format!(
            "`{}` decides while a loop runs: say in `measure.loops` how many iterations it has",
            point.backend
        );
        return Err(Outcome::without_measurement(Status::Skipped, reason));
    }
    Ok(Some(Undecided {
        dispatcher,
        program: program.clone(),
    }))
}

impl Undecided {
    /// The loop, with its program as it was prepared.
    ///
    /// # Errors
    /// The point's outcome.
    pub(super) fn begin(
        self,
        (block, point): (&Block, &BlockPoint),
        cache: Option<&CachePlace>,
        prepared: Prepared,
        device: &mut dyn Device,
    ) -> Result<Auto, Outcome> {
        let iterations = point.mode.iterations().unwrap_or(1);
        let place = Place {
            cache: cache.cloned(),
            limit: block.settings.compile_limit,
            rules: block.settings.auto,
            eager: (&self.program, prepared),
        };
        Auto::new(self.dispatcher, place, iterations, device).map_err(failed)
    }
}

/// Judges the last iteration of a loop, and a short loop in the middle of which the program takes
/// over. Yields a complaint.
///
/// # Errors
/// A refused launch or a lost device.
pub(super) fn complaint(
    auto: &mut Auto,
    instance: &ProblemInstance,
    (point, specs, carries_state): (&BlockPoint, &[TensorSpec], bool),
    device: &mut dyn Device,
) -> Result<Option<String>, DeviceError> {
    // State that a loop has carried is not an answer of the oracle.
    if !carries_state {
        let outputs = auto.results(device, specs)?;
        let verdict = instance.judge(&Outputs::Host(outputs), point, Checked::Full)?;
        if let Some(reason) = verdict.complaint {
            return Ok(Some(format!("the last iteration of the loop: {reason}")));
        }
    }
    let Some(expected) = &instance.expected else {
        return Ok(None);
    };
    for results in auto.switched_results(device, specs)? {
        let complaint = switch_complaint(instance, results, expected, point);
        if complaint.is_some() {
            return Ok(complaint);
        }
    }
    Ok(None)
}

/// Judges the results of a short loop in the middle of which a program takes over by those of one
/// that runs operation by operation.
fn switch_complaint(
    instance: &ProblemInstance,
    [switched, eager]: [Tensors; 2],
    expected: &Tensors,
    point: &BlockPoint,
) -> Option<String> {
    // A check may want more of the oracle than outputs.
    let mut by_eager = expected.clone();
    by_eager.extend(eager);
    let (problem, inputs) = (&instance.problem, &instance.inputs);
    let iterations = f64::from(SWITCHED_ITERATIONS);
    let check = problem.check(inputs, &switched, &by_eager, point.phase);
    // Each iteration adds its own roundings to the state.
    let is_right = |worst: &TensorCheck| worst.error <= iterations * worst.tolerance;
    if check.worst().is_some_and(is_right) {
        return None;
    }
    let reason = Verdict::of(check, Checked::Full).complaint?;
    Some(format!(
        "a loop in the middle of which the program takes over: {reason} of one iteration"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sweeper_program::inputs::InputKey;
    use sweeper_program::{Dtype, Parameters, Phase, Tensor};
    use sweeper_workloads::registry;

    /// Results of a loop in which the program takes over, each number of which is `by` off.
    fn complaint_of(by: f32) -> Option<String> {
        let parameters: Parameters = [("size", 16)].into_iter().collect();
        let problem = registry::workload("mixed")
            .unwrap()
            .problem(&parameters, Dtype::F32)
            .unwrap();
        let inputs = problem.generate(&InputKey([5; 32]));
        let expected = problem.oracle(&inputs, Phase::Forward);
        let rounded = |by: f32| -> Tensors {
            let each = expected.iter().map(|(name, tensor)| {
                let exact = sweeper_program::check::as_f64(tensor);
                let values = exact.iter().map(|&x| x as f32 + by).collect();
                let shape = tensor.shape().to_vec();
                (name.clone(), Tensor::f32(shape, values))
            });
            each.collect()
        };
        let results = [rounded(by), rounded(0.0)];
        let instance = ProblemInstance {
            problem: problem.into(),
            inputs,
            expected: Some(expected.clone()),
            input_digest: None,
            peer: None,
        };
        let point = BlockPoint::forward(0, "auto");
        switch_complaint(&instance, results, &expected, &point)
    }

    #[test]
    fn a_program_that_takes_over_with_other_results_is_found() {
        assert_eq!(complaint_of(0.0), None);
        for by in [0.1, -3.0, f32::NAN, f32::INFINITY] {
            let complaint = complaint_of(by).unwrap_or_else(|| panic!("{by}"));
            assert!(complaint.contains("takes over"), "{complaint}");
        }
    }
}
