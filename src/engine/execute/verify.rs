//! An instance of a problem with its right outputs, and the judgement of outputs by them.

use std::convert::Infallible;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use sweeper_program::check::{Check, TensorCheck};
use sweeper_program::workload::ORACLE_OPERATIONS_PER_SECOND;
use sweeper_program::{Phase, Problem, Tensors};

use super::answers::Answers;
use super::foreign_oracle;
use super::protocol::BlockPoint;
use crate::device::DeviceError;
use crate::device::outputs::Outputs;
use sweeper_model::row::outcome::{Checked, ON_SHOWING_INPUTS};

/// A problem with inputs, and the oracle's answer if there is one.
pub struct ProblemInstance {
    /// The problem.
    pub problem: Arc<dyn Problem>,
    /// The problem's inputs; none where nothing is computed.
    pub inputs: Tensors,
    /// The oracle's answer.
    pub expected: Option<Tensors>,
    /// Digest of inputs that a function of the user made: no identity tells them.
    pub input_digest: Option<String>,
    /// The backend that gave the answer in place of the oracle: its own outputs prove nothing.
    pub peer: Option<String>,
}

/// Where outputs were wrong that are right for the published inputs.
const ON_SHOWING: &str = "on inputs that show mistakes";

/// The judgement of a program's outputs.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// How thoroughly they were judged.
    pub checked: Checked,
    /// The distances.
    pub check: Option<Check>,
    /// Why they are wrong, if they are.
    pub complaint: Option<String>,
}

impl ProblemInstance {
    /// A problem whose answer is not known yet.
    pub fn without_answer(problem: Box<dyn Problem>, inputs: Tensors) -> Self {
        ProblemInstance {
            problem: problem.into(),
            inputs,
            expected: None,
            input_digest: None,
            peer: None,
        }
    }

    /// Asks the oracle, or takes its answer from the cache. `problem` is the identity of the
    /// problem, or of the larger one that it replaces.
    #[must_use]
    pub fn answered(mut self, problem: &[u8; 32], phase: Phase, answers: &Answers) -> Self {
        let id = self.answer_id(problem);
        let oracle = || Ok::<_, Infallible>(self.problem.oracle(&self.inputs, phase));
        let Ok(expected) = answers.of(self.problem.as_ref(), &id, phase, oracle);
        // There is none where nobody knows the right outputs.
        self.expected = Some(expected).filter(|expected| !expected.is_empty());
        self
    }

    /// The identity by which a cache has its answer: that of the problem, and of its inputs where
    /// they do not follow from it.
    pub fn answer_id(&self, problem: &[u8; 32]) -> [u8; 32] {
        match &self.input_digest {
            Some(inputs) => Sha256::new()
                .chain_update(problem)
                .chain_update(inputs)
                .finalize()
                .into(),
            None => *problem,
        }
    }

    /// Judges the outputs of a point; they are unchecked where the answer is not known.
    ///
    /// # Errors
    /// The interpreter that keeps the answer has ended.
    pub fn judge(
        &self,
        outputs: &Outputs,
        point: &BlockPoint,
        checked: Checked,
    ) -> Result<Verdict, DeviceError> {
        match &self.expected {
            Some(expected) => self.judge_by((&self.inputs, outputs, expected), point, checked),
            None => Ok(Verdict::UNCHECKED),
        }
    }

    /// As [`judge`](Self::judge), for other inputs, of which `expected` is the answer.
    ///
    /// # Errors
    /// Those of [`judge`](Self::judge).
    pub fn judge_by(
        &self,
        (inputs, outputs, expected): (&Tensors, &Outputs, &Tensors),
        point: &BlockPoint,
        checked: Checked,
    ) -> Result<Verdict, DeviceError> {
        let problem = self.problem.as_ref();
        let check = match foreign_oracle::check_by_kept(problem, outputs, expected) {
            Some(check) => check?,
            None => problem.check(inputs, on_host(outputs)?, expected, point.phase),
        };
        let check = check.with_tolerances_times(point.tolerance_factor);
        Ok(Verdict::of(check, checked))
    }
}

