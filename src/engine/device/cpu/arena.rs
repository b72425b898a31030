//! Page-aligned memory that the CPU device hands to kernels.

use std::hint::black_box;

use memmap2::{MmapMut, MmapRaw};
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Data, Tensor};

use crate::device::DeviceError;
use crate::device::memory::available_bytes;

/// Buffers start at multiples of this many bytes: a cache line, and the widest vector there is.
pub const ALIGNMENT: usize = 64;

/// Memory from the system, which grows and never moves while a program runs.
///
/// Kernels write it through its address, so no Rust reference to it outlives a method of this type.
#[derive(Default)]
pub struct Arena {
    map: Option<MmapRaw>,
    used: usize,
}

impl Arena {
    /// Memory that holds these bytes.
    pub fn holding(bytes: &[u8]) -> Result<Self, DeviceError> {
        let mut arena = Arena::default();
        arena.reserve(bytes.len())?;
        arena.used = bytes.len();
        arena.hold(bytes);
        Ok(arena)
    }

    /// Overwrites the bytes that it holds with as many others.
    pub fn hold(&mut self, bytes: &[u8]) {
        self.write(0, bytes);
    }

    /// The bytes that it holds.
    pub fn held(&self) -> &[u8] {
        self.bytes(0, self.used)
    }

    /// Makes at least `bytes` available. Contents are lost if the memory must grow.
    ///
    /// The system promises more memory than it has, and kills the process that then uses it, so the
    /// available memory is read first.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), DeviceError> {
        if bytes <= self.capacity() {
            return Ok(());
        }
        self.map = None;
        let available = available_bytes();
        let refused = DeviceError::OutOfMemory {
            needed_bytes: bytes as u64,
            available_bytes: available,
        };
        if bytes as u64 > available {
            return Err(refused);
        }
        self.map = Some(MmapMut::map_anon(bytes).map_err(|_| refused)?.into());
        Ok(())
    }

    /// Address of the first byte.
    pub fn address(&self) -> usize {
        self.map
            .as_ref()
            .map_or(ALIGNMENT, |map| map.as_ptr() as usize)
    }

    /// Bytes that can be used.
    pub fn capacity(&self) -> usize {
        self.map.as_ref().map_or(0, MmapRaw::len)
    }

    /// How many bytes it holds.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Sets the first `bytes` bytes.
    pub fn fill(&mut self, bytes: usize, value: u8) {
        self.bytes_mut(0, bytes).fill(value);
    }

    /// Overwrites the first `bytes` bytes with themselves: a byte of each cache line.
    pub fn touch(&mut self, bytes: usize) {
        let lines = self.bytes_mut(0, bytes).iter_mut().step_by(ALIGNMENT);
        lines.for_each(|byte| *byte = black_box(*byte));
    }

    /// Overwrites the bytes from `offset` on.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes_mut(offset, bytes.len()).copy_from_slice(bytes);
    }

    /// `len` bytes from `offset` on.
    #[expect(unsafe_code, reason = "memory that kernels wrote through its address")]
    pub fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        let Some(map) = &self.map else {
            return &[];
        };
        assert!(offset + len <= map.len(), "outside the arena");
        // SAFETY: the range lies in the map, which is initialised (anonymous memory is zero), and
        // no kernel runs while this method's caller holds `self`: kernels run inside
        // `RunsPrograms::sample`.
        unsafe { std::slice::from_raw_parts(map.as_ptr().add(offset), len) }
    }

    #[expect(unsafe_code, reason = "memory that kernels wrote through its address")]
    fn bytes_mut(&mut self, offset: usize, len: usize) -> &mut [u8] {
        let Some(map) = &self.map else {
            return &mut [];
        };
        assert!(offset + len <= map.len(), "outside the arena");
        // SAFETY: as in `bytes`; `&mut self` makes the slice the only reference.
        unsafe { std::slice::from_raw_parts_mut(map.as_mut_ptr().add(offset), len) }
    }

    /// A copy of the elements at `offset` bytes.
    pub fn tensor(&self, offset: usize, spec: &TensorSpec) -> Tensor {
        tensor_of(self.bytes(offset, spec.size_bytes() as usize), spec)
    }
}

/// The tensor whose elements are these bytes.
pub fn tensor_of(bytes: &[u8], spec: &TensorSpec) -> Tensor {
    Tensor::new(spec.shape.clone(), Data::from_bytes(spec.dtype, bytes))
}
