//! Activation checkpointing of the transformer: less memory for launches, and equal results.

use sweeper_program::inputs::InputKey;
use sweeper_program::{CanonicalShape, Phase, Program, Role, Target, Tensors};

use crate::conformance::{Case, cuda, problem, run_on_cpu};
use crate::shim::{self, Mode};

const BACKENDS: [&str; 2] = ["eager", "compiled"];

const SMALL: &str =
    "batch=2 context=6 vocabulary=13 d_model=24 d_ff=40 layers=2 heads=3 loss=cross_entropy";

fn case(words: &str) -> Case {
    let (problem, phases) = problem(&format!("transformer {words}"));
    Case::new(words.to_owned(), problem, phases, &BACKENDS)
}

#[test]
fn layers_that_are_computed_again_conform() {
    let words = format!("{SMALL} checkpoint=layer");
    let canonical = CanonicalShape::default();
    case(&words).conforms_on_cpu(&canonical);
    if shim::is_here() {
        for precision in ["f32", "bf16"] {
            let case = case(&format!("{words} precision={precision}"));
            case.conforms_on_shim(&[Phase::Both, Phase::Step], &canonical, Mode::Fast);
        }
    }
}

fn program(words: &str, backend: &str, phase: Phase, target: &Target) -> Program {
    let (problem, _) = problem(&format!("transformer {words}"));
    let program = problem.program(backend, phase, &CanonicalShape::default(), target);
    program.unwrap()
}

/// Of each layer its input alone is kept for the backward pass, and one layer at a time is computed
/// again. More layers are not further kernels.
#[test]
fn a_step_takes_less_memory() {
    const MODEL: &str = "batch=4 context=64 vocabulary=64 d_model=64 d_ff=128 heads=2";
    const INPUT_BYTES: u64 = 4 * 64 * 64 * 4;
    for target in [Target::Cpu, cuda()] {
        for backend in BACKENDS {
            let step = |layers: u32, checkpoint: &str| {
                let words = format!("{MODEL} layers={layers} checkpoint={checkpoint}");
                program(&words, backend, Phase::Step, &target)
            };
            let what = format!("{backend} {target:?}");
            let saved = |program: &Program| program.memory_by_role()[&Role::Saved];
            let [without, with, deep] = [step(4, "none"), step(4, "layer"), step(8, "layer")];
            assert!(
                10 * with.memory_bytes() < 7 * without.memory_bytes(),
                "{what}"
            );
            assert!(5 * saved(&with) < saved(&without), "{what}");
            assert_eq!(saved(&deep) - saved(&with), 4 * INPUT_BYTES, "{what}");
            let launches = |program: &Program| program.totals().launches;
            assert!(launches(&with) > launches(&without), "{what}");
            let [with, deep] = [with, deep].map(|program| program.compiled().count());
            assert_eq!(with, deep, "{what}");
        }
    }
}

fn outputs(words: &str, backend: &str, phase: Phase) -> Tensors {
    let (problem, _) = problem(&format!("transformer {words}"));
    let program = program(words, backend, phase, &Target::Cpu);
    let inputs = problem.generate(&InputKey([6; 32]));
    run_on_cpu(program, &inputs, &problem.outputs(phase), 2, 1)
}

#[test]
fn logits_are_exactly_those_without() {
    for backend in BACKENDS {
        let [without, with] = ["none", "layer"].map(|checkpoint| {
            let words = format!("{SMALL} checkpoint={checkpoint}");
            outputs(&words, backend, Phase::Both)
        });
        assert!(with["logits"] == without["logits"], "{backend}");
    }
}
