//! Runs a program once on the CPU device.

use sweeper_program::workload::TensorSpec;
use sweeper_program::{Program, Tensors};

use crate::conformance::run_on_cpu;

/// The results of the program.
pub(super) fn run(
    program: Program,
    inputs: &Tensors,
    specs: &[TensorSpec],
    threads: usize,
) -> Tensors {
    run_on_cpu(program, inputs, specs, threads, 1)
}
