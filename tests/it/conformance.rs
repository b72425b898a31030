//! Whether backends agree with a problem's f64 oracle: on the CPU device and, as CUDA kernels, on
//! the shim.

use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use rayon::prelude::*;
use sweeper::compile::cc::Cc;
use sweeper::compile::digests::Digests;
use sweeper::compile::{Bounds, NEVER};
use sweeper::device::cpu::Cpu;
use sweeper::device::{Artifact, Device, Job, RunsPrograms};
use sweeper_program::inputs::InputKey;
use sweeper_program::workload::TensorSpec;
use sweeper_program::{
    CanonicalShape, Dtype, KernelSource, Parameters, Phase, Problem, Program, Refusal, Target,
    Tensors, Value,
};
use sweeper_workloads::registry;

use crate::shim::{self, Mode};
use crate::support::Made;

/// The target of CUDA kernels.
pub(crate) fn cuda() -> Target {
    gpu("sm_90a")
}

/// The target of CUDA kernels for an architecture.
pub(crate) fn gpu(arch: &str) -> Target {
    Target::Cuda {
        arch: arch.to_owned(),
    }
}

/// A problem in words: `mlp batch=3 loss=cross_entropy`; and its phases.
pub(crate) fn problem(words: &str) -> (Box<dyn Problem>, &'static [Phase]) {
    let mut words = words.split(' ');
    let workload = registry::workload(words.next().unwrap()).expect("it is registered");
    let parameters: Parameters = words
        .map(|word| {
            let (name, value) = word.split_once('=').unwrap();
            let value = value.parse().map_or(Value::from(value), Value::Int);
            (name, value)
        })
        .collect();
    let problem = workload.problem(&parameters, Dtype::F32).unwrap();
    (problem, workload.info().phases)
}

/// A problem with its inputs and the right answer.
pub(crate) struct Case {
    pub name: String,
    pub phases: &'static [Phase],
    pub backends: &'static [&'static str],
    /// The target of CUDA kernels.
    pub gpu: Target,
    pub problem: Box<dyn Problem>,
    pub inputs: Tensors,
    expected: Tensors,
}

impl Case {
    pub(crate) fn new(
        name: String,
        problem: Box<dyn Problem>,
        phases: &'static [Phase],
        backends: &'static [&'static str],
    ) -> Self {
        let inputs = problem.generate(&InputKey([7; 32]));
        let mut case = Case {
            name,
            phases,
            backends,
            gpu: cuda(),
            problem,
            inputs,
            expected: Tensors::new(),
        };
        case.ask();
        case
    }

    /// Asks the oracle, once more after a change of the inputs.
    pub(crate) fn ask(&mut self) {
        self.problem.validate(&self.inputs).unwrap();
        let whole = Phase::covering(self.phases.iter().copied());
        self.expected = self.problem.oracle(&self.inputs, whole);
    }

    fn fail(&self, backend: &str, phase: Phase, error: &dyn std::fmt::Debug) -> ! {
        panic!("{}: {backend} {phase}: {error:?}", self.name)
    }

    /// A backend's program; `library` need not have one.
    fn program(
        &self,
        backend: &str,
        phase: Phase,
        canonical: &CanonicalShape,
        target: &Target,
    ) -> Option<Program> {
        match self.problem.program(backend, phase, canonical, target) {
            Ok(program) => {
                if let Err(error) = program.validate() {
                    self.fail(backend, phase, &error);
                }
                Some(program)
            }
            Err(Refusal::Unavailable(_)) if backend == "library" => None,
            Err(refusal) => self.fail(backend, phase, &refusal),
        }
    }

    fn judge(&self, backend: &str, phase: Phase, outputs: &Tensors) {
        let check = self
            .problem
            .check(&self.inputs, outputs, &self.expected, phase);
        if !check.passed() {
            self.fail(backend, phase, &check.tensors);
        }
    }

    /// Checks every backend in every phase.
    pub(crate) fn conforms_on_cpu(&self, canonical: &CanonicalShape) {
        let mut device = Cpu::new(2).unwrap();
        device.bind(&self.inputs).unwrap();
        for backend in self.backends {
            for &phase in self.phases {
                let Some(program) = self.program(backend, phase, canonical, &Target::Cpu) else {
                    continue;
                };
                let specs = self.problem.outputs(phase);
                let outputs = run_bound(&mut device, program, &specs, 1);
                self.judge(backend, phase, &outputs);
            }
        }
    }

    /// Checks every backend in some phases.
    pub(crate) fn conforms_on_shim(
        &self,
        phases: &[Phase],
        canonical: &CanonicalShape,
        mode: Mode,
    ) {
        for backend in self.backends {
            for &phase in phases {
                if let Some(program) = self.program(backend, phase, canonical, &self.gpu) {
                    let specs = self.problem.outputs(phase);
                    let outputs = shim::run(&program, &self.inputs, &specs, mode);
                    self.judge(backend, phase, &outputs);
                }
            }
        }
    }
}

/// Results of a program that ran so often on a CPU of so many threads.
pub(crate) fn run_on_cpu(
    program: Program,
    inputs: &Tensors,
    specs: &[TensorSpec],
    threads: usize,
    iterations: u32,
) -> Tensors {
    let mut device = Cpu::new(threads).unwrap();
    device.bind(inputs).unwrap();
    run_bound(&mut device, program, specs, iterations)
}

/// Results of a program that ran so often, on a device that has its inputs.
fn run_bound(device: &mut Cpu, program: Program, specs: &[TensorSpec], iterations: u32) -> Tensors {
    let artifacts = artifacts(&program);
    let job = Job {
        program,
        artifacts: &artifacts,
        script: None,
    };
    let prepared = device.prepare(job).unwrap();
    device.poison(prepared).unwrap();
    device.sample(prepared, iterations).unwrap();
    device.results(prepared, specs).unwrap()
}

/// The compiled sources of a program, in their order.
pub(crate) fn artifacts(program: &Program) -> Vec<Artifact> {
    program.sources().into_par_iter().map(artifact).collect()
}

/// Compiles a kernel, once for all tests: equal structure has equal text for all sizes.
pub(crate) fn artifact(source: &KernelSource) -> Artifact {
    static MADE: LazyLock<Made<Artifact>> = LazyLock::new(Made::default);
    static COMPILER: OnceLock<Cc> = OnceLock::new();
    let key = format!("{:?}", (&source.files, &source.defines));
    MADE.get(key, || {
        let cc = COMPILER.get_or_init(|| Cc::find(None, &Digests::default(), &NEVER).unwrap());
        let bytes = cc
            .compile(source, &Bounds::within(Duration::from_secs(120)))
            .unwrap_or_else(|error| panic!("{error}\n{}", source.files[0].text));
        Artifact {
            key: source.title(),
            bytes: Arc::from(bytes),
            symbols: Default::default(),
        }
    })
}
