//! `streaming` and `fused_reference` compute what the oracle says, over the whole matrix of semirings,
//! phases, potentials and options at small and boundary sizes, and where numbers are hard.

use sweeper::device::cpu::Cpu;
use sweeper::device::{Device, Job};
use sweeper_kernels::inputs::InputKey;
use sweeper_kernels::registry::workload;
use sweeper_kernels::{
    CanonicalShape, Dtype, Parameters, Phase, Problem, Program, Target, Tensor, Tensors, Value,
};

const BACKENDS: [&str; 2] = ["streaming", "fused_reference"];
const SEMIRINGS: [&str; 3] = ["log", "max", "entropy"];

/// Every form of the potentials: potentials, durations, transition.
const FORMS: [[&str; 3]; 6] = [
    ["materialized", "1..K-1", "fixed"],
    ["materialized", "1..K", "fixed"],
    ["decomposed", "1..K-1", "fixed"],
    ["decomposed", "1..K", "fixed"],
    ["decomposed", "1..K-1", "per_duration"],
    ["decomposed", "1..K", "per_duration"],
];

struct Case {
    problem: Box<dyn Problem>,
    inputs: Tensors,
    name: String,
}

impl Case {
    fn new(sizes: [i64; 4], semiring: &str, form: [&str; 3], lengths: &str) -> Option<Self> {
        let mut parameters: Parameters = ["T", "K", "C", "B"].into_iter().zip(sizes).collect();
        let names = [
            "semiring",
            "potentials",
            "durations",
            "transition",
            "lengths",
        ];
        let words = [semiring, form[0], form[1], form[2], lengths];
        for (name, word) in names.into_iter().zip(words) {
            parameters.set(name, Value::from(word));
        }
        let semicrf = workload("semicrf").expect("registered");
        let problem = semicrf.problem(&parameters, Dtype::F32).ok()?;
        let inputs = problem.generate(&InputKey([3; 32]));
        let name = format!("TKCB {sizes:?} {words:?}");
        Some(Case {
            problem,
            inputs,
            name,
        })
    }

    /// The same with each value of an input changed: `change(element, value)`.
    fn with(mut self, input: &str, change: impl Fn(usize, f32) -> f32) -> Self {
        if let Some(tensor) = self.inputs.get(input) {
            let values = tensor.as_f32().expect("scores").iter().enumerate();
            let values = values.map(|(at, &value)| change(at, value)).collect();
            let tensor = Tensor::f32(tensor.shape(), values);
            self.inputs.insert(input.to_owned(), tensor);
        }
        self
    }

    fn with_lengths(mut self, lengths: &[i64]) -> Self {
        let tensor = Tensor::i64([lengths.len()], lengths.to_vec());
        self.inputs.insert("lengths".to_owned(), tensor);
        self
    }

    fn program(&self, backend: &str, phase: Phase) -> Program {
        let shape = CanonicalShape::default();
        let program = self.problem.program(backend, phase, &shape, &Target::Cpu);
        program.unwrap_or_else(|refusal| panic!("{}: {backend} {phase}: {refusal}", self.name))
    }

    /// What `backend` computes, on a device with `threads` threads.
    fn run(&self, device: &mut Cpu, backend: &str, phase: Phase) -> Tensors {
        let job = Job {
            program: self.program(backend, phase),
            artifacts: &[],
            script: None,
        };
        let prepared = device.prepare(job).expect("prepared");
        device.poison(prepared).expect("poisoned");
        device.sample(prepared, 1).expect("sampled");
        let specs = self.problem.outputs(phase);
        device.results(prepared, &specs).expect("results")
    }

    /// Checks all phases of all backends.
    fn check(&self) {
        self.problem.validate(&self.inputs).expect("valid inputs");
        let expected = self.problem.oracle(&self.inputs, Phase::Both);
        let mut device = Cpu::new(1).expect("a device");
        device.bind(&self.inputs).expect("bound");
        for backend in BACKENDS {
            for phase in Phase::ALL {
                let outputs = self.run(&mut device, backend, phase);
                let check = self.problem.check(&self.inputs, &outputs, &expected, phase);
                assert!(
                    check.passed(),
                    "{}: {backend} {phase}: {check:?}",
                    self.name
                );
            }
        }
    }
}

/// Checks every semiring and form that the sizes allow.
fn check_matrix(sizes: [i64; 4], lengths: &str, change: impl Fn(Case) -> Case) {
    let mut checked = 0;
    for semiring in SEMIRINGS {
        for form in FORMS {
            if let Some(case) = Case::new(sizes, semiring, form, lengths) {
                change(case).check();
                checked += 1;
            }
        }
    }
    assert!(checked >= 12, "{checked} of 18 forms");
}

#[test]
fn small_sizes() {
    for sizes in [[9, 4, 3, 3], [17, 5, 5, 3], [40, 24, 12, 2], [12, 3, 17, 1]] {
        check_matrix(sizes, "full", |case| case);
        check_matrix(sizes, "random", |case| case);
    }
}

#[test]
fn boundary_sizes() {
    let sizes = [
        [1, 1, 1, 1],
        [1, 4, 2, 3],
        [2, 1, 3, 2],
        [2, 2, 1, 3],
        [2, 3, 5, 1],
        [5, 1, 2, 2],
        [5, 2, 3, 1],
        [6, 9, 2, 3],
        [7, 7, 1, 1],
    ];
    for sizes in sizes {
        check_matrix(sizes, "full", |case| case);
    }
}

#[test]
fn sequences_of_one_position() {
    check_matrix([6, 4, 3, 3], "full", |case| case.with_lengths(&[6, 1, 2]));
    check_matrix([6, 4, 3, 3], "full", |case| case.with_lengths(&[1, 1, 1]));
}
