//! A source is compiled once, for all of its functions that programs call.

use std::borrow::Cow;
use std::time::Duration;

use super::place::{Place, code, text};
use sweeper::compile::Bounds;
use sweeper::compile::cc::Cc;
use sweeper::compile::digests::Digests;
use sweeper::device::cpu::Cpu;
use sweeper::device::{Artifact, Device, Job, RunsPrograms};
use sweeper::hardware::DeviceKind;
use sweeper::manifest::{Manifest, Overrides, Sources};
use sweeper::plan::{Plan, PlanDevice};
use sweeper_program::workload::TensorSpec;
use sweeper_program::{
    Arg, Binding, Dtype, Geometry, Kernel, KernelSource, Language, Program, Role, SourceFile, Step,
    Target, Tensor, Tensors,
};
use sweeper_workloads::registry;

const TEXT: &str = r#"
#include <stdint.h>
#define KERNEL __attribute__((visibility("default")))
KERNEL void first(const uint64_t *args, uint32_t block) { *(float *)args[0] = START; }
KERNEL void second(const uint64_t *args, uint32_t block) { *(float *)args[0] *= 3; }
"#;

fn kernel(entry: &'static str, start: u32) -> Kernel {
    Kernel::Compiled(KernelSource {
        language: Language::C,
        files: Cow::Owned(vec![SourceFile::embedded("two.c", TEXT)]),
        entry: entry.into(),
        defines: vec![KernelSource::define("START", start)],
        options: Vec::new(),
        user: None,
    })
}

/// A number that the kernels change one after the other.
fn program(kernels: Vec<Kernel>) -> Program {
    let mut program = Program::default();
    let x = program.buffer("x", Dtype::F32, 1, Role::Output, Binding::Result);
    for kernel in kernels {
        let kernel = program.kernel(kernel);
        program.steps.push(Step::Launch {
            kernel,
            geometry: Geometry::blocks(1),
            args: vec![Arg::Write(program.all(x))],
        });
    }
    program
}

fn compile(program: &Program) -> Vec<Artifact> {
    let cc = Cc::find(None, &Digests::default(), &sweeper::compile::NEVER).unwrap();
    let artifact = |source: &KernelSource| Artifact {
        symbols: Default::default(),
        key: source.title(),
        bytes: cc
            .compile(source, &Bounds::within(Duration::from_secs(60)))
            .unwrap()
            .into(),
    };
    program.sources().into_iter().map(artifact).collect()
}

fn result(program: Program, artifacts: &[Artifact]) -> Tensors {
    let mut device = Cpu::new(1).unwrap();
    let job = Job {
        program,
        artifacts,
        script: None,
    };
    let prepared = device.prepare(job).unwrap();
    device.sample(prepared, 1).unwrap();
    let spec = TensorSpec {
        name: "x".to_owned(),
        dtype: Dtype::F32,
        shape: vec![1],
    };
    device.results(prepared, &[spec]).unwrap()
}

#[test]
fn two_functions_of_one_source_need_one_artifact() {
    let program = program(vec![kernel("first", 7), kernel("second", 7)]);
    let artifacts = compile(&program);
    assert_eq!(artifacts.len(), 1);
    assert_eq!(program.compiled().count(), 2);
    let expected = Tensor::f32([1], vec![21.0]);
    assert_eq!(result(program, &artifacts)["x"], expected);
}

#[test]
fn functions_are_looked_for_in_their_own_source() {
    let kernels = [("first", 5), ("second", 7), ("first", 7), ("second", 5)];
    let program = program(kernels.map(|(entry, start)| kernel(entry, start)).into());
    assert_eq!(
        program.source_positions(),
        [Some(0), Some(1), Some(1), Some(0)]
    );
    let artifacts = compile(&program);
    assert_eq!(artifacts.len(), 2);
    let expected = Tensor::f32([1], vec![21.0]);
    assert_eq!(result(program, &artifacts)["x"], expected);
}

const STREAMING: &str = r#"
schema = 1
[grid]
T = [9, 17]
K = 4
C = 3
semiring = ["log", "max", "entropy"]
potentials = ["materialized", "decomposed"]
[case.semicrf]
workload = "semicrf"
backends = ["streaming"]
phases = ["forward", "backward", "both"]
"#;

#[test]
fn a_plan_of_many_functions_of_one_source_compiles_it_once() {
    let sources = Sources::from_text("test.toml", STREAMING);
    let registry: Vec<_> = registry::workloads()
        .iter()
        .map(|held| held.info())
        .collect();
    let manifest = Manifest::resolve(&sources, &Overrides::new(), &registry);
    let manifest = manifest.unwrap_or_else(|errors| panic!("{errors}"));
    let device = PlanDevice {
        kind: DeviceKind::Cuda,
        target: Target::Cuda {
            arch: "sm_80".to_owned(),
        },
    };
    let plan = Plan::new(&manifest, device);
    assert_eq!(plan.kernels.len(), 1);
    assert_eq!(plan.kernels[0].title(), "ops.cu");
    assert!(plan.points.len() >= 36);
    assert!(plan.points.iter().all(|point| point.kernels == [0]));
}

#[test]
fn people_see_sources() {
    let manifest = "schema = 1\n[grid]\nelements = 64\n[case.copy]\nworkload = \"copy\"\n\
                    backends = [\"compiled\"]\n";
    let place = Place::new(manifest);
    let output = place.sweeper(&["compile", "m.toml"]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    for args in [
        &["cache", "ls"][..],
        &["why", "m.toml", "elements=64"],
        &["plan", "m.toml", "--json"],
        &["plan", "m.toml", "--dot"],
    ] {
        let output = text(&place.sweeper(args));
        assert!(output.contains("copy.c"), "{args:?}: {output}");
        assert!(!output.contains("copy_f32"), "{args:?}: {output}");
    }
}
