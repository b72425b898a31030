//! The trial of a check: outputs that no kernel computed must not pass it.

use sweeper_program::check::{TensorCheck, Trial};
use sweeper_program::{Data, Phase, Tensor, Tensors};

use super::judge::Judge;
use super::protocol::{Block, BlockPoint};
use super::refused::failed;
use super::verify::ProblemInstance;
use sweeper_model::row::outcome::{Checked, Outcome, Status};
use sweeper_model::tuning::family_of;

/// Tries the check of a block on wrong outputs.
///
/// # Errors
/// The outcome of all points of the block where the check passes some.
pub(super) fn check(
    block: &Block,
    instance: &ProblemInstance,
    judge: Option<&Judge<'_>>,
    phase: Phase,
) -> Result<(), Outcome> {
    if instance.expected.is_none() && judge.is_none() {
        return Ok(());
    }
    let expected = instance.expected.as_ref();
    for trial in instance.problem.trials(&instance.inputs, expected) {
        let complaint = match judge {
            Some(judge) => passes_judge(instance, judge, &trial)?,
            None => passes_tolerance(instance, &trial, phase),
        };
        if let Some((key, complaint)) = complaint {
            let key = format!("workload.{}.check.{key}", block.workload);
            let reason = format!("`{key}`: {} would pass{complaint}", trial.name);
            return Err(Outcome::without_measurement(Status::Error, reason));
        }
    }
    Ok(())
}

/// The key of the check, and for which output the wrong ones pass.
type Passed = Option<(&'static str, String)>;

fn passes_tolerance(instance: &ProblemInstance, trial: &Trial, phase: Phase) -> Passed {
    let expected = instance.expected.as_ref()?;
    let check = (instance.problem).check(&instance.inputs, &trial.outputs, expected, phase);
    let mut passed = check.tensors.iter().filter(|one| one.passed());
    if let Some(one) = passed.find(|one| trial.wrong.contains(&one.tensor)) {
        return Some(("tolerance", passed_by(one, one.tolerance)));
    }
    let passes_all = trial.is_wrong_in_all && check.passed();
    passes_all.then(|| ("reference", ALL.to_owned()))
}

/// How wrong outputs pass a tolerance.
fn passed_by(one: &TensorCheck, tolerance: f64) -> String {
    let TensorCheck { tensor, error, .. } = one;
    format!(" for `{tensor}`: they are off by {error:.1e}, its tolerance is {tolerance:.1e}")
}

/// Tries on zeros the factor by which the backend of a point may be less exact. Memory that was
/// poisoned needs no trial: no factor makes NaN right, nor whole numbers that are not equal.
///
/// # Errors
/// The outcome of the point, where zeros pass that the workload's own tolerance refuses.
pub(super) fn check_factor(instance: &ProblemInstance, point: &BlockPoint) -> Result<(), Outcome> {
    let factor = point.tolerance_factor;
    let Some(expected) = instance.expected.as_ref().filter(|_| factor > 1.0) else {
        return Ok(());
    };
    let specs = instance.problem.outputs(point.phase).into_iter();
    let zeros = specs.map(|spec| {
        let bytes = vec![0; spec.size_bytes() as usize];
        let data = Data::from_bytes(spec.dtype, &bytes);
        (spec.name, Tensor::new(spec.shape, data))
    });
    let zeros: Tensors = zeros.collect();
    let check = (instance.problem).check(&instance.inputs, &zeros, expected, point.phase);
    let mut tensors = check.tensors.iter();
    let found = tensors.find(|one| !one.passed() && one.error <= factor * one.tolerance);
    match found {
        None => Ok(()),
        Some(one) => {
            let complaint = passed_by(one, factor * one.tolerance);
            let backend = family_of(&point.backend);
            let key = format!("backend.{backend}.tolerance_factor");
            let reason = format!("`{key}`: zeros would pass{complaint}");
            Err(Outcome::without_measurement(Status::Error, reason))
        }
    }
}

/// Why it matters that nothing needs to be written.
const ALL: &str = ": all outputs begin with the right values, by `init`";

/// A judge that fails on such outputs does not pass them.
///
/// # Errors
/// The outcome of all points of the block where it takes too long: it would on each of their
/// outputs, and they are given up for it before it is named.
fn passes_judge(
    instance: &ProblemInstance,
    judge: &Judge<'_>,
    trial: &Trial,
) -> Result<Passed, Outcome> {
    if trial.wrong.is_empty() && !trial.is_wrong_in_all {
        return Ok(None);
    }
    let expected = instance.expected.as_ref();
    let found = judge.verdict(&instance.inputs, &trial.outputs, expected, Checked::Full);
    let passes = match found {
        Ok(verdict) => verdict.complaint.is_none(),
        Err(error) => {
            let outcome = failed(error);
            if outcome.status == Status::Timeout {
                return Err(outcome);
            }
            false
        }
    };
    Ok(passes.then(|| ("judge", String::new())))
}
