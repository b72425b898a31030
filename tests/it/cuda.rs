//! The CUDA device: its messages on a machine without one, and on a GPU runs from end to end, steps
//! and errors.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use sweeper::compile::Bounds;
use sweeper::compile::digests::Digests;
use sweeper::compile::nvrtc::Nvrtc;
use sweeper::device::cuda::{Cuda, identity};
use sweeper::device::{Artifact, Device, DeviceError, Job, Prepared, RunsPrograms};
use sweeper::identity::CacheState;
use sweeper_program::workload::TensorSpec;
use sweeper_program::{
    Arg, Binding, BufferId, Dtype, Geometry, Index, Kernel, KernelSource, Language, Order, Program,
    Role, SourceFile, Step, Tensor, Tensors, View,
};

use super::support::{nvrtc, program, skip};

/// The GPU of this process's tests: most share it, and tests that judge times have it alone.
static GPU: RwLock<()> = RwLock::new(());

/// Why there is no GPU, unless there is one; fails where one is required.
fn missing() -> Option<String> {
    let reason = identity::all().err()?;
    skip("cuda", &reason);
    Some(reason)
}

/// The GPU, shared with other tests until the guard is dropped, if there is one.
pub(crate) fn gpu() -> Option<RwLockReadGuard<'static, ()>> {
    let held = || GPU.read().unwrap_or_else(PoisonError::into_inner);
    missing().is_none().then(held)
}

/// The GPU for this test alone, if there is one: functions in Python are judged by their times too.
pub(crate) fn gpu_alone() -> Option<RwLockWriteGuard<'static, ()>> {
    let held = || GPU.write().unwrap_or_else(PoisonError::into_inner);
    missing().is_none().then(held)
}

/// Runs the program, whose kernel cache is in the folder, too.
pub(crate) fn sweeper(folder: &Path, args: &[&str]) -> Output {
    Command::new(program())
        .current_dir(folder)
        .args(args)
        .env("SWEEPER_CACHE_DIR", folder.join("cache"))
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The standard output of the program.
pub(crate) fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8(both).unwrap()
}

fn manifest(more: &str) -> String {
    format!(
        "schema = 1\nname = \"gpu\"\nabout = \"Does a copy arrive?\"\nseed = 7\n\
         [grid]\nelements = [1, 5, 1000, 1048579]\n\
         [case.copy]\nworkload = \"copy\"\nbackends = [\"compiled\"]\nphases = [\"forward\"]\n\
         [device]\nuse = \"cuda\"\n[measure]\nrepeats = 5\n{more}"
    )
}

#[test]
fn without_a_driver_it_is_said_what_is_missing() {
    let Some(reason) = missing() else { return };
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("m.toml"), manifest("")).unwrap();
    let output = sweeper(folder.path(), &["run", "m.toml"]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output));
    assert!(text(&output).contains(&reason), "{}", text(&output));
    let listed = sweeper(folder.path(), &["devices"]);
    assert!(text(&listed).contains("cuda   none"), "{}", text(&listed));
    let auto = sweeper(folder.path(), &["run", "m.toml", "--device", "auto"]);
    assert_eq!(auto.status.code(), Some(0), "{}", text(&auto));
}

