//! What runs: devices, the compilation of kernels, execution and judging.

pub mod compile;
pub mod device;
pub mod auto;
pub mod execute;
