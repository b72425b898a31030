//! A gate in the stream: the device waits at it until the host opens it.
//!
//! The gate is a word of host memory that the device reads; the stream goes on when the word has
//! reached the number of its closing. A host that queues more than the stream holds would wait for
//! the device, which waits for the host: a watchdog opens a gate that stays closed for too long.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cudarc::driver::{result, sys};

use super::context::Context;
use super::driver::{During, Fault};

/// A gate stays closed for as long as this at least, and twice as long at most.
const LIMIT: Duration = Duration::from_millis(250);

/// A gate, open at first.
pub struct Gate {
    word: Arc<Word>,
    /// The word's address, as the device knows it.
    address: sys::CUdeviceptr,
    /// How often it was closed.
    closings: u32,
    watchdog: Option<JoinHandle<()>>,
    /// The context that the word was allocated in.
    _context: Rc<Context>,
}

/// The word that host, device and watchdog share.
struct Word {
    /// The number of the last closing that was opened again, in memory that the device reads.
    opened: NonNull<AtomicU32>,
    /// The number of the last closing.
    closed: AtomicU32,
    /// The gate is no longer used.
    ended: AtomicBool,
}

#[expect(unsafe_code, reason = "a pointer to what threads may share")]
// SAFETY: the pointer is to an atomic number, which is freed after the watchdog has ended.
unsafe impl Send for Word {}
#[expect(unsafe_code, reason = "a pointer to what threads may share")]
// SAFETY: as above.
unsafe impl Sync for Word {}

impl Word {
    #[expect(unsafe_code, reason = "memory that is shared with the device")]
    fn opened(&self) -> &AtomicU32 {
        // SAFETY: the memory is initialised, aligned, and lives until `Gate` drops.
        unsafe { self.opened.as_ref() }
    }

    /// Opens gates that stay closed from one look to the next but one.
    fn watch(&self) {
        let mut seen = None;
        while !self.ended.load(Ordering::Acquire) {
            thread::park_timeout(LIMIT);
            let closed = self.closed.load(Ordering::Acquire);
            let opened = self.opened().load(Ordering::Acquire);
            if opened == closed || seen != Some(closed) {
                seen = (opened != closed).then_some(closed);
                continue;
            }
            // If it fails the host was quicker, and the number in `closed` may be old.
            let _ =
                self.opened()
                    .compare_exchange(opened, closed, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

impl Gate {
    /// A gate, or none where the device can't wait for memory.
    ///
    /// # Errors
    /// The driver's, and those of threads.
    #[expect(unsafe_code, reason = "calls of the driver")]
    pub fn new(context: &Rc<Context>) -> Result<Option<Self>, Fault> {
        let bytes = size_of::<AtomicU32>();
        // SAFETY: a context is current, `context` sees to that.
        let memory = unsafe { result::malloc_host(bytes, sys::CU_MEMHOSTALLOC_DEVICEMAP) }
            .during("allocating a gate")?;
        let missing = || Fault::refused("allocating a gate: there is no memory");
        let opened = NonNull::new(memory.cast::<AtomicU32>()).ok_or_else(missing)?;
        let mut address = 0;
        // SAFETY: the memory is large enough, aligned to a page, and mapped for the device.
        unsafe {
            opened.write(AtomicU32::new(0));
            sys::cuMemHostGetDevicePointer_v2(&raw mut address, memory, 0)
        }
        .result()
        .during("mapping a gate")?;
        let word = Arc::new(Word {
            opened,
            closed: AtomicU32::new(0),
            ended: AtomicBool::new(false),
        });
        let watched = Arc::clone(&word);
        let watchdog = thread::Builder::new()
            .name("gate watchdog".to_owned())
            .spawn(move || watched.watch())
            .map_err(|error| Fault::refused(format!("starting a thread: {error}")))?;
        let mut gate = Gate {
            word,
            address,
            closings: 0,
            watchdog: Some(watchdog),
            _context: Rc::clone(context),
        };
        // The attribute that is documented for it is about an older form of the call, so it is
        // tried.
        match gate.close(context) {
            Err(fault) if fault.is_unsupported() => return Ok(None),
            tried => tried?,
        }
        gate.open();
        context.synchronize()?;
        Ok(Some(gate))
    }

    /// Work that is queued from now on waits until the gate is opened.
    ///
    /// # Errors
    /// The driver's; the gate is open then.
    #[expect(unsafe_code, reason = "a call of the driver")]
    pub fn close(&mut self, context: &Context) -> Result<(), Fault> {
        self.closings = self.closings.wrapping_add(1);
        self.word.closed.store(self.closings, Ordering::Release);
        let reached = sys::CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ as u32;
        // SAFETY: the address is that of a word which lives as long as `self`.
        let closed = unsafe {
            sys::cuStreamWaitValue32_v2(context.stream(), self.address, self.closings, reached)
        }
        .result()
        .during("closing the gate");
        if closed.is_err() {
            self.open();
        }
        closed
    }

    /// Lets the stream go on; false if the watchdog has already.
    pub fn open(&mut self) -> bool {
        self.word.opened().swap(self.closings, Ordering::AcqRel) != self.closings
    }
}

impl Drop for Gate {
    #[expect(unsafe_code, reason = "a call of the driver")]
    fn drop(&mut self) {
        self.open();
        self.word.ended.store(true, Ordering::Release);
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.thread().unpark();
            // A watchdog that panicked has ended too.
            let _ = watchdog.join();
        }
        let memory: *mut c_void = self.word.opened.as_ptr().cast();
        // SAFETY: freed once; no wait for it is left in the stream, and the watchdog has ended.
        let _ = unsafe { result::free_host(memory) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_that_stays_closed_is_opened() {
        let memory = AtomicU32::new(6);
        let word = Word {
            opened: NonNull::from(&memory),
            closed: AtomicU32::new(7),
            ended: AtomicBool::new(false),
        };
        thread::scope(|scope| {
            let watchdog = scope.spawn(|| word.watch());
            while memory.load(Ordering::Acquire) != 7 {
                thread::sleep(Duration::from_millis(1));
            }
            word.ended.store(true, Ordering::Release);
            watchdog.thread().unpark();
        });
        assert_eq!(memory.load(Ordering::Acquire), 7);
    }
}
