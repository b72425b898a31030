//! Audits of programs of the user: after its samples were taken, a program runs on inputs that it
//! never saw, with its results poisoned. It has to be right, and as fast as it was: one that hands
//! out earlier results, or begins from them, is one or the other, not both.
//!
//! Times that count are those of single runs. Samples may hold many runs in a row, whose memory is
//! in caches and whose threads are awake. So a program that is slower on other inputs than in its
//! samples is compared with single runs on the inputs that it knows, in turns with the others and
//! after memory was overwritten alike. The run by whose time a program is as fast as it was is also
//! one whose results are judged. Of runs on other inputs the least time counts, of those that are
//! known, and of samples, a low one: a program that works in a part of its runs is as fast as in
//! the others in none of them.

mod calls;
mod near;

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use sweeper_program::inputs::InputKey;
use sweeper_program::workload::{ORACLE_OPERATIONS_PER_SECOND, TensorSpec};
use sweeper_program::{Phase, Target, Tensors};

use super::answers::Answers;
use super::foreign_inputs::InputMaker;
use super::foreign_oracle;
use super::judge::{Judge, verdict_on};
use super::protocol::{Block, BlockPoint};
use super::tensors;
use super::verify::{ProblemInstance, Verdict, on_host};
use crate::device::foreign::python::reference::Slot;
use crate::device::outputs::{Outputs, Reading};
use crate::device::{Device, DeviceError, Prepared, memory};
use sweeper_model::row::outcome::{Checked, Status};
use sweeper_model::stats::Summary;

/// The oracle is asked about other inputs where it takes no longer, in seconds.
const MOST_ORACLE_S: f64 = 10.0;

/// On so many inputs a program may try to be as fast as it was, as long as all tries together take
/// no longer than `MOST_TRYING`. Each but the first few comes after a pause: other work of the
/// machine may slow some of them.
const MOST_TRIES: u32 = 24;
const MOST_TRYING: Duration = Duration::from_secs(10);
const TRIES_AT_ONCE: u32 = 1 + LEAST_KNOWN as u32;
const PAUSE: Duration = Duration::from_millis(10);

/// A run may take this many times as long as those on known inputs, and so many nanoseconds more: a
/// function in an interpreter, on a CPU and on a GPU, and a kernel. Single runs of short kernels
/// differ by more, and on a CPU what was just written lies elsewhere than what is read again and
/// again: that alone makes a function that is bound by memory slower by up to 1.6.
const SLACK_ON_CPU: (f64, f64) = (2.0, 5e3);
const SLACK_ON_GPU: (f64, f64) = (1.1, 5e3);
const SLACK_OF_KERNELS: (f64, f64) = (1.5, 1e4);

/// So often a program may try inputs near those that it knows.
const NEAR_TRIES: u32 = 8;

/// From so many runs on known inputs on, they say how long one takes. One of eight may be quicker:
/// a program that does not work in one of eight gains little.
const LEAST_KNOWN: usize = 4;
const QUICK_PART: usize = 8;

/// A program is called slower where this is the chance, at most, that its runs fell so while inputs
/// made no difference. Two processes have to agree.
const MOST_CHANCE: f64 = 1e-2;

/// How often a kernel runs in a row on poisoned results, at most, and how long all of that may
/// take: two runs at least, which find one that works in every second.
const MOST_POISONED: u32 = 8;
const LONG_POISONED: Duration = Duration::from_millis(100);

/// Other inputs of a block's problem.
#[derive(Default)]
pub(super) struct Audit {
    /// The first of them, which most programs need alone: of functions, and of kernels, which may
    /// have seen inputs that show mistakes.
    first: RefCell<BTreeMap<bool, Rc<Other>>>,
    /// The interpreter of the function that makes inputs.
    maker: RefCell<Option<InputMaker>>,
    /// Inputs of single calls that were judged, by their numbers.
    of_calls: RefCell<BTreeMap<u64, Rc<Other>>>,
}

