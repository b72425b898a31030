//! The oracle's answer to one problem, and the judgement of outputs by it.

use sweeper_kernels::check::Check;
use sweeper_kernels::{Phase, Problem, Tensors};

use super::outcome::Checked;

/// The right answer, evaluated once a problem.
pub struct Answer {
    inputs: Tensors,
    expected: Tensors,
}

/// What is said of the outputs of one program.
pub struct Verdict {
    /// How thoroughly they were judged.
    pub checked: Checked,
    /// The distances.
    pub check: Option<Check>,
    /// Why they are wrong, if they are.
    pub complaint: Option<String>,
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
    pub fn judge(&self, problem: &dyn Problem, outputs: &Tensors, phase: Phase) -> Verdict {
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
            checked: Checked::Full,
            check: Some(check),
            complaint,
        }
    }
}
