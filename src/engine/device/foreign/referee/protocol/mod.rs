//! Calls between a gate and a bell: the clock, the inputs and the judge are on this side.
//!
//! [`host`] has what is done on a CPU, [`gpu`] what is done on a GPU. In both an empty function is
//! measured in the same process before any of the candidate's text has run, and what it takes is
//! subtracted.

mod gpu;
mod host;

use std::hint;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sweeper_program::Tensors;
use sweeper_program::workload::TensorSpec;

use super::gpu::GpuMemory;
use super::page::{NO_MORE, Page, Word};
use super::places::Places;
use crate::device::DeviceError;
use crate::device::foreign::python::process::{Child, Failure};
use sweeper_model::row::outcome::Status;
use sweeper_model::stats::Summary;

/// Calls of an empty function: the first ones, which are not counted, and those that are.
const FIRST_EMPTY: u32 = 8;
const EMPTY: u32 = 32;

/// Looks at a word between two looks at the process.
const SPINS: u32 = 1 << 12;

/// What calls of an empty function take, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Floor {
    /// From the gate to the bell: the median, and the distance of its quartiles.
    pub(super) call_ns: f64,
    pub(super) spread_ns: f64,
    /// From its inputs to the gate, on a CPU: the upper quartile.
    waking_ns: f64,
}

/// Calls behind one gate, each on inputs of its own.
pub(super) struct Turn {
    /// The time of all calls without that of an empty function, in nanoseconds.
    pub(super) elapsed_ns: f64,
    waking_ns: f64,
    /// The results of each.
    pub(super) outputs: Vec<Tensors>,
}

/// Which results are read after the bell, beside those that are looked at right then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    /// All, to be judged.
    All,
    /// None: they are those of an empty function, or of inputs that are known.
    Nothing,
}

/// A candidate that answers calls.
pub(super) struct Calls {
    child: Child,
    /// The memory of its tensors, where they lie on a GPU.
    gpu: Option<GpuMemory>,
    page: Page,
    places: Places,
    /// Whether inputs of some call wait in that memory.
    has_inputs: bool,
    /// Whether calls are queued on the GPU before the gate opens: a function that waits for the
    /// device itself can't be.
    is_queued: bool,
    outputs: Vec<TensorSpec>,
    /// The number of the last turn.
    number: u64,
    /// It waits for calls, and takes no other requests.
    is_calling: bool,
    /// Chooses what is read at bells; nobody else knows it.
    secret: [u8; 32],
    yields: bool,
    floor: Floor,
    /// The floor of calls that are not queued.
    unqueued_floor: Floor,
    /// Memory of the device that was free when the candidate was let go, in bytes.
    free_bytes: u64,
}

/// What a candidate shares with the referee.
pub(super) struct Shared {
    pub(super) gpu: Option<GpuMemory>,
    pub(super) page: Page,
    pub(super) places: Places,
}

impl Calls {
    pub(super) fn new(
        (child, shared): (Child, Shared),
        outputs: &[TensorSpec],
        secret: [u8; 32],
        yields: bool,
    ) -> Self {
        Calls {
            child,
            page: shared.page,
            places: shared.places,
            has_inputs: false,
            is_queued: shared.gpu.is_some(),
            gpu: shared.gpu,
            outputs: outputs.to_vec(),
            number: 0,
            is_calling: false,
            secret,
            yields,
            floor: Floor::default(),
            unqueued_floor: Floor::default(),
            free_bytes: 0,
        }
    }

    /// What an empty function takes, called as the candidate is.
    pub(super) fn floor(&self) -> Floor {
        match self.gpu.is_some() && !self.is_queued {
            true => self.unqueued_floor,
            false => self.floor,
        }
    }

    /// Whether some of the host's time is in that of a call on a GPU.
    pub(super) fn is_ungated(&self) -> bool {
        self.gpu.is_some() && !self.is_queued
    }

    /// Asks for something else than calls.
    ///
    /// # Errors
    /// Those of [`Child::ask`].
    pub(super) fn ask(&mut self, request: &Value, limit: Duration) -> Result<Value, Failure> {
        self.child.ask(request, limit)
    }

