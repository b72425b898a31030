//! Programs for GPUs as data: their launches, sources and buffers.

use std::collections::BTreeSet;

use crate::semicrf::SemiCrf;
use sweeper_program::workload::{CanonicalShape, Phase, Refusal, Target, Workload};
use sweeper_program::{Dtype, Parameters, Program, Role, Step, Value};

fn target() -> Target {
    Target::Cuda {
        arch: "sm_90".to_owned(),
    }
}

fn program(sizes: [i64; 4], words: &[(&str, &str)], backend: &str, phase: Phase) -> Program {
    let mut parameters: Parameters = ["T", "K", "C", "B"].into_iter().zip(sizes).collect();
    for &(name, word) in words {
        parameters.set(name, Value::from(word));
    }
    let problem = SemiCrf.problem(&parameters, Dtype::F32).unwrap();
    let shape = CanonicalShape::default();
    let program = problem.program(backend, phase, &shape, &target()).unwrap();
    program.validate().unwrap();
    program
}

#[test]
fn the_grid_of_guide_000_needs_few_kernels() {
    for potentials in ["materialized", "decomposed"] {
        let mut kernels = BTreeSet::new();
        for t in [128, 1024] {
            for k in [4, 24] {
                for c in [3, 6, 9, 12] {
                    let words = [("potentials", potentials)];
                    let program = program([t, k, c, 4], &words, "fused", Phase::Both);
                    kernels.extend(
                        program
                            .compiled()
                            .map(|source| (source.entry.clone(), source.defines.clone())),
                    );
                }
            }
        }
        // The scan, gradients, and the sum of parts that only decomposed gradients need.
        let expected = if potentials == "decomposed" { 3 } else { 2 };
        assert_eq!(kernels.len(), expected, "{kernels:?}");
    }
}

#[test]
fn both_scans_are_one_launch() {
    let launches = |words, phase| {
        let program = program([64, 8, 3, 2], words, "fused", phase);
        program.totals().launches
    };
    assert_eq!(launches(&[], Phase::Forward), 1);
    assert_eq!(launches(&[], Phase::Both), 2);
    assert_eq!(launches(&[("potentials", "decomposed")], Phase::Both), 3);
}

#[test]
fn blocks_fit_into_a_gpu() {
    for sizes in [
        [9, 4, 3, 1],
        [200, 100, 24, 1],
        [50, 40, 31, 1],
        [50, 4096, 32, 1],
        [3, 2, 1000, 1],
    ] {
        for potentials in ["materialized", "decomposed"] {
            for semiring in ["log", "entropy"] {
                let words = [("potentials", potentials), ("semiring", semiring)];
                let program = program(sizes, &words, "fused", Phase::Both);
                for step in &program.steps {
                    if let Step::Launch { geometry, .. } = step {
                        assert!(geometry.block[0] <= 1024);
                        assert!(geometry.shared_bytes <= 227 << 10, "{sizes:?} {geometry:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn checkpoints_keep_less() {
    let saved = |t| {
        let words = [("potentials", "decomposed")];
        let program = program([t, 16, 12, 1], &words, "fused_checkpointing", Phase::Both);
        let bytes = program.memory_by_role();
        bytes[&Role::Saved] + bytes[&Role::Workspace]
    };
    // Four times the length: twice the checkpoints and the rows of an interval.
    let ratio = saved(16_384) as f64 / saved(4096) as f64;
    assert!((1.5..2.5).contains(&ratio), "{ratio}");
}

#[test]
fn what_can_not_run_is_refused() {
    let parameters: Parameters = [("T", 8), ("K", 4), ("C", 3)].into_iter().collect();
    let problem = SemiCrf.problem(&parameters, Dtype::F32).unwrap();
    let shape = CanonicalShape::default();
    let refusal = problem.program("fused_reference", Phase::Forward, &shape, &target());
    assert!(matches!(refusal, Err(Refusal::Unavailable(_))));
    let wide = CanonicalShape::new([("C".to_owned(), 2048)]);
    let refusal = problem.program("fused", Phase::Forward, &wide, &target());
    assert!(matches!(refusal, Err(Refusal::Unavailable(_))));
}
