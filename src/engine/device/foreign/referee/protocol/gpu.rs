//! Calls on a GPU, one or several behind one gate.
//!
//! 1. The inputs of each call are copied into memory of the device that only the referee has.
//! 2. The candidate queues its calls on its stream, between a wait for the gate and the bell, and
//!    says where the results will lie. A function that waits for the device itself would never
//!    come back: it is called behind the gate instead, and its time has some of the host's.
//! 3. The referee delivers the inputs, flushes the cache, and opens the gate, all in one stretch in
//!    which no other process has the device ([`GpuMemory`]). Its
//!    clock starts.
//! 4. The bell is a word that the candidate's stream writes. The clock stops, and the copy engine
//!    takes a part of the results, chosen by chance, and then all of them.

use std::time::{Duration, Instant};

use sweeper_program::{Data, Tensor, Tensors};

use super::{Calls, Reads, Turn, changed, check_size, elsewhere, late};
use crate::device::DeviceError;
use crate::device::foreign::python::process::Failure;
use crate::device::foreign::referee::gpu::{Allocated, GpuMemory};
use crate::device::foreign::referee::page::Word;

/// A candidate that has not queued its calls by then waits for the device, or queues more than a
/// stream holds.
const QUEUE_LIMIT: Duration = Duration::from_secs(2);

/// What is seen of a result at the bell.
struct Look {
    result: usize,
    offset: usize,
    bytes: Vec<u8>,
}

impl Calls {
    pub(super) fn turn_on_gpu(
        &mut self,
        inputs: &[&Tensors],
        reads: Reads,
        deadline: Instant,
    ) -> Result<Turn, DeviceError> {
        // Results that nobody reads may be those of inputs that are there already.
        if reads == Reads::All || !self.has_inputs {
            for (number, inputs) in inputs.iter().enumerate() {
                self.memory()?.prepare(&self.places, number, inputs)?;
            }
            self.has_inputs = true;
        }
        self.page.store(Word::Count, inputs.len() as u64);
        self.page.store(Word::IsQueued, u64::from(self.is_queued));
        self.announce()?;
        let queueing = match self.is_queued {
            true => deadline.min(Instant::now() + QUEUE_LIMIT),
            false => deadline,
        };
        if !self.comes(Word::Ready, queueing)? {
            if !std::mem::replace(&mut self.is_queued, false) {
                self.child.end();
                return Err(late("no results").into());
            }
            // On the inputs of the calls before.
            self.page.store(Word::Opened, self.number);
            self.wait_for(Word::Rung, deadline)?;
            self.wait_for(Word::Told, deadline)?;
            return self.turn_on_gpu(inputs, reads, deadline);
        }
        let (bytes, number) = (inputs.len() * self.places.bytes(), self.number as u32);
        self.gpu_mut()?.deliver(bytes, number)?;
        let is_open = |calls: &Self| {
            let gpu = calls.gpu.as_ref();
            gpu.is_some_and(|gpu| gpu.has_opened(number))
        };
        if !self.becomes(is_open, deadline)? {
            return Err(late("the gate did not open").into());
        }
        let start = Instant::now();
        self.wait_for(Word::Rung, deadline)?;
        let elapsed = start.elapsed();
        self.wait_for(Word::Told, deadline)?;
        let look = self.look(inputs.len())?;
        let outputs = match reads {
            Reads::All => self.read_all(inputs.len(), look)?,
            Reads::Nothing => Vec::new(),
        };
        let own_ns = elapsed.as_nanos() as f64 - self.floor().call_ns;
        Ok(Turn {
            elapsed_ns: own_ns.max(0.0),
            waking_ns: 0.0,
            outputs,
        })
    }

    fn memory(&self) -> Result<&GpuMemory, Failure> {
        self.gpu.as_ref().ok_or_else(elsewhere)
    }

    fn gpu_mut(&mut self) -> Result<&mut GpuMemory, Failure> {
        self.gpu.as_mut().ok_or_else(elsewhere)
    }

    /// Where result `result` of all calls' lies: its memory, and its offset there.
    fn located(&mut self, result: usize) -> Result<(Allocated, usize), Failure> {
        let record = self.page.record(result);
        let spec = &self.outputs[result % self.outputs.len()];
        check_size(spec, record.bytes)?;
        let allocated = self.gpu_mut()?.locate(&record).ok_or_else(elsewhere)?;
        Ok((allocated, record.address as usize))
    }

    /// Looks at a part of one result, chosen by chance.
    fn look(&mut self, calls: usize) -> Result<Option<Look>, DeviceError> {
        let chances = self.chances(2);
        let Some((output, offset)) = self.element(chances[0]) else {
            return Ok(None);
        };
        let call = chances[1] as usize % calls;
        let result = call * self.outputs.len() + output;
        let (allocated, first) = self.located(result)?;
        let (seen_from, seen) = self.memory()?.look(allocated, first + offset)?;
        // The window may begin before the result, and end behind it.
        let end = first + self.outputs[output].size_bytes() as usize;
        let from = seen_from.max(first);
        let to = (seen_from + seen.len()).min(end);
        let bytes = seen[from - seen_from..to - seen_from].to_vec();
        Ok(Some(Look {
            result,
            offset: from - first,
            bytes,
        }))
    }

    /// Reads all results, and compares what was seen at the bell.
    fn read_all(&mut self, calls: usize, look: Option<Look>) -> Result<Vec<Tensors>, DeviceError> {
        let mut all = Vec::with_capacity(calls);
        for call in 0..calls {
            let mut found = Tensors::new();
            for output in 0..self.outputs.len() {
                let result = call * self.outputs.len() + output;
                let (allocated, first) = self.located(result)?;
                let spec = &self.outputs[output];
                let elements = spec.elements() as usize;
                let memory = self.memory()?;
                let data = Data::filled(spec.dtype, elements, |bytes| {
                    memory.read(allocated, first, bytes)
                })?;
                if let Some(look) = look.as_ref().filter(|look| look.result == result)
                    && data.bytes()[look.offset..][..look.bytes.len()] != look.bytes[..]
                {
                    return Err(changed(spec).into());
                }
                found.insert(spec.name.clone(), Tensor::new(spec.shape.clone(), data));
            }
            all.push(found);
        }
        Ok(all)
    }
}
