//! Oracles for GPUs, on the shim: their f64 kernels against the host's oracle, all answers and the
//! further tensors that checks need.

use sweeper_program::Problem;
use sweeper_program::check::{Metric, compare};
use sweeper_program::inputs::InputKey;
use sweeper_program::spread;

use crate::conformance::{cuda, problem};
use crate::shim::{self, Mode};

/// All answers of all phases are the host's but for roundings of f64.
fn agrees(words: &str) {
    let (problem, phases) = problem(words);
    let inputs = problem.generate(&InputKey([7; 32]));
    for &phase in phases {
        let oracle = problem
            .device_oracle(phase, &cuda())
            .unwrap_or_else(|| panic!("{words} {phase}: no oracle for a GPU"));
        let mut answers = shim::run(&oracle.program, &inputs, &oracle.answers, Mode::Fast);
        for spec in &oracle.answers {
            spread::finish_sums(&mut answers, &spec.name, &spec.shape);
        }
        let expected = problem.oracle(&inputs, phase);
        // Spreads of a scan are the host's alone.
        let is_compared =
            |name: &&String| !words.starts_with("semicrf") || !spread::is_name_of_spread(name);
        let names = |tensors: &sweeper_program::Tensors| {
            let names = tensors.keys().filter(is_compared);
            names.cloned().collect::<Vec<String>>()
        };
        assert_eq!(names(&answers), names(&expected), "{words} {phase}");
        for (name, expected) in expected.iter().filter(|(name, _)| is_compared(name)) {
            // The model's rounding is affected by roundings of f64 itself, where a number is near
            // 0.
            let tolerance = if name.starts_with("spread") {
                1e-6
            } else {
                1e-11
            };
            let metric = Metric::RelativeL2;
            let check = compare(name, answers.get(name), expected, metric, tolerance);
            assert!(check.passed(), "{words} {phase}: {check:?}");
        }
    }
}

#[test]
fn graphs_have_the_values_that_the_host_finds() {
    if !shim::is_here() {
        return;
    }
    for words in [
        "matmul_chain size=13 depth=3",
        "mlp batch=9 input=7 hidden1=19 hidden2=30 output=3",
        "mlp batch=5 input=9 hidden1=3 hidden2=21 output=103 loss=cross_entropy rate=1",
        "attention_block sequence=19 dimension=6",
        "mixed size=17",
        "matmul m=5 k=33 n=7",
        "matmul m=5 k=33 n=7 precision=tf32",
        "matmul m=5 k=33 n=7 precision=bf16",
        "linear m=6 k=5 n=9 pattern=bias_gelu",
        "linear m=6 k=5 n=9 pattern=bias_gelu_tanh",
        "linear m=6 k=5 n=9 pattern=bias_relu",
        "conv batch=2 channels_in=3 channels_out=4 size=9 kernel=3 pattern=bn_relu",
        "attention batch=2 sequence=21 dimension=5",
        "attention batch=1 sequence=300 dimension=3 pattern=weights",
        "attention batch=2 sequence=9 dimension=5 heads=4 kv_heads=2 precision=tf32",
        "transformer batch=2 context=5 vocabulary=7 d_model=12 d_ff=9 layers=1 heads=2 precision=bf16",
    ] {
        agrees(words);
    }
}

#[test]
fn semi_markov_crfs_have_the_values_that_the_host_finds() {
    if !shim::is_here() {
        return;
    }
    for semiring in ["log", "max", "entropy"] {
        for words in [
            "T=9 K=4 C=3 B=3 lengths=random",
            "T=5 K=9 C=2 B=2 durations=1..K",
            "T=7 K=1 C=1 B=2",
            "T=9 K=4 C=3 B=3 potentials=decomposed lengths=random",
            "T=6 K=3 C=4 B=2 potentials=decomposed durations=1..K transition=per_duration",
            "T=7 K=4 C=2 B=2 potentials=decomposed transition=per_duration lengths=random",
        ] {
            agrees(&format!("semicrf {words} semiring={semiring}"));
        }
    }
}

#[test]
fn a_smaller_problem_has_the_kernels_of_the_whole_one() {
    for words in [
        "attention batch=8 sequence=8192 dimension=64",
        "matmul m=4096 k=4096 n=4096",
    ] {
        let (whole, phases) = problem(words);
        let operations = 1e7;
        let small = whole.smaller(phases[0], operations, 1).unwrap();
        assert!(small.oracle_operations(phases[0], 1) <= operations);
        let of = |problem: &dyn Problem| problem.device_oracle(phases[0], &cuda()).unwrap().program;
        let (whole, small) = (of(whole.as_ref()), of(small.as_ref()));
        assert_eq!(whole.sources(), small.sources());
        assert_eq!(small.validate(), Ok(()));
        assert_eq!(whole.validate(), Ok(()));
    }
}
