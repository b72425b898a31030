//! `streaming` and `fused_reference` agree with the oracle, over the whole matrix of semirings,
//! phases, potentials and options at small and boundary sizes, and where numbers are hard.

use sweeper::compile::Bounds;
use sweeper::device::cpu::Cpu;
use sweeper::device::{Device, Job, RunsPrograms};
use sweeper_program::inputs::InputKey;
use sweeper_program::{
    CanonicalShape, Dtype, Parameters, Phase, Problem, Program, Target, Tensor, Tensors, Value,
};
use sweeper_workloads::registry::workload;

/// The kernels of `streaming` for GPUs, on the CPU.
mod cuda;

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

    /// The case with each value of an input changed: `change(element, value)`.
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

    /// The results of `backend` on a device with `threads` threads.
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

/// The labels (source, destination) of an element of a tensor whose last two axes are labels.
fn labels(element: usize, labels: usize) -> (usize, usize) {
    (element / labels % labels, element % labels)
}

#[test]
fn forbidden_transitions() {
    // No label follows itself, and the first never follows the second.
    let forbidden = |(one, two): (usize, usize)| one == two || (one, two) == (0, 1);
    check_matrix([30, 6, 4, 2], "random", |case| {
        case.with("transition", |at, score| {
            if forbidden(labels(at, 4)) {
                -1e9
            } else {
                score
            }
        })
        .with("edge", |at, score| {
            let (dst, src) = labels(at, 4);
            if forbidden((src, dst)) { -1e9 } else { score }
        })
    });
}

/// Each label is followed by the next one alone, and lasts at least 20 positions: for 19 boundaries
/// there is no state that is allowed, and later the allowed source is far below the best.
#[test]
fn a_ring_grammar_with_a_minimum_duration() {
    let (k, c) = (28, 3);
    let follows = |src: usize, dst: usize| (src + 1) % c == dst;
    for durations in ["1..K-1", "1..K"] {
        let least = if durations == "1..K" { 19 } else { 20 };
        for semiring in SEMIRINGS {
            for form in [
                ["materialized", durations, "fixed"],
                ["decomposed", durations, "fixed"],
                ["decomposed", durations, "per_duration"],
            ] {
                let case = Case::new([120, k as i64, c as i64, 2], semiring, form, "full");
                let case = case.expect("valid sizes");
                case.with("transition", |at, score| {
                    let (src, dst) = labels(at, c);
                    if follows(src, dst) { score } else { -1e9 }
                })
                .with(
                    "duration_bias",
                    |at, score| {
                        if at / c >= least { score } else { -1e9 }
                    },
                )
                .with("edge", |at, score| {
                    let (dst, src) = labels(at, c);
                    let allowed = follows(src, dst) && at / (c * c) % k >= least;
                    if allowed { score } else { -1e9 }
                })
                .with_lengths(&[120, 97])
                .check();
            }
        }
    }
}

/// Every score of a case times `factor`.
fn scaled(case: Case, factor: f32) -> Case {
    ["edge", "cum_scores", "transition", "duration_bias"]
        .into_iter()
        .fold(case, |case, input| {
            case.with(input, |_, score| factor * score)
        })
}

#[test]
fn large_scores() {
    for form in FORMS {
        for semiring in SEMIRINGS {
            let case = Case::new([64, 8, 4, 2], semiring, form, "random");
            scaled(case.expect("valid sizes"), 20.0).check();
        }
    }
}

/// Values of 1e4 and more, where an f32 has a spacing of 0.001, and gradients through 1e4
/// positions.
#[test]
fn long_sequences() {
    for (semiring, form) in [
        ("log", FORMS[0]),
        ("entropy", FORMS[2]),
        ("max", FORMS[2]),
        ("log", FORMS[5]),
    ] {
        let case = Case::new([10_000, 100, 2, 1], semiring, form, "full");
        case.expect("valid sizes").check();
    }
    let case = Case::new([1024, 24, 12, 1], "log", FORMS[0], "full");
    case.expect("valid sizes").check();
}

