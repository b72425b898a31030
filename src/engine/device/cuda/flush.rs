//! Brings the second-level cache into a state before timed steps.
//!
//! Writing other memory pushes everything else out, and leaves dirty lines: a kernel that needs
//! their place waits until they are written back. For a clean cache as much memory is read then.

use std::ffi::c_void;
use std::rc::Rc;

use cudarc::driver::{result, sys};

use super::context::Context;
use super::driver::{During, Fault};
use super::module::Function;
use sweeper_model::identity::CacheState;

/// The least that is written, in bytes.
const LEAST_BYTES: usize = 64 << 20;

/// Bytes that a thread of [`PTX`] reads at once.
const VECTOR_BYTES: usize = 16;

/// The kernel that reads.
const PTX: &str = include_str!("read.ptx");

/// Name of the kernel.
const ENTRY: &str = "read_all";

/// The number of its parameters, those of [`Reader::queue`].
const PARAMETERS: usize = 2;

/// Threads of its blocks.
const THREADS: u32 = 128;

/// Blocks for each multiprocessor: as many threads as one holds, so that enough loads are on their
/// way.
const BLOCKS_EACH: u32 = 16;

/// Every word of the memory that is read, and a multiplier that turns numbers of turns into words
/// that look random. It is not zero: [`PTX`] stores something if no bit is set in all that it
/// reads.
const WORD: u32 = 0x9E37_79B9;

/// Pushes everything out of the second-level cache.
pub struct Flush {
    written: Stretch,
    turn: u32,
    /// None where written lines may stay.
    reader: Option<Reader>,
}

impl Flush {
    /// A flush that brings the cache into a state; none where it stays hot.
    ///
    /// # Errors
    /// The driver's, which for a clean cache translates a kernel.
    pub fn new(context: &Rc<Context>, cache: CacheState) -> Result<Option<Self>, Fault> {
        let reads = match cache {
            CacheState::Hot => return Ok(None),
            CacheState::Cold => false,
            CacheState::Clean => true,
        };
        let l2 = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE;
        let bytes = bytes_for(context.attribute(l2)?.max(0) as usize);
        Ok(Some(Flush {
            written: Stretch::new(context, bytes)?,
            turn: 0,
            reader: reads.then(|| Reader::new(context, bytes)).transpose()?,
        }))
    }

    /// Writes other words than the last time, and never zeros: neither may be left out. Lines that
    /// a kernel asked the cache to keep are given up first.
    ///
    /// # Errors
    /// The driver's.
    #[expect(unsafe_code, reason = "a call of the driver")]
    pub fn queue(&mut self, context: &Context) -> Result<(), Fault> {
        self.turn = self.turn.wrapping_add(1);
        let word = self.turn.wrapping_mul(WORD) | 1;
        // Caches that keep no lines have none to give up.
        // SAFETY: a context is current.
        let _ = unsafe { sys::cuCtxResetPersistingL2Cache() };
        self.written.fill(context, word)?;
        match &self.reader {
            None => Ok(()),
            Some(reader) => reader.queue(context),
        }
    }
}

/// How many bytes push everything out of a cache of `l2_bytes`, in whole vectors.
fn bytes_for(l2_bytes: usize) -> usize {
    let bytes = (2 * l2_bytes).max(LEAST_BYTES);
    bytes.next_multiple_of(VECTOR_BYTES)
}

/// Reads other memory than was written.
struct Reader {
    stretch: Stretch,
    function: Function,
    blocks: u32,
}

impl Reader {
    /// The memory is filled once: the writes before the first reading push its lines out.
    fn new(context: &Rc<Context>, bytes: usize) -> Result<Self, Fault> {
        let function = Function::of_ptx(PTX, ENTRY)?;
        if function.parameter_bytes().len() != PARAMETERS {
            return Err(Fault::refused(format!(
                "`{ENTRY}` has {} parameters, and not {PARAMETERS}",
                function.parameter_bytes().len()
            )));
        }
        let multiprocessors = context.multiprocessors()?;
        let stretch = Stretch::new(context, bytes)?;
        stretch.fill(context, WORD)?;
        Ok(Reader {
            stretch,
            function,
            blocks: multiprocessors * BLOCKS_EACH,
        })
    }

