//! Memory of operands: from a line of a page on, and elsewhere the next time.

use half::bf16;
use sweeper_program::builtin::{Slice, SliceMut};

/// Bytes of a page.
const PAGE: usize = 4096;

/// Elements from a multiple of 64 bytes on, as a device has its buffers.
pub(super) struct Aligned<T> {
    memory: Vec<T>,
    start: usize,
    len: usize,
}

impl<T: Copy> Aligned<T> {
    /// The elements, from so many lines after the beginning of a page on.
    pub(super) fn at_line(values: &[T], line: usize) -> Self {
        let (len, spare) = (values.len(), 2 * PAGE / size_of::<T>());
        let mut memory = vec![values[0]; len + spare];
        let page = memory.as_ptr().align_offset(PAGE);
        let start = page + line % (PAGE / 64) * 64 / size_of::<T>();
        memory[start..][..len].copy_from_slice(values);
        Aligned { memory, start, len }
    }

    pub(super) fn new(values: impl IntoIterator<Item = T>) -> Self {
        Self::at_line(&values.into_iter().collect::<Vec<T>>(), 0)
    }

    pub(super) fn filled(value: T, len: usize) -> Self {
        Self::new(std::iter::repeat_n(value, len))
    }

    pub(super) fn read(&self) -> &[T] {
        &self.memory[self.start..][..self.len]
    }

    pub(super) fn write(&mut self) -> &mut [T] {
        &mut self.memory[self.start..][..self.len]
    }
}

/// Memory of an operand, of any type.
pub(super) enum Operand {
    Bf16(Aligned<bf16>),
    F32(Aligned<f32>),
    F64(Aligned<f64>),
    I32(Aligned<i32>),
    I64(Aligned<i64>),
}

impl Operand {
    /// A copy of a slice's elements.
    pub(super) fn of(slice: Slice<'_>, line: usize) -> Operand {
        match slice {
            Slice::Bf16(values) => Operand::Bf16(Aligned::at_line(values, line)),
            Slice::F32(values) => Operand::F32(Aligned::at_line(values, line)),
            Slice::F64(values) => Operand::F64(Aligned::at_line(values, line)),
            Slice::I32(values) => Operand::I32(Aligned::at_line(values, line)),
            Slice::I64(values) => Operand::I64(Aligned::at_line(values, line)),
        }
    }

    pub(super) fn read(&self) -> Slice<'_> {
        match self {
            Operand::Bf16(values) => Slice::Bf16(values.read()),
            Operand::F32(values) => Slice::F32(values.read()),
            Operand::F64(values) => Slice::F64(values.read()),
            Operand::I32(values) => Slice::I32(values.read()),
            Operand::I64(values) => Slice::I64(values.read()),
        }
    }

    pub(super) fn write(&mut self) -> SliceMut<'_> {
        match self {
            Operand::Bf16(values) => SliceMut::Bf16(values.write()),
            Operand::F32(values) => SliceMut::F32(values.write()),
            Operand::F64(values) => SliceMut::F64(values.write()),
            Operand::I32(values) => SliceMut::I32(values.write()),
            Operand::I64(values) => SliceMut::I64(values.write()),
        }
    }
}

/// A slice's elements, for reading.
pub(super) fn reading<'a>(slice: &'a SliceMut<'_>) -> Slice<'a> {
    match slice {
        SliceMut::Bf16(values) => Slice::Bf16(values),
        SliceMut::F32(values) => Slice::F32(values),
        SliceMut::F64(values) => Slice::F64(values),
        SliceMut::I32(values) => Slice::I32(values),
        SliceMut::I64(values) => Slice::I64(values),
    }
}

/// Lines of pages at which operands lie, one after the other: all differ, and their distances.
pub(super) struct Lines(pub(super) usize);

impl Iterator for Lines {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        // Numbers of Weyl's sequence, of 64 lines.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        Some(self.0 >> 58)
    }
}

/// The slice for one more call.
pub(super) fn again<'a>(slice: &'a mut SliceMut<'_>) -> SliceMut<'a> {
    match slice {
        SliceMut::Bf16(values) => SliceMut::Bf16(values),
        SliceMut::F32(values) => SliceMut::F32(values),
        SliceMut::F64(values) => SliceMut::F64(values),
        SliceMut::I32(values) => SliceMut::I32(values),
        SliceMut::I64(values) => SliceMut::I64(values),
    }
}
