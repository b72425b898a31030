//! Calls of a program that nobody trusts, each on inputs of its own. Some of them, chosen when all
//! are over, are judged: a program that is wrong in half of its calls is found, but for one case in
//! two to the power of the number that is judged.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use sweeper_program::inputs::InputKey;
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Problem, Tensors};

use super::{Audit, Audited, Other};
use crate::device::foreign::python::reference::Slot;
use crate::device::foreign::referee;
use crate::device::outputs::{Outputs, Reading};
use crate::device::{Device, DeviceError, Prepared, Sample};
use crate::execute::answers::Answers;
use crate::execute::foreign_inputs::InputMaker;
use crate::execute::protocol::Block;
use sweeper_model::row::outcome::LibraryUse;

/// So many calls of a program are judged, and fewer where that takes longer than `JUDGING`: two at
/// least.
const JUDGED: usize = 8;
const LEAST_JUDGED: usize = 2;
const JUDGING: Duration = Duration::from_secs(10);

/// Makes the inputs of calls. They follow from a secret and the number of the call, so that all
/// programs of a block have the same, whose answers are computed once.
pub(in crate::execute) struct CallInputs {
    secret: [u8; 32],
    block: Block,
    problem: Arc<dyn Problem>,
    maker: RefCell<InputMaker>,
}

impl CallInputs {
    /// Inputs of the calls of a block.
    ///
    /// # Errors
    /// A system without random numbers.
    pub(in crate::execute) fn new(
        block: &Block,
        problem: Arc<dyn Problem>,
    ) -> Result<Self, DeviceError> {
        Ok(CallInputs {
            secret: referee::secret()?,
            block: block.clone(),
            problem,
            maker: RefCell::new(InputMaker::new(block)),
        })
    }

    /// What follows from the secret and a number.
    fn derived(&self, purpose: &str, number: u64) -> [u8; 32] {
        Sha256::new()
            .chain_update(self.secret)
            .chain_update(purpose)
            .chain_update(number.to_le_bytes())
            .finalize()
            .into()
    }

    /// The inputs of a call.
    fn of(&self, number: u64) -> Result<Tensors, DeviceError> {
        let key = InputKey(self.derived("inputs", number));
        let problem = self.problem.as_ref();
        let made = self.maker.borrow_mut().make(&self.block, problem, &key);
        made.unwrap_or_else(|| Ok(problem.generate(&key)))
    }

    /// The order in which calls are judged.
    fn rank(&self, number: u64) -> [u8; 32] {
        self.derived("judged", number)
    }
}

/// The calls of one program, and the results of those that may be judged.
pub struct Calls {
    inputs: Rc<CallInputs>,
    specs: Vec<TensorSpec>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    /// Those of the first ranks, in their order.
    kept: Vec<Kept>,
}

struct Kept {
    rank: [u8; 32],
    number: u64,
    outputs: Outputs,
}

impl Calls {
    /// Calls of a program with these outputs.
    pub(in crate::execute) fn new(inputs: Rc<CallInputs>, specs: &[TensorSpec]) -> Self {
        Calls {
            inputs,
            specs: specs.to_vec(),
            state: RefCell::default(),
        }
    }

    /// Lets results so far go: calls before the first sample say nothing of those that are timed.
    pub(in crate::execute) fn forget(&self) {
        self.state.borrow_mut().kept.clear();
    }