#[test]
fn copies_are_right_and_repeat_bit_by_bit() {
    let Some(_gpu) = gpu() else { return };
    for l2 in ["cold", "clean", "hot"] {
        let folder = tempfile::tempdir().unwrap();
        let more = format!("l2 = \"{l2}\"\nmode = [\"launch\", \"graph\"]\n");
        fs::write(folder.path().join("m.toml"), manifest(&more)).unwrap();
        let output = sweeper(folder.path(), &["run", "m.toml"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let results = fs::read_dir(folder.path().join("results")).unwrap();
        let run = results.last().unwrap().unwrap().path();
        let mut records = csv::Reader::from_path(run.join("records.csv")).unwrap();
        let headers = records.headers().unwrap().clone();
        let rows: Vec<csv::StringRecord> = records.records().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 8);
        for (number, row) in rows.into_iter().enumerate() {
            let column = |name: &str| {
                let index = headers.iter().position(|held| held == name).unwrap();
                row[index].to_owned()
            };
            assert_eq!(column("checked"), "full", "{row:?}");
            assert_eq!(column("device"), "cuda", "{row:?}");
            assert!(column("device_name").contains("GPU-"), "{row:?}");
            let mode = ["launch", "graph"][number % 2];
            assert_eq!(
                (column("l2"), column("mode")),
                (l2.to_owned(), mode.to_owned())
            );
            assert!(
                column("roofline_ns").parse::<f64>().unwrap() > 0.0,
                "{row:?}"
            );
            assert!(!column("flags").contains("ungated"), "{row:?}");
            assert!(!column("flags").contains("above_roofline"), "{row:?}");
            assert!(!column("flags").contains("memory_mismatch"), "{row:?}");
            assert!(column("median_ns").parse::<f64>().unwrap() > 0.0, "{row:?}");
        }
        let name = run.file_name().unwrap().to_string_lossy().into_owned();
        let again = sweeper(folder.path(), &["rerun", &name["gpu-".len()..][..6]]);
        let said = text(&again);
        assert_eq!(again.status.code(), Some(0), "{said}");
        assert!(said.contains("8 bit-identical, 0 differ"), "{said}");
    }
}

#[test]
fn kernels_are_compiled_for_gpus_that_are_not_here() {
    if nvrtc().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("m.toml"), manifest("")).unwrap();
    let compile = |arch: &str| sweeper(folder.path(), &["compile", "m.toml", "--arch", arch]);
    let output = compile("sm_80,sm_90");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    for arch in ["sm_80", "sm_90a"] {
        let said = format!("for {arch}: 2 compiled");
        assert!(text(&output).contains(&said), "{}", text(&output));
    }
    let again = compile("9.0");
    assert!(
        text(&again).contains("2 in the cache before"),
        "{}",
        text(&again)
    );
    let memo = fs::read_to_string(folder.path().join("cache/digests.json")).unwrap();
    assert!(memo.contains("libnvrtc"), "{memo}");
    let old = compile("sm_30");
    assert_eq!(old.status.code(), Some(4), "{}", text(&old));
    assert!(
        text(&old).contains("does not compile for sm_30"),
        "{}",
        text(&old)
    );
    // Now and then the library was still being loaded when the process ended.
    for _ in 0..20 {
        assert_eq!(compile("fermi").status.code(), Some(2));
    }
}

#[test]
fn a_compilation_that_is_left_to_itself_does_not_crash_the_end() {
    if nvrtc().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Too short for most of these compilations, wherever in one the end comes; a machine may be
    // quicker.
    for limit_s in [0.01, 0.03, 0.05] {
        let limits = format!("[limits]\ncompile_timeout_s = {limit_s}\n");
        fs::write(folder.path().join("m.toml"), manifest(&limits)).unwrap();
        for _ in 0..5 {
            let output = sweeper(folder.path(), &["compile", "m.toml", "--arch", "sm_80"]);
            let code = output.status.code();
            assert!(matches!(code, Some(0 | 4)), "{code:?}: {}", text(&output));
        }
    }
}

#[test]
fn without_nvrtc_it_is_said_what_to_install() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("m.toml"), manifest("")).unwrap();
    let empty = folder.path().join("nothing");
    let output = Command::new(program())
        .current_dir(folder.path())
        .args(["compile", "m.toml", "--arch", "sm_90"])
        .env_clear()
        .env("SWEEPER_CACHE_DIR", folder.path().join("cache"))
        .env("PATH", &empty)
        .output()
        .unwrap();
    // A toolkit in its usual place is found without help.
    if output.status.code() != Some(0) {
        assert_eq!(output.status.code(), Some(7), "{}", text(&output));
        assert!(
            text(&output).contains("SWEEPER_CUDA_LIBS"),
            "{}",
            text(&output)
        );
    }
}

const KERNELS: &str = r#"
extern "C" __global__ void scale(const float *x, float *y, long long n, float factor) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = y[i] + factor * x[i];
}
extern "C" __global__ void stray(float *x) { *(volatile float *)((char *)x + (1ull << 46)) = 1; }
"#;

fn source(entry: &'static str) -> KernelSource {
    KernelSource {
        language: Language::Cuda,
        files: Cow::Owned(vec![SourceFile::embedded("test.cu", KERNELS)]),
        entry: entry.into(),
        defines: Vec::new(),
        options: Vec::new(),
        user: None,
    }
}

