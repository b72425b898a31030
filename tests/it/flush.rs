//! States of the second-level cache: runs from end to end on the CPU, and the kernel that reads a
//! GPU's cache clean, which nothing but the driver compiles otherwise.

use std::borrow::Cow;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use sweeper::compile::Bounds;
use sweeper::device::cuda::Cuda;
use sweeper::device::{Artifact, Device, Job, RunsPrograms};
use sweeper::identity::CacheState;
use sweeper_program::workload::TensorSpec;
use sweeper_program::{
    Arg, Binding, Dtype, Geometry, Index, Kernel, KernelSource, Language, Program, Role,
    SourceFile, Step, Tensor, Tensors,
};

use super::cuda::gpu;
use super::support::{nvrtc, program};

/// Runs a small sweep on the CPU; returns columns of its rows.
fn sweep(folder: &Path, l2: &str) -> Vec<(String, String, String, String)> {
    let manifest = format!(
        "schema = 1\nname = \"flush\"\nabout = \"In which state is the cache?\"\nseed = 7\n\
         [grid]\nelements = [10, 100000]\n\
         [case.copy]\nworkload = \"copy\"\nbackends = [\"builtin\"]\nphases = [\"forward\"]\n\
         [device]\nuse = \"cpu\"\nthreads = 2\n[measure]\nrepeats = 3\nl2 = \"{l2}\"\n\
         [limits]\nanchor_s = 1000\n"
    );
    fs::write(folder.join("m.toml"), manifest).unwrap();
    let output = Command::new(program())
        .current_dir(folder)
        .args(["run", "m.toml", "--quiet", "--output-dir", l2])
        .env("SWEEPER_CACHE_DIR", folder.join("cache"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let run = fs::read_dir(folder.join(l2)).unwrap().next().unwrap();
    let records = run.unwrap().path().join("records.csv");
    let mut records = csv::Reader::from_path(records).unwrap();
    let headers = records.headers().unwrap().clone();
    let rows = records.records().map(|row| {
        let row = row.unwrap();
        let column = |name: &str| {
            let index = headers.iter().position(|held| held == name).unwrap();
            row[index].to_owned()
        };
        assert!(column("median_ns").parse::<f64>().unwrap() > 0.0, "{row:?}");
        let outputs = column("output_digest");
        (column("point"), column("l2"), column("checked"), outputs)
    });
    rows.collect()
}

#[test]
fn a_cpu_measures_in_each_state_and_points_of_different_states_differ() {
    let folder = tempfile::tempdir().unwrap();
    let mut points = Vec::new();
    let mut outputs = Vec::new();
    for l2 in ["auto", "hot", "cold", "clean"] {
        let rows = sweep(folder.path(), l2);
        assert_eq!(rows.len(), 2, "{l2}");
        for (_, state, checked, _) in &rows {
            let expected = if l2 == "auto" { "hot" } else { l2 };
            assert_eq!((&**state, &**checked), (expected, "full"));
        }
        points.push(rows.iter().map(|row| row.0.clone()).collect::<Vec<_>>());
        outputs.push(rows.into_iter().map(|row| row.3).collect::<Vec<_>>());
    }
    // The points of `auto` equal the points of `hot`.
    assert_eq!(points.remove(0), points[0]);
    assert!(points[0] != points[1] && points[1] != points[2] && points[0] != points[2]);
    assert!(outputs.iter().all(|held| *held == outputs[0]));
}

/// The kernel that reads, word by word as the driver gets it.
const PTX: &str = include_str!("../../src/engine/device/cuda/read.ptx");

/// The kernel inside a kernel of CUDA C++, whose compiler calls the assembler. Its parameters have
/// the names in the text.
fn wrapped(ptx: &str) -> KernelSource {
    let (_, body) = ptx.split_once("\n{\n").unwrap();
    let (body, _) = body.rsplit_once('}').unwrap();
    let text = format!(
        "extern \"C\" __global__ void read_all(unsigned long long, unsigned long long) {{\n\
         asm volatile(R\"({{{body}}})\");\n}}\n"
    );
    KernelSource {
        language: Language::Cuda,
        files: Cow::Owned(vec![SourceFile {
            name: "read.cu".into(),
            text: text.into(),
        }]),
        entry: "read_all".into(),
        defines: Vec::new(),
        options: Vec::new(),
        user: None,
    }
}

#[test]
fn the_assembler_takes_the_kernel_that_reads() {
    let Some(nvrtc) = nvrtc() else { return };
    let limit = Bounds::within(Duration::from_secs(60));
    for arch in ["sm_75", "sm_80", "sm_90a", "sm_100", "sm_120"] {
        let compiled = nvrtc.compile(&wrapped(PTX), arch, &limit);
        let compiled = compiled.unwrap_or_else(|error| panic!("{arch}: {error}"));
        assert!(compiled.log.contains("0 bytes spill stores"), "{arch}");
    }
    for (from, to) in [
        ("and.b32 a", "und.b32 a"),
        ("read_all_param_1]", "read_all_param_2]"),
        ("bra NEXT", "bra AGAIN"),
    ] {
        assert!(PTX.contains(from));
        let refused = nvrtc.compile(&wrapped(&PTX.replace(from, to)), "sm_90a", &limit);
        assert!(refused.is_err(), "{to}");
    }
}

/// Copies `x` and reads the copy, with fewer threads than there are vectors.
fn reading(words: usize) -> Program {
    let mut program = Program::default();
    let x = program.buffer("x", Dtype::F32, words, Role::Input, Binding::Given);
    let y = program.buffer("y", Dtype::F32, words, Role::Output, Binding::Result);
    let read_all = program.kernel(Kernel::Compiled(wrapped(PTX)));
    program.steps = vec![
        Step::Copy {
            from: program.all(x),
            to: program.all(y),
        },
        Step::Launch {
            kernel: read_all,
            geometry: Geometry::linear(3, 32),
            args: vec![Arg::Write(program.all(y)), Arg::Int(Index::from(4 * words))],
        },
    ];
    program
}

#[test]
fn the_kernel_that_reads_reads_every_word() {
    let Some(_gpu) = gpu() else { return };
    const WORDS: usize = 4 * 1000;
    let mut device = Cuda::open(0, CacheState::Hot).unwrap();
    let arch = device.identity().details["arch"].clone();
    let nvrtc = nvrtc().unwrap();
    let compiled = nvrtc.compile(
        &wrapped(PTX),
        &arch,
        &Bounds::within(Duration::from_secs(60)),
    );
    let artifact = Artifact {
        key: "read".to_owned(),
        bytes: compiled.unwrap().cubin.into(),
        symbols: Default::default(),
    };
    let (usual, other) = (f32::from_bits(1), f32::from_bits(2));
    let mut first_after = |values: Vec<f32>| {
        let inputs = Tensors::from([("x".to_owned(), Tensor::f32([WORDS], values))]);
        device.bind(&inputs).unwrap();
        let job = Job {
            program: reading(WORDS),
            artifacts: std::slice::from_ref(&artifact),
            script: None,
        };
        let program = device.prepare(job).unwrap();
        device.poison(program).unwrap();
        device.sample(program, 1).unwrap();
        let spec = TensorSpec {
            name: "y".to_owned(),
            dtype: Dtype::F32,
            shape: vec![WORDS],
        };
        let results = device.results(program, &[spec]).unwrap();
        let y = results["y"].as_f32().unwrap();
        (
            y[0].to_bits(),
            y[1..].iter().all(|held| held.to_bits() != 0),
        )
    };
    assert_eq!(
        first_after(vec![usual; WORDS]),
        (1, true),
        "nothing is stored"
    );
    // One word without the bit of all others, and no bit is left: the first word becomes zero.
    for word in [0, 1, 2, 3, 4 * 32, 4 * 96 + 1, 4 * 999, WORDS - 1] {
        let mut values = vec![usual; WORDS];
        values[word] = other;
        assert_eq!(first_after(values), (0, true), "word {word}");
    }
}
