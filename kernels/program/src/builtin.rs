//! Kernels that are plain functions of this crate: how an eager framework's operations run on a
//! CPU.

use half::bf16;
use std::fmt;

use crate::tensor::Dtype;

/// A function that a CPU calls for a launch. Equality is by name: names are unique in the crate.
#[derive(Clone, Copy)]
pub struct Builtin {
    /// Shown in plans and rows, `family.operation`.
    pub name: &'static str,
    /// Called once a launch. It may use rayon, whose pool the device sets up with as many threads
    /// as the measurement has.
    pub function: fn(&mut Call<'_>),
}

impl PartialEq for Builtin {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Builtin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "builtin {}", self.name)
    }
}

/// Elements that a builtin reads.
#[derive(Clone, Copy, Debug)]
pub enum Slice<'a> {
    /// Elements of [`Dtype::Bf16`].
    Bf16(&'a [bf16]),
    /// Elements of [`Dtype::F32`].
    F32(&'a [f32]),
    /// Elements of [`Dtype::F64`].
    F64(&'a [f64]),
    /// Elements of [`Dtype::I32`].
    I32(&'a [i32]),
    /// Elements of [`Dtype::I64`].
    I64(&'a [i64]),
}

/// Elements that a builtin writes.
#[derive(Debug)]
pub enum SliceMut<'a> {
    /// Elements of [`Dtype::Bf16`].
    Bf16(&'a mut [bf16]),
    /// Elements of [`Dtype::F32`].
    F32(&'a mut [f32]),
    /// Elements of [`Dtype::F64`].
    F64(&'a mut [f64]),
    /// Elements of [`Dtype::I32`].
    I32(&'a mut [i32]),
    /// Elements of [`Dtype::I64`].
    I64(&'a mut [i64]),
}

/// One argument of a launch, resolved to memory.
///
/// Its tag is a whole word, so that an argument is copied in whole words, too, and what a launch
/// has just written is read as it was written: a processor waits where a load needs parts of two
/// stores that are under way.
#[derive(Debug)]
#[repr(u64)]
pub enum CallArg<'a> {
    /// Memory to read.
    Read(Slice<'a>),
    /// Memory to write; `None` once a builtin took it.
    Write(Option<SliceMut<'a>>),
    /// A whole number.
    Int(i64),
    /// A real number.
    Float(f32),
}

/// The arguments of one launch.
///
/// The accessors panic when an argument is of another kind than the builtin expects: the backend
/// that made the program is wrong then, and the worker that runs it reports the panic as one failed
/// row.
#[derive(Debug)]
pub struct Call<'a> {
    args: Vec<CallArg<'a>>,
}

impl<'a> Call<'a> {
    /// A call with these arguments, in the order of the launch.
    pub fn new(args: Vec<CallArg<'a>>) -> Self {
        Call { args }
    }

    /// Argument `position` as `f32` elements to read.
    pub fn read(&self, position: usize) -> &'a [f32] {
        match self.args[position] {
            CallArg::Read(Slice::F32(values)) => values,
            ref other => mismatch(position, Dtype::F32, other),
        }
    }

    /// Argument `position` as `f64` elements to read.
    pub fn read_f64(&self, position: usize) -> &'a [f64] {
        match self.args[position] {
            CallArg::Read(Slice::F64(values)) => values,
            ref other => mismatch(position, Dtype::F64, other),
        }
    }

    /// Argument `position` as `i64` elements to read.
    pub fn read_i64(&self, position: usize) -> &'a [i64] {
        match self.args[position] {
            CallArg::Read(Slice::I64(values)) => values,
            ref other => mismatch(position, Dtype::I64, other),
        }
    }

    /// Argument `position` as `f32` elements to write. Each can be taken once a call.
    pub fn write(&mut self, position: usize) -> &'a mut [f32] {
        match &mut self.args[position] {
            CallArg::Write(slot @ Some(SliceMut::F32(_))) => match slot.take() {
                Some(SliceMut::F32(values)) => values,
                _ => unreachable!("matched above"),
            },
            other => mismatch(position, Dtype::F32, other),
        }
    }

    /// Argument `position` as `f64` elements to write. Each can be taken once a call.
    pub fn write_f64(&mut self, position: usize) -> &'a mut [f64] {
        match &mut self.args[position] {
            CallArg::Write(slot @ Some(SliceMut::F64(_))) => match slot.take() {
                Some(SliceMut::F64(values)) => values,
                _ => unreachable!("matched above"),
            },
            other => mismatch(position, Dtype::F64, other),
        }
    }

    /// Argument `position` as `i64` elements to write. Each can be taken once a call.
    pub fn write_i64(&mut self, position: usize) -> &'a mut [i64] {
        match &mut self.args[position] {
            CallArg::Write(slot @ Some(SliceMut::I64(_))) => match slot.take() {
                Some(SliceMut::I64(values)) => values,
                _ => unreachable!("matched above"),
            },
            other => mismatch(position, Dtype::I64, other),
        }
    }

    /// Argument `position` as a whole number.
    #[inline]
    pub fn int(&self, position: usize) -> i64 {
        match self.args[position] {
            CallArg::Int(value) => value,
            ref other => no_integer(position, other),
        }
    }

    /// Argument `position` as an extent or a count.
    #[inline]
    pub fn size(&self, position: usize) -> usize {
        let value = self.int(position);
        usize::try_from(value).unwrap_or_else(|_| negative(position, value))
    }

    /// Argument `position` as a real number.
    pub fn float(&self, position: usize) -> f32 {
        match self.args[position] {
            CallArg::Float(value) => value,
            ref other => panic!("argument {position} is not a float: {other:?}"),
        }
    }
}

// Apart and never inlined, so that reading an argument is.
#[cold]
#[inline(never)]
fn no_integer(position: usize, found: &CallArg<'_>) -> ! {
    panic!("argument {position} is not an integer: {found:?}")
}

#[cold]
#[inline(never)]
fn negative(position: usize, value: i64) -> ! {
    panic!("argument {position} is a size, and negative: {value}")
}

fn mismatch(position: usize, expected: Dtype, found: &CallArg<'_>) -> ! {
    let kind = match found {
        CallArg::Read(_) => "memory of another type, or read-only",
        CallArg::Write(Some(_)) => "memory to write, or of another type",
        CallArg::Write(None) => "memory that was taken already",
        CallArg::Int(_) => "an integer",
        CallArg::Float(_) => "a float",
    };
    panic!("argument {position} should be {expected} memory, but is {kind}")
}