pub(super) use calls::{CallInputs, Calls};

/// Inputs that no program of the block has seen.
struct Other {
    inputs: Tensors,
    /// Where their answer is kept, if it stays where it is computed.
    slot: Slot,
    /// What a complaint tells of them.
    told: &'static str,
    /// The oracle's answer, once it was asked, where it takes no longer than [`MOST_ORACLE_S`].
    expected: OnceCell<Option<Tensors>>,
}

/// A program whose samples were taken, and that has its turn.
pub(super) struct Audited<'a> {
    /// The block of the point.
    pub block: &'a Block,
    /// The problem with its inputs.
    pub instance: &'a ProblemInstance,
    /// The problem with inputs that show mistakes, which the program has not run on.
    pub showing: Option<&'a ProblemInstance>,
    /// Who judges outputs in place of tolerances.
    pub judge: Option<&'a Judge<'a>>,
    /// The point.
    pub point: &'a BlockPoint,
    /// Answers that were given before.
    pub answers: &'a Answers,
    /// The phase that covers those of the block.
    pub covering: Phase,
    /// The program.
    pub program: Prepared,
    /// Its outputs.
    pub specs: &'a [TensorSpec],
    /// It runs on the device itself, and not in another process.
    pub is_kernel: bool,
    /// What tells the outputs of its first run from others, where two runs give equal bits.
    pub bits: Option<&'a str>,
}

/// Times of a program's runs, one by itself each, in nanoseconds.
struct Pace {
    /// A low sample.
    sample_ns: f64,
    slack: (f64, f64),
    unseen_ns: Vec<f64>,
    known_ns: Vec<f64>,
}

/// What tries on other inputs have found.
enum Found {
    /// The program can't be audited, or there is too little memory for it.
    Nothing,
    /// It was as fast as it had been, and right.
    Right,
    /// What is wrong with its results.
    Wrong(String),
    /// It was slower.
    Slow(Pace),
}

impl Audit {
    /// Other inputs, by number, from the function of the user that makes them where there is one.
    fn other(&self, audited: &Audited<'_>, number: u32) -> Result<Rc<Other>, DeviceError> {
        if number > 0 {
            return self.generated(audited, number).map(Rc::new);
        }
        if let Some(first) = self.first.borrow().get(&audited.is_kernel) {
            return Ok(Rc::clone(first));
        }
        let other = audited.other_showing();
        let other = other.map_or_else(|| self.generated(audited, number), Ok)?;
        let other = Rc::new(other);
        let mut first = self.first.borrow_mut();
        first.insert(audited.is_kernel, Rc::clone(&other));
        Ok(other)
    }

    fn generated(&self, audited: &Audited<'_>, number: u32) -> Result<Other, DeviceError> {
        let problem = audited.instance.problem.as_ref();
        let key = key(audited.block, &format!("audit {number}"));
        let mut maker = self.maker.borrow_mut();
        let maker = maker.get_or_insert_with(|| InputMaker::new(audited.block));
        let by_function = maker.make(audited.block, problem, &key).transpose()?;
        Ok(Other {
            inputs: by_function.unwrap_or_else(|| problem.generate(&key)),
            slot: match number {
                0 => Slot::Audit,
                _ => Slot::FurtherAudit,
            },
            told: "that it had not seen",
            expected: OnceCell::new(),
        })
    }

    /// The fault of a program with samples of these nanoseconds an iteration, if any. One that is
    /// slow on inputs that it had not seen is so in two processes: on a CPU it may be the luck of
    /// one, whose memory for known inputs lies where caches hold more of it.
    ///
    /// # Errors
    /// A failure of the program other than that there is too little memory for other inputs.
    pub(super) fn complaint(
        &self,
        audited: &Audited<'_>,
        samples_ns: &[f64],
        device: &mut dyn Device,
    ) -> Result<Option<String>, DeviceError> {
        let found = self.tried(audited, samples_ns, device);
        if !audited.is_kernel || matches!(found, Err(DeviceError::Lost(_))) {
            return found;
        }
        let given = &audited.instance.inputs;
        device.rewrite(audited.program, given, false)?;
        match found {
            Ok(None) => audited.poisoned(MOST_POISONED, device),
            found => found,
        }
    }

