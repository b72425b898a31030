//! Speed of the semi-CRF kernels: `cargo bench --bench semicrf -- [T K C B] [word]...`
//!
//! All programs of a form run interleaved in one process on one thread; medians. `floor` reads the
//! materialized edges once and takes one exponential of each. `exact` is the source of `fused`,
//! compiled for the labels at hand instead of the canonical shape. Words choose among
//! `materialized`, `decomposed`, `per_duration` and the semirings; without any, all are run.
//! `pairs` runs the 24 pairs of K and C of the semi-CRF guide instead, and prints the cost of
//! generality: geometric means of ratios to `exact`.

#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sweeper::compile::Bounds;
use sweeper::compile::cc::Cc;
use sweeper::compile::digests::Digests;
use sweeper::device::cpu::Cpu;
use sweeper::device::{Artifact, Device, Job, Prepared, RunsPrograms};
use sweeper_program::inputs::InputKey;
use sweeper_program::{
    CanonicalShape, Dtype, KernelSource, Parameters, Phase, Problem, Program, Target, Value,
    Workload,
};
use sweeper_workloads::semicrf::{SemiCrf, floor, sizes::Sizes};

const ROUNDS: usize = 25;
/// A sample lasts at least this long.
const SAMPLE_NS: f64 = 1e6;

struct Entry {
    name: String,
    prepared: Prepared,
    iterations: u32,
    samples_ns: Vec<f64>,
}

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let numbers: Vec<i64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let sizes = match numbers[..] {
        [t, k, c, b] => [t, k, c, b],
        _ => [1024, 24, 12, 4],
    };
    let chosen = |all: &[&str], word: &str| {
        !all.iter().any(|other| words.iter().any(|w| w == other)) || words.iter().any(|w| w == word)
    };
    let forms = ["materialized", "decomposed", "per_duration"];
    let semirings = ["log", "max", "entropy"];
    let mut kernels = Kernels::default();
    let pairs = words.iter().any(|word| word == "pairs");
    println!("T, K, C, B = {sizes:?}; microseconds, median of {ROUNDS}, 1 thread");
    for form in forms.into_iter().filter(|form| chosen(&forms, form)) {
        for semiring in semirings
            .into_iter()
            .filter(|word| chosen(&semirings, word))
        {
            println!("{form} {semiring}");
            if pairs {
                compare_pairs(&mut kernels, sizes, form, semiring);
                continue;
            }
            for (name, median_ns) in measure(&mut kernels, &parameters(sizes, form, semiring)) {
                println!("  {name:<36} {:>12.1}", median_ns / 1e3);
            }
        }
    }
}

/// Geometric means over the pairs of K and C, with T and B of `sizes`.
fn compare_pairs(kernels: &mut Kernels, [t, _, _, b]: [i64; 4], form: &str, semiring: &str) {
    const NAMES: [&str; 2] = ["fused", "fused, any shape"];
    let mut logs = vec![[0.0; NAMES.len()]; Phase::ALL.len()];
    let mut pairs = 0.0;
    for k in [4, 8, 12, 16, 20, 24] {
        for c in [3, 6, 9, 12] {
            let medians = measure(kernels, &parameters([t, k, c, b], form, semiring));
            let of = |phase: Phase, name: &str| {
                let name = format!("{phase} {name}");
                let found = medians.iter().find(|(held, _)| *held == name);
                found.expect("it was measured").1
            };
            for (phase, logs) in Phase::ALL.into_iter().zip(&mut logs) {
                for (name, log) in NAMES.into_iter().zip(logs) {
                    *log += (of(phase, name) / of(phase, "fused, exact")).ln();
                }
            }
            pairs += 1.0;
        }
    }
    for (phase, logs) in Phase::ALL.into_iter().zip(logs) {
        for (name, log) in NAMES.into_iter().zip(logs) {
            println!(
                "  {phase} {name:<28} {:>8.3} x exact",
                f64::exp(log / pairs)
            );
        }
    }
}

