//! Runs a program once on the CPU device.

use sweeper::device::cpu::Cpu;
use sweeper::device::{Device, Job};
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Program, Tensors};

use crate::conformance::artifacts;

/// The results of the program.
pub(super) fn run(
    program: Program,
    inputs: &Tensors,
    specs: &[TensorSpec],
    threads: usize,
) -> Tensors {
    let artifacts = artifacts(&program);
    let mut device = Cpu::new(threads).unwrap();
    device.bind(inputs).unwrap();
    let job = Job {
        program,
        artifacts: &artifacts,
        script: None,
    };
    let prepared = device.prepare(job).unwrap();
    device.poison(prepared).unwrap();
    device.sample(prepared, 1).unwrap();
    device.results(prepared, specs).unwrap()
}
