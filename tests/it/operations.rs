//! Conformance: every operation in every phase by every backend against its f64 oracle, on the CPU device and,
//! as CUDA kernels, on the shim.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use sweeper::compile::cc::Cc;
use sweeper::compile::digests::Digests;
use sweeper::compile::nvrtc::resources;
use sweeper::device::cpu::Cpu;
use sweeper::device::{Artifact, Device, Job};
use sweeper_kernels::inputs::InputKey;
use sweeper_kernels::program::KernelSource;
use sweeper_kernels::{
    CanonicalShape, Dtype, Parameters, Phase, Problem, Program, Target, Tensor, Tensors, Value,
    registry,
};

use crate::shim::{self, Mode};

const BACKENDS: [&str; 3] = ["primitive", "eager", "compiled"];

const OPERATIONS: [(&str, &str); 8] = [
    ("layernorm", ""),
    ("rmsnorm", ""),
    ("softmax", ""),
    ("gelu", "erf"),
    ("gelu", "tanh"),
    ("swish", ""),
    ("mse", ""),
    ("cross_entropy", ""),
];

/// A problem with its inputs and the right answer.
struct Case {
    problem: Box<dyn Problem>,
    inputs: Tensors,
    expected: Tensors,
    name: String,
}

fn problem((name, form): (&str, &str), sizes: [i64; 3]) -> Box<dyn Problem> {
    let axes = ["batch", "sequence", "dimension"];
    let mut parameters: Parameters = axes.into_iter().zip(sizes).collect();
    if !form.is_empty() {
        parameters.set("form", Value::from(form));
    }
    let workload = registry::workload(name).expect("it is registered");
    workload.problem(&parameters, Dtype::F32).unwrap()
}

impl Case {
    fn new((name, form): (&str, &str), sizes: [i64; 3]) -> Self {
        let problem = problem((name, form), sizes);
        let inputs = problem.generate(&InputKey([7; 32]));
        let mut case = Case {
            problem,
            inputs,
            expected: Tensors::new(),
            name: format!("{name} {form} {sizes:?}"),
        };
        case.ask();
        case
    }

    fn ask(&mut self) {
        self.problem.validate(&self.inputs).unwrap();
        self.expected = self.problem.oracle(&self.inputs, Phase::Both);
    }

    /// The same with each element of an input changed.
    fn with(mut self, input: &str, change: impl Fn(usize, f32) -> f32) -> Self {
        let tensor = &self.inputs[input];
        let values = tensor.as_f32().unwrap().iter().enumerate();
        let values = values.map(|(at, &value)| change(at, value)).collect();
        let changed = Tensor::f32(tensor.shape(), values);
        self.inputs.insert(input.to_owned(), changed);
        self.ask();
        self
    }

    fn program(&self, backend: &str, phase: Phase, bound: Option<u64>, target: &Target) -> Program {
        let bounds = bound.map(|bound| ("dimension".to_owned(), bound));
        let canonical = CanonicalShape::new(bounds);
        let program = self.problem.program(backend, phase, &canonical, target);
        let program = program.unwrap_or_else(|refusal| self.fail(backend, phase, &refusal));
        program
            .validate()
            .unwrap_or_else(|error| self.fail(backend, phase, &error));
        program
    }

    fn fail(&self, backend: &str, phase: Phase, error: &dyn std::fmt::Debug) -> ! {
        panic!("{}: {backend} {phase}: {error:?}", self.name)
    }

    fn judge(&self, backend: &str, phase: Phase, outputs: &Tensors) {
        let check = self
            .problem
            .check(&self.inputs, outputs, &self.expected, phase);
        if !check.passed() {
            self.fail(backend, phase, &check.tensors);
        }
    }

    fn conforms_on_cpu(&self, bound: Option<u64>) {
        let mut device = Cpu::new(2).unwrap();
        device.bind(&self.inputs).unwrap();
        for backend in BACKENDS {
            for phase in Phase::ALL {
                let program = self.program(backend, phase, bound, &Target::Cpu);
                let artifacts: Vec<Artifact> =
                    program.sources().into_iter().map(artifact).collect();
                let job = Job {
                    program,
                    artifacts: &artifacts,
                    script: None,
                };
                let prepared = device.prepare(job).unwrap();
                device.poison(prepared).unwrap();
                device.sample(prepared, 1).unwrap();
                let specs = self.problem.outputs(phase);
                let outputs = device.results(prepared, &specs).unwrap();
                self.judge(backend, phase, &outputs);
            }
        }
    }

    fn conforms_on_shim(&self, phases: &[Phase], bound: Option<u64>, mode: Mode) {
        let target = Target::Cuda {
            arch: "sm_90a".to_owned(),
        };
        for backend in BACKENDS {
            for &phase in phases {
                let program = self.program(backend, phase, bound, &target);
                let specs = self.problem.outputs(phase);
                let outputs = shim::run(&program, &self.inputs, &specs, mode);
                self.judge(backend, phase, &outputs);
            }
        }
    }
}

/// Compiles a kernel, once for all tests: equal structure has equal text, whatever the sizes are.
pub(crate) fn artifact(source: &KernelSource) -> Artifact {
    static MADE: OnceLock<Mutex<BTreeMap<String, Artifact>>> = OnceLock::new();
    static COMPILER: OnceLock<Cc> = OnceLock::new();
    let key = format!("{:?}", (&source.files, &source.defines));
    let mut made = MADE.get_or_init(Mutex::default).lock().unwrap();
    let artifact = made.entry(key).or_insert_with(|| {
        let cc = COMPILER.get_or_init(|| Cc::find(None, &Digests::default()).unwrap());
        let bytes = cc.compile(source, Duration::from_secs(120)).unwrap();
        Artifact {
            key: source.title(),
            bytes: Arc::from(bytes),
        }
    });
    artifact.clone()
}