    fn tried(
        &self,
        audited: &Audited<'_>,
        samples_ns: &[f64],
        device: &mut dyn Device,
    ) -> Result<Option<String>, DeviceError> {
        let is_of_file = audited.block.inputs.is_some();
        let mut is_second = false;
        // Inputs of a file are of a distribution that is not known here.
        while !is_of_file && audited.has_room() {
            let pace = match self.found(audited, samples_ns, device)? {
                Found::Nothing => break,
                Found::Right => return Ok(None),
                Found::Wrong(reason) => return Ok(Some(reason)),
                Found::Slow(pace) => pace,
            };
            // Other processes of the GPU slow down some runs and not others; rows say that it is
            // shared.
            if device.clocks().is_some_and(|clocks| clocks.is_shared) {
                return Ok(None);
            }
            if is_second || !device.start_anew(audited.program)? {
                return Ok(Some(pace.complaint()));
            }
            is_second = true;
        }
        Ok(None)
    }

    /// Lets a program try to be as fast as in its samples.
    fn found(
        &self,
        audited: &Audited<'_>,
        samples_ns: &[f64],
        device: &mut dyn Device,
    ) -> Result<Found, DeviceError> {
        let slack = match (audited.is_kernel, device.target()) {
            (true, _) => SLACK_OF_KERNELS,
            (false, Target::Cpu) => SLACK_ON_CPU,
            (false, Target::Cuda { .. }) => SLACK_ON_GPU,
        };
        let mut pace = Pace::new(samples_ns, slack);
        let mut unjudged = None;
        let start = Instant::now();
        device.refuse_late_work(audited.program)?;
        for number in 0..MOST_TRIES {
            if number >= TRIES_AT_ONCE {
                if start.elapsed() > MOST_TRYING {
                    break;
                }
                thread::sleep(PAUSE);
            }
            let other = self.other(audited, number)?;
            // Making inputs leaves caches and processors to others: a run on known ones comes
            // between.
            if number > 0 {
                let known = device.run_known(audited.program, &audited.instance.inputs)?;
                pace.known_ns.push(known);
            }
            // Where the published answer is, those of an audit are.
            let published = audited.instance.expected.as_ref();
            let read = Reading {
                specs: audited.specs,
                may_stay: foreign_oracle::opens_outputs(published),
            };
            let run = device.run_unseen(audited.program, &other.inputs, read);
            let run = match run {
                Ok(Some(run)) => run,
                Ok(None) => return Ok(Found::Nothing),
                Err(error) if !is_oom(&error) => return Err(error),
                Err(_) if number == 0 => return Ok(Found::Nothing),
                Err(_) => break,
            };
            pace.unseen_ns.push(run.elapsed_ns);
            if number == 0 || pace.is_as_fast() {
                let complaint = other.complaint(audited, &run.outputs)?;
                if let Some(reason) = complaint {
                    return Ok(Found::Wrong(reason));
                }
            }
            if pace.is_as_fast() {
                return Ok(Found::Right);
            }
            let has_room = run.has_room;
            unjudged = (number > 0).then_some((other, run.outputs));
            if number >= TRIES_AT_ONCE && !has_room {
                break;
            }
        }
        if pace.is_slower() {
            return self.found_near(audited, pace, device);
        }
        // The first outputs alone were judged: it may work for as many inputs as an audit looks at.
        let complaint = match unjudged {
            Some((other, outputs)) => other.complaint(audited, &outputs)?,
            None => None,
        };
        Ok(complaint.map_or(Found::Right, Found::Wrong))
    }
}

