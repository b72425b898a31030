//! Kernels do not depend on the number of layers, so that a model of two layers can be judged in
//! place of a deeper one.

use super::*;
use sweeper_program::{CanonicalShape, KernelSource, Program, Target};

/// The text of each kernel of `compiled`.
fn kernels(layers: usize, more: &str, phase: Phase, target: &Target) -> Vec<String> {
    let words = format!(
        "batch=4 context=64 vocabulary=512 d_model=128 d_ff=256 heads=2 layers={layers}{more}"
    );
    let problem = problem(transformer(&words).unwrap());
    let canonical = CanonicalShape::default();
    let program: Program = problem
        .program("compiled", phase, &canonical, target)
        .unwrap();
    let text = |source: &&KernelSource| format!("{:?} {}", source.defines, source.files[0].text);
    let mut texts: Vec<String> = program.sources().iter().map(text).collect();
    texts.sort();
    texts
}

#[test]
fn a_copy_of_two_layers_has_the_kernels_of_any_depth() {
    let cuda = Target::Cuda {
        arch: "sm_90a".to_owned(),
    };
    let cases = [
        (&Target::Cpu, ""),
        (&cuda, ""),
        (&cuda, " precision=bf16"),
        (&cuda, " precision=bf16 checkpoint=layer"),
    ];
    for (target, more) in cases {
        for phase in [Phase::Forward, Phase::Both, Phase::Step] {
            let copy = kernels(2, more, phase, target);
            // 15 norms: more than a launch updates.
            let whole = kernels(7, more, phase, target);
            assert_eq!(whole, copy, "{target:?}{more}, {phase:?}");
        }
    }
}