/// The cubin of all kernels above, for a device.
fn artifact(device: &Cuda) -> Artifact {
    artifact_for(&device.identity().details["arch"])
}

fn artifact_for(arch: &str) -> Artifact {
    let nvrtc = Nvrtc::find(&Digests::default()).unwrap();
    let limit = Bounds::within(Duration::from_secs(60));
    let compiled = nvrtc.compile(&source("scale"), arch, &limit).unwrap();
    Artifact {
        key: arch.to_owned(),
        bytes: compiled.cubin.into(),
        symbols: Default::default(),
    }
}

fn prepare(device: &mut Cuda, program: Program) -> Result<Prepared, DeviceError> {
    let artifacts = vec![artifact(device); program.sources().len()];
    device.prepare(Job {
        program,
        artifacts: &artifacts,
        script: None,
    })
}

const LEN: usize = 12;

/// `y` is filled with 1 and, three times, `factor x` is added to a part of it that moves.
fn looped(factor: f32) -> Program {
    let mut program = Program::default();
    let x = program.buffer("x", Dtype::F32, LEN, Role::Input, Binding::Given);
    let y = program.buffer("y", Dtype::F32, LEN, Role::Output, Binding::Result);
    let scale = program.kernel(Kernel::Compiled(source("scale")));
    let part = |buffer: BufferId| View::new(buffer, Index::affine(0, 0, 4), 4);
    let launch = Step::Launch {
        kernel: scale,
        geometry: Geometry::linear(1, 32),
        args: vec![
            Arg::Read(part(x)),
            Arg::Write(part(y)),
            Arg::Int(Index::affine(2, 0, 1)),
            Arg::Float(factor),
        ],
    };
    program.steps = vec![
        Step::Fill {
            view: program.all(y),
            value: 1.0,
        },
        Step::Repeat {
            count: 3,
            body: vec![launch],
        },
    ];
    program
}

fn inputs() -> Tensors {
    let values = (0..LEN).map(|index| index as f32).collect();
    [("x".to_owned(), Tensor::f32([LEN], values))].into()
}

fn spec(name: &str, dtype: Dtype) -> TensorSpec {
    TensorSpec {
        name: name.to_owned(),
        dtype,
        shape: vec![LEN],
    }
}

#[test]
fn steps_do_what_programs_say() {
    let Some(_gpu) = gpu() else { return };
    let states = [CacheState::Hot, CacheState::Cold, CacheState::Clean];
    let ways = states.map(|cache| [false, true].map(|graph| (cache, graph)));
    for (cache, graph) in ways.into_iter().flatten() {
        let mut device = Cuda::open(0, cache).unwrap();
        device.bind(&inputs()).unwrap();
        let program = prepare(&mut device, looped(10.0)).unwrap();
        if graph {
            device.launch_as_graph(program);
        }
        device.poison(program).unwrap();
        for iterations in [1, 3, 700] {
            let sample = device.sample(program, iterations).unwrap();
            assert!(
                sample.elapsed_ns > 0.0 && sample.elapsed_ns < 1e9,
                "{sample:?}"
            );
        }
        let y = &device.results(program, &[spec("y", Dtype::F32)]).unwrap()["y"];
        // Two elements of the first four, three of the next, all of the last.
        let expected = [
            1.0, 11.0, 1.0, 1.0, 41.0, 51.0, 61.0, 1.0, 81.0, 91.0, 101.0, 111.0,
        ];
        assert_eq!(y, &Tensor::f32([LEN], expected.to_vec()));
    }
}

/// A program whose steps read what earlier ones wrote, overwrite what earlier ones read, or
/// neither; and the first element of each half of its results `y` and `z`.
fn entangled() -> (Program, [[f64; 2]; 2]) {
    let mut program = Program::default();
    let bindings = [("a", Binding::Scratch), ("b", Binding::Scratch)];
    let results = [("y", Binding::Result), ("z", Binding::Result)];
    let all = [bindings, results].concat().into_iter();
    let all = all.map(|(name, binding)| {
        program.buffer(name, Dtype::F32, 2 * HALF, Role::Workspace, binding)
    });
    let all: Vec<BufferId> = all.collect();
    let half =
        |buffer: usize, at: usize| View::new(all[buffer], Index::fixed((at * HALF) as i64), HALF);
    let mut expected = [[0.0; 2]; 4];
    for round in 0..60 {
        // Halves are filled once, and then written again and again.
        let (to, to_half) = (round % 4, round / 4 % 2);
        let (from, from_half) = ((round * 5 + round / 7) % 4, round / 3 % 2);
        let view = half(to, to_half);
        if round < 8 || from == to {
            let value = round as f64;
            program.steps.push(Step::Fill { view, value });
            expected[to][to_half] = value;
        } else {
            let from_view = half(from, from_half);
            program.steps.push(Step::Copy {
                from: from_view,
                to: view,
            });
            expected[to][to_half] = expected[from][from_half];
        }
    }
    (program, [expected[2], expected[3]])
}