impl Audit {
    /// Lets a program that is slower on other inputs try inputs near those that it knows, on a CPU:
    /// see [`near`].
    fn found_near(
        &self,
        audited: &Audited<'_>,
        mut pace: Pace,
        device: &mut dyn Device,
    ) -> Result<Found, DeviceError> {
        // What a function makes may have an order or a sum that others have not.
        let is_made = audited.instance.problem.foreign_inputs(0).is_some();
        if device.target() != Target::Cpu || is_made {
            return Ok(Found::Slow(pace));
        }
        let given = &audited.instance.inputs;
        let read = Reading {
            specs: audited.specs,
            may_stay: false,
        };
        for number in 0..NEAR_TRIES {
            let other = Other {
                inputs: near::near(given, &key(audited.block, &format!("near {number}"))),
                slot: Slot::FurtherAudit,
                told: "near those that it had seen",
                expected: OnceCell::new(),
            };
            // A result that was kept has to be wrong for them: one of whole numbers may not be.
            let kept = device.run_unseen(audited.program, given, read)?;
            let is_told = match &kept {
                Some(kept) => other.complaint(audited, &kept.outputs)?.is_some(),
                None => false,
            };
            if !is_told {
                break;
            }
            pace.known_ns
                .push(device.run_known(audited.program, given)?);
            let Some(run) = device.run_unseen(audited.program, &other.inputs, read)? else {
                break;
            };
            pace.unseen_ns.push(run.elapsed_ns);
            // Those before were slower.
            if pace.is_as_fast() {
                let complaint = other.complaint(audited, &run.outputs)?;
                return Ok(complaint.map_or(Found::Right, Found::Wrong));
            }
        }
        Ok(Found::Slow(pace))
    }
}

impl Pace {
    fn new(samples_ns: &[f64], slack: (f64, f64)) -> Self {
        Pace {
            sample_ns: Summary::of(samples_ns).map_or(0.0, |summary| summary.q1),
            slack,
            unseen_ns: Vec::new(),
            known_ns: Vec::new(),
        }
    }

    /// How long a run on known inputs takes.
    fn usual_ns(&self) -> f64 {
        if self.known_ns.len() < LEAST_KNOWN {
            return self.sample_ns;
        }
        let mut sorted = self.known_ns.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / QUICK_PART].max(self.sample_ns)
    }

    /// How long the fastest run on other inputs took.
    fn least_ns(&self) -> f64 {
        self.unseen_ns.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Whether a run on other inputs took no longer than those on known ones.
    fn is_as_fast(&self) -> bool {
        self.is_within_slack_of(self.usual_ns())
    }

    /// Whether no run on other inputs was as fast as so many of the known ones that it is not by
    /// chance: what else a processor or GPU does slows some runs down and not others. In all
    /// orders of m known and n other runs the first k are known ones with a probability of
    /// m (m - 1) ... (m - k + 1) / ((m + n) (m + n - 1) ... (m + n - k + 1)).
    fn is_slower(&self) -> bool {
        let mut sorted = self.known_ns.clone();
        sorted.sort_by(f64::total_cmp);
        let all = sorted.len() + self.unseen_ns.len();
        let mut chance = 1.0;
        let unlikely = sorted.iter().enumerate().find(|(at, _)| {
            chance *= (sorted.len() - at) as f64 / (all - at) as f64;
            chance <= MOST_CHANCE
        });
        let of_known_ns = unlikely
            .map(|(_, time_ns)| *time_ns)
            .or(sorted.last().copied());
        let usual_ns = of_known_ns.map_or(self.sample_ns, |time_ns| time_ns.max(self.sample_ns));
        !self.is_as_fast() && !self.is_within_slack_of(usual_ns)
    }

    fn is_within_slack_of(&self, usual_ns: f64) -> bool {
        let (factor, further_ns) = self.slack;
        self.least_ns() <= factor * usual_ns + further_ns
    }

    fn complaint(&self) -> String {
        format!(
            "it takes {:.1} us on inputs that it had not seen, and {:.1} us on those that it had",
            self.least_ns() / 1e3,
            self.usual_ns() / 1e3
        )
    }
}

