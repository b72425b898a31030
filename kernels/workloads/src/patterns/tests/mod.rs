//! The oracle against values computed by hand, and the workloads' contract.

mod library;

use std::fmt::Debug;

use super::attention::{self, Attention, Until};
use super::conv;
use super::conv::{After, Conv};
use super::linear::{Activation, Linear};
use super::matmul::{self, Matmul};
use crate::graph_oracle::Evaluated;
use crate::graph_problem::GraphProblem;
use crate::graph_problem::judging::misjudged;
use sweeper_program::inputs::InputKey;
use sweeper_program::parameters::Parameters;
use sweeper_program::tensor::{Dtype, Tensor, Tensors};
use sweeper_program::workload::{CanonicalShape, Phase, Problem, Refusal, Target, Workload};
use sweeper_program::{Kernel, Library, Order, Precision, Program};

fn problem<E: Evaluated>(pattern: E) -> GraphProblem<E> {
    GraphProblem::new("pattern", pattern).unwrap()
}

fn product([m, k, n]: [usize; 3], precision: Precision) -> Matmul {
    Matmul { m, k, n, precision }
}

fn linear([m, k, n]: [usize; 3], activation: Activation) -> Linear {
    Linear {
        m,
        k,
        n,
        activation,
    }
}

fn convolution(batch: usize, channels: [usize; 2], size: usize, after: After) -> Conv {
    Conv {
        batch,
        channels,
        size,
        kernel: 3,
        after,
    }
}

fn attention([batch, sequence, dimension]: [usize; 3], until: Until) -> Attention {
    Attention {
        batch,
        kv_heads: 1,
        group: 1,
        sequence,
        dimension,
        is_causal: false,
        precision: Precision::F32,
        until,
    }
}

/// Inputs, and the oracle's `out`.
fn asked(pattern: impl Evaluated) -> (Tensors, Tensor) {
    let problem = problem(pattern);
    let inputs = problem.generate(&InputKey([3; 32]));
    problem.validate(&inputs).unwrap();
    let mut answers = problem.oracle(&inputs, Phase::Forward);
    (inputs, answers.remove("out").unwrap())
}

fn values(tensors: &Tensors, name: &str) -> Vec<f64> {
    sweeper_program::check::elements(&tensors[name]).collect()
}

fn assert_close(out: &Tensor, shape: &[usize], expected: impl Fn(usize) -> f64) {
    assert_eq!(out.shape(), shape);
    for (at, out) in sweeper_program::check::elements(out).enumerate() {
        let expected = expected(at);
        assert!((out - expected).abs() < 1e-12, "{at}: {out}, {expected}");
    }
}

#[test]
fn linear_layers_are_their_formula() {
    let [m, k, n] = [3, 4, 5];
    for activation in [
        Activation::None,
        Activation::Relu,
        Activation::Gelu,
        Activation::GeluTanh,
    ] {
        let (inputs, out) = asked(linear([m, k, n], activation));
        let [x, w, b] = ["x", "w", "b"].map(|name| values(&inputs, name));
        assert_close(&out, &[m, n], |at| {
            let (row, column) = (at / n, at % n);
            let terms = (0..k).map(|i| x[row * k + i] * w[column * k + i]);
            let y = terms.sum::<f64>() + b[column];
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (y + 0.044715 * y * y * y);
            match activation {
                Activation::None => y,
                Activation::Relu => y.max(0.0),
                Activation::Gelu => y * 0.5 * (1.0 + libm::erf(y / 2f64.sqrt())),
                Activation::GeluTanh => y * 0.5 * (1.0 + inner.tanh()),
            }
        });
    }
}

#[test]
fn products_are_their_formula() {
    let [m, k, n] = [3, 4, 5];
    let precision = Precision::F32;
    let (inputs, out) = asked(product([m, k, n], precision));
    let (a, b) = (values(&inputs, "a"), values(&inputs, "b"));
    assert_close(&out, &[m, n], |at| {
        let terms = (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]);
        terms.sum()
    });
}