#[test]
fn two_runs_are_the_same_bits_and_so_are_two_threads() {
    for semiring in SEMIRINGS {
        for form in [FORMS[0], FORMS[2], FORMS[4]] {
            let case = Case::new([300, 40, 12, 4], semiring, form, "random");
            let case = case.expect("valid sizes");
            let [mut one, mut two] = [1, 2].map(|threads| Cpu::new(threads).expect("a device"));
            one.bind(&case.inputs).expect("bound");
            two.bind(&case.inputs).expect("bound");
            for backend in BACKENDS {
                let first = case.run(&mut one, backend, Phase::Both);
                assert_eq!(first, case.run(&mut one, backend, Phase::Both));
                assert_eq!(first, case.run(&mut two, backend, Phase::Both));
                let backward = case.run(&mut one, backend, Phase::Backward);
                assert!(backward.iter().all(|(name, tensor)| first[name] == *tensor));
            }
        }
    }
}

/// Launches of a phase, and of one more position.
fn launches(backend: &str, semiring: &str, form: [&str; 3], phase: Phase) -> [u64; 2] {
    let count = |positions: i64| {
        let case = Case::new([positions, 5, 3, 2], semiring, form, "full");
        let program = case.expect("valid sizes").program(backend, phase);
        program.validate().expect("valid program");
        program.totals().launches
    };
    [count(9), count(10) - count(9)]
}

#[test]
fn launches_are_known_without_running() {
    let facts = [
        // semiring, form, forward, backward: for T = 9, and per position.
        ("log", FORMS[0], [115, 13], [55, 6]),
        ("max", FORMS[0], [70, 8], [37, 4]),
        ("entropy", FORMS[0], [214, 24], [127, 14]),
        ("log", FORMS[2], [147, 15], [127, 13]),
        ("max", FORMS[2], [97, 10], [107, 11]),
        ("entropy", FORMS[4], [257, 26], [207, 21]),
    ];
    for (semiring, form, forward, backward) in facts {
        let found = |phase| launches("streaming", semiring, form, phase);
        let found = (found(Phase::Forward), found(Phase::Backward));
        assert_eq!(found, (forward, backward), "{semiring} {form:?}");
        let both = launches("streaming", semiring, form, Phase::Both);
        assert_eq!(both[1], forward[1] + backward[1]);
        let fused = |phase| launches("fused_reference", semiring, form, phase);
        assert_eq!(fused(Phase::Forward), [1, 0]);
        assert_eq!(fused(Phase::Both), [2, 0]);
    }
}

/// The bytes that one more position moves, by hand: d durations, E edges, S segments, N states of B
/// sequences.
#[test]
fn bytes_are_known_without_running() {
    let totals = |positions: i64| {
        let case = Case::new([positions, 5, 3, 2], "log", FORMS[0], "full");
        let program = case.expect("valid sizes");
        program.program("streaming", Phase::Forward).totals()
    };
    let (b, d, c) = (2, 4, 3);
    let (e, s, n) = (b * d * c * c, b * d * c, b * c);
    // Edges gathered, added to states, their maximum, difference, exponential and sum; then log,
    // maximum added, states stored.
    let read_f32 = e + (e + s) + e + (e + n) + e + e + n + 2 * n + n;
    // Window, its maximum, the difference of both, states stored; and lengths.
    let read_f64 = s + s + (s + b) + b + b;
    let written_f32 = e + s + e + n + e + e + n + n + n;
    let written_f64 = s + b + n;
    let (shorter, longer) = (totals(9), totals(10));
    assert_eq!(
        longer.read_bytes - shorter.read_bytes,
        4 * read_f32 + 8 * read_f64
    );
    assert_eq!(
        longer.written_bytes - shorter.written_bytes,
        4 * written_f32 + 8 * written_f64
    );
    // The first positions have fewer durations: 1, 2, 3 of them.
    let missing = 8 * d - (1 + 2 + 3 + 5 * d);
    let positions = 8 * (4 * written_f32 + 8 * written_f64);
    let per_duration = 4 * (4 * e / d + s / d) + 8 * s / d;
    let before_and_after = 8 * n + (8 * b + 12 * n) + 5 * 4 * b;
    let expected = positions - missing * per_duration + before_and_after;
    assert_eq!(shorter.written_bytes, expected);
}

