//! Audits of foreign functions: after its samples were taken, a function runs on inputs that it
//! never saw and that lie elsewhere. It has to be right, and as fast as it was: a function that
//! hands out earlier results is one or the other, not both.

use std::cell::{OnceCell, RefCell};

use sha2::{Digest as _, Sha256};
use sweeper_program::Dtype;
use sweeper_program::inputs::InputKey;
use sweeper_program::workload::ORACLE_OPERATIONS_PER_SECOND;
use sweeper_program::{Phase, Problem, Tensors};

use super::foreign_inputs::InputMaker;
use super::foreign_oracle;
use super::judge::Judge;
use super::protocol::{Block, BlockPoint};
use super::verify::{ProblemInstance, Verdict};
use crate::device::{Device, DeviceError, Prepared, Unseen as Found};
use crate::row::outcome::{Checked, Status};

/// The oracle is asked about the other inputs where it takes no longer, in seconds.
const MOST_ORACLE_S: f64 = 10.0;

/// On so many inputs a function may try to be as fast as it was, where another function makes them.
const MOST_MADE: u32 = 8;

/// Other inputs of a block's problem, made once.
#[derive(Default)]
pub(super) struct Audit {
    unseen: OnceCell<Unseen>,
    /// The interpreter of the function that makes inputs.
    maker: RefCell<Option<InputMaker>>,
}

/// Inputs that no program of the block has seen.
struct Unseen {
    inputs: Tensors,
    /// The oracle's answer, where it takes no longer than [`MOST_ORACLE_S`].
    expected: Option<Tensors>,
}

impl Audit {
    fn unseen(
        &self,
        block: &Block,
        problem: &dyn Problem,
        phase: Phase,
    ) -> Result<&Unseen, DeviceError> {
        if let Some(unseen) = self.unseen.get() {
            return Ok(unseen);
        }
        let key = key(block, "audit");
        let inputs = match self.made(block, problem, &key)? {
            Some(inputs) => inputs,
            None => problem.generate(&key),
        };
        let threads = rayon::current_num_threads();
        let seconds = problem.oracle_operations(phase, threads) / ORACLE_OPERATIONS_PER_SECOND;
        let by_function = problem
            .foreign_oracle(Dtype::F64)
            .filter(|_| block.settings.verify);
        let by_function = by_function
            .and_then(|function| foreign_oracle::computed(block, problem, &function, &inputs).ok());
        let is_asked = block.settings.verify && seconds <= MOST_ORACLE_S;
        Ok(self.unseen.get_or_init(|| Unseen {
            expected: by_function.or_else(|| is_asked.then(|| problem.oracle(&inputs, phase))),
            inputs,
        }))
    }

    /// Inputs that a function of the user makes; none where generated ones are the problem's.
    fn made(
        &self,
        block: &Block,
        problem: &dyn Problem,
        key: &InputKey,
    ) -> Result<Option<Tensors>, DeviceError> {
        let mut maker = self.maker.borrow_mut();
        let maker = maker.get_or_insert_with(|| InputMaker::new(block));
        maker.make(block, problem, key).transpose()
    }

    /// The outputs of a program for inputs that it has not seen, and the times of calls on others.
    ///
    /// # Errors
    /// Those of [`RunsPrograms::audit`](crate::device::RunsPrograms::audit), and of a function that
    /// makes inputs.
    fn found(
        &self,
        (block, problem): (&Block, &dyn Problem),
        unseen: &Unseen,
        (program, slowest_ns): (Prepared, f64),
        device: &mut dyn Device,
    ) -> Result<Option<Found>, DeviceError> {
        let mut last = None;
        for made in 0..MOST_MADE {
            let Some(timed) = self.made(block, problem, &key(block, &format!("timed {made}")))?
            else {
                return device.audit(program, (&unseen.inputs, None), slowest_ns);
            };
            last = device.audit(program, (&unseen.inputs, Some(&timed)), slowest_ns)?;
            if last.as_ref().is_none_or(|found| found.is_as_fast) {
                break;
            }
        }
        Ok(last)
    }

    /// The fault of the program of a point whose slowest sample took `slowest_ns` an iteration, if
    /// any. `covering` is the phase that covers those of the block. One that is slow on inputs that
    /// it had not seen is so in two processes: on a CPU it may be the luck of one, whose memory for
    /// known inputs lies where caches hold more of it.
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
        let unseen = self.unseen(block, problem, covering)?;
        let mut is_second = false;
        loop {
            let found = self.found((block, problem), unseen, (program, slowest_ns), device);
            let found = match found {
                Ok(Some(found)) => found,
                Ok(None) => return Ok(None),
                Err(DeviceError::Foreign {
                    status: Status::Oom,
                    ..
                }) => return Ok(None),
                Err(error) => return Err(error),
            };
            let wrong = unseen.complaint(&found, problem, (instance, judge), point)?;
            if wrong.is_some() || found.is_as_fast {
                return Ok(wrong);
            }
            if is_second || !device.start_anew(program)? {
                return Ok(Some(format!(
                    "it takes {:.1} us on inputs that it had not seen, and {:.1} us on those that it had",
                    found.least_ns / 1e3,
                    found.usual_ns / 1e3
                )));
            }
            is_second = true;
        }
    }
}

impl Unseen {
    /// What is wrong with outputs for these inputs, if anything.
    ///
    /// # Errors
    /// A judge that fails.
    fn complaint(
        &self,
        found: &Found,
        problem: &dyn Problem,
        (instance, judge): (&ProblemInstance, Option<&Judge<'_>>),
        point: &BlockPoint,
    ) -> Result<Option<String>, DeviceError> {
        let (inputs, outputs) = (&self.inputs, &found.outputs);
        let expected = self.expected.as_ref();
        let verdict = match (judge, expected) {
            // A judge that needs right outputs gets them.
            (Some(judge), _) if expected.is_some() == instance.expected.is_some() => {
                judge.verdict(inputs, outputs, expected, Checked::Full)?
            }
            (None, Some(expected)) => {
                let check = problem.check(inputs, outputs, expected, point.phase);
                Verdict::of(
                    check.with_tolerances_times(point.tolerance_factor),
                    Checked::Full,
                )
            }
            _ => Verdict::UNCHECKED,
        };
        let complaint = verdict.complaint;
        Ok(complaint.map(|reason| format!("{reason}, for inputs that it had not seen")))
    }
}

/// The key of other inputs than those of the samples.
fn key(block: &Block, purpose: &str) -> InputKey {
    let key = Sha256::new()
        .chain_update(purpose)
        .chain_update(block.problem);
    InputKey(key.finalize().into())
}
