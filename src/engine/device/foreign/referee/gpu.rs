//! Memory of a GPU that the referee shares with one candidate, and the gate in its stream.
//!
//! Inputs wait in memory that only this process has. Behind a gate of its own the referee queues a
//! kernel that copies them into the shared memory, what flushes the cache, and a write of the word
//! that the candidate's stream waits for. As long as that goes on, no kernel of another process
//! runs on the device: nobody can begin before all inputs are there. The switch from this process
//! to the candidate is within the time of a call, and as long for an empty function.

use std::ffi::c_void;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cudarc::driver::{result, sys};
use sweeper_program::{Geometry, Tensors};

use super::page::{PAGE_BYTES, Page, Record, Word};
use super::places::{Content, Places};
use crate::device::DeviceError;
use crate::device::cuda::context::Context;
use crate::device::cuda::driver::{During, Fault};
use crate::device::cuda::flush::{Flush, Stretch};
use crate::device::cuda::gate::Gate;
use crate::device::cuda::module::Function;
use crate::device::cuda::staging;
use sweeper_model::identity::CacheState;

/// The kernel that copies. A candidate launches it for no bytes before its own work, so that an
/// empty function has the device as well.
pub(super) const PTX: &str = include_str!("deliver.ptx");
pub(super) const ENTRY: &str = "copy_all";
const PARAMETERS: usize = 3;
const VECTOR_BYTES: usize = 16;
const THREADS: u32 = 256;
const BLOCKS_EACH: u32 = 8;

/// What the copy engine takes at least: it leaves smaller copies to the multiprocessors, which
/// takes the device from the candidate.
pub(super) const WINDOW_BYTES: usize = 64 << 10;

/// So many allocations of the candidate stay open.
const MOST_OPENED: usize = 32;

/// A kernel of the referee takes longer than this only where others work on the device, and nobody
/// may for so long after a call.
const FREE: Duration = Duration::from_millis(1);
const FREE_LIMIT: Duration = Duration::from_secs(1);

/// Memory that is shared with a candidate.
pub(super) struct GpuMemory {
    shared: Stretch,
    /// Inputs of the next calls.
    hidden: Stretch,
    copy: Function,
    blocks: u32,
    flush: Option<Flush>,
    gate: Gate,
    window: Window,
    words: RegisteredWords,
    opened: Vec<Opened>,
    /// Released after all that was made in it.
    context: Rc<Context>,
}

/// Pinned memory for the elements that are read at the bell, and behind them a word that the device
/// writes when it opens the gate. The candidate can't reach it, as it could put off the gate's own
/// word until it is done.
struct Window {
    memory: *mut c_void,
    /// The word's address, as the device knows it.
    started: sys::CUdeviceptr,
}

/// The words of a page, which the device writes.
pub(super) struct RegisteredWords {
    memory: *mut c_void,
    address: sys::CUdeviceptr,
}

/// An allocation of the candidate.
struct Opened {
    handle: [u64; 8],
    base: sys::CUdeviceptr,
    bytes: usize,
}

impl GpuMemory {
    /// Memory for the tensors of so many calls.
    ///
    /// # Errors
    /// The driver's: a device that has no room, or can't wait for words of the host.
    pub(super) fn new(
        ordinal: u32,
        page: &Page,
        bytes: usize,
        cache: CacheState,
    ) -> Result<Self, DeviceError> {
        Self::open(ordinal, page, bytes, cache).map_err(|fault| fault.means(2 * bytes as u64, 0))
    }

    fn open(ordinal: u32, page: &Page, bytes: usize, cache: CacheState) -> Result<Self, Fault> {
        let context = Rc::new(Context::open(ordinal)?);
        let copy = Function::of_ptx(PTX, ENTRY)?;
        if copy.parameter_bytes().len() != PARAMETERS {
            return Err(Fault::refused(format!("`{ENTRY}` has other parameters")));
        }
        let gate = Gate::new(&context)?;
        let missing = || Fault::refused("the device can't wait for words of the host");
        let bytes = bytes.max(WINDOW_BYTES).next_multiple_of(VECTOR_BYTES);
        Ok(GpuMemory {
            shared: Stretch::new(&context, bytes)?,
            hidden: Stretch::new(&context, bytes)?,
            copy,
            blocks: context.multiprocessors()? * BLOCKS_EACH,
            flush: Flush::new(&context, cache)?,
            gate: gate.ok_or_else(missing)?,
            window: Window::new()?,
            words: RegisteredWords::new(page)?,
            opened: Vec::new(),
            context,
        })
    }

