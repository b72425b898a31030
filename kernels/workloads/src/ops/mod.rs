//! Operations of an eager framework, as builtins: each reads its operands from memory and writes
//! its result there, however small.
//!
//! The docs of an operation's constant define it, with its arguments in order; its counterpart on a
//! GPU (`cuda/ops.cu`) takes the same arguments. Extents and steps are arguments, in elements, so
//! that a launch in a loop can take fewer elements than its views hold. Loops are compiled for
//! several instruction sets and picked at run time; operations on many elements share the threads
//! of the pool they are called in, and results do not depend on the number of threads.

pub mod math;
pub mod emit;
mod argmax;
mod cuda;
mod differences;
pub(crate) mod lanes;
mod loops;
mod map;
mod moves;
mod planes;
pub(crate) mod reduce;
mod wide;
mod windows;

pub use argmax::ARGMAX;
pub use map::{
    ADD, ADD_IN_PLACE, EXP, EXP_IN_PLACE, LN_IN_PLACE, MUL, MUL_IN_PLACE, SUB, SUB_IN_PLACE,
};
pub use moves::{COPY, RING_WINDOW, SCATTER_INDEX, SCATTER_ROWS, SELECT_ROWS};
pub use reduce::{AMAX, AMAX_F64, SUM};
pub use wide::{ABSOLUTE, ABSOLUTE_F32, RELATIVE};

#[cfg(test)]
mod tests;
