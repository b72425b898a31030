//! Calls between a gate and a bell: the clock, the inputs and the judge are on this side.
//!
//! 1. The candidate is stopped, if writing takes a while, and the inputs of this one call are
//!    written into the page: before, they did not exist.
//! 2. It is let go, and stands ready. It waits, spinning, for the gate.
//! 3. The gate is opened, and the clock starts. What it took from 1 to here beyond what an empty
//!    function took counts, too: nothing is gained by working before the gate.
//! 4. At the bell a few elements of the results, chosen by chance, are read out of the candidate's
//!    memory, and the clock stops. Then all are read. Where those few have changed meanwhile, it
//!    worked on after the bell.
//!
//! What an empty function takes from 3 to 4 is measured in the same process before any of the
//! candidate's text has run, and subtracted.

use std::hint;
use std::io::IoSliceMut;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Data, Tensor, Tensors};

use super::page::{Page, Word};
use crate::device::foreign::python::process::{Child, Failure};
use crate::row::outcome::Status;
use crate::stats::Summary;

/// Elements that are read at the bell.
const PEEKS: usize = 4;

/// Writing less than this takes less time than stopping a process does: about two microseconds, in
/// which a candidate gains nothing.
const STOPPED_FROM_BYTES: u64 = 16 << 10;

/// Calls of an empty function: the first ones, which are not counted, and those that are.
const FIRST_EMPTY: u32 = 8;
const EMPTY: u32 = 32;

/// Announced in place of a call: there are no more.
const NO_MORE: u64 = u64::MAX;

/// Looks at a word between two looks at the process.
const SPINS: u32 = 1 << 12;

/// How long a signal that stops a process may take.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// What calls of an empty function take, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Floor {
    /// From the gate to the bell: the median, and the distance of its quartiles.
    pub(super) call_ns: f64,
    pub(super) spread_ns: f64,
    /// From its inputs to the gate: the upper quartile.
    waking_ns: f64,
}

/// One call.
pub(super) struct Call {
    /// Its time without that of an empty function, in nanoseconds.
    pub(super) elapsed_ns: f64,
    waking_ns: f64,
    pub(super) outputs: Tensors,
}

/// A candidate that answers calls.
pub(super) struct Calls {
    pub(super) child: Child,
    pub(super) page: Page,
    outputs: Vec<TensorSpec>,
    /// The number of the last call.
    number: u64,
    /// It waits for calls, and takes no other requests.
    is_calling: bool,
    /// Chooses what is read at bells; nobody else knows it.
    secret: [u8; 32],
    yields: bool,
    pub(super) floor: Floor,
}

/// An element that is read at the bell.
struct Peek {
    output: usize,
    offset: usize,
}

impl Calls {
    pub(super) fn new(
        (child, page): (Child, Page),
        outputs: &[TensorSpec],
        secret: [u8; 32],
        yields: bool,
    ) -> Self {
        Calls {
            child,
            page,
            outputs: outputs.to_vec(),
            number: 0,
            is_calling: false,
            secret,
            yields,
            floor: Floor::default(),
        }
    }

    /// Measures the empty function.
    ///
    /// # Errors
    /// Those of [`call`](Self::call).
    pub(super) fn measure_floor(
        &mut self,
        inputs: &Tensors,
        limit: Duration,
    ) -> Result<(), Failure> {
        let (mut times, mut waking) = (Vec::new(), Vec::new());
        self.floor.waking_ns = f64::INFINITY;
        for number in 0..FIRST_EMPTY + EMPTY {
            let call = self.call(inputs, limit)?;
            if number >= FIRST_EMPTY {
                times.push(call.elapsed_ns);
                waking.push(call.waking_ns);
            }
        }
        self.leave(limit)?;
        if let (Some(times), Some(waking)) = (Summary::of(&times), Summary::of(&waking)) {
            self.floor = Floor {
                call_ns: times.median,
                spread_ns: times.q3 - times.q1,
                waking_ns: waking.q3,
            };
        }
        Ok(())
    }