const HALF: usize = 1 << 19;

#[test]
fn steps_of_a_graph_wait_for_the_data_that_they_share() {
    let Some(_gpu) = gpu() else { return };
    let mut device = Cuda::open(0, CacheState::Hot).unwrap();
    device.bind(&Tensors::new()).unwrap();
    for order in [Order::InTurn, Order::ByData] {
        let (program, expected) = entangled();
        let program = prepare(&mut device, Program { order, ..program }).unwrap();
        device.launch_as_graph(program);
        for _ in 0..20 {
            device.poison(program).unwrap();
            device.sample(program, 1).unwrap();
            let names = ["y", "z"];
            let specs = names.map(|name| TensorSpec {
                shape: vec![2 * HALF],
                ..spec(name, Dtype::F32)
            });
            let results = device.results(program, &specs).unwrap();
            let found = names.map(|name| {
                let elements: Vec<f64> = sweeper_program::check::elements(&results[name]).collect();
                [elements[0], elements[HALF]]
            });
            assert_eq!(found, expected, "{order:?}");
        }
    }
}

#[test]
fn a_kernel_for_another_gpu_is_refused_with_the_reason() {
    let Some(_gpu) = gpu() else { return };
    let mut device = Cuda::open(0, CacheState::Cold).unwrap();
    device.bind(&inputs()).unwrap();
    let own = device.identity().details["arch"].clone();
    let other = ["sm_80", "sm_120"].into_iter().find(|arch| *arch != own);
    let program = looped(1.0);
    let refused = device.prepare(Job {
        artifacts: &[artifact_for(other.unwrap())],
        program,
        script: None,
    });
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("another architecture"), "{refused}");
}

#[test]
fn many_launches_are_timed_without_a_gate_unless_they_are_a_graph() {
    let Some(_gpu) = gpu() else { return };
    for graph in [false, true] {
        let mut device = Cuda::open(0, CacheState::Cold).unwrap();
        device.bind(&inputs()).unwrap();
        let mut long = looped(1.0);
        let fill = Step::Fill {
            view: long.all(BufferId(1)),
            value: 1.0,
        };
        long.steps = vec![Step::Repeat {
            count: 600,
            body: vec![fill],
        }];
        let short = prepare(&mut device, looped(10.0)).unwrap();
        let long = prepare(&mut device, long).unwrap();
        for program in [short, long].into_iter().filter(|_| graph) {
            device.launch_as_graph(program);
        }
        for (program, is_ungated) in [(short, false), (long, !graph), (short, false)] {
            device.poison(program).unwrap();
            device.sample(program, 1).unwrap();
            let sample = device.sample(program, 2).unwrap();
            assert_eq!(sample.is_ungated, is_ungated, "{sample:?}");
        }
        // The memory moved meanwhile, and the graph with it.
        let y = &device.results(short, &[spec("y", Dtype::F32)]).unwrap()["y"];
        assert_eq!(sweeper_program::check::elements(y).last(), Some(111.0));
    }
}

