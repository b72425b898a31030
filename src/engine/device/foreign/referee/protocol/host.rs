//! A call on a CPU.
//!
//! 1. The candidate is stopped, if writing takes a while, and the inputs of this one call are
//!    written into the page: before, they did not exist.
//! 2. It is let go, and stands ready. It waits, spinning, for the gate.
//! 3. The gate is opened, and the clock starts. What it took from 1 to here beyond what an empty
//!    function took counts, too: nothing is gained by working before the gate.
//! 4. At the bell a few elements of the results, chosen by chance, are read out of the candidate's
//!    memory, and the clock stops. Then all are read. Where those few have changed meanwhile, it
//!    worked on after the bell.

use std::hint;
use std::io::IoSliceMut;
use std::time::{Duration, Instant};

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use sweeper_program::{Data, Tensor, Tensors};

use super::{Calls, Reads, Turn, changed, check_size, elsewhere, failed};
use crate::device::DeviceError;
use crate::device::foreign::python::process::Failure;
use crate::device::foreign::referee::page::Word;
use sweeper_model::row::outcome::Status;

/// Elements that are read at the bell.
const PEEKS: usize = 4;

/// Writing less than this takes less time than stopping a process does: about two microseconds, in
/// which a candidate gains nothing.
const STOPPED_FROM_BYTES: u64 = 16 << 10;

/// How long a signal that stops a process may take.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// An element that is read at the bell.
struct Peek {
    output: usize,
    offset: usize,
}

impl Calls {
    pub(super) fn call_on_host(
        &mut self,
        inputs: &Tensors,
        reads: Reads,
        deadline: Instant,
    ) -> Result<Turn, DeviceError> {
        self.announce()?;
        let peeks = self.peeks();
        self.wait_for(Word::Ready, deadline)?;
        if self.places.written_bytes() >= STOPPED_FROM_BYTES {
            self.stop()?;
        }
        self.page.write(&self.places, inputs);
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
        let outputs = match reads {
            Reads::All => vec![self.read(&peeks, &seen)?],
            Reads::Nothing => Vec::new(),
        };
        let early_ns = (waking_ns - self.floor.waking_ns).max(0.0);
        let own_ns = elapsed.as_nanos() as f64 - self.floor.call_ns + early_ns;
        Ok(Turn {
            elapsed_ns: own_ns.max(0.0),
            waking_ns,
            outputs,
        })
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

    /// Elements of the outputs, by chance.
    fn peeks(&self) -> Vec<Peek> {
        let elements: u64 = self.outputs.iter().map(|spec| spec.elements()).sum();
        let chances = match elements <= PEEKS as u64 {
            true => (0..elements).collect(),
            false => self.chances(PEEKS),
        };
        let places = chances
            .into_iter()
            .filter_map(|chance| self.element(chance));
        places
            .map(|(output, offset)| Peek { output, offset })
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
        let record = self.page.record(output);
        check_size(&self.outputs[output], record.bytes)?;
        Ok(record.address as usize)
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
                    return Err(changed(spec));
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
            false => Err(elsewhere()),
        }
    }
}
