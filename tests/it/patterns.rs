//! Conformance of the workloads of guides 003 and 004: every backend in every phase against the f64 oracle, on the
//! CPU device and, as CUDA kernels, on the shim.

use std::time::Duration;

use sweeper::compile::Bounds;
use sweeper::compile::nvrtc::resources;
use sweeper_kernels::{CanonicalShape, Dtype, Parameters, Phase, Problem, Target, Value, registry};

use crate::conformance::{Case, cuda};
use crate::shim::{self, Mode};

const BACKENDS: [&str; 4] = ["primitive", "eager", "compiled", "library"];

/// A problem in words: `mlp batch=3 loss=cross_entropy`; and its phases.
fn problem(words: &str) -> (Box<dyn Problem>, &'static [Phase]) {
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

fn case(words: &str) -> Case {
    let (problem, phases) = problem(words);
    Case::new(words.to_owned(), problem, phases, &BACKENDS)
}

/// Checks the phase with the results of all others.
fn conforms_on_shim(words: &str) {
    let case = case(words);
    let whole = Phase::covering(case.phases.iter().copied());
    case.conforms_on_shim(&[whole], &CanonicalShape::default(), Mode::Fast);
}

const BODIES: [&str; 14] = [
    "matmul_chain",
    "matmul_chain size=1 depth=1",
    "matmul_chain size=37 depth=5",
    "mlp",
    "mlp loss=cross_entropy",
    "mlp batch=1 input=1 hidden1=1 hidden2=1 output=1",
    "mlp batch=33 input=7 hidden1=19 hidden2=130 output=3 rate=1",
    "mlp batch=5 input=9 hidden1=3 hidden2=21 output=1003 loss=cross_entropy rate=1",
    "attention_block",
    "attention_block sequence=1 dimension=3",
    "attention_block sequence=77 dimension=21",
    "mixed",
    "mixed size=1",
    "mixed size=131",
];

const PATTERNS: [&str; 21] = [
    "matmul m=1 k=1 n=1",
    "matmul m=37 k=129 n=65",
    "linear m=3 k=5 n=7 pattern=bias",
    "linear m=1 k=1 n=1 pattern=bias_gelu",
    "linear m=130 k=33 n=66 pattern=bias_relu",
    // Two panels of a product on a CPU, and a value of the eager program beside them.
    "linear m=800 k=3 n=1024 pattern=bias_relu",
    "linear m=64 k=128 n=96 pattern=bias_gelu",
    "linear m=65 k=31 n=97 pattern=bias_gelu_tanh",
    "conv batch=1 channels_in=1 channels_out=1 size=1 kernel=1 pattern=bn",
    "conv batch=2 channels_in=3 channels_out=5 size=7 pattern=relu",
    "conv batch=2 channels_in=3 channels_out=5 size=7 pattern=bn",
    "conv batch=3 channels_in=4 channels_out=6 size=9 kernel=5 pattern=bn_relu",
    "conv batch=1 channels_in=2 channels_out=2 size=2 kernel=7 pattern=bn_relu",
    "attention batch=1 sequence=1 dimension=1 pattern=scores",
    "attention batch=1 sequence=1 dimension=1 pattern=full",
    "attention batch=2 sequence=64 dimension=16 pattern=scores",
    "attention batch=2 sequence=64 dimension=16 pattern=weights",
    "attention batch=2 sequence=64 dimension=16 pattern=full",
    "attention batch=3 sequence=53 dimension=7 pattern=scores",
    "attention batch=3 sequence=53 dimension=7 pattern=weights",
    "attention batch=3 sequence=53 dimension=7 pattern=full",
];

#[test]
fn patterns_conform_on_a_cpu() {
    for words in PATTERNS {
        case(words).conforms_on_cpu(&CanonicalShape::default());
    }
    let canonical = CanonicalShape::new([("sequence".to_owned(), 64)]);
    case("attention batch=3 sequence=53 dimension=7").conforms_on_cpu(&canonical);
}

#[test]
fn patterns_conform_as_cuda_kernels() {
    if !shim::is_here() {
        return;
    }
    for words in PATTERNS {
        conforms_on_shim(words);
    }
}

#[test]
fn bodies_of_loops_conform_on_a_cpu() {
    for words in BODIES {
        case(words).conforms_on_cpu(&CanonicalShape::default());
    }
    for (words, name, bound) in [
        ("mlp loss=cross_entropy", "output", 16),
        ("attention_block sequence=50", "sequence", 64),
        ("mixed", "size", 32),
    ] {
        let canonical = CanonicalShape::new([(name.to_owned(), bound)]);
        case(words).conforms_on_cpu(&canonical);
    }
}

#[test]
fn bodies_of_loops_conform_as_cuda_kernels() {
    if !shim::is_here() {
        return;
    }
    for words in BODIES {
        conforms_on_shim(words);
    }
}

#[test]
fn kernels_of_bodies_compile_without_spills() {
    let Some(nvrtc) = crate::support::nvrtc() else {
        return;
    };
    for words in ["mlp", "mlp loss=cross_entropy", "attention_block", "mixed"] {
        let (problem, _) = problem(words);
        for arch in ["sm_80", "sm_90a"] {
            let target = Target::Cuda {
                arch: arch.to_owned(),
            };
            let canonical = CanonicalShape::default();
            let program = problem.program("compiled", Phase::Both, &canonical, &target);
            for source in program.unwrap().compiled() {
                let compiled =
                    nvrtc.compile(source, arch, &Bounds::within(Duration::from_secs(120)));
                let log = compiled.unwrap().log;
                let is_spilled = resources(&log)["spill_store_bytes"].as_u64() != Some(0);
                let is_clean = !is_spilled && !log.contains("warning");
                assert!(is_clean, "{words}: {}: {log}", source.title());
            }
        }
    }
}

/// Launches of the timed steps of `primitive`, `eager` and `compiled`.
fn launches(words: &str, phase: Phase, target: &Target) -> [u64; 3] {
    let (problem, _) = problem(words);
    let canonical = CanonicalShape::default();
    ["primitive", "eager", "compiled"].map(|backend| {
        let program = problem.program(backend, phase, &canonical, target);
        program.unwrap().totals().launches
    })
}

#[test]
fn fewer_kernels_are_launched_the_more_is_fused() {
    for words in ["mlp", "mlp loss=cross_entropy", "attention_block", "mixed"] {
        let (_, phases) = problem(words);
        for target in [Target::Cpu, cuda()] {
            for &phase in phases.iter().filter(|&&phase| phase != Phase::Backward) {
                let [primitive, eager, compiled] = launches(words, phase, &target);
                let is_fewer = compiled < eager && eager < primitive;
                assert!(
                    is_fewer,
                    "{words} {phase}: {primitive}, {eager}, {compiled}"
                );
            }
        }
    }
    assert_eq!(launches("mixed", Phase::Forward, &Target::Cpu), [21, 7, 3]);
    // Eight products, what is between them, and one launch for the loss and the updates of all parameters.
    assert_eq!(launches("mlp", Phase::Both, &cuda())[2], 12);
    // Nothing but products: three, and two for each of them on the way back.
    for target in [Target::Cpu, cuda()] {
        assert_eq!(launches("matmul_chain", Phase::Both, &target), [9, 9, 9]);
    }
}