    /// One call on inputs of its own. The candidate waits for the next one, spinning.
    ///
    /// # Errors
    /// A candidate that fails, ends its process, takes longer than `limit`, or works after the
    /// bell.
    pub(super) fn call(&mut self, inputs: &Tensors, limit: Duration) -> Result<Call, Failure> {
        let call = self.call_once(inputs, Instant::now() + limit);
        if call.is_err() {
            // It has answered, and stands in no call any more.
            self.is_calling = false;
        }
        call
    }

    fn call_once(&mut self, inputs: &Tensors, deadline: Instant) -> Result<Call, Failure> {
        self.number += 1;
        let peeks = self.peeks();
        self.child.resume();
        self.page.store(Word::Announced, self.number);
        if !std::mem::replace(&mut self.is_calling, true) {
            let request = json!({ "do": "calls", "first": self.number });
            self.child.request(&request)?;
        }
        self.wait_for(Word::Ready, deadline)?;
        let is_stopped = self.page.written_bytes() >= STOPPED_FROM_BYTES;
        if is_stopped {
            self.stop()?;
        }
        self.page.write(inputs);
        let written = Instant::now();
        self.page.store(Word::Written, self.number);
        self.child.resume();
        self.wait_for(Word::Awake, deadline)?;
        let start = Instant::now();
        self.page.store(Word::Opened, self.number);
        self.wait_for(Word::Rung, deadline)?;
        let seen = self.peek(&peeks)?;
        let elapsed = start.elapsed();
        let waking_ns = (start - written).as_nanos() as f64;
        let outputs = self.read(&peeks, &seen)?;
        let early_ns = (waking_ns - self.floor.waking_ns).max(0.0);
        let own_ns = elapsed.as_nanos() as f64 - self.floor.call_ns + early_ns;
        Ok(Call {
            elapsed_ns: own_ns.max(0.0),
            waking_ns,
            outputs,
        })
    }

    /// Lets the candidate leave its calls, so that it takes other requests.
    fn leave(&mut self, limit: Duration) -> Result<(), Failure> {
        let deadline = Instant::now() + limit;
        self.page.store(Word::Announced, NO_MORE);
        self.is_calling = false;
        while self.child.answer_by_now()?.is_none() {
            if Instant::now() > deadline {
                return Err(late("no answer"));
            }
            thread::yield_now();
        }
        Ok(())
    }

    /// Stops all of the candidate's group, and waits until its first process stands still.
    fn stop(&mut self) -> Result<(), Failure> {
        self.child.suspend();
        let Some(process) = rustix::process::Pid::from_raw(self.child.id() as i32) else {
            return Ok(());
        };
        let start = Instant::now();
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        while !matches!(waitid(WaitId::Pid(process), options), Ok(Some(_))) {
            self.child.answer_by_now()?;
            if start.elapsed() > STOP_LIMIT {
                return Err(failed(Status::Error, "it can't be stopped".to_owned()));
            }
            hint::spin_loop();
        }
        Ok(())
    }

