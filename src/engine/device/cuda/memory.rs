//! Memory of one device: a pool of its own, so that its high-water marks are the program's.

use std::ffi::c_void;
use std::rc::Rc;

use cudarc::driver::{result, sys};
use sys::CUmemPool_attribute as Mark;

use super::context::Context;
use super::driver::{During, Fault};
use super::staging;

/// A stream-ordered pool.
pub struct Pool {
    pool: sys::CUmemoryPool,
    context: Rc<Context>,
}

/// Memory of a pool, given back when it is dropped; or a part of such memory.
pub struct Allocation {
    address: sys::CUdeviceptr,
    bytes: usize,
    context: Rc<Context>,
    /// The memory that it is part of.
    whole: Option<Rc<Allocation>>,
}

impl Pool {
    /// A pool that keeps freed memory until it is trimmed.
    ///
    /// # Errors
    /// The driver's; some virtual GPUs have no pools.
    #[expect(unsafe_code, reason = "calls of the driver")]
    pub fn new(context: &Rc<Context>) -> Result<Self, Fault> {
        let properties = sys::CUmemPoolProps {
            allocType: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: sys::CUmemLocation {
                type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
                id: context.device(),
            },
            win32SecurityAttributes: std::ptr::null_mut(),
            maxSize: 0,
            usage: 0,
            reserved: [0; 54],
        };
        // SAFETY: the properties are complete and outlive the call.
        let pool = unsafe { result::mem_pool::create(&raw const properties) }
            .during("making a memory pool")?;
        let pool = Pool {
            pool,
            context: Rc::clone(context),
        };
        pool.set(Mark::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX)?;
        Ok(pool)
    }

    /// At least one byte of memory, whose contents are undefined.
    ///
    /// # Errors
    /// The driver's; the device may be full.
    #[expect(unsafe_code, reason = "a call of the driver")]
    pub fn allocate(&self, bytes: usize) -> Result<Allocation, Fault> {
        let stream = self.context.stream();
        // SAFETY: pool and stream live as long as `self`.
        let address = unsafe { result::mem_pool::alloc_async(self.pool, bytes.max(1), stream) }
            .during("allocating memory")?;
        Ok(Allocation {
            address,
            bytes,
            context: Rc::clone(&self.context),
            whole: None,
        })
    }

    /// Gives free memory back to the device, so that the reserved memory is the needed memory.
    ///
    /// # Errors
    /// The driver's.
    #[expect(unsafe_code, reason = "a call of the driver")]
    pub fn trim(&self) -> Result<(), Fault> {
        self.context.synchronize()?;
        // SAFETY: the pool lives as long as `self`.
        unsafe { result::mem_pool::trim_to(self.pool, 0) }.during("trimming the memory pool")
    }

    /// Sets the high-water marks to the memory that is used and reserved now.
    ///
    /// # Errors
    /// The driver's.
    pub fn reset_marks(&self) -> Result<(), Fault> {
        self.set(Mark::CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0)?;
        self.set(Mark::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0)
    }

    /// The most bytes that were allocated, and the most that were reserved, since the last reset.
    ///
    /// # Errors
    /// The driver's.
    pub fn marks(&self) -> Result<(u64, u64), Fault> {
        let used = self.get(Mark::CU_MEMPOOL_ATTR_USED_MEM_HIGH)?;
        let reserved = self.get(Mark::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)?;
        Ok((used, reserved))
    }

