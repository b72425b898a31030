//! Right answers pass, and every kind of wrong answer is found.

use crate::semicrf::SemiCrf;
use sweeper_program::inputs::InputKey;
use sweeper_program::tensor::{Tensor, Tensors};
use sweeper_program::workload::{Phase, Problem, Workload};
use sweeper_program::{Dtype, Parameters, Value};

struct Case {
    problem: Box<dyn Problem>,
    inputs: Tensors,
    expected: Tensors,
}

fn case(words: &[(&str, &str)]) -> Case {
    let mut parameters: Parameters = [("T", 12), ("K", 4), ("C", 3), ("B", 3)]
        .into_iter()
        .collect();
    parameters.set("lengths", "random");
    for &(name, word) in words {
        parameters.set(name, Value::from(word));
    }
    let problem = SemiCrf.problem(&parameters, Dtype::F32).unwrap();
    let inputs = problem.generate(&InputKey([9; 32]));
    let expected = problem.oracle(&inputs, Phase::Both);
    Case {
        problem,
        inputs,
        expected,
    }
}

impl Case {
    /// Answers without what is known of their noise.
    fn answers(&self) -> impl Iterator<Item = (&String, &Tensor)> {
        let outputs = self.problem.outputs(Phase::Both);
        let is_output = move |name: &str| outputs.iter().any(|spec| spec.name == name);
        self.expected
            .iter()
            .filter(move |(name, _)| is_output(name))
    }

    /// The oracle's answer in f32, with `change` made to one tensor.
    fn passes(&self, name: &str, change: impl Fn(&mut Vec<f32>)) -> bool {
        let mut outputs = Tensors::new();
        for (held, tensor) in self.answers() {
            let mut values: Vec<f32> = tensor.as_f64().unwrap().iter().map(|&x| x as f32).collect();
            if held == name {
                change(&mut values);
            }
            outputs.insert(held.clone(), Tensor::f32(tensor.shape().to_vec(), values));
        }
        self.problem
            .check(&self.inputs, &outputs, &self.expected, Phase::Both)
            .passed()
    }
}

#[test]
fn the_answer_passes_and_a_corrupted_one_does_not() {
    for potentials in ["materialized", "decomposed"] {
        for semiring in ["log", "max", "entropy"] {
            let case = case(&[("potentials", potentials), ("semiring", semiring)]);
            for (name, tensor) in case.answers() {
                assert!(case.passes(name, |_| {}), "{potentials} {semiring}");
                let marked = tensor
                    .as_f64()
                    .unwrap()
                    .iter()
                    .position(|&x| x != 0.0)
                    .unwrap();
                for wrong in [f32::NAN, -3.0, 0.0] {
                    assert!(
                        !case.passes(name, |values| values[marked] = wrong),
                        "{potentials} {semiring} {name} {wrong}"
                    );
                }
            }
        }
    }
}

fn scale(values: &mut [f32], factor: f32) {
    for value in values {
        *value *= factor;
    }
}

#[test]
fn a_small_error_is_within_tolerance_and_a_greater_one_is_not() {
    let case = case(&[]);
    assert!(case.passes("value", |values| values[1] *= 1.0 + 2e-7));
    assert!(!case.passes("value", |values| values[1] *= 1.0 + 3e-6));
    assert!(case.passes("grad_edge", |values| { scale(values, 1.0 + 2e-7) }));
    assert!(!case.passes("grad_edge", |values| { scale(values, 1.00003) }));
}

/// Sizes of the hand-made segmentations: T = 3, K = 3, C = 2, one sequence.
fn small(potentials: &str) -> Case {
    let mut parameters: Parameters = [("T", 3), ("K", 3), ("C", 2), ("B", 1)]
        .into_iter()
        .collect();
    parameters.set("semiring", "max");
    parameters.set("potentials", potentials);
    let problem = SemiCrf.problem(&parameters, Dtype::F32).unwrap();
    // All segmentations are equally good.
    let inputs: Tensors = problem
        .inputs()
        .into_iter()
        .map(|spec| {
            let elements = spec.shape.iter().product();
            let tensor = match spec.dtype {
                Dtype::I64 => Tensor::i64(spec.shape, vec![3; elements]),
                _ => Tensor::f32(spec.shape, vec![0.0; elements]),
            };
            (spec.name, tensor)
        })
        .collect();
    let expected = problem.oracle(&inputs, Phase::Both);
    Case {
        problem,
        inputs,
        expected,
    }
}

/// Position of edge (from, index, dst, src) in the small problem.
fn at(from: usize, index: usize, dst: usize, src: usize) -> usize {
    ((from * 3 + index) * 2 + dst) * 2 + src
}

#[test]
fn any_best_segmentation_is_right() {
    let case = small("materialized");
    let marked = |edges: &[usize]| {
        case.passes("grad_edge", |values| {
            values.fill(0.0);
            edges.iter().for_each(|&edge| values[edge] = 1.0);
        })
    };
    assert!(marked(&[at(0, 1, 1, 0), at(1, 1, 0, 1)]));
    assert!(marked(&[at(0, 2, 1, 1)]));
    assert!(!marked(&[at(0, 1, 1, 0), at(1, 1, 0, 0)]), "labels differ");
    assert!(!marked(&[at(0, 1, 1, 0)]), "does not reach the end");
    assert!(!marked(&[at(0, 1, 1, 0), at(0, 2, 1, 0)]), "overlaps");
    assert!(
        !marked(&[at(0, 0, 1, 0), at(0, 2, 1, 1)]),
        "no such duration"
    );
}

/// Gradients of the small decomposed problem for segments (duration, dst) after a start label.
fn decomposed(start: usize, segments: &[(usize, usize)]) -> [Vec<f32>; 3] {
    let (mut sums, mut transition, mut bias) = (vec![0.0; 8], vec![0.0; 4], vec![0.0; 6]);
    let (mut at, mut src) = (0, start);
    for &(duration, dst) in segments {
        sums[at * 2 + dst] -= 1.0;
        sums[(at + duration) * 2 + dst] += 1.0;
        transition[src * 2 + dst] += 1.0;
        bias[duration * 2 + dst] += 1.0;
        (at, src) = (at + duration, dst);
    }
    [sums, transition, bias]
}

#[test]
fn a_decomposed_segmentation_is_judged_by_its_counts() {
    let case = small("decomposed");
    let passes = |[sums, transition, bias]: [Vec<f32>; 3]| {
        let outputs: Tensors = [
            ("grad_cum_scores", Tensor::f32([1, 4, 2], sums)),
            ("grad_transition", Tensor::f32([2, 2], transition)),
            ("grad_duration_bias", Tensor::f32([3, 2], bias)),
        ]
        .map(|(name, tensor)| (name.to_owned(), tensor))
        .into();
        case.problem
            .check(&case.inputs, &outputs, &case.expected, Phase::Backward)
            .passed()
    };
    for segments in [
        &[(2, 0), (1, 1)][..],
        &[(1, 0), (2, 0)],
        &[(1, 1), (1, 0), (1, 1)],
        &[(1, 1), (1, 1), (1, 1)],
    ] {
        for start in [0, 1] {
            let good = decomposed(start, segments);
            assert!(passes(good.clone()), "{segments:?}");
            for tensor in 0..3 {
                for element in 0..good[tensor].len() {
                    let mut bad = good.clone();
                    bad[tensor][element] += 1.0;
                    assert!(!passes(bad), "{segments:?} {tensor} {element}");
                }
            }
        }
    }
    assert!(!passes(decomposed(0, &[(2, 0)])), "does not reach the end");
    assert!(!passes(decomposed(0, &[])), "nothing is marked");
}
