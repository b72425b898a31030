//! The integration tests, one binary; one module for each stage of the journey.

mod support;
/// Manifests: what is read, what is refused, and how errors look.
mod manifest;
/// Conformance of the semi-CRF kernels on the CPU device.
mod semicrf;
/// Grids: which points a manifest has, and in which order.
mod grid;
/// The semi-Markov CRF's backends of builtins, against its oracle on the CPU device.
mod semicrf_eager;
