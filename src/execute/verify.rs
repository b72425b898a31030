//! What is known of the right outputs of one problem, and the judgement of outputs by it.

use std::collections::BTreeMap;

use sweeper_kernels::check::Check;
use sweeper_kernels::workload::ORACLE_OPERATIONS_PER_SECOND;
use sweeper_kernels::{Phase, Problem, Tensors};

use super::outcome::{Checked, Outcome};

/// The right answer, evaluated once a problem.
pub struct Answer {
    inputs: Tensors,
    expected: Tensors,
}

/// What is said of the outputs of one program.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// How thoroughly they were judged.
    pub checked: Checked,
    /// The distances.
    pub check: Option<Check>,
    /// Why they are wrong, if they are.
    pub complaint: Option<String>,
}

impl Verdict {
    /// Of outputs that nothing is known about.
    pub const UNCHECKED: Verdict = Verdict {
        checked: Checked::None,
        check: None,
        complaint: None,
    };
}

impl Answer {
    /// Evaluates the oracle.
    pub fn of(problem: &dyn Problem, inputs: &Tensors, phase: Phase) -> Self {
        Answer {
            inputs: inputs.clone(),
            expected: problem.oracle(inputs, phase),
        }
    }

    /// Judges the outputs of a phase.
    pub fn judge(
        &self,
        problem: &dyn Problem,
        outputs: &Tensors,
        phase: Phase,
        checked: Checked,
    ) -> Verdict {
        let check = problem.check(&self.inputs, outputs, &self.expected, phase);
        let complaint = match check.worst() {
            _ if check.passed() => None,
            Some(worst) => Some(format!(
                "`{}` is off by {:.3e}, tolerance {:.1e}",
                worst.tensor, worst.error, worst.tolerance
            )),
            None => Some("there are no outputs".to_owned()),
        };
        Verdict {
            checked,
            check: Some(check),
            complaint,
        }
    }
}

/// How the outputs of a block's points are judged.
pub enum Evidence {
    /// Not at all.
    Nothing,
    /// By the oracle's answer.
    Answer(Answer),
    /// By what became of each point's kernels on a smaller problem, by number.
    Reduced(BTreeMap<u32, Result<Verdict, Outcome>>),
}

/// The problem that stands for one whose oracle would take more than `limit_s` seconds; nothing if it
/// does not, or if no smaller one is small enough.
pub fn stand_in(problem: &dyn Problem, phase: Phase, limit_s: f64) -> Option<Box<dyn Problem>> {
    let threads = rayon::current_num_threads();
    let limit = limit_s * ORACLE_OPERATIONS_PER_SECOND;
    match problem.oracle_operations(phase, threads) > limit {
        true => problem.reduced(phase, limit, threads),
        false => None,
    }
}