#[test]
fn convolutions_are_their_formula() {
    let (batch, channels, size, kernel) = (2, [3, 4], 5, 3);
    for after in [After::Relu, After::BatchNorm, After::BatchNormRelu] {
        let (inputs, out) = asked(convolution(batch, channels, size, after));
        let (x, w) = (values(&inputs, "x"), values(&inputs, "w"));
        let channel = |name: &str, at: usize| values(&inputs, name)[at];
        assert_close(&out, &[batch, channels[1], size, size], |at| {
            let (column, row) = (at % size, at / size % size);
            let (to, picture) = (
                at / size / size % channels[1],
                at / size / size / channels[1],
            );
            let mut y = 0.0;
            for term in 0..channels[0] * kernel * kernel {
                let (dx, dy, from) = (term % 3, term / 3 % 3, term / 9);
                let (source_row, source_column) = (row + dy, column + dx);
                // Pictures have one row and one column of zeros on each side.
                if (1..=size).contains(&source_row) && (1..=size).contains(&source_column) {
                    let row = (picture * channels[0] + from) * size + source_row - 1;
                    y += x[row * size + source_column - 1] * w[to * channels[0] * 9 + term];
                }
            }
            if after != After::Relu {
                let deviation = (channel("var", to) + 1e-5).sqrt();
                y = channel("gamma", to) * (y - channel("mean", to)) / deviation;
                y += channel("beta", to);
            }
            if after == After::BatchNorm {
                y
            } else {
                y.max(0.0)
            }
        });
    }
}

#[test]
fn attention_is_its_formula() {
    let [batch, sequence, dimension] = [2, 3, 4];
    for until in [Until::Scores, Until::Weights, Until::Values] {
        let (inputs, out) = asked(attention([batch, sequence, dimension], until));
        let (q, k) = (values(&inputs, "q"), values(&inputs, "k"));
        let score = |row: usize, key: usize| {
            let first = row / sequence * sequence + key;
            let terms = (0..dimension).map(|i| q[row * dimension + i] * k[first * dimension + i]);
            terms.sum::<f64>() / 2.0
        };
        let weight = |row: usize, key: usize| {
            let all = (0..sequence).map(|key| score(row, key).exp());
            score(row, key).exp() / all.sum::<f64>()
        };
        match until {
            Until::Values => {
                let v = values(&inputs, "v");
                assert_close(&out, &[batch, sequence, dimension], |at| {
                    let (row, column) = (at / dimension, at % dimension);
                    let value =
                        |key: usize| v[(row / sequence * sequence + key) * dimension + column];
                    (0..sequence).map(|key| weight(row, key) * value(key)).sum()
                });
            }
            _ => assert_close(&out, &[batch, sequence, sequence], |at| match until {
                Until::Scores => score(at / sequence, at % sequence),
                _ => weight(at / sequence, at % sequence),
            }),
        }
    }
}

fn assert_faults_are_found(pattern: impl Evaluated + Debug + Copy, least: usize) {
    let misjudged = misjudged(&problem(pattern), &[Phase::Forward], least);
    assert!(misjudged.is_empty(), "{pattern:?}: {misjudged:#?}");
}

#[test]
fn wrong_patterns_are_found() {
    let linear = |activation| linear([24, 512, 40], activation);
    let conv = |after| convolution(2, [32, 8], 14, after);
    let attention = |until| attention([2, 256, 64], until);
    for precision in [Precision::F32, Precision::Tf32, Precision::Bf16] {
        assert_faults_are_found(product([24, 4096, 40], precision), 1);
    }
    assert_faults_are_found(linear(Activation::None), 3);
    assert_faults_are_found(linear(Activation::Relu), 4);
    assert_faults_are_found(linear(Activation::Gelu), 10);
    assert_faults_are_found(linear(Activation::GeluTanh), 15);
    assert_faults_are_found(conv(After::Relu), 2);
    assert_faults_are_found(conv(After::BatchNorm), 10);
    assert_faults_are_found(conv(After::BatchNormRelu), 10);
    assert_faults_are_found(attention(Until::Scores), 3);
    assert_faults_are_found(attention(Until::Weights), 6);
    assert_faults_are_found(attention(Until::Values), 7);
}

fn flops(pattern: impl Evaluated) -> f64 {
    problem(pattern).work(Phase::Forward).flops
}

