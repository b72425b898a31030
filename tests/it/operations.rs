//! Conformance: every operation in every phase by every backend against its f64 oracle, on the CPU
//! device, as CUDA kernels on the shim, and on a GPU where there is one.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use sweeper::compile::Bounds;
use sweeper::compile::nvrtc::resources;
use sweeper_program::{CanonicalShape, KernelSource, Phase, Problem, Tensor};
use sweeper_workloads::registry;

use crate::conformance::{self, Case, cuda};
use crate::cuda;
use crate::shim::{self, Mode};

const BACKENDS: [&str; 3] = ["primitive", "eager", "compiled"];

/// Every operation in each of its forms: `gelu form=tanh`.
fn operations() -> Vec<String> {
    let forms = registry::operations().flat_map(|workload| {
        let info = workload.info();
        registry::forms(info).into_iter().map(|form| {
            let words = form.iter().map(|(name, word)| format!(" {name}={word}"));
            info.name.to_owned() + &words.collect::<String>()
        })
    });
    forms.collect()
}

fn problem(operation: &str, [batch, sequence, dimension]: [i64; 3]) -> Box<dyn Problem> {
    let sizes = format!("batch={batch} sequence={sequence} dimension={dimension}");
    conformance::problem(&format!("{operation} {sizes}")).0
}

fn case(operation: &str, sizes: [i64; 3]) -> Case {
    let problem = problem(operation, sizes);
    let name = format!("{operation} {sizes:?}");
    Case::new(name, problem, &Phase::ALL, &BACKENDS)
}

/// The case with each element of an input changed.
fn with(mut case: Case, input: &str, change: &dyn Fn(f32) -> f32) -> Case {
    let tensor = &case.inputs[input];
    let values = tensor.as_f32().unwrap().iter();
    let values = values.map(|&value| change(value)).collect();
    let changed = Tensor::f32(tensor.shape(), values);
    case.inputs.insert(input.to_owned(), changed);
    case.ask();
    case
}

/// Kernels for dimensions up to a bound.
fn bounded(bound: Option<u64>) -> CanonicalShape {
    CanonicalShape::new(bound.map(|bound| ("dimension".to_owned(), bound)))
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
    for operation in &operations() {
        for sizes in sizes {
            case(operation, sizes).conforms_on_cpu(&bounded(None));
        }
    }
}

#[test]
fn canonical_shapes_conform_on_a_cpu() {
    for operation in &operations() {
        for (sizes, bound) in [([2, 3, 5], 8), ([2, 9, 1023], 1024), ([3, 3, 1024], 1024)] {
            case(operation, sizes).conforms_on_cpu(&bounded(Some(bound)));
        }
    }
}

#[test]
fn boundary_sizes_conform_as_cuda_kernels() {
    if !shim::is_here() {
        return;
    }
    for operation in &operations() {
        for (sizes, bound) in [
            ([1, 1, 1], None),
            ([3, 5, 7], Some(8)),
            ([1, 2, 4097], None),
        ] {
            let case = case(operation, sizes);
            case.conforms_on_shim(&Phase::ALL, &bounded(bound), Mode::Fast);
        }
        for (sizes, bound) in [
            ([2, 3, 1023], Some(1024)),
            ([1, 2, 1024], Some(1024)),
            ([3, 1, 1500], None),
        ] {
            let case = case(operation, sizes);
            case.conforms_on_shim(&[Phase::Both], &bounded(bound), Mode::Fast);
        }
    }
}

#[test]
fn cuda_kernels_touch_nothing_that_is_not_theirs() {
    if !shim::is_here() {
        return;
    }
    for operation in &operations() {
        let case = case(operation, [2, 3, 37]);
        case.conforms_on_shim(&[Phase::Both], &bounded(Some(64)), Mode::Sanitized);
    }
}

/// Checks an operation of some form on inputs that a function changes.
type Conforms<'c> = &'c dyn Fn(&str, &dyn Fn(f32) -> f32);

