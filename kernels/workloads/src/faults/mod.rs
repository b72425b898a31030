//! `faults`: out = x, with everything that can go wrong on the way.
//!
//! For tests of the engine alone, behind the feature `faults`: every fault must fail its own row,
//! be reported, and leave later rows unchanged.

use std::borrow::Cow;
use std::sync::Arc;

use super::copy::{CopyProblem, program_of};
use sweeper_program::headers::CPU_H;
use sweeper_program::parameters::{Parameters, Value};
use sweeper_program::tensor::Dtype;
use sweeper_program::workload::{
    BackendInfo, ParameterError, ParameterInfo, ParameterKind, Phase, Problem, Refusal, Target,
    TensorInfo, Workload, WorkloadInfo,
};
use sweeper_program::{
    Binding, Geometry, Kernel, KernelSource, Language, Program, Role, SourceFile,
};

/// The workload.
pub struct Faults;

/// Elements of the tensors.
const ELEMENTS: usize = 1000;

/// Threads of a block, where nothing is wrong with them.
const THREADS: u32 = 256;

/// More memory than a machine has, in elements of four bytes: the allocation that fails at run
/// time, and the allocation that is predicted not to fit. A limit between the two tells them apart.
const HOARD: usize = 1 << 38;
const FORESEEN: usize = 1 << 42;

/// The faults: each word with its other spellings.
static WORDS: [(&str, &[&str]); 12] = [
    ("none", &[]),
    ("illegal_access", &[]),
    ("trap", &[]),
    ("endless", &[]),
    ("wrong", &[]),
    ("silent", &[]),
    ("fickle", &[]),
    ("compile_error", &[]),
    ("shared_memory", &[]),
    ("threads", &[]),
    ("oom", &[]),
    ("predicted_oom", &[]),
];

static INFO: WorkloadInfo = WorkloadInfo {
    name: "faults",
    about: "copies a vector and goes wrong in a way of your choice; for tests of the engine",
    formula: "out[i] = x[i], if nothing goes wrong",
    parameters: &[ParameterInfo {
        name: "fault",
        kind: ParameterKind::Choice(&WORDS),
        default: None,
        about: "what goes wrong",
    }],
    backends: &[
        BackendInfo {
            name: "faulty",
            aliases: &[],
            about: "goes wrong",
            by_default: true,
        },
        BackendInfo {
            name: "sound",
            aliases: &[],
            about: "does not, whatever `fault` says",
            by_default: true,
        },
    ],
    phases: &[Phase::Forward],
    dtypes: &[Dtype::F32],
    inputs: &[TensorInfo {
        name: "x",
        shape: "(1000)",
        dtype: Dtype::F32,
        about: "source",
    }],
    outputs: &[TensorInfo {
        name: "out",
        shape: "(1000)",
        dtype: Dtype::F32,
        about: "destination",
    }],
    buckets: &[],
    presentation: None,
    published: None,
    flags: &[],
};

impl Workload for Faults {
    fn info(&self) -> &'static WorkloadInfo {
        &INFO
    }

    fn problem(
        &self,
        parameters: &Parameters,
        _dtype: Dtype,
    ) -> Result<Box<dyn Problem>, ParameterError> {
        let resolved = INFO.resolve(parameters)?;
        let Some(Value::Text(word)) = resolved.get("fault") else {
            unreachable!("resolved parameters hold `fault` as a word")
        };
        let fault = WORDS.iter().position(|(held, _)| **held == **word);
        let fault = WORDS[fault.unwrap_or(0)].0;
        Ok(Box::new(CopyProblem {
            elements: ELEMENTS,
            program: Arc::new(move |_, backend, target| faulty(fault, backend, target)),
        }))
    }
}

static C_FILES: [SourceFile; 2] = [
    SourceFile::embedded("faults.c", include_str!("faults.c")),
    CPU_H,
];
static CUDA_FILES: [SourceFile; 1] = [SourceFile::embedded("faults.cu", include_str!("faults.cu"))];

/// The number that the sources know a fault by; 0 for faults outside of the kernel.
fn number(fault: &str) -> u32 {
    match fault {
        "illegal_access" => 1,
        "trap" => 2,
        "endless" => 3,
        "wrong" => 4,
        "compile_error" => 5,
        "silent" => 6,
        "fickle" => 7,
        _ => 0,
    }
}

fn kernel(fault: &str, target: &Target) -> KernelSource {
    let (language, files): (_, &'static [SourceFile]) = match target {
        Target::Cpu => (Language::C, &C_FILES),
        Target::Cuda { .. } => (Language::Cuda, &CUDA_FILES),
    };
    KernelSource {
        language,
        files: Cow::Borrowed(files),
        entry: "faulty".into(),
        defines: vec![KernelSource::define("FAULT", number(fault))],
        options: Vec::new(),
        user: None,
    }
}

fn geometry(fault: &str, target: &Target) -> Result<Geometry, Refusal> {
    let none = |what: &str| Err(Refusal::Unavailable(format!("a CPU has no {what}")));
    let blocks = ELEMENTS.div_ceil(THREADS as usize) as u32;
    match (target, fault) {
        (Target::Cpu, "shared_memory") => none("shared memory"),
        (Target::Cpu, "threads") => none("threads of a block"),
        (Target::Cpu, _) => Ok(Geometry::blocks(1)),
        (Target::Cuda { .. }, "shared_memory") => Ok(Geometry {
            shared_bytes: 1 << 20,
            ..Geometry::linear(blocks, THREADS)
        }),
        (Target::Cuda { .. }, "threads") => Ok(Geometry::linear(1, 4096)),
        (Target::Cuda { .. }, _) => Ok(Geometry::linear(blocks, THREADS)),
    }
}

fn faulty(fault: &str, backend: &str, target: &Target) -> Result<Program, Refusal> {
    let fault = match backend {
        "sound" => "none",
        _ => fault,
    };
    let geometry = geometry(fault, target)?;
    let kernel = Kernel::Compiled(kernel(fault, target));
    let mut program = program_of(kernel, geometry, ELEMENTS);
    let hoard = match fault {
        "oom" => HOARD,
        "predicted_oom" => FORESEEN,
        _ => return Ok(program),
    };
    program.buffer(
        "hoard",
        Dtype::F32,
        hoard,
        Role::Workspace,
        Binding::Scratch,
    );
    Ok(program)
}
