//! What `sweeper` measures: workloads, their oracles, and their backends.
//!
//! One folder a family of workloads; [`registry`] lists them. [`graph_problem`] and
//! [`graph_oracle`] make a problem of a graph of tensor operations, [`ops`] are the operations of
//! backends that run one after the other, [`ceilings`] what a device can do at most.

pub mod ceilings;
pub mod copy;
mod dispatcher;
pub mod economics;
#[cfg(feature = "faults")]
pub mod faults;
mod graph_builder;
pub mod graph_oracle;
pub mod graph_problem;
mod graph_workload;
pub mod operations;
pub mod ops;
pub mod patterns;
pub mod registry;
pub mod semicrf;
pub mod showing;
#[cfg(test)]
mod streams;
pub mod transformer;