    /// A sample of so many calls.
    ///
    /// # Errors
    /// Those of [`run_unseen`](crate::device::RunsPrograms::run_unseen).
    pub(in crate::execute) fn sample(
        &self,
        device: &mut dyn Device,
        program: Prepared,
        iterations: u32,
    ) -> Result<Sample, DeviceError> {
        let mut state = self.state.borrow_mut();
        let (mut elapsed_ns, mut is_ungated) = (0.0, false);
        let read = Reading {
            specs: &self.specs,
            may_stay: false,
        };
        let together = device.calls_together(program) as u64;
        let count = together.max(u64::from(iterations));
        let end = state.next + count;
        while state.next < end {
            let numbers = state.next..end.min(state.next + together);
            state.next = numbers.end;
            let inputs = numbers.clone().map(|number| self.inputs.of(number));
            let inputs = inputs.collect::<Result<Vec<Tensors>, _>>()?;
            let inputs: Vec<&Tensors> = inputs.iter().collect();
            let runs = device.run_together(program, &inputs, read)?;
            for (number, run) in numbers.zip(runs) {
                elapsed_ns += run.elapsed_ns;
                is_ungated |= run.is_ungated;
                state.keep(self.inputs.rank(number), number, run.outputs);
            }
        }
        device.rest(program);
        let part = f64::from(iterations) / count as f64;
        Ok(Sample {
            is_ungated,
            ..Sample::new(elapsed_ns * part, iterations)
        })
    }
}

impl State {
    /// The number of another call.
    fn take_number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn keep(&mut self, rank: [u8; 32], number: u64, outputs: Outputs) {
        let at = self.kept.partition_point(|held| held.rank < rank);
        if at < JUDGED {
            let kept = Kept {
                rank,
                number,
                outputs,
            };
            self.kept.insert(at, kept);
            self.kept.truncate(JUDGED);
        }
    }
}

impl Audit {
    /// What is wrong with a program that nobody trusts, by some of its calls and by inputs that
    /// show mistakes.
    ///
    /// # Errors
    /// A failure of the program.
    pub(in crate::execute) fn complaint_of_calls(
        &self,
        audited: &Audited<'_>,
        calls: &Calls,
        device: &mut dyn Device,
    ) -> Result<Option<String>, DeviceError> {
        let showing = self.other(audited, 0)?;
        let read = Reading {
            specs: audited.specs,
            may_stay: false,
        };
        let run = device.run_unseen(audited.program, &showing.inputs, read)?;
        device.rest(audited.program);
        if let Some(run) = run
            && let Some(reason) = showing.complaint(audited, &run.outputs)?
        {
            return Ok(Some(reason));
        }
        // Nobody asks for these answers again.
        let nowhere = Answers::default();
        let audited = &Audited {
            answers: &nowhere,
            ..*audited
        };
        let start = Instant::now();
        for (count, kept) in calls.state.borrow().kept.iter().enumerate() {
            if count >= LEAST_JUDGED && start.elapsed() > JUDGING {
                break;
            }
            let other = self.of_call(&calls.inputs, kept.number)?;
            if let Some(reason) = other.complaint(audited, &kept.outputs)? {
                return Ok(Some(reason));
            }
        }
        Ok(None)
    }

    /// Which kernels of libraries a program launches in a call on inputs that it has not seen; of
    /// one that nobody trusts, as `calls` have.
    ///
    /// # Errors
    /// Those of [`library_use`](crate::device::RunsPrograms::library_use).
    pub(in crate::execute) fn library_use(
        &self,
        audited: &Audited<'_>,
        calls: Option<&Calls>,
        device: &mut dyn Device,
    ) -> Result<Option<LibraryUse>, DeviceError> {
        let inputs = match calls {
            Some(calls) => calls.inputs.of(calls.state.borrow_mut().take_number())?,
            // Inputs of a file are of a distribution that is not known here.
            None if audited.block.inputs.is_some() => audited.instance.inputs.clone(),
            None => self.generated(audited, super::MOST_TRIES)?.inputs,
        };
        device.library_use(audited.program, &inputs)
    }

    /// The inputs of a call, with their answer once it was asked for.
    fn of_call(&self, inputs: &CallInputs, number: u64) -> Result<Rc<Other>, DeviceError> {
        if let Some(known) = self.of_calls.borrow().get(&number) {
            return Ok(Rc::clone(known));
        }
        let other = Rc::new(Other {
            inputs: inputs.of(number)?,
            slot: Slot::FurtherAudit,
            told: "of a call that was timed",
            expected: OnceCell::new(),
        });
        self.of_calls.borrow_mut().insert(number, Rc::clone(&other));
        Ok(other)
    }
}