    /// Bytes that could be allocated; 0 where the device does not say.
    pub fn available_bytes(&self) -> u64 {
        let (free, _) = result::mem_get_info().unwrap_or_default();
        let reserved = self.get(Mark::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
        let used = self.get(Mark::CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
        let unused = reserved.unwrap_or(0).saturating_sub(used.unwrap_or(0));
        free as u64 + unused
    }

    #[expect(unsafe_code, reason = "a call of the driver")]
    fn get(&self, attribute: Mark) -> Result<u64, Fault> {
        let mut value = 0u64;
        let pointer = (&raw mut value).cast::<c_void>();
        // SAFETY: all attributes asked for are 64-bit numbers, and so is the target of the pointer.
        unsafe { result::mem_pool::get_attribute(self.pool, attribute, pointer) }
            .during("asking the memory pool")?;
        Ok(value)
    }

    #[expect(unsafe_code, reason = "a call of the driver")]
    fn set(&self, attribute: Mark, mut value: u64) -> Result<(), Fault> {
        let pointer = (&raw mut value).cast::<c_void>();
        // SAFETY: as in `get`.
        unsafe { result::mem_pool::set_attribute(self.pool, attribute, pointer) }
            .during("setting up the memory pool")
    }
}

impl Drop for Pool {
    #[expect(unsafe_code, reason = "a call of the driver")]
    fn drop(&mut self) {
        // SAFETY: destroyed once; allocations that are left keep it alive inside the driver.
        let _ = unsafe { result::mem_pool::destroy(self.pool) };
    }
}

impl Allocation {
    /// A part of the memory.
    ///
    /// # Panics
    /// If it reaches beyond it.
    pub fn part(whole: &Rc<Allocation>, offset: usize, bytes: usize) -> Self {
        assert!(offset + bytes <= whole.bytes, "outside the allocation");
        Allocation {
            address: whole.address + offset as u64,
            bytes,
            context: Rc::clone(&whole.context),
            whole: Some(Rc::clone(whole)),
        }
    }

    /// Address of the first byte, on the device.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Size of the allocation.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets all bytes.
    ///
    /// # Errors
    /// The driver's.
    #[expect(unsafe_code, reason = "a call of the driver")]
    pub fn fill(&self, value: u8) -> Result<(), Fault> {
        if self.bytes == 0 {
            return Ok(());
        }
        let stream = self.context.stream();
        // SAFETY: the range is the allocation.
        unsafe { result::memset_d8_async(self.address, value, self.bytes, stream) }
            .during("filling memory")
    }

    /// Copies all of another allocation, of the same size, into it.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Panics
    /// If their sizes differ.
    #[expect(unsafe_code, reason = "a call of the driver")]
    pub fn copy(&self, from: &Allocation) -> Result<(), Fault> {
        assert_eq!(self.bytes, from.bytes, "allocations of one size");
        if self.bytes == 0 {
            return Ok(());
        }
        let (to, from) = (self.address, from.address);
        // SAFETY: both ranges are allocations that live until the stream is done with them: memory
        // is freed in the order of the stream.
        unsafe { result::memcpy_dtod_async(to, from, self.bytes, self.context.stream()) }
            .during("copying on the device")
    }

    /// Copies bytes to its beginning, and waits for the copy.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Panics
    /// If there are more bytes than it holds.
    pub fn upload(&self, bytes: &[u8]) -> Result<(), Fault> {
        self.write(0, bytes)
    }

    /// Copies bytes to `offset`, and waits for the copy.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Panics
    /// If not all of them fit behind it.
    #[expect(unsafe_code, reason = "a call of the driver")]
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Fault> {
        let fits = offset + bytes.len() <= self.bytes;
        assert!(fits, "outside the allocation");
        if bytes.is_empty() {
            return Ok(());
        }
        let to = self.address + offset as u64;
        if bytes.len() >= staging::LARGE_BYTES {
            return staging::upload(&self.context, to, bytes);
        }
        // SAFETY: the range lies in the allocation, and `bytes` outlive the wait.
        unsafe { result::memcpy_htod_async(to, bytes, self.context.stream()) }
            .during("copying to the device")?;
        self.context.synchronize()
    }

    /// A copy of `len` bytes from `offset`.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Panics
    /// If they are not all its own.
    pub fn download(&self, offset: usize, len: usize) -> Result<Vec<u8>, Fault> {
        let mut bytes = vec![0; len];
        self.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Copies as many bytes as there are from `offset`.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Panics
    /// If they are not all its own.
    #[expect(unsafe_code, reason = "a call of the driver")]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), Fault> {
        let fits = offset + bytes.len() <= self.bytes;
        assert!(fits, "outside the allocation");
        if bytes.is_empty() {
            return Ok(());
        }
        let from = self.address + offset as u64;
        // SAFETY: the range lies in the allocation, and `bytes` outlive the wait.
        unsafe { result::memcpy_dtoh_async(bytes, from, self.context.stream()) }
            .during("copying from the device")?;
        self.context.synchronize()
    }
}

impl Drop for Allocation {
    #[expect(unsafe_code, reason = "a call of the driver")]
    fn drop(&mut self) {
        if self.whole.is_some() {
            return;
        }
        // SAFETY: freed once, in the order of the stream that uses it, after all parts are gone.
        let _ = unsafe { result::free_async(self.address, self.context.stream()) };
    }
}