#[test]
fn boundary_sizes_conform_on_a_cpu() {
    let sizes = [
        [1, 1, 1],
        [3, 5, 7],
        [7, 11, 1],
        [2, 3, 1023],
        [1, 2, 1024],
        [3, 1, 1500],
        [1, 2, 4097],
        [20, 30, 12],
        [1, 1, 1 << 20],
    ];
    for operation in OPERATIONS {
        for sizes in sizes {
            Case::new(operation, sizes).conforms_on_cpu(None);
        }
    }
}

#[test]
fn canonical_shapes_conform_on_a_cpu() {
    for operation in OPERATIONS {
        for (sizes, bound) in [([2, 3, 5], 8), ([2, 9, 1023], 1024), ([3, 3, 1024], 1024)] {
            Case::new(operation, sizes).conforms_on_cpu(Some(bound));
        }
    }
}

#[test]
fn boundary_sizes_conform_as_cuda_kernels() {
    if !shim::is_here() {
        return;
    }
    for operation in OPERATIONS {
        for (sizes, bound) in [
            ([1, 1, 1], None),
            ([3, 5, 7], Some(8)),
            ([1, 2, 4097], None),
        ] {
            let case = Case::new(operation, sizes);
            case.conforms_on_shim(&Phase::ALL, bound, Mode::Fast);
        }
        for (sizes, bound) in [
            ([2, 3, 1023], Some(1024)),
            ([1, 2, 1024], Some(1024)),
            ([3, 1, 1500], None),
        ] {
            let case = Case::new(operation, sizes);
            case.conforms_on_shim(&[Phase::Both], bound, Mode::Fast);
        }
    }
}

#[test]
fn cuda_kernels_touch_nothing_that_is_not_theirs() {
    if !shim::is_here() {
        return;
    }
    for operation in OPERATIONS {
        let case = Case::new(operation, [2, 3, 37]);
        case.conforms_on_shim(&[Phase::Both], Some(64), Mode::Sanitized);
    }
}

#[test]
fn hard_numbers_conform_on_a_cpu() {
    let sizes = [2, 5, 130];
    // Far from 0, where a variance from squares would be lost.
    Case::new(("layernorm", ""), sizes)
        .with("x", |_, x| x + 300.0)
        .conforms_on_cpu(None);
    // Nearly equal elements, whose variance is less than what is added to it.
    Case::new(("layernorm", ""), sizes)
        .with("x", |_, x| 1.0 + 1e-4 * x)
        .conforms_on_cpu(None);
    Case::new(("rmsnorm", ""), sizes)
        .with("x", |_, x| 1e-4 * x)
        .conforms_on_cpu(None);
    // Exponentials that overflow without a shift, and weights that vanish.
    for operation in ["softmax", "cross_entropy"] {
        Case::new((operation, ""), sizes)
            .with("x", |_, x| 100.0 * x)
            .conforms_on_cpu(None);
        Case::new((operation, ""), sizes)
            .with("x", |_, x| x - 1000.0)
            .conforms_on_cpu(None);
    }
    for operation in [("gelu", "erf"), ("gelu", "tanh"), ("swish", "")] {
        Case::new(operation, sizes)
            .with("x", |_, x| 30.0 * x)
            .conforms_on_cpu(None);
        Case::new(operation, sizes)
            .with("x", |_, x| 1e-3 * x)
            .conforms_on_cpu(None);
    }
}

/// Every distinct kernel of the operations for an H200, at a bounded and at any dimension, with its name.
fn cuda_sources() -> BTreeMap<String, (String, KernelSource)> {
    let target = Target::Cuda {
        arch: "sm_90a".to_owned(),
    };
    let mut sources = BTreeMap::new();
    for operation in OPERATIONS {
        for (dimension, bound) in [(512, Some(512)), (1500, None)] {
            let problem = problem(operation, [16, 256, dimension]);
            let bounds = bound.map(|bound| ("dimension".to_owned(), bound));
            let canonical = CanonicalShape::new(bounds);
            for backend in BACKENDS {
                for phase in Phase::ALL {
                    let program = problem.program(backend, phase, &canonical, &target);
                    for source in program.unwrap().sources() {
                        let key = format!("{:?}", (&source.files, &source.defines));
                        let name = format!("{operation:?} {backend} {phase}: {}", source.title());
                        sources.insert(key, (name, source.clone()));
                    }
                }
            }
        }
    }
    sources
}

#[test]
fn cuda_kernels_compile_without_spills() {
    let Some(nvrtc) = crate::support::nvrtc() else {
        return;
    };
    for (name, source) in cuda_sources().into_values() {
        let compiled = nvrtc.compile(&source, "sm_90a", Duration::from_secs(120));
        let compiled = compiled.unwrap_or_else(|error| panic!("{name}: {error}"));
        let resources = resources(&compiled.log);
        let spilled = resources["spill_store_bytes"].as_u64();
        assert_eq!(spilled, Some(0), "{name}: {resources:?}");
        assert!(
            !compiled.log.contains("warning"),
            "{name}: {}",
            compiled.log
        );
    }
}
