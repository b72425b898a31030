//! Conformance of the workloads of the compilation and the calibration guide: every backend in
//! every phase against the f64 oracle, on the CPU device and, as CUDA kernels, on the shim.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use sweeper::compile::Bounds;
use sweeper::compile::nvrtc::resources;
use sweeper_program::inputs::InputKey;
use sweeper_program::tensor::Data;
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Binding, CanonicalShape, Dtype, Phase, Step, Target, Tensor};

use crate::conformance::{Case, cuda, gpu, problem};
use crate::shim::{self, Blocks, Mode};

const BACKENDS: [&str; 4] = ["primitive", "eager", "compiled", "library"];

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

const PATTERNS: [&str; 29] = [
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
    "attention batch=1 sequence=1 dimension=1 mask=causal",
    "attention batch=2 sequence=150 dimension=33 mask=causal",
    "attention batch=2 sequence=130 dimension=64 heads=2",
    "attention batch=2 sequence=70 dimension=20 heads=6 kv_heads=2 mask=causal",
    "attention batch=1 sequence=40 dimension=16 heads=4 kv_heads=1",
    "attention batch=1 sequence=70 dimension=100 mask=causal",
    "attention batch=2 sequence=33 dimension=5 mask=causal pattern=scores",
    "attention batch=2 sequence=33 dimension=5 mask=causal pattern=weights",
];

#[test]
fn patterns_conform_on_a_cpu() {
    for words in PATTERNS {
        case(words).conforms_on_cpu(&CanonicalShape::default());
    }
    let canonical = CanonicalShape::new([("sequence".to_owned(), 64)]);
    case("attention batch=3 sequence=53 dimension=7").conforms_on_cpu(&canonical);
}

/// Attention on tensor cores: blocks, tiles and columns that are full and that are not.
const ON_TENSOR_CORES: [&str; 5] = [
    "batch=1 sequence=1 dimension=1",
    "batch=2 sequence=150 dimension=33 mask=causal",
    "batch=2 sequence=130 dimension=64 heads=2",
    "batch=1 sequence=70 dimension=20 heads=6 kv_heads=2 mask=causal",
    "batch=1 sequence=257 dimension=128",
];

#[test]
fn attention_conforms_on_tensor_cores() {
    if !shim::is_here() {
        return;
    }
    for precision in ["tf32", "bf16"] {
        for sizes in ON_TENSOR_CORES {
            conforms_on_shim(&format!("attention {sizes} precision={precision}"));
        }
    }
}

/// Attention that a library has, as the shim's computes it: rows that are rounded before the call,
/// and copied to f32 after it.
#[test]
fn attention_by_a_library_conforms() {
    if !shim::is_here() {
        return;
    }
    for (sizes, phases) in [
        (
            "batch=2 sequence=150 dimension=32 mask=causal",
            &Phase::ALL[..],
        ),
        ("batch=2 sequence=70 dimension=64 heads=3", &Phase::ALL),
        ("batch=1 sequence=129 dimension=128", &Phase::ALL),
        (
            "batch=2 sequence=40 dimension=8 heads=6 kv_heads=2 mask=causal",
            &[Phase::Forward],
        ),
    ] {
        let words = format!("attention {sizes} precision=bf16");
        let (problem, _) = problem(&words);
        let inputs = problem.generate(&InputKey([9; 32]));
        for &phase in phases {
            let canonical = CanonicalShape::default();
            let program = problem.program("library", phase, &canonical, &cuda());
            let program = program.unwrap_or_else(|refusal| panic!("{words}: {refusal:?}"));
            let outputs = shim::run(&program, &inputs, &problem.outputs(phase), Mode::Fast);
            let expected = problem.oracle(&inputs, phase);
            let check = problem.check(&inputs, &outputs, &expected, phase);
            assert!(check.passed(), "{words}: {phase}: {:?}", check.tensors);
        }
    }
}

