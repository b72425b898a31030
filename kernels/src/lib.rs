//! What `sweeper` measures, as data: workloads, their oracles, and the programs that compute them.
//!
//! A *workload* says what is computed for given parameters. A *backend* of it says how: it is a
//! pure function from a problem to a [`Program`], plain data that names buffers, kernels and steps.
//! Devices run programs; nothing in this crate does I/O, reads a clock or the environment.
//!
//! Reading order: [`parameters`] and [`tensor`] are the vocabulary, [`workload`] the contract,
//! [`program`] the central idea, [`inputs`] and [`check`] how data is made and judged. One folder a
//! family of workloads follows; [`registry`] lists them.

pub mod parameters;
pub mod tensor;
pub mod target;
pub mod workload;
pub mod program;
pub mod builtin;
pub mod inputs;
pub mod check;
mod rounding;
pub mod common;
pub mod copy;
pub mod ops;
pub mod graph;
pub mod nest;
pub mod codegen;
pub mod fuse;
pub mod graph_problem;
pub mod graph_oracle;
pub mod economics;
pub mod patterns;
pub mod operations;
pub mod semicrf;
pub mod ceilings;
#[cfg(feature = "faults")]
pub mod faults;
pub mod registry;

pub use parameters::{Parameters, Value};
pub use program::Program;
pub use tensor::{Data, Dtype, Tensor, Tensors};
pub use workload::{CanonicalShape, Phase, Problem, Refusal, Target, Workload};