    /// What the shared memory is opened by, in hexadecimal digits.
    ///
    /// # Errors
    /// A device whose memory can't be shared.
    #[expect(unsafe_code, reason = "a call of the driver")]
    pub(super) fn handle(&self) -> Result<String, DeviceError> {
        let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: the address is that of an allocation, and the handle has room.
        let made = unsafe { sys::cuIpcGetMemHandle(&raw mut handle, self.shared.address()) };
        made.result()
            .during("sharing memory of the device")
            .map_err(meant)?;
        Ok(hex::encode(handle.reserved.map(|byte| byte as u8)))
    }

    /// Keeps the tensors of call `number` of the next ones ready, where the candidate can't see
    /// them.
    ///
    /// # Errors
    /// The driver's.
    #[expect(unsafe_code, reason = "calls of the driver")]
    pub(super) fn prepare(
        &self,
        places: &Places,
        number: usize,
        inputs: &Tensors,
    ) -> Result<(), DeviceError> {
        let first = number * places.bytes();
        assert!(
            first + places.bytes() <= self.hidden.bytes(),
            "a call of these"
        );
        let stream = self.context.stream();
        places
            .fill(inputs, |offset, content| {
                let to = self.hidden.address() + (first + offset) as u64;
                match content {
                    Content::Bytes([]) | Content::Poison(0) => Ok(()),
                    Content::Bytes(bytes) if bytes.len() >= staging::LARGE_BYTES => {
                        staging::upload(&self.context, to, bytes)
                    }
                    Content::Bytes(bytes) => {
                        // SAFETY: the range lies in the allocation; bytes outlive the wait below,
                        // as they are the caller's.
                        unsafe { result::memcpy_htod_async(to, bytes, stream) }
                            .during("copying inputs to the device")
                    }
                    Content::Poison(bytes) => {
                        // SAFETY: as above.
                        unsafe { result::memset_d8_async(to, 0xFF, bytes, stream) }
                            .during("filling memory")
                    }
                }
            })
            .and_then(|()| self.context.synchronize())
            .map_err(meant)
    }

    /// Lets the candidate have the first `bytes` of what was prepared, then opens its gate by
    /// putting `number` into [`Word::Opened`].
    ///
    /// # Errors
    /// The driver's.
    #[expect(unsafe_code, reason = "a call of the driver")]
    pub(super) fn deliver(&mut self, bytes: usize, number: u32) -> Result<(), DeviceError> {
        let queue = |memory: &mut Self| {
            memory.gate.close(&memory.context)?;
            memory.queue_copy(bytes)?;
            if let Some(flush) = &mut memory.flush {
                flush.queue(&memory.context)?;
            }
            let word = memory.words.address(Word::Opened);
            let stream = memory.context.stream();
            // SAFETY: both words lie in memory that the device writes as long as `self` lives.
            unsafe {
                sys::cuStreamWriteValue32_v2(stream, memory.window.started, number, 0)
                    .result()
                    .and_then(|()| sys::cuStreamWriteValue32_v2(stream, word, number, 0).result())
            }
            .during("opening the gate")
        };
        let queued = queue(self);
        self.gate.open();
        queued.map_err(meant)
    }

    /// Whether the device has come to open the gate `number`.
    #[expect(unsafe_code, reason = "memory that the device writes")]
    pub(super) fn has_opened(&self, number: u32) -> bool {
        // SAFETY: the word is initialised, aligned, and lives as long as `self`.
        let started = unsafe { &*self.window.word() };
        started.load(Ordering::Acquire) == number
    }