    /// The number of its process.
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Measures the empty function.
    ///
    /// # Errors
    /// Those of [`turn`](Self::turn).
    pub(super) fn measure_floor(
        &mut self,
        inputs: &Tensors,
        limit: Duration,
    ) -> Result<(), DeviceError> {
        let nothing = Floor {
            waking_ns: f64::INFINITY,
            ..Floor::default()
        };
        (self.floor, self.unqueued_floor) = (nothing, nothing);
        self.floor = self.empty_calls(inputs, limit)?;
        if self.gpu.is_some() {
            self.is_queued = false;
            self.unqueued_floor = self.empty_calls(inputs, limit)?;
            self.is_queued = true;
        }
        self.leave(limit)
    }

    fn empty_calls(&mut self, inputs: &Tensors, limit: Duration) -> Result<Floor, DeviceError> {
        let (mut times, mut waking) = (Vec::new(), Vec::new());
        for number in 0..FIRST_EMPTY + EMPTY {
            let turn = self.turn(&[inputs], Reads::Nothing, limit)?;
            if number >= FIRST_EMPTY {
                times.push(turn.elapsed_ns);
                waking.push(turn.waking_ns);
            }
        }
        let (Some(times), Some(waking)) = (Summary::of(&times), Summary::of(&waking)) else {
            return Ok(Floor::default());
        };
        Ok(Floor {
            call_ns: times.median,
            spread_ns: times.q3 - times.q1,
            waking_ns: waking.q3,
        })
    }

    /// Calls on inputs of their own, behind one gate. The candidate waits for the next ones.
    ///
    /// # Errors
    /// A candidate that fails, ends its process, takes longer than `limit`, or works after the
    /// bell.
    pub(super) fn turn(
        &mut self,
        inputs: &[&Tensors],
        reads: Reads,
        limit: Duration,
    ) -> Result<Turn, DeviceError> {
        let deadline = Instant::now() + limit;
        let turn = match (self.gpu.is_some(), inputs) {
            (true, _) => self.turn_on_gpu(inputs, reads, deadline),
            (false, [inputs]) => self.call_on_host(inputs, reads, deadline),
            (false, _) => unreachable!("on a CPU there is one call behind a gate"),
        };
        if turn.is_err() {
            // It has answered, or is of no use: it stands in no call any more.
            self.is_calling = false;
        }
        turn
    }

    /// Makes one call under a profiler in the candidate's process; what that says of its kernels.
    ///
    /// # Errors
    /// Those of [`turn`](Self::turn), and of the profiler.
    pub(super) fn watched(
        &mut self,
        inputs: &Tensors,
        limit: Duration,
    ) -> Result<Value, DeviceError> {
        if self.is_calling {
            self.leave(limit)?;
        }
        self.child.ask(&json!({ "do": "watch" }), limit)?;
        self.turn(&[inputs], Reads::All, limit)?;
        self.leave(limit)?;
        Ok(self.child.ask(&json!({ "do": "watched" }), limit)?)
    }

    /// Announces the next calls; a candidate that takes requests is told to wait for them.
    fn announce(&mut self) -> Result<(), Failure> {
        self.number += 1;
        self.page.store(Word::Announced, self.number);
        if !std::mem::replace(&mut self.is_calling, true) {
            let request = json!({ "do": "calls", "first": self.number });
            self.child.request(&request)?;
        }
        Ok(())
    }

    /// Lets the candidate leave its calls, so that it takes other requests.
    fn leave(&mut self, limit: Duration) -> Result<(), DeviceError> {
        let deadline = Instant::now() + limit;
        self.page.store(Word::Announced, NO_MORE);
        self.is_calling = false;
        while self.child.answer_by_now()?.is_none() {
            if Instant::now() > deadline {
                return Err(late("no answer").into());
            }
            thread::yield_now();
        }
        Ok(())
    }

    /// Lets it go on.
    pub(super) fn rouse(&mut self) {
        self.free_bytes = self.gpu.as_ref().map_or(0, GpuMemory::free_bytes);
        self.child.resume();
    }

