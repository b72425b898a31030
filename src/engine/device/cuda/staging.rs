//! Large copies to the device, through two pinned buffers: threads fill one while the device reads
//! the other. Memory that is not pinned the driver copies into pinned memory itself, in one thread.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::rc::Rc;

use cudarc::driver::{result, sys};
use rayon::prelude::*;

use super::context::Context;
use super::driver::{During, Fault};
use super::timing::Event;

/// Copies of fewer bytes are left to the driver: pinning memory takes milliseconds.
pub const LARGE_BYTES: usize = 256 << 20;

/// Bytes of one buffer.
const BUFFER_BYTES: usize = 32 << 20;

/// Bytes that one task copies.
const PIECE_BYTES: usize = 1 << 20;

/// Copies `bytes` to an address of the device, and waits for the copy.
///
/// # Errors
/// The driver's.
#[expect(unsafe_code, reason = "a call of the driver")]
pub fn upload(context: &Rc<Context>, to: sys::CUdeviceptr, bytes: &[u8]) -> Result<(), Fault> {
    let mut buffers = [Buffer::new(context)?, Buffer::new(context)?];
    let mut address = to;
    for (at, part) in bytes.chunks(BUFFER_BYTES).enumerate() {
        let buffer = &mut buffers[at % 2];
        let pinned = buffer.fill(part)?;
        // SAFETY: the caller's range holds all of `bytes`; the buffer is not written before its
        // event, and outlives the copy.
        unsafe { result::memcpy_htod_async(address, pinned, context.stream()) }
            .during("copying to the device")?;
        buffer.is_read.record()?;
        address += part.len() as u64;
    }
    context.synchronize()
}

/// Pinned memory of the host.
struct Buffer {
    memory: NonNull<u8>,
    /// The device has read it.
    is_read: Event,
    context: Rc<Context>,
}

impl Buffer {
    #[expect(unsafe_code, reason = "a call of the driver")]
    fn new(context: &Rc<Context>) -> Result<Self, Fault> {
        let is_read = Event::new(context)?;
        is_read.record()?;
        // SAFETY: a context is current, `context` sees to that.
        let memory = unsafe { result::malloc_host(BUFFER_BYTES, 0) }.during("pinning memory")?;
        let missing = || Fault::refused("pinning memory: there is none");
        Ok(Buffer {
            memory: NonNull::new(memory.cast::<u8>()).ok_or_else(missing)?,
            is_read,
            context: Rc::clone(context),
        })
    }

    /// Holds a copy of `part`, of [`BUFFER_BYTES`] at most, once the device has read its previous
    /// content.
    #[expect(unsafe_code, reason = "memory of the driver as a slice")]
    fn fill(&mut self, part: &[u8]) -> Result<&[u8], Fault> {
        self.is_read.wait()?;
        let len = part.len().min(BUFFER_BYTES);
        // SAFETY: the memory is as large, no other reference to it exists, and bytes of any value
        // are bytes.
        let pinned = unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), len) };
        let pieces = pinned.par_chunks_mut(PIECE_BYTES);
        let pieces = pieces.zip(part.par_chunks(PIECE_BYTES));
        pieces.for_each(|(to, from)| to.copy_from_slice(from));
        Ok(pinned)
    }
}

impl Drop for Buffer {
    #[expect(unsafe_code, reason = "a call of the driver")]
    fn drop(&mut self) {
        // A copy from it may be under way where an upload failed.
        let _ = self.context.synchronize();
        let memory: *mut c_void = self.memory.as_ptr().cast();
        // SAFETY: freed once, and the stream is done with it.
        let _ = unsafe { result::free_host(memory) };
    }
}