/// Numbers that lose their accuracy in careless kernels, by the operations for which they are hard.
fn hard_numbers(conforms: Conforms<'_>) {
    // Far from 0, where a variance from squares would be lost.
    conforms("layernorm", &|x| x + 300.0);
    // Nearly equal elements, whose variance is less than the number that is added to it.
    conforms("layernorm", &|x| 1.0 + 1e-4 * x);
    conforms("rmsnorm", &|x| 1e-4 * x);
    // Exponentials that overflow without a shift, and weights that vanish.
    for operation in ["softmax", "cross_entropy"] {
        conforms(operation, &|x| 100.0 * x);
        conforms(operation, &|x| x - 1000.0);
    }
    // Numbers on both sides of where functions bend, and near 0.
    for operation in &operations() {
        conforms(operation, &|x| 30.0 * x);
        conforms(operation, &|x| 1e-3 * x);
    }
}

#[test]
fn hard_numbers_conform_on_a_cpu() {
    hard_numbers(&|operation, change| {
        let case = with(case(operation, [2, 5, 130]), "x", change);
        case.conforms_on_cpu(&bounded(None));
    });
}

#[test]
fn hard_numbers_conform_as_cuda_kernels() {
    if !shim::is_here() {
        return;
    }
    hard_numbers(&|operation, change| {
        let case = with(case(operation, [2, 5, 130]), "x", change);
        case.conforms_on_shim(&[Phase::Both], &bounded(None), Mode::Fast);
    });
}

/// Every distinct kernel of the operations for an H200, at a bounded and at any dimension, with its
/// name.
fn cuda_sources() -> BTreeMap<String, (String, KernelSource)> {
    let target = cuda();
    let mut sources = BTreeMap::new();
    for operation in &operations() {
        for (dimension, bound) in [(512, Some(512)), (1500, None)] {
            let problem = problem(operation, [16, 256, dimension]);
            let canonical = bounded(bound);
            for backend in BACKENDS {
                for phase in Phase::ALL {
                    let program = problem.program(backend, phase, &canonical, &target);
                    for source in program.unwrap().sources() {
                        let key = format!("{:?}", (&source.files, &source.defines));
                        let name = format!("{operation} {backend} {phase}: {}", source.title());
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
        let compiled = nvrtc.compile(&source, "sm_90a", &Bounds::within(Duration::from_secs(120)));
        let compiled = compiled.unwrap_or_else(|error| panic!("{name}: {error}"));
        let resources = resources(&compiled.log, &BTreeMap::new());
        let spilled = resources["spill_store_bytes"].as_u64();
        assert_eq!(spilled, Some(0), "{name}: {resources:?}");
        assert!(
            !compiled.log.contains("warning"),
            "{name}: {}",
            compiled.log
        );
    }
}

/// Rows that fill nothing, rows that fill their lanes, and a number of elements that is not a
/// multiple of four.
const ON_A_GPU: &str = r#"
schema = 1
name   = "gpu"
about  = "Do programs of many launches conform, launch by launch and as graphs?"

[[zip]]
axes = { batch = [3, 16, 33], sequence = [5, 256, 101], dimension = [7, 512, 770] }

[device]
use = "cuda"

[measure]
repeats = 5
l2      = "hot"
mode    = ["launch", "graph"]
"#;

#[test]
fn programs_of_many_launches_conform_on_a_gpu() {
    let Some(_gpu) = cuda::gpu() else { return };
    let cases = registry::operations().map(|workload| {
        let name = workload.info().name;
        format!("[case.{name}]\nworkload = \"{name}\"\nbackends = {BACKENDS:?}\n")
    });
    let folder = tempfile::tempdir().unwrap();
    let manifest = ON_A_GPU.to_owned() + &cases.collect::<String>();
    fs::write(folder.path().join("m.toml"), manifest).unwrap();
    let output = cuda::sweeper(folder.path(), &["run", "m.toml"]);
    // Rows that are wrong make it another one.
    assert_eq!(output.status.code(), Some(0), "{}", cuda::text(&output));
}
