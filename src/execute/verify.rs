//! What is known of the right outputs of one problem, and the judgement of outputs by it.

use std::convert::Infallible;

use sweeper_kernels::check::Check;
use sweeper_kernels::workload::ORACLE_OPERATIONS_PER_SECOND;
use sweeper_kernels::{Phase, Problem, Tensors};

use super::answers::Answers;
use crate::row::outcome::Checked;

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

    /// Asks the oracle, or for the answer that it gave before. `id` is the identity of the problem, or of that
    /// for which it stands.
    pub fn answered(
        problem: Box<dyn Problem>,
        id: &[u8; 32],
        inputs: Tensors,
        phase: Phase,
        answers: &Answers,
    ) -> Self {
        let oracle = || Ok::<_, Infallible>(problem.oracle(&inputs, phase));
        let Ok(expected) = answers.of(problem.as_ref(), id, phase, oracle);
        Posed {
            problem,
            inputs,
            expected: Some(expected),
        }
    }

    /// A problem whose answer nobody knows yet.
    pub fn unanswered(problem: Box<dyn Problem>, inputs: Tensors) -> Self {
        Posed {
            problem,
            inputs,
            expected: None,
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

/// Of which problem the oracle is asked.
pub enum Asked {
    /// Of the problem itself.
    Whole,
    /// Of a smaller one, which stands for it.
    StandIn(Box<dyn Problem>),
    /// Of none: it would not fit.
    None,
}

/// What the oracle may take.
#[derive(Clone, Copy, Debug)]
pub struct OracleLimits {
    /// Seconds.
    pub time_s: f64,
    /// Bytes.
    pub bytes: u64,
}

impl Asked {
    /// The whole problem where the oracle has time and memory for it, else one that is small enough. Where
    /// there is none, too little time is no reason not to ask.
    pub fn of(problem: &dyn Problem, phase: Phase, limits: OracleLimits) -> Self {
        let threads = rayon::current_num_threads();
        let limit = limits.time_s * ORACLE_OPERATIONS_PER_SECOND;
        let operations = problem.oracle_operations(phase, threads);
        let bytes = problem.oracle_bytes(phase);
        let fits = bytes <= limits.bytes;
        if fits && operations <= limit {
            return Asked::Whole;
        }
        // How memory shrinks with the operations is the problem's affair: tried from the greatest on.
        let mut limit = limit.min(operations);
        while let Some(smaller) = problem.reduced(phase, limit, threads) {
            if smaller.oracle_bytes(phase) <= limits.bytes {
                return Asked::StandIn(smaller);
            }
            limit /= 2.0;
        }
        if fits { Asked::Whole } else { Asked::None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sweeper_kernels::{Dtype, Parameters, registry};

    fn problem() -> Box<dyn Problem> {
        let sizes = [("T", 64), ("K", 4), ("C", 3), ("B", 8)];
        let parameters: Parameters = sizes.into_iter().collect();
        let workload = registry::workload("semicrf").unwrap();
        workload.problem(&parameters, Dtype::F32).unwrap()
    }

    fn asked(time_s: f64, bytes: u64) -> Asked {
        let limits = OracleLimits { time_s, bytes };
        Asked::of(problem().as_ref(), Phase::Both, limits)
    }

    #[test]
    fn an_oracle_that_does_not_fit_is_asked_of_a_smaller_problem_or_not_at_all() {
        let needed = problem().oracle_bytes(Phase::Both);
        assert!(matches!(asked(60.0, needed), Asked::Whole));
        match asked(60.0, needed / 2) {
            Asked::StandIn(small) => assert!(small.oracle_bytes(Phase::Both) <= needed / 2),
            _ => panic!("a smaller problem would do"),
        }
        assert!(matches!(asked(60.0, 8), Asked::None));
    }

    #[test]
    fn too_little_time_is_no_reason_not_to_ask() {
        let threads = rayon::current_num_threads();
        let operations = problem().oracle_operations(Phase::Both, threads);
        let half_s = operations / ORACLE_OPERATIONS_PER_SECOND / 2.0;
        assert!(matches!(asked(half_s, u64::MAX), Asked::StandIn(_)));
        assert!(matches!(asked(0.0, u64::MAX), Asked::Whole));
    }
}