    fn queue_copy(&self, bytes: usize) -> Result<(), Fault> {
        let bytes = bytes
            .next_multiple_of(VECTOR_BYTES)
            .min(self.hidden.bytes());
        let mut cells = [self.shared.address(), self.hidden.address(), bytes as u64];
        let geometry = Geometry::linear(self.blocks, THREADS);
        let launched = self
            .copy
            .launch(self.context.stream(), &geometry, &mut cells);
        launched.map_err(|fault| fault.of_kernel(ENTRY))
    }

    /// Waits until a small kernel of the referee is done soon: nothing else is at work on the
    /// device. False where that takes too long.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn becomes_free(&self) -> Result<bool, DeviceError> {
        let begun = Instant::now();
        while begun.elapsed() < FREE_LIMIT {
            let start = Instant::now();
            self.queue_copy(VECTOR_BYTES)
                .and_then(|()| self.context.synchronize())
                .map_err(meant)?;
            if start.elapsed() < FREE {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Bytes of the device that nobody has.
    pub(super) fn free_bytes(&self) -> u64 {
        result::mem_get_info().map_or(0, |(free, _)| free as u64)
    }

    /// The address of a result, and how many bytes there are from the allocation's first one to its
    /// last; none where no such memory can be opened.
    pub(super) fn locate(&mut self, record: &Record) -> Option<Allocated> {
        let (base, bytes) = match record.is_shared {
            true => (self.shared.address(), self.shared.bytes()),
            false => self.open_allocation(record.handle)?,
        };
        let end = record.address.checked_add(record.bytes)?;
        (end <= bytes as u64).then_some(Allocated { base, bytes })
    }

    fn open_allocation(&mut self, handle: [u64; 8]) -> Option<(sys::CUdeviceptr, usize)> {
        if let Some(held) = self.opened.iter().find(|held| held.handle == handle) {
            return Some((held.base, held.bytes));
        }
        if self.opened.len() >= MOST_OPENED {
            self.close_all();
        }
        let parts = handle.iter().flat_map(|part| part.to_le_bytes());
        let (base, bytes) = open_memory(parts).ok()?;
        self.opened.push(Opened {
            handle,
            base,
            bytes,
        });
        Some((base, bytes))
    }

    #[expect(unsafe_code, reason = "a call of the driver")]
    fn close_all(&mut self) {
        for held in self.opened.drain(..) {
            // SAFETY: it was opened once; nothing is queued that reads it.
            let _ = unsafe { sys::cuIpcCloseMemHandle(held.base) };
        }
    }

    /// What lies around an element right now: at least that, by the copy engine, which takes the
    /// device from nobody. The bytes, and the offset of the first one.
    ///
    /// # Errors
    /// The driver's.
    #[expect(
        unsafe_code,
        reason = "a call of the driver, and its memory as a slice"
    )]
    pub(super) fn look(
        &self,
        allocated: Allocated,
        offset: usize,
    ) -> Result<(usize, &[u8]), DeviceError> {
        let count = WINDOW_BYTES.min(allocated.bytes);
        let first = offset.min(allocated.bytes - count);
        let stream = self.context.stream();
        // SAFETY: the range lies in the allocation, the window has room, and is not touched before
        // the wait; bytes of any value are bytes.
        let seen = unsafe {
            let from = allocated.base + first as u64;
            sys::cuMemcpyDtoHAsync_v2(self.window.memory, from, count, stream)
                .result()
                .during("looking at results")
                .map_err(meant)?;
            self.context.synchronize().map_err(meant)?;
            std::slice::from_raw_parts(self.window.memory.cast::<u8>(), count)
        };
        Ok((first, seen))
    }

    /// Reads from an offset of an allocation on.
    ///
    /// # Errors
    /// The driver's.
    #[expect(unsafe_code, reason = "a call of the driver")]
    pub(super) fn read(
        &self,
        allocated: Allocated,
        offset: usize,
        bytes: &mut [u8],
    ) -> Result<(), DeviceError> {
        assert!(offset + bytes.len() <= allocated.bytes, "within its memory");
        if bytes.is_empty() {
            return Ok(());
        }
        let from = allocated.base + offset as u64;
        // SAFETY: the range lies in the allocation, and `bytes` outlive the wait.
        unsafe { result::memcpy_dtoh_async(bytes, from, self.context.stream()) }
            .during("reading results")
            .and_then(|()| self.context.synchronize())
            .map_err(meant)
    }
}

