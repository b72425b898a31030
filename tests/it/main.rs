//! The integration tests, one binary; one module for each stage of the journey.

#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]
#![expect(
    clippy::too_many_lines,
    reason = "a test reads from its first line to its last"
)]

mod support;
mod place;
mod browser;
/// Manifests: accepted and refused ones, and their errors.
mod manifest;
/// CUDA kernels on the CPU.
mod shim;
/// Products of warps on tensor cores.
mod mma;
/// Vectors of kernels for CPUs, by each instruction set that can run here.
mod vectors;
/// Generated kernels, on the CPU device and on the shim.
mod codegen;
/// Conformance of the semi-CRF kernels: kernels for CPUs, and kernels for GPUs on the CPU.
mod semicrf;
/// Whether backends agree with oracles.
mod conformance;
/// Conformance of single operations: kernels for CPUs, and kernels for GPUs on the CPU.
mod operations;
/// Conformance of the workloads of the compilation and the calibration guide.
mod patterns;
/// The transformer, and whether it learns.
mod transformer;
/// Activation checkpointing.
mod checkpoint;
/// Grids: the points of a manifest, and their order.
mod grid;
/// Runs from end to end: null device, CPU, kills, signals, reruns.
mod run;
/// What runs say in the end.
mod answer;
/// What people tripped over.
mod cases;
/// Edits of each input of each kind of backend.
mod edits;
/// Runs that several processes share, and Slurm.
mod cluster;
/// Bad surroundings: disks, folders, journals and manifests that are not as they should be.
mod surroundings;
/// Sources of several kernels.
mod sources;
/// Oracles for GPUs.
mod device_oracle;
/// Programs of graphs, and their results.
mod fuse;
/// The house rules.
mod tidy;
mod trouble;
/// Files from outside, changed by chance.
mod mutated;
/// The semi-Markov CRF's backends of builtins, against its oracle on the CPU device.
mod semicrf_eager;
/// Verbs that do not measure, exit codes, errors as people see them.
mod cli;
/// Reports of runs and of bare files.
mod report;
/// Answers to the operations guide and the compilation guide.
mod economics;
/// Loops that become compiled while they run.
mod attention;
mod auto;
/// The page of a report, in a real browser.
mod page;
/// The CUDA device, where there is one.
mod cuda;
/// States of the second-level cache, and the kernel that reads one clean.
mod flush;
/// Everything that can go wrong, on the CPU and on a GPU.
mod faults;
mod found;
/// Times on a CPU, held against a program by hand.
mod clock;
/// Workloads and kernels that a manifest declares.
mod user;
/// Functions in Python, beside kernels.
mod python;
/// Comparisons of recorded runs.
mod compare;
/// A calibration, its profile, and its effect on later sweeps.
mod cache;
mod calibration;
/// Files that other programs read.
mod import;
/// Files of the guides, as real runs write them.
mod exports;
/// Numbers in documents, made from records.
mod results;
/// The guide, its commands and its tables.
mod guide;
