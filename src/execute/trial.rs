//! The trial of a check: outputs that no kernel computed must not pass it.

use sweeper_program::Phase;
use sweeper_program::check::{TensorCheck, Trial};

use super::judge::Judge;
use super::protocol::Block;
use super::verify::ProblemInstance;
use crate::row::outcome::{Checked, Outcome, Status};

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
            Some(judge) => passes_judge(instance, judge, &trial),
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
        let TensorCheck {
            tensor,
            error,
            tolerance,
            ..
        } = one;
        let complaint = format!(
            " for `{tensor}`: they are off by {error:.1e}, its tolerance is {tolerance:.1e}"
        );
        return Some(("tolerance", complaint));
    }
    let passes_all = trial.is_wrong_in_all && check.passed();
    passes_all.then(|| ("reference", ALL.to_owned()))
}

/// Why it matters that nothing needs to be written.
const ALL: &str = ": all outputs begin with the right values, by `init`";

/// A judge that fails on such outputs does not pass them.
fn passes_judge(instance: &ProblemInstance, judge: &Judge<'_>, trial: &Trial) -> Passed {
    if trial.wrong.is_empty() && !trial.is_wrong_in_all {
        return None;
    }
    let expected = instance.expected.as_ref();
    let found = judge.verdict(&instance.inputs, &trial.outputs, expected, Checked::Full);
    let passes = found.is_ok_and(|verdict| verdict.complaint.is_none());
    passes.then(|| ("judge", String::new()))
}
