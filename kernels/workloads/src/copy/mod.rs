//! `copy`: out = x. The least a memory-bound kernel can do, and the ruler that others are held to.

use std::borrow::Cow;
use std::sync::Arc;

use sweeper_program::builtin::{Builtin, Call};
use sweeper_program::check::{self, Check, Metric};
use sweeper_program::headers::{CPU_H, NONTEMPORAL_H, VECTOR_H};
use sweeper_program::inputs::InputKey;
use sweeper_program::parameters::{Parameters, Value};
use sweeper_program::tensor::{Data, Dtype, Tensor, Tensors};
use sweeper_program::workload::{
    BackendInfo, CanonicalShape, ParameterError, ParameterInfo, ParameterKind, Phase, Problem,
    Refusal, Target, TensorInfo, TensorSpec, Work, Workload, WorkloadInfo,
};
use sweeper_program::{
    Arg, Binding, Geometry, Index, Kernel, KernelSource, Language, Program, Role, SourceFile, Step,
};

/// The workload.
pub struct Copy;

const MAX_ELEMENTS: i64 = 1 << 36;

static INFO: WorkloadInfo = WorkloadInfo {
    name: "copy",
    about: "copies a vector; measures memory bandwidth",
    formula: "out[i] = x[i]",
    parameters: &[ParameterInfo {
        name: "elements",
        kind: ParameterKind::Int {
            min: 1,
            max: MAX_ELEMENTS,
        },
        default: None,
        about: "length of the vector, in elements",
    }],
    backends: &[
        BackendInfo {
            name: "builtin",
            aliases: &[],
            about: "the host's memmove; CPU only",
            by_default: true,
        },
        BackendInfo {
            name: "compiled",
            aliases: &[],
            about: "one compiled kernel",
            by_default: true,
        },
    ],
    phases: &[Phase::Forward],
    dtypes: &[Dtype::F32],
    inputs: &[TensorInfo {
        name: "x",
        shape: "(elements)",
        dtype: Dtype::F32,
        about: "source",
    }],
    outputs: &[TensorInfo {
        name: "out",
        shape: "(elements)",
        dtype: Dtype::F32,
        about: "destination",
    }],
    buckets: &[],
    presentation: None,
    published: None,
    flags: &[],
};

impl Workload for Copy {
    fn info(&self) -> &'static WorkloadInfo {
        &INFO
    }

    fn problem(
        &self,
        parameters: &Parameters,
        _dtype: Dtype,
    ) -> Result<Box<dyn Problem>, ParameterError> {
        match INFO.resolve(parameters)?.get("elements") {
            Some(&Value::Int(elements)) => Ok(Box::new(CopyProblem {
                elements: elements as usize,
                program: Arc::new(copying),
            })),
            _ => unreachable!("resolved parameters hold `elements` as an integer"),
        }
    }
}

/// Makes the program of a backend that copies so many elements.
type Programs = dyn Fn(usize, &str, &Target) -> Result<Program, Refusal> + Send + Sync;

/// A vector that is to be copied, by programs of whatever kind.
#[derive(Clone)]
pub(crate) struct CopyProblem {
    /// Length of the vector.
    pub(crate) elements: usize,
    /// The programs.
    pub(crate) program: Arc<Programs>,
}

/// Elements that one block of the C kernel copies: 1 MiB, half of a common second-level cache.
const PIECE: usize = 1 << 18;

/// Threads of a block of the CUDA kernel, and elements that a thread copies.
const CUDA_THREADS: usize = 256;
const CUDA_ELEMENTS: usize = 4;

static C_FILES: [SourceFile; 4] = [
    SourceFile::embedded("copy.c", include_str!("copy.c")),
    CPU_H,
    NONTEMPORAL_H,
    VECTOR_H,
];
static CUDA_FILES: [SourceFile; 1] = [SourceFile::embedded("copy.cu", include_str!("copy.cu"))];

impl CopyProblem {
    fn spec(&self, name: &str) -> TensorSpec {
        TensorSpec {
            name: name.to_owned(),
            dtype: Dtype::F32,
            shape: vec![self.elements],
        }
    }
}

/// The kernel of a backend that copies so many elements, and its geometry.
///
/// # Panics
/// If the backend is `builtin` and the target is not a CPU.
pub(crate) fn copy_kernel(backend: &str, elements: usize, target: &Target) -> (Kernel, Geometry) {
    let kernel = |language, files: &'static [SourceFile], defines| {
        Kernel::Compiled(KernelSource {
            language,
            files: Cow::Borrowed(files),
            entry: "copy_f32".into(),
            defines,
            options: Vec::new(),
            user: None,
        })
    };
    match (backend, target) {
        ("builtin", Target::Cpu) => {
            let builtin = Builtin {
                name: "copy.f32",
                function: copy_f32,
            };
            (Kernel::Builtin(builtin), Geometry::blocks(1))
        }
        ("builtin", Target::Cuda { .. }) => unreachable!("builtins are functions of the host"),
        (_, Target::Cpu) => {
            let defines = vec![KernelSource::define("PIECE", PIECE)];
            let blocks = elements.div_ceil(PIECE) as u32;
            (
                kernel(Language::C, &C_FILES, defines),
                Geometry::blocks(blocks),
            )
        }
        (_, Target::Cuda { .. }) => {
            let blocks = elements.div_ceil(CUDA_THREADS * CUDA_ELEMENTS) as u32;
            (
                kernel(Language::Cuda, &CUDA_FILES, vec![]),
                Geometry::linear(blocks, CUDA_THREADS as u32),
            )
        }
    }
}

