//! How fast the CUDA kernels of `semicrf` are: `cargo bench --bench cuda --
//! [T,K,C,B:form:semiring]...`
//!
//! Medians of device time over a cold second-level cache, in milliseconds, one line a problem with
//! each backend and phase. `form` is `materialized`, `decomposed` or `per_duration`. Without
//! arguments the problems of docs/performance. Inputs of large problems repeat themselves. Outputs
//! are checked by `sweeper run`, not here.

#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sweeper::compile::Bounds;
use sweeper::compile::nvrtc::Nvrtc;
use sweeper::device::cuda::Cuda;
use sweeper::device::{Artifact, Device, Job, RunsPrograms};
use sweeper::identity::CacheState;
use sweeper_program::inputs::InputKey;
use sweeper_program::{
    CanonicalShape, Dtype, Parameters, Phase, Problem, Tensor, Tensors, Workload,
};
use sweeper_workloads::semicrf::SemiCrf;

const ROUNDS: usize = 15;
/// Larger tensors repeat their first elements.
const DISTINCT: usize = 1 << 22;

const DEFAULTS: [&str; 12] = [
    "1024,24,12,4:decomposed:log",
    "1024,24,12,4:materialized:log",
    "1024,24,12,4:per_duration:log",
    "1024,24,12,4:decomposed:max",
    "1024,24,12,4:materialized:max",
    "1024,24,12,4:decomposed:entropy",
    "1024,24,12,4:materialized:entropy",
    "128,4,3,4:materialized:log",
    "10000,100,24,4:decomposed:log",
    "10000,100,24,4:decomposed:entropy",
    "1000,100,24,64:decomposed:log",
    "1000,100,24,64:materialized:log",
];

fn main() {
    let given: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word.contains(':'))
        .collect();
    let problems: Vec<String> = if given.is_empty() {
        DEFAULTS.iter().map(|&word| word.to_owned()).collect()
    } else {
        given
    };
    let mut device = Cuda::open(0, CacheState::Cold).expect("a GPU");
    let mut kernels = Kernels::new(&device);
    for name in problems {
        let mut line = format!("{name:<36}");
        measure(&mut device, &mut kernels, &name, &mut line);
        println!("{line}");
    }
}

fn parameters(name: &str) -> Parameters {
    let mut words = name.split(':');
    let sizes = words.next().unwrap_or_default().split(',');
    let sizes = sizes.map(|size| size.parse::<i64>().expect("sizes are T,K,C,B"));
    let mut parameters: Parameters = ["T", "K", "C", "B"].into_iter().zip(sizes).collect();
    let form = words.next().unwrap_or("decomposed");
    if form != "materialized" {
        parameters.set("potentials", "decomposed");
    }
    if form == "per_duration" {
        parameters.set("transition", form);
    }
    parameters.set("semiring", words.next().unwrap_or("log"));
    parameters
}

/// Inputs, in which large tensors repeat their values.
fn inputs(problem: &dyn Problem) -> Tensors {
    let all = problem.inputs();
    if all.iter().map(|spec| spec.size_bytes()).sum::<u64>() < 1 << 30 {
        return problem.generate(&InputKey([1; 32]));
    }
    let mut tensors = Tensors::new();
    for spec in all {
        let elements: usize = spec.shape.iter().product();
        let tensor = if spec.name == "lengths" {
            Tensor::i64(spec.shape, vec![problem_length(problem); elements])
        } else {
            let key = InputKey([1; 32]);
            let some = key.stream(&spec.name).normal(DISTINCT.min(elements), 1.0);
            Tensor::f32(
                spec.shape,
                some.into_iter().cycle().take(elements).collect(),
            )
        };
        tensors.insert(spec.name, tensor);
    }
    tensors
}

/// T, from the tensor of edges.
fn problem_length(problem: &dyn Problem) -> i64 {
    problem.inputs()[0].shape[1] as i64 + 1
}

fn measure(device: &mut Cuda, kernels: &mut Kernels, name: &str, line: &mut String) {
    let problem = SemiCrf
        .problem(&parameters(name), Dtype::F32)
        .expect("sizes are within bounds");
    let labels = name.split(',').nth(2).and_then(|c| c.parse::<u64>().ok());
    let bound = labels.unwrap_or(16).next_power_of_two().max(16);
    let canonical = CanonicalShape::new([("C".to_owned(), bound)]);
    device.bind(&inputs(&*problem)).expect("memory for inputs");
    for backend in ["fused", "fused_checkpointing"] {
        for phase in Phase::ALL {
            let is_known = backend != "fused" && phase == Phase::Forward;
            let program = problem.program(backend, phase, &canonical, &device.target());
            let Some(program) = program.ok().filter(|_| !is_known) else {
                continue;
            };
            let artifacts: Vec<Artifact> = program
                .sources()
                .into_iter()
                .map(|source| kernels.artifact(source))
                .collect();
            let job = Job {
                program,
                artifacts: &artifacts,
                script: None,
            };
            let short = if backend == "fused" {
                ""
            } else {
                "checkpoints "
            };
            let prepared = match device.prepare(job) {
                Ok(prepared) => prepared,
                Err(error) => {
                    *line += &format!("  {short}{phase}: {error}");
                    continue;
                }
            };
            let mut samples_ms: Vec<f64> = (0..ROUNDS + 2)
                .map(|_| {
                    let sample = device.sample(prepared, 1).expect("the program runs");
                    sample.per_iteration_ns() / 1e6
                })
                .skip(2)
                .collect();
            samples_ms.sort_by(f64::total_cmp);
            *line += &format!("  {short}{phase} {:.4}", samples_ms[ROUNDS / 2]);
        }
    }
    *line += &format!("  compiled in {:.0} ms", kernels.spent.as_secs_f64() * 1e3);
    kernels.spent = Duration::ZERO;
}

/// Compiles each kernel once.
struct Kernels {
    nvrtc: Nvrtc,
    arch: String,
    artifacts: BTreeMap<String, Artifact>,
    /// Time since this was last asked.
    spent: Duration,
}

impl Kernels {
    fn new(device: &Cuda) -> Self {
        Kernels {
            nvrtc: Nvrtc::find(&sweeper::compile::digests::Digests::default()).expect("NVRTC"),
            arch: device.identity().details["arch"].clone(),
            artifacts: BTreeMap::new(),
            spent: Duration::ZERO,
        }
    }

    fn artifact(&mut self, source: &sweeper_program::KernelSource) -> Artifact {
        let key = source.title();
        if let Some(known) = self.artifacts.get(&key) {
            return known.clone();
        }
        let start = Instant::now();
        let compiled =
            self.nvrtc
                .compile(source, &self.arch, &Bounds::within(Duration::from_secs(60)));
        let compiled = compiled.unwrap_or_else(|error| panic!("{key}: {error}"));
        self.spent += start.elapsed();
        let artifact = Artifact {
            key: key.clone(),
            bytes: compiled.cubin.into(),
            symbols: Default::default(),
        };
        self.artifacts.insert(key, artifact.clone());
        artifact
    }
}