/// Opens an allocation of another process by what it handed out; its address, and its bytes.
///
/// # Errors
/// The driver's.
#[expect(unsafe_code, reason = "calls of the driver")]
pub(super) fn open_memory(
    handle: impl Iterator<Item = u8>,
) -> Result<(sys::CUdeviceptr, usize), Fault> {
    let mut raw = sys::CUipcMemHandle { reserved: [0; 64] };
    for (to, from) in raw.reserved.iter_mut().zip(handle) {
        *to = from as _;
    }
    let (mut base, mut bytes) = (0, 0);
    let flags = sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
    // SAFETY: the driver checks handles, whoever made them, and both numbers have room.
    unsafe {
        sys::cuIpcOpenMemHandle_v2(&raw mut base, raw, flags)
            .result()
            .and_then(|()| {
                sys::cuMemGetAddressRange_v2(std::ptr::null_mut(), &raw mut bytes, base).result()
            })
    }
    .during("opening memory of another process")?;
    Ok((base, bytes))
}

impl Drop for GpuMemory {
    fn drop(&mut self) {
        let _ = self.context.synchronize();
        self.close_all();
    }
}

/// Memory of the device that can be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allocated {
    base: sys::CUdeviceptr,
    bytes: usize,
}

impl Window {
    #[expect(unsafe_code, reason = "calls of the driver")]
    fn new() -> Result<Self, Fault> {
        let bytes = WINDOW_BYTES + size_of::<AtomicU32>();
        // SAFETY: a context is current.
        let memory = unsafe { result::malloc_host(bytes, sys::CU_MEMHOSTALLOC_DEVICEMAP) }
            .during("pinning memory")?;
        let mut window = Window { memory, started: 0 };
        let mut address = 0;
        // SAFETY: the memory is large enough, aligned to a page, and mapped for the device.
        unsafe {
            window.word().write(AtomicU32::new(0));
            sys::cuMemHostGetDevicePointer_v2(&raw mut address, memory, 0)
        }
        .result()
        .during("pinning memory")?;
        window.started = address + WINDOW_BYTES as u64;
        Ok(window)
    }

    fn word(&self) -> *mut AtomicU32 {
        self.memory.wrapping_byte_add(WINDOW_BYTES).cast()
    }
}

impl Drop for Window {
    #[expect(unsafe_code, reason = "a call of the driver")]
    fn drop(&mut self) {
        // SAFETY: freed once; all work that writes it was waited for.
        let _ = unsafe { result::free_host(self.memory) };
    }
}

impl RegisteredWords {
    /// Lets the device of the current context write the words of a page that outlives this.
    ///
    /// # Errors
    /// The driver's.
    #[expect(unsafe_code, reason = "calls of the driver")]
    pub(super) fn new(page: &Page) -> Result<Self, Fault> {
        let memory = page.words().cast::<c_void>();
        let mut address = 0;
        // SAFETY: the page is mapped for longer than it is registered.
        unsafe {
            sys::cuMemHostRegister_v2(memory, PAGE_BYTES, sys::CU_MEMHOSTREGISTER_DEVICEMAP)
                .result()
                .during("sharing a page with the device")?;
            sys::cuMemHostGetDevicePointer_v2(&raw mut address, memory, 0)
                .result()
                .during("sharing a page with the device")?;
        }
        Ok(RegisteredWords { memory, address })
    }

    /// The address of a word, as the device knows it.
    pub(super) fn address(&self, word: Word) -> sys::CUdeviceptr {
        self.address + Page::offset(word) as u64
    }
}

impl Drop for RegisteredWords {
    #[expect(unsafe_code, reason = "a call of the driver")]
    fn drop(&mut self) {
        // SAFETY: registered once, and all work that writes it was waited for.
        let _ = unsafe { sys::cuMemHostUnregister(self.memory) };
    }
}

fn meant(fault: Fault) -> DeviceError {
    fault.means(0, 0)
}
