//! What is known of the right outputs of one problem, and the judgement of outputs by it.

use sweeper_kernels::check::Check;
use sweeper_kernels::workload::ORACLE_OPERATIONS_PER_SECOND;
use sweeper_kernels::{Phase, Problem, Tensors};

use super::outcome::Checked;

/// A problem with inputs, and the right answer where the oracle was asked.
pub struct Posed {
    /// The problem.
    pub problem: Box<dyn Problem>,
    /// Its inputs; none where nothing is computed.
    pub inputs: Tensors,
    /// The oracle's answer.
    pub expected: Option<Tensors>,
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

impl Posed {
    /// A problem of which nothing is asked.
    pub fn idle(problem: Box<dyn Problem>) -> Self {
        Posed {
            problem,
            inputs: Tensors::new(),
            expected: None,
        }
    }

    /// Asks the oracle.
    pub fn answered(problem: Box<dyn Problem>, inputs: Tensors, phase: Phase) -> Self {
        let expected = Some(problem.oracle(&inputs, phase));
        Posed {
            problem,
            inputs,
            expected,
        }
    }

    /// Judges the outputs of a phase; they are unchecked where the answer is not known.
    pub fn judge(&self, outputs: &Tensors, phase: Phase, checked: Checked) -> Verdict {
        let Some(expected) = &self.expected else {
            return Verdict::UNCHECKED;
        };
        let check = self.problem.check(&self.inputs, outputs, expected, phase);
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
