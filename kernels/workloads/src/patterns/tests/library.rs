//! Patterns that a library has whole, and the reasons why it lacks others.

use super::*;
use sweeper_program::{AttentionPass, Heads, Step};

/// Whether the library has a pattern whole.
fn is_whole(pattern: impl Evaluated, target: &Target) -> bool {
    let canonical = CanonicalShape::default();
    match problem(pattern).program("library", Phase::Forward, &canonical, target) {
        Ok(program) => {
            let is_call = |kernel: &Kernel| matches!(kernel, Kernel::Library(_));
            assert!(program.kernels.iter().all(is_call));
            true
        }
        Err(Refusal::Unavailable(reason)) => {
            assert!(reason.contains("no library"), "{reason}");
            false
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_library_has_what_is_one_call() {
    let cuda = Target::Cuda {
        arch: "sm_90a".to_owned(),
    };
    let [m, k, n] = [8, 16, 24];
    let product = product([m, k, n], Precision::F32);
    assert!(is_whole(product, &Target::Cpu) && is_whole(product, &cuda));
    let linear = |activation| linear([m, k, n], activation);
    assert!(!is_whole(linear(Activation::Relu), &Target::Cpu));
    assert!(is_whole(linear(Activation::None), &cuda));
    assert!(is_whole(linear(Activation::Relu), &cuda));
    assert!(is_whole(linear(Activation::GeluTanh), &cuda));
    assert!(!is_whole(linear(Activation::Gelu), &cuda));
    let weights = attention([2, 8, 4], Until::Weights);
    assert!(!is_whole(weights, &cuda));
}

/// Its GELU is exact where rows are whole float4.
#[test]
fn a_gelu_of_odd_rows_is_no_library_s() {
    let cuda = Target::Cuda {
        arch: "sm_90a".to_owned(),
    };
    for ([k, n], is_exact) in [([16, 24], true), ([15, 24], false), ([16, 22], false)] {
        let linear = |activation| linear([3, k, n], activation);
        assert_eq!(
            is_whole(linear(Activation::GeluTanh), &cuda),
            is_exact,
            "{k} {n}"
        );
        assert!(is_whole(linear(Activation::Relu), &cuda), "{k} {n}");
    }
}

/// Attention of some heads, whole.
fn heads(dimension: usize, precision: Precision) -> Attention {
    Attention {
        batch: 2,
        kv_heads: 3,
        group: 1,
        sequence: 24,
        dimension,
        is_causal: true,
        precision,
        until: Until::Values,
    }
}

/// The program of an attention by a library on a GPU.
fn attention_by_library(attention: Attention, phase: Phase) -> Result<Program, Refusal> {
    let target = Target::Cuda {
        arch: "sm_90a".to_owned(),
    };
    problem(attention).program("library", phase, &CanonicalShape::default(), &target)
}

/// Names of the kernels that steps launch.
fn launched<'p>(program: &'p Program, steps: &'p [Step]) -> Vec<&'p str> {
    let kernels = steps.iter().filter_map(|step| match step {
        Step::Launch { kernel, .. } => Some(program.kernels[kernel.0].name()),
        _ => None,
    });
    kernels.collect()
}

/// Operands are rounded to bf16, those that are given before the timed steps; results are copied to
/// f32, but for what only gradients read.
#[test]
fn attention_by_a_library_is_one_call_a_pass() {
    const ROUND: &str = "round_to_bf16";
    const CALL: &str = "library.attention";
    const WIDEN: &str = "widen_from_bf16";
    for (phase, prologue, steps) in [
        (Phase::Forward, vec![ROUND], vec![CALL, WIDEN]),
        (Phase::Backward, vec![ROUND, CALL, ROUND], vec![CALL, WIDEN]),
        (Phase::Both, vec![], vec![ROUND, CALL, WIDEN, CALL, WIDEN]),
    ] {
        let program = attention_by_library(heads(16, Precision::Bf16), phase).unwrap();
        let found = [&program.prologue, &program.steps].map(|steps| launched(&program, steps));
        assert_eq!(found, [prologue, steps], "{phase}");
    }
    let program = attention_by_library(heads(16, Precision::Bf16), Phase::Backward).unwrap();
    let mut calls = program.kernels.iter().filter_map(|kernel| match kernel {
        Kernel::Library(Library::Attention(call)) => Some(call),
        _ => None,
    });
    let (forward, gradients) = (calls.next().unwrap(), calls.next().unwrap());
    let lies = Heads::dense(3, 24, 16);
    assert_eq!(forward.pass, AttentionPass::Forward { with_sums: true });
    let (grad_out, out) = (lies, lies);
    assert_eq!(gradients.pass, AttentionPass::Gradients { grad_out, out });
    assert_eq!([forward.q, forward.k, forward.v], [lies; 3]);
    assert_eq!((forward.batch, forward.heads, forward.width), (2, 3, 16));
    assert!(forward.is_causal && gradients.is_causal);
}

#[test]
fn attention_that_no_library_has_is_refused_with_the_reason() {
    let bf16 = heads(16, Precision::Bf16);
    let shared = Attention { group: 2, ..bf16 };
    let wide = "a multiple of 8 up to 128";
    for (attention, phase, reason) in [
        (
            heads(16, Precision::F32),
            Phase::Forward,
            "set precision = \"bf16\"",
        ),
        (
            heads(16, Precision::Tf32),
            Phase::Both,
            "set precision = \"bf16\"",
        ),
        (heads(20, Precision::Bf16), Phase::Forward, wide),
        (heads(136, Precision::Bf16), Phase::Both, wide),
        (
            shared,
            Phase::Backward,
            "as many heads of keys and values as of queries",
        ),
    ] {
        let refusal = attention_by_library(attention, phase);
        let Err(Refusal::Unavailable(found)) = refusal else {
            panic!("{attention:?}: {refusal:?}")
        };
        assert!(found.contains(reason), "{found}");
    }
    // Gradients of shared keys end in sums over heads.
    let others = attention_by_library(
        Attention {
            precision: Precision::F32,
            ..shared
        },
        Phase::Both,
    );
    let Err(Refusal::Unavailable(found)) = others else {
        panic!("{others:?}")
    };
    assert!(found.contains("beside attention"), "{found}");
    assert!(attention_by_library(shared, Phase::Forward).is_ok());
    let made = problem(bf16).program(
        "library",
        Phase::Forward,
        &CanonicalShape::default(),
        &Target::Cpu,
    );
    let Err(Refusal::Unavailable(found)) = made else {
        panic!("{made:?}")
    };
    assert!(found.contains("on CPUs"), "{found}");
}