    /// Lets it stand still.
    ///
    /// # Errors
    /// A candidate that has left work on the device, or has taken the memory that others need; its
    /// process is ended.
    pub(super) fn rest(&mut self) -> Result<(), DeviceError> {
        self.child.suspend();
        let Some(gpu) = &self.gpu else {
            return Ok(());
        };
        let taken = self.free_bytes.saturating_sub(gpu.free_bytes());
        let found = match gpu.becomes_free()? {
            false => Some((
                Status::Wrong,
                "it keeps the device at work after its call".to_owned(),
            )),
            true if taken > self.free_bytes / 2 => Some((
                Status::Oom,
                format!(
                    "it keeps {} GiB of the device's memory, more than half of what was free: \
                     others need some, too",
                    taken >> 30
                ),
            )),
            true => None,
        };
        let Some((status, reason)) = found else {
            return Ok(());
        };
        self.child.end();
        Err(failed(status, reason).into())
    }

    /// Waits until the candidate has put the number of this turn into a word.
    fn wait_for(&mut self, word: Word, deadline: Instant) -> Result<(), Failure> {
        match self.comes(word, deadline)? {
            true => Ok(()),
            false => {
                self.child.end();
                Err(late("no results"))
            }
        }
    }

    /// Waits for the same, and says whether it came in time.
    fn comes(&mut self, word: Word, deadline: Instant) -> Result<bool, Failure> {
        let number = self.number;
        self.becomes(|calls| calls.page.load(word) == number, deadline)
    }

    /// Waits for something, and says whether it came in time.
    fn becomes(
        &mut self,
        is_there: impl Fn(&Self) -> bool,
        deadline: Instant,
    ) -> Result<bool, Failure> {
        loop {
            for _ in 0..SPINS {
                if is_there(self) {
                    return Ok(true);
                }
                match self.yields {
                    true => thread::yield_now(),
                    false => hint::spin_loop(),
                }
            }
            if self.child.answer_by_now()?.is_some() {
                let reason = "it left the call without results".to_owned();
                return Err(failed(Status::Error, reason));
            }
            if Instant::now() > deadline {
                return Ok(false);
            }
        }
    }

    /// So many numbers that follow from the secret and the number of this turn.
    fn chances(&self, count: usize) -> Vec<u64> {
        let parts = 0..count.div_ceil(4) as u64;
        let words = parts.flat_map(|part| {
            let digest: [u8; 32] = Sha256::new()
                .chain_update(self.secret)
                .chain_update(self.number.to_le_bytes())
                .chain_update(part.to_le_bytes())
                .finalize()
                .into();
            std::array::from_fn::<u64, 4, _>(|word| {
                let bytes = digest[8 * word..].first_chunk().copied();
                u64::from_le_bytes(bytes.unwrap_or_default())
            })
        });
        words.take(count).collect()
    }

    /// The output, and the offset in bytes there, of the element that a chance chooses; none where
    /// there are no elements.
    fn element(&self, chance: u64) -> Option<(usize, usize)> {
        let elements: u64 = self.outputs.iter().map(TensorSpec::elements).sum();
        let mut element = chance.checked_rem(elements)?;
        for (output, spec) in self.outputs.iter().enumerate() {
            if element < spec.elements() {
                return Some((output, element as usize * spec.dtype.size_bytes()));
            }
            element -= spec.elements();
        }
        None
    }
}

/// Refuses a result of another size than its output has.
fn check_size(spec: &TensorSpec, bytes: u64) -> Result<(), Failure> {
    match bytes == spec.size_bytes() {
        true => Ok(()),
        false => Err(failed(
            Status::Wrong,
            format!(
                "`{}` has {bytes} bytes, and not {}",
                spec.name,
                spec.size_bytes()
            ),
        )),
    }
}

fn changed(spec: &TensorSpec) -> Failure {
    failed(
        Status::Wrong,
        format!(
            "`{}` changes after the call: it works outside the timed span",
            spec.name
        ),
    )
}

fn elsewhere() -> Failure {
    let reason = "its results are not where it says that they are";
    failed(Status::Wrong, reason.to_owned())
}

fn late(what: &str) -> Failure {
    Failure {
        is_lost: true,
        ..failed(Status::Timeout, format!("{what} in time"))
    }
}

fn failed(status: Status, reason: String) -> Failure {
    Failure {
        status,
        reason,
        is_lost: false,
        is_from_outside: false,
    }
}