#[test]
fn all_devices_share_a_run() {
    let Some(_gpu) = gpu() else { return };
    let count = identity::all().unwrap().len();
    let folder = tempfile::tempdir().unwrap();
    let manifest = manifest("").replace("use = \"cuda\"", "use = \"cuda:all\"");
    fs::write(folder.path().join("m.toml"), manifest).unwrap();
    let output = sweeper(folder.path(), &["run", "m.toml"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let results = fs::read_dir(folder.path().join("results")).unwrap();
    let records = results.last().unwrap().unwrap().path().join("records.csv");
    let mut reader = csv::Reader::from_path(records).unwrap();
    let rows: Vec<BTreeMap<String, String>> = reader.deserialize().map(Result::unwrap).collect();
    let units: BTreeSet<&String> = rows.iter().map(|row| &row["device_name"]).collect();
    assert_eq!((rows.len(), units.len()), (4, count.min(4)));
}

#[test]
fn every_type_is_filled_and_copied() {
    let Some(_gpu) = gpu() else { return };
    let mut device = Cuda::open(0, CacheState::Hot).unwrap();
    device.bind(&Tensors::new()).unwrap();
    for dtype in [Dtype::Bf16, Dtype::F32, Dtype::F64, Dtype::I32, Dtype::I64] {
        let mut program = Program::default();
        let from = program.buffer("from", dtype, LEN, Role::Workspace, Binding::Scratch);
        let to = program.buffer("to", dtype, LEN, Role::Output, Binding::Result);
        program.steps = vec![
            Step::Fill {
                view: program.all(from),
                value: -3.0,
            },
            Step::Copy {
                from: program.all(from),
                to: program.all(to),
            },
        ];
        let program = prepare(&mut device, program).unwrap();
        device.poison(program).unwrap();
        device.sample(program, 2).unwrap();
        let results = device.results(program, &[spec("to", dtype)]).unwrap();
        let values: Vec<f64> = sweeper_program::check::elements(&results["to"]).collect();
        assert_eq!(values, [-3.0; LEN], "{dtype}");
    }
}

#[test]
fn refusals_leave_the_device_at_work() {
    let Some(_gpu) = gpu() else { return };
    let mut device = Cuda::open(0, CacheState::Cold).unwrap();
    device.bind(&inputs()).unwrap();
    let mut too_few = looped(1.0);
    let mut too_much_shared = looped(1.0);
    for (program, shared_bytes) in [(&mut too_few, 0), (&mut too_much_shared, 1 << 30)] {
        let Step::Repeat { body, .. } = &mut program.steps[1] else {
            unreachable!("the second step is the loop");
        };
        let Step::Launch { args, geometry, .. } = &mut body[0] else {
            unreachable!("its body is a launch");
        };
        geometry.shared_bytes = shared_bytes;
        if shared_bytes == 0 {
            args.pop();
        }
    }
    let refused = prepare(&mut device, too_few).unwrap_err();
    assert!(
        refused.to_string().contains("takes 4 arguments"),
        "{refused}"
    );
    let refused = prepare(&mut device, too_much_shared).unwrap_err();
    assert!(matches!(refused, DeviceError::Launch(_)), "{refused}");
    let mut too_large = Program::default();
    too_large.buffer("a", Dtype::F32, 1 << 42, Role::Workspace, Binding::Scratch);
    let refused = prepare(&mut device, too_large).unwrap_err();
    assert!(
        matches!(refused, DeviceError::OutOfMemory { .. }),
        "{refused}"
    );
    let program = prepare(&mut device, looped(1.0)).unwrap();
    device.poison(program).unwrap();
    device.sample(program, 1).unwrap();
    assert!(device.memory(program).unwrap().peak_allocated_bytes > 0);
}

/// Run in a process of its own by the next test: afterwards no CUDA call works in it.
#[test]
#[ignore = "run by a_stray_write_loses_the_device, as it loses the device for its process"]
fn a_stray_write_in_this_process() {
    let mut device = Cuda::open(0, CacheState::Cold).unwrap();
    device.bind(&Tensors::new()).unwrap();
    let mut program = Program::default();
    let x = program.buffer("x", Dtype::F32, 1, Role::Output, Binding::Result);
    let kernel = program.kernel(Kernel::Compiled(source("stray")));
    program.steps = vec![Step::Launch {
        kernel,
        geometry: Geometry::linear(1, 1),
        args: vec![Arg::Write(program.all(x))],
    }];
    let program = prepare(&mut device, program).unwrap();
    let lost = device.sample(program, 1).unwrap_err();
    assert!(matches!(lost, DeviceError::Lost(_)), "{lost}");
}

#[test]
fn a_stray_write_loses_the_device() {
    let Some(_gpu) = gpu() else { return };
    let name = "cuda::a_stray_write_in_this_process";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("1 passed"), "{}", text(&output));
}