    #[expect(unsafe_code, reason = "kernels are foreign functions")]
    fn queue(&self, context: &Context) -> Result<(), Fault> {
        let mut cells = [self.stretch.address, self.stretch.bytes as u64];
        let mut pointers: [*mut c_void; PARAMETERS] =
            cells.each_mut().map(|cell| std::ptr::from_mut(cell).cast());
        // SAFETY: there is a pointer for each parameter, to a cell of its size; the driver copies
        // the cells before it returns. The kernel touches the stretch alone, which is whole vectors
        // and as aligned as the driver's allocations are.
        unsafe {
            result::launch_kernel(
                self.function.handle(),
                (self.blocks, 1, 1),
                (THREADS, 1, 1),
                0,
                context.stream(),
                &mut pointers,
            )
        }
        .during("reading the cache clean")
    }
}

/// Memory that is not part of the pool, whose marks are the program's.
pub struct Stretch {
    address: sys::CUdeviceptr,
    bytes: usize,
    /// The context that it was allocated in.
    _context: Rc<Context>,
}

impl Stretch {
    /// So many bytes, which no stream orders and other processes may open.
    ///
    /// # Errors
    /// The driver's; the device may be full.
    #[expect(unsafe_code, reason = "a call of the driver")]
    pub fn new(context: &Rc<Context>, bytes: usize) -> Result<Self, Fault> {
        // SAFETY: a context is current, `context` sees to that; contents are written before use.
        let address =
            unsafe { result::malloc_sync(bytes) }.during("allocating memory of the device")?;
        Ok(Stretch {
            address,
            bytes,
            _context: Rc::clone(context),
        })
    }

    /// The address of its first byte, on the device.
    pub fn address(&self) -> sys::CUdeviceptr {
        self.address
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    #[expect(unsafe_code, reason = "a call of the driver")]
    fn fill(&self, context: &Context, word: u32) -> Result<(), Fault> {
        let words = self.bytes / size_of::<u32>();
        // SAFETY: the range is the allocation.
        unsafe { sys::cuMemsetD32Async(self.address, word, words, context.stream()) }
            .result()
            .during("flushing the cache")
    }
}

impl Drop for Stretch {
    #[expect(unsafe_code, reason = "a call of the driver")]
    fn drop(&mut self) {
        // SAFETY: freed once; the driver waits for work that still uses it.
        let _ = unsafe { result::free_sync(self.address) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_takes_what_a_launch_passes() {
        let (_, after) = PTX.split_once(&format!(".entry {ENTRY}(")).unwrap();
        let (parameters, _) = after.split_once(')').unwrap();
        let types: Vec<&str> = parameters
            .lines()
            .filter_map(|line| line.trim().strip_prefix(".param ")?.split(' ').next())
            .collect();
        // A cell each: the address, and the bytes.
        assert_eq!(types, [".u64"; PARAMETERS]);
        for (number, cell) in ["first", "end"].into_iter().enumerate() {
            let load = format!("ld.param.u64 {cell}, [{ENTRY}_param_{number}];");
            assert!(PTX.contains(&load), "{load}");
        }
        assert!(PTX.contains(&format!("mul.wide.u32 step, threads, {VECTOR_BYTES};")));
        // The kernel stores where no bit is left, and it reads `WORD` again and again.
        assert!(PTX.contains("setp.ne.u32 is_done, all, 0;") && WORD != 0);
    }

    #[test]
    fn a_cache_is_covered_twice_in_whole_vectors() {
        assert_eq!(bytes_for(0), LEAST_BYTES);
        assert_eq!(bytes_for(50 << 20), 100 << 20);
        assert_eq!(bytes_for((60 << 20) + 1), (120 << 20) + VECTOR_BYTES);
    }
}
