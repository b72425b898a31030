//! Runs a program once on the CPU device.

use std::time::Duration;

use sweeper::compile::Bounds;
use sweeper::compile::cc::Cc;
use sweeper::compile::digests::Digests;
use sweeper::device::cpu::Cpu;
use sweeper::device::{Artifact, Device, Job};
use sweeper_kernels::program::KernelSource;
use sweeper_kernels::workload::TensorSpec;
use sweeper_kernels::{Program, Tensors};

/// What the program yields.
pub(super) fn run(
    program: Program,
    inputs: &Tensors,
    specs: &[TensorSpec],
    threads: usize,
) -> Tensors {
    let cc = Cc::find(None, &Digests::default()).unwrap();
    let artifact = |source: &KernelSource| Artifact {
        key: source.title(),
        bytes: cc
            .compile(source, &Bounds::within(Duration::from_secs(60)))
            .unwrap_or_else(|error| panic!("{error}\n{}", source.files[0].text))
            .into(),
    };
    let artifacts: Vec<Artifact> = program.sources().into_iter().map(artifact).collect();
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