/// A forward pass alone keeps a window of states; one with gradients keeps the tensors of the
/// backward pass.
#[test]
fn memory_by_role_says_what_is_saved() {
    use sweeper_program::Role;
    let bytes = |backend: &str, phase, role| {
        let case = Case::new([100, 5, 3, 2], "log", FORMS[0], "full").expect("valid sizes");
        let roles = case.program(backend, phase).memory_by_role();
        roles.get(&role).copied().unwrap_or(0)
    };
    let edge = 2 * 99 * 5 * 9 * 4;
    for backend in BACKENDS {
        assert_eq!(bytes(backend, Phase::Forward, Role::Saved), 0);
        assert_eq!(bytes(backend, Phase::Forward, Role::Gradient), 0);
        assert_eq!(bytes(backend, Phase::Both, Role::Gradient), edge);
        assert!(bytes(backend, Phase::Forward, Role::DpState) < 1000);
    }
    // Scores of the four durations, and sums, of 99 boundaries; f64 states of 100.
    let sums = 99 * 2 * 3 * 4;
    let saved = bytes("streaming", Phase::Both, Role::Saved);
    assert_eq!(saved, 99 * 2 * 4 * 9 * 4 + sums + 2 * 3 * 4 + 2 * 4);
    assert_eq!(
        bytes("fused_reference", Phase::Both, Role::Saved),
        100 * 2 * 3 * 8
    );
}

fn cuda(arch: &str) -> Target {
    Target::Cuda {
        arch: arch.to_owned(),
    }
}

#[test]
fn a_gpu_is_refused_with_the_reason() {
    let case = Case::new([9, 4, 3, 2], "log", FORMS[0], "full").expect("valid sizes");
    let shape = CanonicalShape::default();
    let program = case
        .problem
        .program("fused_reference", Phase::Forward, &shape, &cuda("sm_90a"));
    let refusal = program.expect_err("refused").to_string();
    assert!(refusal.contains("runs on a CPU only"), "{refusal}");
}

/// On a GPU, `streaming` has the launches of the CPU with compiled kernels, and enough threads in
/// every iteration.
#[test]
fn a_gpu_gets_the_same_launches() {
    for semiring in SEMIRINGS {
        for form in FORMS {
            let case = Case::new([40, 5, 3, 2], semiring, form, "random").expect("valid sizes");
            for phase in Phase::ALL {
                let shape = CanonicalShape::default();
                let program = case
                    .problem
                    .program("streaming", phase, &shape, &cuda("sm_80"));
                let program = program.expect("a program");
                program.validate().expect("valid");
                assert_eq!(program.compiled().count(), program.kernels.len());
                assert_eq!(program.sources().len(), 1);
                let host = case.program("streaming", phase);
                assert_eq!(program.totals(), host.totals());
                assert_eq!(program.buffers, host.buffers);
            }
        }
    }
}

#[test]
fn operations_compile_for_a_gpu() {
    let Some(nvrtc) = crate::support::nvrtc() else {
        return;
    };
    let case = Case::new([9, 4, 3, 2], "entropy", FORMS[0], "full").expect("valid sizes");
    for arch in ["sm_80", "sm_90a"] {
        let shape = CanonicalShape::default();
        let program = case
            .problem
            .program("streaming", Phase::Both, &shape, &cuda(arch));
        let program = program.expect("a program");
        // All entries are in one source.
        let source = program.compiled().next().expect("kernels");
        let limit = Bounds::within(std::time::Duration::from_secs(120));
        nvrtc.compile(source, arch, &limit).expect("compiled");
    }
}