impl Audited<'_> {
    /// Whether other inputs and their right outputs fit into the host's memory beside the block's.
    fn has_room(&self) -> bool {
        let inputs = self.instance.inputs.values();
        let inputs: usize = inputs.map(|tensor| tensor.data().bytes().len()).sum();
        let problem = &self.instance.problem;
        let needed_bytes = 2 * inputs as u64 + problem.oracle_bytes(self.covering);
        needed_bytes < memory::available_bytes()
    }

    /// Inputs that show mistakes, with their answer: if it is that of a reference in Python, one
    /// that stands them, and does not overflow in the judged format.
    fn other_showing(&self) -> Option<Other> {
        let (inputs, expected) = match self.showing {
            Some(showing) => (showing.inputs.clone(), showing.expected.clone()?),
            None if self.judge.is_none() && self.block.settings.verify => {
                let problem = self.instance.problem.as_ref();
                let inputs = problem.showing(&InputKey(self.block.problem))?;
                let found = self.answer(&inputs, Slot::Showing)?;
                let stands = |found: &Tensors| !found.contains_key(foreign_oracle::OVERFLOWS);
                (inputs, Some(found).filter(stands)?)
            }
            None => return None,
        };
        Some(Other {
            inputs,
            slot: Slot::Showing,
            told: "that it had not seen, and that show mistakes",
            expected: OnceCell::from(Some(expected)),
        })
    }

    /// The right outputs for other inputs, where the oracle has an answer in time.
    fn expected(&self, inputs: &Tensors, slot: Slot) -> Option<Tensors> {
        if !self.block.settings.verify {
            return None;
        }
        if let Some(found) = self.answer(inputs, slot) {
            return Some(found);
        }
        let problem = self.instance.problem.as_ref();
        let threads = rayon::current_num_threads();
        let operations = problem.oracle_operations(self.covering, threads);
        let is_asked = operations <= MOST_ORACLE_S * ORACLE_OPERATIONS_PER_SECOND;
        is_asked.then(|| problem.oracle(inputs, self.covering))
    }

    /// The answer of a reference in Python for these inputs, which other blocks of the problem may
    /// have asked for before.
    fn answer(&self, inputs: &Tensors, slot: Slot) -> Option<Tensors> {
        let problem = self.instance.problem.as_ref();
        let id = || key(self.block, &tensors::digest(inputs)).0;
        let inputs = (inputs, slot);
        let found = foreign_oracle::answer_for(self.block, problem, inputs, id, self.answers)?;
        found.ok()
    }

    /// Whether the outputs of the last run are right by their tolerance, if not to the bit those of
    /// the run before: a kernel may add in any order. Not where nobody knows what is right.
    fn is_right(&self, device: &mut dyn Device) -> Result<bool, DeviceError> {
        let (specs, may_stay) = (self.specs, false);
        let outputs = device.outputs(self.program, Reading { specs, may_stay })?;
        let verdict = verdict_on(self.instance, self.judge, self.point, &outputs)?;
        Ok(verdict.checked != Checked::None && verdict.complaint.is_none())
    }

    /// Runs a program on the inputs that it knows, up to so many times in a row, each with its
    /// results poisoned. The complaint, if one leaves others than it did in its first run.
    ///
    /// # Errors
    /// A lost device.
    pub(super) fn poisoned(
        &self,
        most_runs: u32,
        device: &mut dyn Device,
    ) -> Result<Option<String>, DeviceError> {
        let start = Instant::now();
        for run in 0..most_runs {
            if run > 1 && start.elapsed() > LONG_POISONED {
                break;
            }
            device.poison(self.program)?;
            device.sample(self.program, 1)?;
            let bits = match device.fingerprint(self.program)? {
                Some(bits) => bits,
                None => tensors::digest(&device.results(self.program, self.specs)?),
            };
            if self.bits.is_some_and(|first| first != bits) && !self.is_right(device)? {
                let reason = "a run on poisoned results left others than its first run did: it \
                     does not work in every run, or begins from its own results";
                return Ok(Some(reason.to_owned()));
            }
        }
        Ok(None)
    }
}