impl Problem for CopyProblem {
    fn inputs(&self) -> Vec<TensorSpec> {
        vec![self.spec("x")]
    }

    fn outputs(&self, _phase: Phase) -> Vec<TensorSpec> {
        vec![self.spec("out")]
    }

    fn generate(&self, key: &InputKey) -> Tensors {
        let values = key.stream("x").uniform(self.elements, -1.0, 1.0);
        [("x".to_owned(), Tensor::f32([self.elements], values))].into()
    }

    fn validate(&self, _inputs: &Tensors) -> Result<(), String> {
        Ok(())
    }

    fn oracle(&self, inputs: &Tensors, _phase: Phase) -> Tensors {
        let values = check::elements(&inputs["x"]).collect();
        [(
            "out".to_owned(),
            Tensor::new([self.elements], Data::F64(values)),
        )]
        .into()
    }

    fn oracle_operations(&self, _phase: Phase, _threads: usize) -> f64 {
        // A copied element costs a tenth of an exponential.
        0.1 * self.elements as f64
    }

    fn reduced(&self, _phase: Phase, operations: f64, _threads: usize) -> Option<Box<dyn Problem>> {
        let elements = ((10.0 * operations) as usize).min(self.elements);
        let smaller = || CopyProblem {
            elements,
            ..self.clone()
        };
        (elements > 0).then(|| Box::new(smaller()) as Box<dyn Problem>)
    }

    fn check(
        &self,
        _inputs: &Tensors,
        outputs: &Tensors,
        expected: &Tensors,
        _phase: Phase,
    ) -> Check {
        let out = check::compare(
            "out",
            outputs.get("out"),
            &expected["out"],
            Metric::MaxRelative,
            0.0,
        );
        Check { tensors: vec![out] }
    }

    fn work(&self, _phase: Phase) -> Work {
        Work {
            flops: 0.0,
            compulsory_bytes: 8.0 * self.elements as f64,
        }
    }

    fn program(
        &self,
        backend: &str,
        _phase: Phase,
        _canonical: &CanonicalShape,
        target: &Target,
    ) -> Result<Program, Refusal> {
        (self.program)(self.elements, backend, target)
    }
}

fn copying(elements: usize, backend: &str, target: &Target) -> Result<Program, Refusal> {
    if backend == "builtin" && *target != Target::Cpu {
        let reason = "`builtin` runs on a CPU only".to_owned();
        return Err(Refusal::Unavailable(reason));
    }
    let (kernel, geometry) = copy_kernel(backend, elements, target);
    Ok(program_of(kernel, geometry, elements))
}

/// The program that launches a kernel which copies so many elements.
pub(crate) fn program_of(kernel: Kernel, geometry: Geometry, elements: usize) -> Program {
    let mut program = Program::default();
    let x = program.buffer("x", Dtype::F32, elements, Role::Input, Binding::Given);
    let out = program.buffer("out", Dtype::F32, elements, Role::Output, Binding::Result);
    let kernel = program.kernel(kernel);
    let args = vec![
        Arg::Read(program.all(x)),
        Arg::Write(program.all(out)),
        Arg::Int(Index::from(elements)),
    ];
    program.steps.push(Step::Launch {
        kernel,
        geometry,
        args,
    });
    program
}

fn copy_f32(call: &mut Call<'_>) {
    call.write(1).copy_from_slice(call.read(0));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_checked() {
        let problem = |parameters: &[(&str, i64)]| {
            Copy.problem(
                &parameters.iter().map(|&(n, v)| (n, v)).collect(),
                Dtype::F32,
            )
        };
        assert!(problem(&[("elements", 8)]).is_ok());
        let message = |result: Result<_, ParameterError>| match result {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
        assert_eq!(
            message(problem(&[])),
            "workload `copy` needs the parameter `elements`"
        );
        assert_eq!(
            message(problem(&[("elements", 8), ("layot", 1)])),
            "workload `copy` has no parameter `layot`"
        );
        assert!(message(problem(&[("elements", 0)])).contains("whole number from 1"));
    }

    #[test]
    fn programs_move_the_compulsory_bytes() {
        let parameters = [("elements", 1000)].into_iter().collect();
        let problem = Copy.problem(&parameters, Dtype::F32).unwrap();
        for backend in ["builtin", "compiled"] {
            let shape = CanonicalShape::default();
            let program = problem
                .program(backend, Phase::Forward, &shape, &Target::Cpu)
                .unwrap();
            program.validate().unwrap();
            let totals = program.totals();
            let bytes = (totals.read_bytes + totals.written_bytes) as f64;
            assert_eq!(bytes, problem.work(Phase::Forward).compulsory_bytes);
        }
    }
}