fn parameters(sizes: [i64; 4], form: &str, semiring: &str) -> Parameters {
    let mut parameters: Parameters = ["T", "K", "C", "B"].into_iter().zip(sizes).collect();
    parameters.set("semiring", semiring);
    if form != "materialized" {
        parameters.set("potentials", "decomposed");
    }
    if form == "per_duration" {
        parameters.set("transition", form);
    }
    parameters
}

/// Medians of all programs of a problem, in nanoseconds.
fn measure(kernels: &mut Kernels, parameters: &Parameters) -> Vec<(String, f64)> {
    let problem = SemiCrf
        .problem(parameters, Dtype::F32)
        .expect("sizes are within bounds");
    let mut device = Cpu::new(1).expect("a thread");
    device
        .bind(&problem.generate(&InputKey([1; 32])))
        .expect("memory for the inputs");
    let mut entries: Vec<Entry> = programs(parameters, &*problem)
        .into_iter()
        .map(|(name, program)| prepare(&mut device, kernels, name, program))
        .collect();
    for _ in 0..ROUNDS {
        for entry in &mut entries {
            let sample = device.sample(entry.prepared, entry.iterations);
            let sample = sample.expect("the program runs");
            entry.samples_ns.push(sample.per_iteration_ns());
        }
    }
    entries
        .into_iter()
        .map(|mut entry| {
            entry.samples_ns.sort_by(f64::total_cmp);
            (entry.name, entry.samples_ns[ROUNDS / 2])
        })
        .collect()
}

fn programs(parameters: &Parameters, problem: &dyn Problem) -> Vec<(String, Program)> {
    let words = SemiCrf.info().resolve(parameters).expect("checked");
    let sizes = Sizes::new(&words).expect("checked");
    let bound = |bound: usize| CanonicalShape::new([("C".to_owned(), bound as u64)]);
    let canonical = bound(sizes.c.next_multiple_of(16));
    let mut programs = Vec::new();
    if parameters.get("potentials") != Some(&Value::from("decomposed")) {
        programs.push(("floor".to_owned(), floor::program(&sizes)));
    }
    for phase in Phase::ALL {
        for (backend, canonical, name) in [
            ("streaming", &canonical, "streaming"),
            ("fused", &canonical, "fused"),
            ("fused", &bound(sizes.c), "fused, exact"),
            ("fused", &CanonicalShape::default(), "fused, any shape"),
            ("fused_checkpointing", &canonical, "fused_checkpointing"),
        ] {
            if let Ok(program) = problem.program(backend, phase, canonical, &Target::Cpu) {
                programs.push((format!("{phase} {name}"), program));
            }
        }
    }
    programs
}

/// Compiles each kernel once.
#[derive(Default)]
struct Kernels {
    artifacts: BTreeMap<String, Artifact>,
}

impl Kernels {
    fn artifact(&mut self, source: &KernelSource) -> Artifact {
        let key = source.title();
        let compile = || {
            let cc =
                Cc::find(None, &Digests::default(), &AtomicBool::new(false)).expect("a C compiler");
            let bytes = cc.compile(source, &Bounds::within(Duration::from_secs(60)));
            Artifact {
                symbols: Default::default(),
                key: key.clone(),
                bytes: Arc::from(bytes.expect("the kernels compile")),
            }
        };
        let artifact = self.artifacts.entry(key.clone()).or_insert_with(compile);
        artifact.clone()
    }
}

fn prepare(device: &mut Cpu, kernels: &mut Kernels, name: String, program: Program) -> Entry {
    let artifacts: Vec<Artifact> = program
        .sources()
        .into_iter()
        .map(|source| kernels.artifact(source))
        .collect();
    let job = Job {
        program,
        artifacts: &artifacts,
        script: None,
    };
    let prepared = device.prepare(job).expect("the program fits");
    let once = device.sample(prepared, 1).expect("the program runs");
    Entry {
        name,
        prepared,
        iterations: (SAMPLE_NS / once.per_iteration_ns()).ceil().max(1.0) as u32,
        samples_ns: Vec::with_capacity(ROUNDS),
    }
}