impl Other {
    /// The right outputs for these inputs, if anybody knows them in time.
    fn expected(&self, audited: &Audited<'_>) -> Option<&Tensors> {
        let answer = || audited.expected(&self.inputs, self.slot);
        self.expected.get_or_init(answer).as_ref()
    }

    /// What is wrong with outputs for these inputs, if anything.
    ///
    /// # Errors
    /// A judge that fails.
    fn complaint(
        &self,
        audited: &Audited<'_>,
        outputs: &Outputs,
    ) -> Result<Option<String>, DeviceError> {
        let (expected, point) = (self.expected(audited), audited.point);
        let has_expected = audited.instance.expected.is_some();
        let verdict = match (audited.judge, expected) {
            // A judge that needs right outputs gets them.
            (Some(judge), _) if expected.is_some() == has_expected => {
                judge.verdict(&self.inputs, on_host(outputs)?, expected, Checked::Full)?
            }
            (None, Some(expected)) => {
                let given = (&self.inputs, outputs, expected);
                audited.instance.judge_by(given, point, Checked::Full)?
            }
            _ => Verdict::UNCHECKED,
        };
        let told = |reason| format!("{reason}, for inputs {}", self.told);
        Ok(verdict.complaint.map(told))
    }
}

/// True if there was too little memory.
fn is_oom(error: &DeviceError) -> bool {
    match error {
        DeviceError::OutOfMemory { .. } => true,
        DeviceError::Foreign { status, .. } => *status == Status::Oom,
        _ => false,
    }
}

/// The key of other inputs than those of the samples.
fn key(block: &Block, purpose: &str) -> InputKey {
    let key = Sha256::new()
        .chain_update(purpose)
        .chain_update(block.problem);
    InputKey(key.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a program is called slower whose single runs take these times, of so many runs.
    fn is_slower(known: usize, mut known_ns: impl FnMut() -> f64, unseen_ns: f64) -> bool {
        let mut pace = Pace::new(&[1e6], SLACK_ON_GPU);
        pace.known_ns = (0..known).map(|_| known_ns()).collect();
        pace.unseen_ns = vec![unseen_ns; known + 1];
        pace.is_slower()
    }

    #[test]
    fn slowness_is_told_from_the_luck_of_a_busy_machine() {
        for known in [LEAST_KNOWN, MOST_TRIES as usize - 1] {
            assert!(is_slower(known, || 1e6, 2e6));
            assert!(!is_slower(known, || 1e6, 1.05e6));
            let mut turn = 0..;
            let every_second = || 1e6 + 1e6 * f64::from(turn.next().unwrap_or(0) % 2);
            // Four runs are too few to tell this.
            assert_eq!(is_slower(known, every_second, 2.1e6), known == 23);
        }
        // Runs of one kind, some of which wait for a neighbour.
        let mut state = 1u64;
        let mut time_ns = || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            1e6 * (1.0 + 20.0 * ((state >> 33) as f64 / 2f64.powi(31)).powi(2))
        };
        let mut called = 0;
        for _ in 0..20_000 {
            let mut pace = Pace::new(&[1e6], SLACK_ON_GPU);
            pace.known_ns = (0..8).map(|_| time_ns()).collect();
            pace.unseen_ns = (0..9).map(|_| time_ns()).collect();
            called += u32::from(pace.is_slower());
        }
        assert!(called <= 250, "{called} of 20000");
    }
}
