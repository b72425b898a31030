//! Conformance: the compiled backends of `semicrf` against the f64 oracle, on the CPU device and,
//! as CUDA kernels, on the shim.

use sweeper_program::inputs::InputKey;
use sweeper_program::{
    CanonicalShape, Dtype, Parameters, Phase, Problem, Target, Tensor, Tensors, Value,
};
use sweeper_workloads::registry;

use crate::conformance::run_on_cpu;
use crate::shim::{self, Mode};

mod bounds;
mod cuda;
mod digits;
mod options;
mod ranges;

const BACKENDS: [&str; 2] = ["fused", "fused_checkpointing"];

/// The device on which kernels run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Kernels in C, on the CPU device.
    Cpu,
    /// Kernels for CUDA, on the shim.
    Shim(Mode),
}

/// A problem with its inputs and the right answer.
struct Case {
    problem: Box<dyn Problem>,
    inputs: Tensors,
    expected: Tensors,
    name: String,
}

/// T, K, C, B, and `name=word` options.
fn case([t, k, c, b]: [i64; 4], options: &str) -> Case {
    let problem = problem([t, k, c, b], options);
    let inputs = problem.generate(&InputKey([42; 32]));
    with_inputs(problem, inputs, format!("{t},{k},{c},{b} {options}"))
}

/// The same problem with inputs that show mistakes.
fn showing_case([t, k, c, b]: [i64; 4], options: &str) -> Case {
    let problem = problem([t, k, c, b], options);
    let inputs = problem.showing(&InputKey([42; 32])).unwrap();
    with_inputs(
        problem,
        inputs,
        format!("{t},{k},{c},{b} {options}, showing"),
    )
}

fn problem(sizes: [i64; 4], options: &str) -> Box<dyn Problem> {
    let mut parameters: Parameters = ["T", "K", "C", "B"].into_iter().zip(sizes).collect();
    for option in options.split_whitespace() {
        let (name, word) = option.split_once('=').expect("name=word");
        parameters.set(name, Value::from(word));
    }
    let workload = registry::workload("semicrf").expect("it is registered");
    workload.problem(&parameters, Dtype::F32).unwrap()
}

fn with_inputs(problem: Box<dyn Problem>, inputs: Tensors, name: String) -> Case {
    problem.validate(&inputs).unwrap();
    let expected = problem.oracle(&inputs, Phase::Both);
    Case {
        problem,
        inputs,
        expected,
        name,
    }
}

impl Case {
    fn outputs(&self, backend: &str, phase: Phase, canonical: &CanonicalShape) -> Tensors {
        let problem = &self.problem;
        let program = problem.program(backend, phase, canonical, &Target::Cpu);
        run_on_cpu(
            program.unwrap(),
            &self.inputs,
            &problem.outputs(phase),
            2,
            1,
        )
    }

    /// The outputs on the shim, as kernels for a GPU.
    fn outputs_on_shim(
        &self,
        backend: &str,
        phase: Phase,
        canonical: &CanonicalShape,
        mode: Mode,
    ) -> Tensors {
        let target = Target::Cuda {
            arch: "sm_90".to_owned(),
        };
        let program = self
            .problem
            .program(backend, phase, canonical, &target)
            .unwrap();
        shim::run(&program, &self.inputs, &self.problem.outputs(phase), mode)
    }

    /// Checks one phase of one backend, and on the CPU that a second run gives equal bits.
    fn conforms(&self, place: Place, backend: &str, phase: Phase, canonical: &CanonicalShape) {
        let outputs = match place {
            Place::Cpu => self.outputs(backend, phase, canonical),
            Place::Shim(mode) => self.outputs_on_shim(backend, phase, canonical, mode),
        };
        let check = self
            .problem
            .check(&self.inputs, &outputs, &self.expected, phase);
        assert!(
            check.passed(),
            "{} {place:?} {backend} {phase} {canonical}: {:#?}",
            self.name,
            check.tensors
        );
        if place == Place::Cpu {
            assert_eq!(outputs, self.outputs(backend, phase, canonical));
        }
    }

    /// Both backends, kernels for a canonical shape and for any shape.
    fn conforms_everywhere(&self, place: Place) {
        let bounded = CanonicalShape::new([("C".to_owned(), 32)]);
        for backend in BACKENDS {
            for canonical in [&CanonicalShape::default(), &bounded] {
                self.conforms(place, backend, Phase::Both, canonical);
            }
        }
    }
}

/// Replaces the elements of a tensor of `f32` by `value` of their positions and values.
fn change(inputs: &mut Tensors, name: &str, value: impl Fn(usize, f32) -> f32) {
    let tensor = &inputs[name];
    let shape = tensor.shape().to_vec();
    let old = tensor.as_f32().unwrap();
    let values = old.iter().enumerate().map(|(i, &x)| value(i, x)).collect();
    inputs.insert(name.to_owned(), Tensor::f32(shape, values));
}
