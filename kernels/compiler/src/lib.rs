//! A fusing compiler: from a graph of tensor operations to a program of few kernels.
//!
//! [`graph`] has the operations, their gradients and their values in f64; [`fuse`] turns a graph
//! into a plan of kernels and a plan into a [`sweeper_program::Program`]; [`nest`] is one fused
//! kernel as loops, without sizes or threads; [`codegen`] writes nests as C and CUDA. [`stream`]
//! finds loops, as graphs, in operations that come one by one.
//!
//! No code here knows a workload: only the author of a graph knows its purpose.

pub mod graph;
pub mod nest;
pub mod codegen;
pub mod fuse;
pub mod stream;
