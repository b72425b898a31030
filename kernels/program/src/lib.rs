//! The contract of engine, compiler and workloads, as data.
//!
//! A *workload* says what is computed for given parameters. A *backend* of it says how: it is a
//! pure function from a problem to a [`Program`], plain data that names buffers, kernels and steps.
//! Devices run programs; nothing in this crate does I/O, reads a clock or the environment.
//!
//! Reading order: [`parameters`] and [`tensor`] are the vocabulary, [`workload`] the contract, the
//! module of [`Program`] the central idea, [`inputs`] and [`check`] how data is made and judged.

pub mod parameters;
pub mod tensor;
mod target;
pub mod workload;
mod program;
pub mod builtin;
pub mod inputs;
pub mod check;
pub mod rounding;
pub mod spread;
pub mod headers;
mod vectorised;

pub use parameters::{Parameters, Value};
pub use program::{
    ADJACENT_ALIGNMENT, Activation, Arg, Attention, AttentionPass, Binding, Buffer, BufferId,
    Conv2d, ConvPass, Foreign, Geometry, Heads, Index, Kernel, KernelId, KernelSource, Language,
    Library, Matmul, Matrix, Order, Precision, Program, Role, Rows, Runner, Scalar, Scale,
    SourceFile, Step, Term, Totals, Touched, UserOptions, View,
};
pub use tensor::{Data, Dtype, Element, Tensor, Tensors};
pub use vectorised::vectorised;
pub use workload::{CanonicalShape, Phase, Problem, Refusal, Target, Workload};
