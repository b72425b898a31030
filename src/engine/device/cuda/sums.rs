//! Sums over memory of the device that tell whether any bit of it has changed: reading it to the
//! host takes a hundred times longer.

use std::ffi::c_void;
use std::rc::Rc;

use cudarc::driver::{result, sys};

use super::context::Context;
use super::driver::{During, Fault};
use super::memory::Allocation;
use super::module::Function;

/// The kernel that adds them up.
const PTX: &str = include_str!("sums.ptx");

/// Name of the kernel.
const ENTRY: &str = "sum_words";

/// The number of its parameters: an address, a number of words, the address of the sums.
const PARAMETERS: usize = 3;

/// Threads of its blocks, and blocks for each multiprocessor: as many threads as one holds.
const THREADS: u32 = 256;
const BLOCKS_EACH: u32 = 8;

/// Bytes of a word.
const WORD: usize = 4;

/// What all bits of a stretch of memory add up to, and the bytes that fill no whole word.
pub type Sums = ([u64; 2], Vec<u8>);

/// Adds up memory of a device.
pub struct Adder {
    function: Function,
    blocks: u32,
    /// The two sums, no part of the pool, whose marks are the program's.
    address: sys::CUdeviceptr,
    context: Rc<Context>,
}

impl Adder {
    /// Translates the kernel.
    ///
    /// # Errors
    /// The driver's.
    #[expect(unsafe_code, reason = "a call of the driver")]
    pub fn new(context: &Rc<Context>) -> Result<Self, Fault> {
        let function = Function::of_ptx(PTX, ENTRY)?;
        let multiprocessors = context.multiprocessors()?;
        // SAFETY: a context is current, `context` sees to that; it is written before it is read.
        let address = unsafe { result::malloc_sync(2 * size_of::<u64>()) };
        Ok(Adder {
            function,
            blocks: multiprocessors * BLOCKS_EACH,
            address: address.during("allocating two sums")?,
            context: Rc::clone(context),
        })
    }

    /// The sums over `bytes` of an allocation, from `offset` on, and waits for them.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Panics
    /// If they are not all its own.
    #[expect(unsafe_code, reason = "kernels are foreign functions")]
    pub fn sums(&self, memory: &Allocation, offset: usize, bytes: usize) -> Result<Sums, Fault> {
        assert!(offset + bytes <= memory.bytes(), "outside the allocation");
        let (words, rest) = (bytes / WORD, bytes % WORD);
        let first = memory.address() + offset as u64;
        let stream = self.context.stream();
        let mut cells = [first, words as u64, self.address];
        let mut pointers: [*mut c_void; PARAMETERS] =
            cells.each_mut().map(|cell| std::ptr::from_mut(cell).cast());
        let mut found = [0_u8; 2 * size_of::<u64>()];
        // SAFETY: the sums are an allocation of that size. There is a pointer for each parameter,
        // to a cell of its size, which the driver copies before it returns; the kernel reads words
        // of the allocation, where buffers begin at multiples of more than a word.
        unsafe {
            result::memset_d8_async(self.address, 0, found.len(), stream)
                .and_then(|()| {
                    result::launch_kernel(
                        self.function.handle(),
                        (self.blocks, 1, 1),
                        (THREADS, 1, 1),
                        0,
                        stream,
                        &mut pointers,
                    )
                })
                .and_then(|()| result::memcpy_dtoh_async(&mut found, self.address, stream))
        }
        .during("adding up memory")?;
        self.context.synchronize()?;
        let rest = memory.download(offset + words * WORD, rest)?;
        let sum = |at: usize| {
            let bytes = found[8 * at..].first_chunk().copied();
            bytes.map_or(0, u64::from_le_bytes)
        };
        Ok(([sum(0), sum(1)], rest))
    }
}

impl Drop for Adder {
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
        assert_eq!(parameters.matches(".param .u64").count(), PARAMETERS);
        for (number, cell) in ["first", "count", "sums"].into_iter().enumerate() {
            let load = format!("ld.param.u64 {cell}, [{ENTRY}_param_{number}];");
            assert!(PTX.contains(&load), "{load}");
        }
        assert!(PTX.contains("shl.b64 address, place, 2;") && WORD == 1 << 2);
    }
}