    /// Waits until the candidate has put the number of this call into a word.
    fn wait_for(&mut self, word: Word, deadline: Instant) -> Result<(), Failure> {
        loop {
            for _ in 0..SPINS {
                if self.page.load(word) == self.number {
                    return Ok(());
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
                return Err(late("no results"));
            }
        }
    }

    /// Elements of the outputs, by chance.
    fn peeks(&self) -> Vec<Peek> {
        let elements: u64 = self.outputs.iter().map(TensorSpec::elements).sum();
        let place = |mut element: u64| {
            let mut outputs = self.outputs.iter().enumerate();
            let (output, spec) = outputs.find(|(_, spec)| {
                let is_here = element < spec.elements();
                element = if is_here {
                    element
                } else {
                    element - spec.elements()
                };
                is_here
            })?;
            let offset = element as usize * spec.dtype.size_bytes();
            Some(Peek { output, offset })
        };
        if elements <= PEEKS as u64 {
            return (0..elements).filter_map(place).collect();
        }
        let chances = (0..PEEKS.div_ceil(4) as u64).flat_map(|part| {
            let digest: [u8; 32] = Sha256::new()
                .chain_update(self.secret)
                .chain_update(self.number.to_le_bytes())
                .chain_update(part.to_le_bytes())
                .finalize()
                .into();
            let words: Vec<u64> = digest
                .chunks_exact(8)
                .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
                .collect();
            words
        });
        chances
            .filter_map(|chance| place(chance % elements))
            .collect()
    }

    /// Reads elements where the candidate says that its results are.
    fn peek(&self, peeks: &[Peek]) -> Result<Vec<[u8; 8]>, Failure> {
        let mut seen = vec![[0; 8]; peeks.len()];
        let mut remote = Vec::with_capacity(peeks.len());
        for peek in peeks {
            remote.push(RemoteIoVec {
                base: self.place(peek.output)?.wrapping_add(peek.offset),
                len: self.outputs[peek.output].dtype.size_bytes(),
            });
        }
        let sizes = remote.iter().map(|part| part.len);
        let local = seen.iter_mut().zip(sizes);
        let mut local: Vec<IoSliceMut<'_>> = local
            .map(|(bytes, size)| IoSliceMut::new(&mut bytes[..size]))
            .collect();
        self.read_into(&mut local, &remote)?;
        Ok(seen)
    }

    /// Where an output lies in the candidate's memory.
    fn place(&self, output: usize) -> Result<usize, Failure> {
        let (address, bytes) = self.page.result(output);
        let spec = &self.outputs[output];
        match bytes == spec.size_bytes() {
            true => Ok(address as usize),
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

    /// Reads all outputs, and compares those of their elements that were seen at the bell.
    fn read(&self, peeks: &[Peek], seen: &[[u8; 8]]) -> Result<Tensors, Failure> {
        let mut found = Tensors::new();
        for (index, spec) in self.outputs.iter().enumerate() {
            let base = self.place(index)?;
            let elements = spec.elements() as usize;
            let data = Data::filled(spec.dtype, elements, |bytes| {
                let len = bytes.len();
                self.read_into(&mut [IoSliceMut::new(bytes)], &[RemoteIoVec { base, len }])
            })?;
            let size = spec.dtype.size_bytes();
            let own = peeks
                .iter()
                .zip(seen)
                .filter(|(peek, _)| peek.output == index);
            for (peek, seen) in own {
                if data.bytes()[peek.offset..][..size] != seen[..size] {
                    let reason = format!(
                        "`{}` changes after the call: it works outside the timed span",
                        spec.name
                    );
                    return Err(failed(Status::Wrong, reason));
                }
            }
            found.insert(spec.name.clone(), Tensor::new(spec.shape.clone(), data));
        }
        Ok(found)
    }

    fn read_into(
        &self,
        local: &mut [IoSliceMut<'_>],
        remote: &[RemoteIoVec],
    ) -> Result<(), Failure> {
        let wanted: usize = remote.iter().map(|part| part.len).sum();
        let process = Pid::from_raw(self.child.id() as i32);
        let mut done = 0;
        // A call reads 2 GiB at most.
        while done < wanted {
            let count = match (done, local.len()) {
                (0, _) => process_vm_readv(process, local, remote),
                (_, 1) => {
                    let rest = RemoteIoVec {
                        base: remote[0].base.wrapping_add(done),
                        len: remote[0].len - done,
                    };
                    let mut rest_here = [IoSliceMut::new(&mut local[0][done..])];
                    process_vm_readv(process, &mut rest_here, &[rest])
                }
                _ => Ok(0),
            };
            match count {
                Ok(count @ 1..) => done += count,
                Ok(0) => break,
                Err(nix::errno::Errno::EPERM) => {
                    let reason = "its memory can't be read: it hides it (`PR_SET_DUMPABLE`), or this \
                                  machine lets no process read that of those that it has started \
                                  (`kernel.yama.ptrace_scope` of 2 or 3, a container)";
                    return Err(failed(Status::Unavailable, reason.to_owned()));
                }
                Err(_) => break,
            }
        }
        match done == wanted {
            true => Ok(()),
            false => Err(failed(
                Status::Wrong,
                "its results are not where it says that they are".to_owned(),
            )),
        }
    }
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
