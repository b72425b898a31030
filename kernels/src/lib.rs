//! Workloads, oracles and kernels as data.