/// Outputs for a judgement that needs their elements.
///
/// # Errors
/// Outputs that stayed on a GPU.
pub fn on_host(outputs: &Outputs) -> Result<&Tensors, DeviceError> {
    let elsewhere = || DeviceError::Launch("outputs stayed on the GPU".to_owned());
    outputs.on_host().ok_or_else(elsewhere)
}

impl Verdict {
    /// The verdict on a point's own inputs, with that on inputs that show mistakes.
    #[must_use]
    pub fn and_on_showing(mut self, showing: Verdict) -> Self {
        let on_showing = showing
            .complaint
            .map(|reason| format!("{reason}, {ON_SHOWING}"));
        self.complaint = self.complaint.or(on_showing);
        if let (Some(check), Some(others)) = (&mut self.check, showing.check) {
            check
                .tensors
                .extend(others.tensors.into_iter().map(|one| TensorCheck {
                    tensor: one.tensor + ON_SHOWING_INPUTS,
                    ..one
                }));
        }
        self
    }

    /// Of outputs whose right values are not known.
    pub const UNCHECKED: Verdict = Verdict {
        checked: Checked::None,
        check: None,
        complaint: None,
    };

    /// The verdict that distances mean.
    pub fn of(check: Check, checked: Checked) -> Self {
        let complaint = match check.worst() {
            _ if check.passed() => None,
            Some(worst) if worst.error.is_infinite() && worst.tolerance == 0.0 => Some(format!(
                "`{}` is not finite where its right values are",
                worst.tensor
            )),
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

/// The problem that the oracle is asked about.
pub enum Asked {
    /// The problem itself.
    Whole,
    /// A smaller problem, which stands for it.
    Reduced(Box<dyn Problem>),
    /// No problem: it would not fit.
    None,
}

/// The limits of the oracle.
#[derive(Clone, Copy, Debug)]
pub struct OracleLimits {
    /// Seconds.
    pub time_s: f64,
    /// Bytes.
    pub bytes: u64,
}

impl Asked {
    /// The whole problem where the oracle has time and memory for it, else one that is small
    /// enough. Where no smaller one exists, the whole problem is asked in spite of too little time,
    /// if it fits.
    pub fn of(problem: &dyn Problem, phase: Phase, limits: OracleLimits) -> Self {
        let threads = rayon::current_num_threads();
        let limit = limits.time_s * ORACLE_OPERATIONS_PER_SECOND;
        let operations = problem.oracle_operations(phase, threads);
        let bytes = problem.oracle_bytes(phase);
        let fits = bytes <= limits.bytes;
        if fits && operations <= limit {
            return Asked::Whole;
        }
        // How memory shrinks with the operations is the problem's affair: tried from the greatest
        // on.
        let mut limit = limit.min(operations);
        while let Some(smaller) = problem.reduced(phase, limit, threads) {
            if smaller.oracle_bytes(phase) <= limits.bytes {
                return Asked::Reduced(smaller);
            }
            limit /= 2.0;
        }
        if fits { Asked::Whole } else { Asked::None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sweeper_program::{Dtype, Parameters};
    use sweeper_workloads::registry;

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
            Asked::Reduced(small) => assert!(small.oracle_bytes(Phase::Both) <= needed / 2),
            _ => panic!("a smaller problem would do"),
        }
        assert!(matches!(asked(60.0, 8), Asked::None));
    }

    #[test]
    fn too_little_time_is_no_reason_not_to_ask() {
        let threads = rayon::current_num_threads();
        let operations = problem().oracle_operations(Phase::Both, threads);
        let half_s = operations / ORACLE_OPERATIONS_PER_SECOND / 2.0;
        assert!(matches!(asked(half_s, u64::MAX), Asked::Reduced(_)));
        assert!(matches!(asked(0.0, u64::MAX), Asked::Whole));
    }
}
