//! Audits of foreign functions: after its samples were taken, a function runs on inputs that it
//! never saw and that lie elsewhere. It has to be right, and as fast as it was: a function that
//! hands out earlier results is one or the other, not both.

use std::cell::OnceCell;

use sha2::{Digest as _, Sha256};
use sweeper_program::Dtype;
use sweeper_program::inputs::InputKey;
use sweeper_program::workload::ORACLE_OPERATIONS_PER_SECOND;
use sweeper_program::{Phase, Problem, Tensors};

use super::foreign_oracle;
use super::judge::Judge;
use super::protocol::{Block, BlockPoint};
use super::verify::{ProblemInstance, Verdict};
use crate::device::{Device, DeviceError, Prepared};
use crate::row::outcome::{Checked, Status};

/// A call may take this much longer than the slowest sample, and this part of it.
const SLACK_NS: f64 = 5e3;
const SLACK: f64 = 1.1;

/// The oracle is asked about the other inputs where it takes no longer, in seconds.
const MOST_ORACLE_S: f64 = 10.0;

/// Other inputs of a block's problem, made once.
#[derive(Default)]
pub(super) struct Audit {
    unseen: OnceCell<Unseen>,
}

/// Inputs that no program of the block has seen.
struct Unseen {
    inputs: Tensors,
    /// The oracle's answer, where it takes no longer than [`MOST_ORACLE_S`].
    expected: Option<Tensors>,
}

impl Audit {
    fn unseen(&self, block: &Block, problem: &dyn Problem, phase: Phase) -> &Unseen {
        self.unseen.get_or_init(|| {
            let key = Sha256::new()
                .chain_update("audit")
                .chain_update(block.problem);
            let inputs = problem.generate(&InputKey(key.finalize().into()));
            let threads = rayon::current_num_threads();
            let seconds = problem.oracle_operations(phase, threads) / ORACLE_OPERATIONS_PER_SECOND;
            let by_function = problem
                .foreign_oracle(Dtype::F64)
                .filter(|_| block.settings.verify);
            let by_function = by_function.and_then(|function| {
                foreign_oracle::computed(block, problem, &function, &inputs).ok()
            });
            let is_asked = block.settings.verify && seconds <= MOST_ORACLE_S;
            Unseen {
                expected: by_function.or_else(|| is_asked.then(|| problem.oracle(&inputs, phase))),
                inputs,
            }
        })
    }

    /// The fault of the program of a point whose slowest sample took `slowest_ns` an iteration, if
    /// any. `covering` is the phase that covers those of the block.
    ///
    /// # Errors
    /// A failure of the function other than that there is too little memory for other inputs.
    pub(super) fn complaint(
        &self,
        block: &Block,
        (instance, judge): (&ProblemInstance, Option<&Judge<'_>>),
        (point, covering): (&BlockPoint, Phase),
        (program, slowest_ns): (Prepared, f64),
        device: &mut dyn Device,
    ) -> Result<Option<String>, DeviceError> {
        // Inputs of a file are of a distribution that is not known here.
        if block.inputs.is_some() {
            return Ok(None);
        }
        let problem = instance.problem.as_ref();
        let enough_ns = SLACK * slowest_ns + SLACK_NS;
        let unseen = self.unseen(block, problem, covering);
        let found = match device.audit(program, &unseen.inputs, enough_ns) {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(None),
            Err(DeviceError::Foreign {
                status: Status::Oom,
                ..
            }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let expected = unseen.expected.as_ref();
        let verdict = match (judge, expected) {
            // A judge that needs right outputs gets them.
            (Some(judge), _) if expected.is_some() == instance.expected.is_some() => {
                judge.verdict(&unseen.inputs, &found.outputs, expected, Checked::Full)?
            }
            (None, Some(expected)) => {
                let check = problem.check(&unseen.inputs, &found.outputs, expected, point.phase);
                Verdict::of(
                    check.with_tolerances_times(point.tolerance_factor),
                    Checked::Full,
                )
            }
            _ => Verdict::UNCHECKED,
        };
        if let Some(reason) = verdict.complaint {
            return Ok(Some(format!("{reason}, for inputs that it had not seen")));
        }
        let (took, before) = (found.sample.per_iteration_ns(), slowest_ns);
        Ok((took > enough_ns).then(|| {
            format!(
                "it takes {:.1} us on inputs that it had not seen, and at most {:.1} us on those \
                 that it had",
                took / 1e3,
                before / 1e3
            )
        }))
    }
}