#[test]
fn operations_are_counted_as_in_the_guide() {
    let linear = |activation| flops(linear([128, 512, 256], activation));
    let products = 2.0 * 128.0 * 512.0 * 256.0;
    assert_eq!(linear(Activation::None), products + 128.0 * 256.0);
    assert_eq!(linear(Activation::Gelu), products + 9.0 * 128.0 * 256.0);
    let conv = convolution(2, [64, 32], 56, After::BatchNormRelu);
    assert_eq!(flops(conv), 2.0 * 9.0 * 64.0 * 32.0 * 56.0 * 56.0 * 2.0);
    let attention = |until| {
        let (batch, sequence, dimension) = (4, 256, 64);
        flops(attention([batch, sequence, dimension], until))
    };
    let scores = 4.0 * 256.0 * 256.0;
    assert_eq!(attention(Until::Scores), scores * (2.0 * 64.0 + 1.0));
    assert_eq!(attention(Until::Values), scores * (4.0 * 64.0 + 6.0));
}

#[test]
fn a_control_is_the_eager_program_once_more() {
    let pattern = attention([2, 8, 4], Until::Values);
    let cuda = Target::Cuda {
        arch: "sm_90a".to_owned(),
    };
    for target in [Target::Cpu, cuda] {
        let program = |backend| {
            let canonical = CanonicalShape::default();
            let program = problem(pattern).program(backend, Phase::Forward, &canonical, &target);
            program.unwrap()
        };
        assert_eq!(program("control"), program("eager"));
        assert_ne!(program("control"), program("compiled"));
    }
}

#[test]
fn what_a_cpu_lacks_is_refused() {
    for precision in [Precision::Tf32, Precision::Bf16] {
        let problem = problem(product([2, 2, 2], precision));
        for backend in ["primitive", "eager", "compiled", "library"] {
            let canonical = CanonicalShape::default();
            let refused = problem.program(backend, Phase::Forward, &canonical, &Target::Cpu);
            let Err(Refusal::Unavailable(reason)) = refused else {
                panic!("{backend}: a program in {}", precision.name())
            };
            assert!(reason.contains("on GPUs only"), "{reason}");
        }
    }
}