/// The same by products of warps, on other GPUs; tiles have fewer rows where there is less shared
/// memory.
#[test]
fn attention_conforms_on_tensor_cores_by_warps() {
    if !shim::is_here() {
        return;
    }
    // Blocks that keep a large GPU busy, whose warps have two bands of rows.
    let many = [
        "batch=132 sequence=70 dimension=20 mask=causal",
        "batch=66 sequence=20 dimension=66 heads=2",
    ];
    let few = ["batch=1 sequence=70 dimension=128 mask=causal"];
    for (arch, precision, all) in [
        ("sm_80", "tf32", &ON_TENSOR_CORES[..]),
        ("sm_80", "bf16", &ON_TENSOR_CORES),
        ("sm_80", "tf32", &many),
        ("sm_80", "bf16", &many),
        ("sm_86", "tf32", &few),
        ("sm_86", "bf16", &few),
    ] {
        for sizes in all {
            let mut case = case(&format!("attention {sizes} precision={precision}"));
            case.backends = &["compiled"];
            case.gpu = gpu(arch);
            let whole = Phase::covering(case.phases.iter().copied());
            case.conforms_on_shim(&[whole], &CanonicalShape::default(), Mode::Fast);
        }
    }
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

/// Blocks that add to the same gradients take turns, whichever of them begin first; on tensor cores
/// none do.
#[test]
fn gradients_of_attention_do_not_depend_on_the_order_of_blocks() {
    if !shim::is_here() {
        return;
    }
    for (arch, precision) in [("sm_90a", "f32"), ("sm_80", "tf32"), ("sm_80", "bf16")] {
        let sizes = "batch=2 sequence=270 dimension=8";
        let (problem, _) = problem(&format!("attention {sizes} precision={precision}"));
        let canonical = CanonicalShape::default();
        let program = problem.program("compiled", Phase::Both, &canonical, &gpu(arch));
        let program = program.unwrap();
        let inputs = problem.generate(&InputKey([6; 32]));
        let outputs = |blocks| {
            let specs = problem.outputs(Phase::Both);
            shim::run_blocks(&program, &inputs, &specs, Mode::Fast, blocks)
        };
        assert!(outputs(Blocks::Ascending) == outputs(Blocks::Descending));
    }
}

#[test]
fn kernels_of_attention_have_room_on_gpus() {
    // By NVIDIA's table of compute capabilities.
    for (arch, most, precision, phase, dimensions) in [
        ("sm_80", 163 << 10, "f32", Phase::Both, &[3, 64, 128][..]),
        ("sm_75", 64 << 10, "f32", Phase::Both, &[3, 64, 128]),
        ("sm_86", 99 << 10, "f32", Phase::Both, &[3, 64, 128]),
        ("sm_90a", 227 << 10, "f32", Phase::Both, &[3, 64, 128]),
        ("sm_80", 163 << 10, "tf32", Phase::Both, &[3, 64, 128]),
        ("sm_86", 99 << 10, "tf32", Phase::Both, &[3, 64, 128]),
        ("sm_120", 99 << 10, "bf16", Phase::Both, &[3, 64, 128]),
        ("sm_90a", 227 << 10, "tf32", Phase::Both, &[3, 64, 128]),
    ] {
        for dimension in dimensions {
            for (batch, sequence) in [(1, 70), (64, 4096)] {
                let sizes = format!("batch={batch} sequence={sequence} dimension={dimension}");
                let words = format!("attention {sizes} precision={precision}");
                let (problem, _) = problem(&words);
                let canonical = CanonicalShape::default();
                let program = problem.program("compiled", phase, &canonical, &gpu(arch));
                let bytes = program.unwrap().steps.iter().map(shared_bytes).max();
                assert!(bytes <= Some(most), "{arch}: {words}: {bytes:?} bytes");
            }
        }
    }
}

fn shared_bytes(step: &Step) -> u32 {
    match step {
        Step::Launch { geometry, .. } => geometry.shared_bytes,
        _ => 0,
    }
}

#[test]
fn kernels_of_attention_compile_without_spills() {
    // By warps with all 255 registers: numbers that a tile needs once.
    const WORDS: u64 = 8 * 4;
    let Some(nvrtc) = crate::support::nvrtc() else {
        return;
    };
    // Hopper's kernels are sm_90a's alone: sm_90 has those of other GPUs.
    for (arch, precisions) in [
        ("sm_80", &["f32", "tf32", "bf16"][..]),
        ("sm_90", &["tf32", "bf16"]),
        ("sm_90a", &["f32", "tf32", "bf16"]),
    ] {
        for precision in precisions {
            for (words, most) in [
                ("sequence=8192 dimension=64", 0),
                ("sequence=8192 dimension=128 mask=causal", WORDS),
                // In f32, several blocks a tile.
                ("sequence=512 dimension=64 mask=causal", 0),
                ("sequence=512 dimension=128", WORDS),
            ] {
                let words = format!("{words} precision={precision}");
                let (problem, _) = problem(&format!("attention batch=8 {words}"));
                let canonical = CanonicalShape::default();
                let program = problem.program("compiled", Phase::Both, &canonical, &gpu(arch));
                for source in program.unwrap().compiled() {
                    let bounds = Bounds::within(Duration::from_secs(120));
                    let log = nvrtc.compile(source, arch, &bounds).unwrap().log;
                    let spilled = resources(&log, &BTreeMap::new())["spill_store_bytes"].as_u64();
                    let most = if source.title().contains("mma") {
                        most
                    } else {
                        0
                    };
                    assert!(
                        spilled <= Some(most),
                        "{arch} {words}: {}: {log}",
                        source.title()
                    );
                }
            }
        }
    }
}

/// The error of a product in bf16 is mostly the error of its factors: no other precision has as
/// great an error.
#[test]
fn products_in_bf16_are_made_of_rounded_factors() {
    if !shim::is_here() {
        return;
    }
    let words = "matmul m=37 k=129 n=65 precision=bf16";
    conforms_on_shim(words);
    let (problem, _) = problem(words);
    let mut inputs = problem.generate(&InputKey([5; 32]));
    // Halves of the last place that go to even, up and down; carries into the exponent; values that
    // are not numbers.
    let hard = [
        1.0 + f32::EPSILON * 32768.0,
        1.0 + 3.0 * f32::EPSILON * 32768.0,
        f32::from_bits(0x3fff_ffff),
        f32::from_bits(0x0000_8000),
        f32::from_bits(0x0001_8000),
        -f32::MAX,
        f32::INFINITY,
        f32::from_bits(0x7f80_0001),
    ];
    let Some(a) = inputs["a"].as_f32() else {
        panic!("f32")
    };
    let a: Vec<f32> = hard
        .into_iter()
        .chain(a[hard.len()..].iter().copied())
        .collect();
    let expected: Vec<u16> = a
        .iter()
        .map(|&x| half::bf16::from_f32(x).to_bits())
        .collect();
    inputs.insert("a".to_owned(), Tensor::f32([37, 129], a));
    let canonical = CanonicalShape::default();
    let program = problem.program("library", Phase::Forward, &canonical, &cuda());
    let mut program = program.unwrap();
    // The copies are results of a program that makes them alone.
    program.steps = std::mem::take(&mut program.prologue);
    for buffer in &mut program.buffers {
        if buffer.binding == Binding::Result {
            buffer.binding = Binding::Scratch;
        }
    }
    let mut buffers = program.buffers.iter_mut();
    let rounded = buffers.find(|buffer| buffer.dtype == Dtype::Bf16).unwrap();
    rounded.binding = Binding::Result;
    let spec = TensorSpec {
        name: rounded.name.to_string(),
        shape: vec![37, 129],
        dtype: Dtype::Bf16,
    };
    let outputs = shim::run(&program, &inputs, std::slice::from_ref(&spec), Mode::Fast);
    let Data::Bf16(rounded) = outputs[&spec.name].data() else {
        panic!("{outputs:?}")
    };
    let bits: Vec<u16> = rounded.iter().map(|x| x.to_bits()).collect();
    assert_eq!(bits, expected);
}

/// Sizes that fill tiles and sizes that do not, in every pattern.
const ON_A_GPU: &str = r#"
schema = 1
name   = "gpu"
about  = "Do products, convolutions and attention conform, and in the precision that was asked for?"

[case.matmul]
workload = "matmul"
backends = ["library", "compiled"]
grid     = { precision = ["f32", "tf32", "bf16"] }
[[case.matmul.zip]]
axes = { m = [1, 37, 256, 1024], k = [64, 129, 512, 1024], n = [8, 65, 256, 1024] }

[case.linear]
workload = "linear"
grid     = { pattern = ["bias", "bias_relu", "bias_gelu", "bias_gelu_tanh"] }
[[case.linear.zip]]
axes = { m = [3, 130, 512], k = [5, 33, 1024], n = [7, 66, 256] }

[case.conv]
workload = "conv"
grid     = { pattern = ["relu", "bn", "bn_relu"] }
[[case.conv.zip]]
axes = { batch = [1, 2, 4], channels_in = [1, 3, 64], channels_out = [1, 5, 64], size = [3, 7, 28] }

[case.attention]
workload = "attention"
grid     = { pattern = ["scores", "weights", "full"] }
[[case.attention.zip]]
axes = { batch = [1, 3, 4], sequence = [1, 53, 256], dimension = [1, 7, 64] }

[case.bf16]
workload = "attention"
backends = ["library", "compiled"]
phases   = ["forward", "backward", "both"]
grid     = { precision = "bf16", mask = ["none", "causal"] }
[[case.bf16.zip]]
axes = { batch = [1, 2, 4], heads = [1, 3, 2], sequence = [200, 77, 1024], dimension = [8, 64, 128] }

[device]
use = "cuda"

[measure]
repeats = 5
l2      = "hot"
"#;

#[test]
fn patterns_conform_on_a_gpu_in_the_precision_that_was_asked_for() {
    let Some(_gpu) = crate::cuda::gpu() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("m.toml"), ON_A_GPU).unwrap();
    let output = crate::cuda::sweeper(folder.path(), &["run", "m.toml", "--output-dir", "o"]);
    let said = crate::cuda::text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let run = fs::read_dir(folder.path().join("o")).unwrap().next();
    let mut records = csv::Reader::from_path(run.unwrap().unwrap().path().join("records.csv"));
    let rows = records.as_mut().unwrap().deserialize();
    let rows: Vec<BTreeMap<String, String>> = rows.map(Result::unwrap).collect();
    let products = rows
        .iter()
        .filter(|row| row["workload"] == "matmul" && row["status"] == "ok");
    // Where cuDNN is found: scores alone, in f32, are a product by cuBLASLt.
    let by_library = |row: &&BTreeMap<String, String>| {
        let expected = [
            ("workload", "attention"),
            ("backend", "library"),
            ("precision", "bf16"),
        ];
        row["status"] == "ok" && expected.iter().all(|(column, word)| row[*column] == *word)
    };
    let attentions = rows.iter().filter(by_library).count();
    assert!([0, 18].contains(&attentions), "{attentions}: {said}");
    let mut count = 0;
    for row in products {
        count += 1;
        let error: f64 = row["worst_error"].parse().unwrap();
        let expected = match row["precision"].as_str() {
            // Of independent factors that are rounded to 8, 11 and 24 bits.
            "bf16" => 1e-3..4e-3,
            // cuBLASLt has multiply-adds in f32 for a single row.
            "tf32" if row["m"] == "1" => 0.0..6e-4,
            "tf32" => 1e-4..6e-4,
            _ => 0.0..2e-6,
        };
        assert!(
            expected.contains(&error),
            "{error} is not in {expected:?}: {row:?}"
        );
    }
    assert!(count >= 12, "{said}");
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
                let is_spilled =
                    resources(&log, &BTreeMap::new())["spill_store_bytes"].as_u64() != Some(0);
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
    // Eight products, the operations between them, and one launch for the loss and the updates of
    // all parameters.
    assert_eq!(launches("mlp", Phase::Both, &cuda())[2], 12);
    // Only products: three, and two for each of them in the backward pass.
    for target in [Target::Cpu, cuda()] {
        assert_eq!(launches("matmul_chain", Phase::Both, &target), [9, 9, 9]);
    }
}
