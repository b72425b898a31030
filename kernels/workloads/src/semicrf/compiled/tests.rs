//! Programs as data: their launches, sources and buffers.

use std::collections::BTreeSet;

use crate::semicrf::SemiCrf;
use sweeper_program::workload::{CanonicalShape, Phase, Target, Workload};
use sweeper_program::{Dtype, Parameters, Program, Role, Value};

fn program(sizes: [i64; 4], words: &[(&str, &str)], backend: &str, phase: Phase) -> Program {
    let mut parameters: Parameters = ["T", "K", "C", "B"].into_iter().zip(sizes).collect();
    for &(name, word) in words {
        parameters.set(name, Value::from(word));
    }
    let problem = SemiCrf.problem(&parameters, Dtype::F32).unwrap();
    let canonical = CanonicalShape::new([("C".to_owned(), 16)]);
    let program = problem
        .program(backend, phase, &canonical, &Target::Cpu)
        .unwrap();
    program.validate().unwrap();
    for spec in problem.outputs(phase) {
        assert!(
            program
                .buffers
                .iter()
                .any(|buffer| buffer.name == spec.name)
        );
    }
    program
}

#[test]
fn the_grid_of_guide_000_needs_one_kernel_a_pass() {
    for semiring in ["log", "max", "entropy"] {
        for potentials in ["materialized", "decomposed"] {
            let mut kernels = BTreeSet::new();
            for t in [128, 256, 512, 1024] {
                for k in [4, 8, 12, 16, 20, 24] {
                    for c in [3, 6, 9, 12] {
                        let words = [("semiring", semiring), ("potentials", potentials)];
                        let program = program([t, k, c, 4], &words, "fused", Phase::Both);
                        kernels.extend(
                            program
                                .compiled()
                                .map(|source| (source.entry.clone(), source.defines.clone())),
                        );
                    }
                }
            }
            // Forward, backward, and the sum over the batch that only decomposed gradients need.
            let expected = if potentials == "decomposed" { 3 } else { 2 };
            assert_eq!(kernels.len(), expected, "{kernels:?}");
        }
    }
}

#[test]
fn a_pass_is_one_launch() {
    let launches = |words, phase| {
        program([64, 8, 3, 2], words, "fused", phase)
            .totals()
            .launches
    };
    assert_eq!(launches(&[], Phase::Forward), 1);
    assert_eq!(launches(&[], Phase::Backward), 1);
    assert_eq!(launches(&[], Phase::Both), 2);
    assert_eq!(launches(&[("potentials", "decomposed")], Phase::Both), 3);
}

#[test]
fn checkpoints_keep_less() {
    let words = [("potentials", "decomposed")];
    let saved = |backend, t| {
        let program = program([t, 16, 12, 1], &words, backend, Phase::Both);
        program.memory_by_role()[&Role::Saved]
    };
    // Rows of 16 floats and two f64 a boundary.
    assert_eq!(saved("fused", 4096), 4097 * (64 + 16));
    // Four times the length: twice the checkpoints, where all rows are four times as many.
    let ratio =
        saved("fused_checkpointing", 4096) as f64 / saved("fused_checkpointing", 1024) as f64;
    assert!((1.8..2.2).contains(&ratio), "{ratio}");
    assert!(saved("fused_checkpointing", 4096) * 8 < saved("fused", 4096));
    let forward = program([4096, 16, 12, 1], &words, "fused", Phase::Forward);
    assert!(!forward.memory_by_role().contains_key(&Role::Saved));
}