#[test]
fn sizes_that_make_no_attention_are_refused() {
    let refusal = |changes: &[(&'static str, i64)]| {
        let mut parameters: Parameters = ["batch", "sequence", "dimension"]
            .into_iter()
            .map(|name| (name, 4))
            .collect();
        for &(name, size) in changes {
            parameters.set(name, size);
        }
        let problem = attention::WORKLOAD.problem(&parameters, Dtype::F32);
        problem.map(|_| ()).unwrap_err().to_string()
    };
    assert_eq!(
        refusal(&[("heads", 4), ("kv_heads", 3)]),
        "4 `heads` can't share 3 `kv_heads` evenly"
    );
    assert_eq!(
        refusal(&[("sequence", 0)]),
        "`sequence` = 0: expected a whole number from 1 to 1048576"
    );
    let large = refusal(&[
        ("batch", 1 << 16),
        ("sequence", 1 << 20),
        ("heads", 1 << 12),
    ]);
    assert!(large.contains("too many elements"), "{large}");
}

/// What a GPU computes in a number format is as far out as its factors are; in a longer one that
/// would be wrong.
#[test]
fn tolerances_are_those_of_the_precision() {
    let formats = [
        (Precision::F32, 24),
        (Precision::Tf32, 11),
        (Precision::Bf16, 8),
    ];
    for (asked, (precision, _)) in formats.into_iter().enumerate() {
        let problem = problem(product([16, 64, 16], precision));
        let inputs = problem.generate(&InputKey([3; 32]));
        let expected = problem.oracle(&inputs, Phase::Forward);
        for (computed, (_, bits)) in formats.into_iter().enumerate() {
            let out = product_of_rounded(&inputs, bits);
            let outputs = [("out".to_owned(), out)].into_iter().collect();
            let check = problem.check(&inputs, &outputs, &expected, Phase::Forward);
            let is_right = computed <= asked;
            assert_eq!(check.passed(), is_right, "{precision:?} {bits}: {check:?}");
        }
    }
}

/// The product of 16 x 64 and 64 x 16 factors with `bits` of their significands.
fn product_of_rounded(inputs: &Tensors, bits: u32) -> Tensor {
    let kept = |value: f64| {
        let dropped = 24 - bits;
        let half = (1 << dropped) / 2;
        f64::from(f32::from_bits(
            ((value as f32).to_bits() + half) & (u32::MAX << dropped),
        ))
    };
    let [a, b] =
        ["a", "b"].map(|name| -> Vec<f64> { values(inputs, name).into_iter().map(kept).collect() });
    let entry = |at: usize| {
        let terms = (0..64).map(|i| a[at / 16 * 64 + i] * b[i * 16 + at % 16]);
        terms.sum::<f64>() as f32
    };
    Tensor::f32([16, 16], (0..256).map(entry).collect())
}

/// A library that gets f32 is free to compute in tf32: factors in bf16 must be that in memory.
#[test]
fn factors_in_bf16_are_rounded_before_the_product() {
    let [m, k, n] = [3, 4, 5];
    let precision = Precision::Bf16;
    let problem = problem(product([m, k, n], precision));
    let cuda = Target::Cuda {
        arch: "sm_90a".to_owned(),
    };
    let canonical = CanonicalShape::default();
    let made = |target| problem.program("library", Phase::Forward, &canonical, target);
    let program = made(&cuda).unwrap();
    let Kernel::Library(Library::Matmul(call)) = &program.kernels[1] else {
        panic!("{:?}", program.kernels);
    };
    assert_eq!(call.precision, Precision::Bf16);
    assert_eq!(program.kernels[0].name(), "round_to_bf16");
    assert_eq!((program.prologue.len(), program.steps.len()), (1, 1));
    let totals = program.totals();
    assert_eq!(totals.read_bytes, 2 * (m * k + k * n) as u64);
    assert_eq!(totals.written_bytes, 4 * (m * n) as u64);
    let moved = totals.read_bytes + totals.written_bytes;
    assert_eq!(problem.work(Phase::Forward).compulsory_bytes, moved as f64);
    assert!(matches!(made(&Target::Cpu), Err(Refusal::Unavailable(_))));
}

/// The same pictures are unfolded once each, in one call or panel by panel: fusing never moves
/// more.
#[test]
fn each_picture_of_a_convolution_is_unfolded_once() {
    for (after, separate) in [
        (After::Relu, 2),
        (After::BatchNorm, 2),
        (After::BatchNormRelu, 3),
    ] {
        let (batch, size, channels) = (4, 28, 128);
        let problem = problem(convolution(batch, [channels, channels], size, after));
        let canonical = CanonicalShape::default();
        let [primitive, compiled] = ["primitive", "compiled"].map(|backend| {
            let program = problem.program(backend, Phase::Forward, &canonical, &Target::Cpu);
            let totals = program.unwrap().totals();
            totals.read_bytes + totals.written_bytes
        });
        let pixels = (4 * batch * size * size) as u64;
        // One unfolding is written and read, nine taps of each channel.
        let unfolded = 2 * 9 * channels as u64 * pixels;
        assert!(primitive > unfolded + 2 * separate * channels as u64 * pixels);
        assert!(compiled > unfolded, "{after:?}: {compiled}, {unfolded}");
        assert!(compiled < primitive, "{after:?}: {compiled}, {primitive}");
    }
}

/// The calibration guide compares each pattern with its operations one by one: what is compiled is
/// another program.
#[test]
fn compiling_fuses_every_pattern() {
    let linear = |activation| linear([128, 512, 512], activation);
    let conv = |after| convolution(4, [128, 128], 28, after);
    let attention = |until| attention([4, 256, 64], until);
    assert_fused(linear(Activation::None), [2, 1]);
    assert_fused(linear(Activation::Relu), [3, 1]);
    assert_fused(linear(Activation::Gelu), [3, 2]);
    assert_fused(linear(Activation::GeluTanh), [3, 1]);
    assert_fused(conv(After::Relu), [2, 1]);
    assert_fused(conv(After::BatchNorm), [2, 1]);
    assert_fused(conv(After::BatchNormRelu), [3, 1]);
    assert_fused(attention(Until::Scores), [2, 1]);
    assert_fused(attention(Until::Weights), [3, 2]);
    // Blocks that share keys count what is done, in words that are zeros before.
    assert_fused(attention(Until::Values), [4, 2]);
}

/// Launches of the separate operations and of what is compiled are so many on a GPU.
fn assert_fused(pattern: impl Evaluated + Debug + Copy, launches: [u64; 2]) {
    let problem = problem(pattern);
    let canonical = CanonicalShape::default();
    let made = |target: &Target| {
        ["eager", "compiled"].map(|backend| {
            let program = problem.program(backend, Phase::Forward, &canonical, target);
            program.unwrap()
        })
    };
    let cuda = Target::Cuda {
        arch: "sm_90a".to_owned(),
    };
    let on_gpu = made(&cuda).map(|program| program.totals().launches);
    assert_eq!(on_gpu, launches, "{pattern:?}");
    let [eager, compiled] = made(&Target::Cpu);
    assert_ne!(eager, compiled, "{pattern:?}");
}

/// 2^31 scores, more than a kernel counts in one launch.
#[test]
fn attention_of_many_scores_is_several_launches() {
    let problem = problem(attention([8, 16384, 64], Until::Values));
    let cuda = Target::Cuda {
        arch: "sm_90a".to_owned(),
    };
    let canonical = CanonicalShape::default();
    for (backend, launches) in [("primitive", 10), ("eager", 5), ("compiled", 1)] {
        let program = problem.program(backend, Phase::Forward, &canonical, &cuda);
        let totals = program.unwrap().totals();
        assert_eq!(totals.launches, launches, "{backend}");
        assert!(
            problem
                .program(backend, Phase::Both, &canonical, &cuda)
                .is_ok()
        );
    }
}

/// 64 blocks of warpgroups leave half of a large GPU without work; 80 don't.
#[test]
fn short_attention_in_tf32_is_by_products_of_warps_on_hopper() {
    let cuda = Target::Cuda {
        arch: "sm_90a".to_owned(),
    };
    let canonical = CanonicalShape::default();
    for (batch, precision, expected) in [
        (8, Precision::Tf32, "attention_mma.cu"),
        (10, Precision::Tf32, "attention_hopper.cu"),
        (8, Precision::Bf16, "attention_hopper.cu"),
    ] {
        let problem = problem(Attention {
            precision,
            ..attention([batch, 1024, 64], Until::Values)
        });
        let program = problem.program("compiled", Phase::Both, &canonical, &cuda);
        let program = program.unwrap();
        let mut files: Vec<&str> = program
            .compiled()
            .map(|source| &*source.files[0].name)
            .collect();
        files.retain(|name| !name.starts_with("attention_pack"));
        files.sort_unstable();
        files.dedup();
        let attention = files.iter().filter(|name| name.starts_with("attention_"));
        assert_eq!(
            attention.copied().collect::<Vec<_>>(),
            [expected],
            "{files:?}"
        );
    }
}

/// The gradients by queries and those by keys and values need not wait for each other; an eager
/// framework's launches do.
#[test]
fn compiled_gradients_are_ordered_by_their_data() {
    let cuda = Target::Cuda {
        arch: "sm_90a".to_owned(),
    };
    let problem = problem(Attention {
        precision: Precision::Tf32,
        ..attention([8, 1024, 64], Until::Values)
    });
    let program = |backend, phase| {
        let program = problem.program(backend, phase, &CanonicalShape::default(), &cuda);
        program.unwrap()
    };
    assert_eq!(program("eager", Phase::Both).order, Order::InTurn);
    assert_eq!(program("compiled", Phase::Forward).order, Order::InTurn);
    let compiled = program("compiled", Phase::Both);
    assert_eq!(compiled.order, Order::ByData);
    let addresses = compiled.addresses_apart();
    let dependencies = compiled.dependencies(&addresses, |_, _| false).unwrap();
    let last = dependencies.len() - 1;
    assert!(
        !dependencies[last].contains(&(last - 1)),
        "{dependencies:?}"
    );
}

#[test]
fn impossible_parameters_are_refused() {
    let mut parameters: Parameters = ["batch", "channels_in", "channels_out", "size"]
        .into_iter()
        .map(|name| (name, 2))
        .collect();
    assert!(conv::WORKLOAD.at(&parameters).is_ok());
    parameters.set("kernel", 4);
    let refused = conv::WORKLOAD.at(&parameters).map(|_| ()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "`kernel` = 4: the picture keeps its size only with an odd number"
    );
    let mut parameters: Parameters = ["m", "k", "n"]
        .into_iter()
        .map(|name| (name, 1 << 20))
        .collect();
    assert!(matmul::WORKLOAD.at(&parameters).is_ok());
    parameters.set("m", 1 << 25);
    assert!(matmul::WORKLOAD.at(&parameters).is_err());
    let pattern = convolution(1, [1, 1], 2, After::BatchNorm);
    let problem = problem(pattern);
    let mut inputs = problem.generate(&InputKey([1; 32]));
    inputs.insert("var".to_owned(), Tensor::f32([1], vec![-0.5]));
    assert_eq!(
        problem.validate(&inputs).unwrap_err(),
        "element 0 of `var` is -0.5, less than 0"
    );
}
