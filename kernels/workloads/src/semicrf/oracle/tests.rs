//! The oracle against an enumeration of all segmentations, and its gradients against differences.

use crate::semicrf::SemiCrf;
use sweeper_program::check::elements;
use sweeper_program::inputs::InputKey;
use sweeper_program::tensor::{Tensor, Tensors};
use sweeper_program::workload::{Phase, Problem, Workload};
use sweeper_program::{Dtype, Parameters, Value};

struct Case {
    problem: Box<dyn Problem>,
    inputs: Tensors,
    words: Words,
}

#[derive(Clone, Copy, Debug)]
struct Words {
    t: usize,
    k: usize,
    c: usize,
    decomposed: bool,
    to_k: bool,
    per_duration: bool,
}

const PLAIN: Words = Words {
    t: 6,
    k: 4,
    c: 3,
    decomposed: false,
    to_k: false,
    per_duration: false,
};

/// Small cases of every kind: both forms and conventions, one duration, longer durations than the
/// sequence, one label.
fn all_words() -> Vec<Words> {
    let mut all = Vec::new();
    for (t, k, c) in [(6, 4, 3), (5, 1, 3), (4, 9, 2), (7, 3, 1), (6, 2, 2)] {
        for to_k in [false, true] {
            for (decomposed, per_duration) in [(false, false), (true, false), (true, true)] {
                all.push(Words {
                    t,
                    k,
                    c,
                    decomposed,
                    to_k,
                    per_duration,
                });
            }
        }
    }
    all
}

fn case(words: Words, semiring: &str) -> Case {
    let mut parameters: Parameters = [("T", words.t), ("K", words.k), ("C", words.c), ("B", 3)]
        .map(|(name, size)| (name, size as i64))
        .into_iter()
        .collect();
    let choice = |yes, word, other| Value::from(if yes { word } else { other });
    parameters.set("semiring", semiring);
    parameters.set("lengths", "random");
    parameters.set(
        "potentials",
        choice(words.decomposed, "decomposed", "materialized"),
    );
    parameters.set("durations", choice(words.to_k, "1..K", "1..K-1"));
    parameters.set(
        "transition",
        choice(words.per_duration, "per_duration", "fixed"),
    );
    let problem = SemiCrf.problem(&parameters, Dtype::F32).unwrap();
    let mut inputs = problem.generate(&InputKey([2; 32]));
    // Every short length has its turn: the shortest there is, too.
    inputs.insert(
        "lengths".to_owned(),
        Tensor::i64([3], vec![words.t as i64, 1, words.t as i64 - 1]),
    );
    Case {
        problem,
        inputs,
        words,
    }
}

impl Case {
    fn oracle(&self, inputs: &Tensors) -> Tensors {
        self.problem.oracle(inputs, Phase::Both)
    }

    /// Scores of all segmentations of a sequence, by recursion over the definition.
    fn scores(&self, sequence: usize) -> Vec<f64> {
        let length = self.inputs["lengths"].as_i64().unwrap()[sequence] as usize;
        let end = if self.words.decomposed {
            length
        } else {
            length - 1
        };
        let mut scores = Vec::new();
        for start in 0..self.words.c {
            self.extend(sequence, end, (0, start, 0.0), &mut scores);
        }
        scores
    }

    fn extend(
        &self,
        sequence: usize,
        end: usize,
        (at, label, score): (usize, usize, f64),
        scores: &mut Vec<f64>,
    ) {
        if at == end {
            scores.push(score);
            return;
        }
        for (duration, index) in durations(self.words) {
            if at + duration > end {
                continue;
            }
            for next in 0..self.words.c {
                let edge = self.edge(sequence, (at, duration, index), next, label);
                self.extend(sequence, end, (at + duration, next, score + edge), scores);
            }
        }
    }

    fn edge(
        &self,
        b: usize,
        (at, duration, index): (usize, usize, usize),
        dst: usize,
        src: usize,
    ) -> f64 {
        let Words { t, k, c, .. } = self.words;
        let read =
            |name: &str, element: usize| f64::from(self.inputs[name].as_f32().unwrap()[element]);
        if !self.words.decomposed {
            return read(
                "edge",
                (((b * (t - 1) + at) * k + index) * c + dst) * c + src,
            );
        }
        let sum = |position: usize| read("cum_scores", (b * (t + 1) + position) * c + dst);
        let table = if self.words.per_duration { index } else { 0 };
        sum(at + duration) - sum(at)
            + read("duration_bias", index * c + dst)
            + read("transition", (table * c + src) * c + dst)
    }
}

/// Durations, each with its place on the duration axis, spelt out from the definition.
fn durations(words: Words) -> Vec<(usize, usize)> {
    match (words.to_k, words.k) {
        (true, k) => (1..=k).map(|k| (k, k - 1)).collect(),
        (false, 1) => vec![(1, 0)],
        (false, k) => (1..k).map(|k| (k, k)).collect(),
    }
}

#[test]
fn there_are_2241_segmentations_at_6_4_3() {
    assert_eq!(case(PLAIN, "log").scores(0).len(), 2241);
}

#[test]
fn values_are_those_of_all_segmentations() {
    for words in all_words() {
        for semiring in ["log", "max", "entropy"] {
            let case = case(words, semiring);
            let outputs = case.oracle(&case.inputs);
            for sequence in 0..3 {
                let scores = case.scores(sequence);
                let log_z = scores.iter().map(|score| score.exp()).sum::<f64>().ln();
                let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let expected = if semiring == "max" { best } else { log_z };
                let value = outputs["value"].as_f64().unwrap()[sequence];
                assert!((value - expected).abs() < 1e-12, "{words:?} {semiring}");
                if semiring == "entropy" {
                    let surprise = |&score: &f64| (score - log_z).exp() * (log_z - score);
                    let expected: f64 = scores.iter().map(surprise).sum();
                    let entropy = outputs["entropy"].as_f64().unwrap()[sequence];
                    assert!((entropy - expected).abs() < 1e-12, "{words:?}");
                }
            }
        }
    }
}

/// The sum that gradients are of.
fn objective(outputs: &Tensors) -> f64 {
    let sum = |name: &str| {
        outputs
            .get(name)
            .map_or(0.0, |tensor| elements(tensor).sum())
    };
    sum("value") + sum("entropy")
}

#[test]
fn gradients_are_those_of_differences() {
    for words in all_words() {
        for semiring in ["log", "entropy"] {
            let case = case(words, semiring);
            let outputs = case.oracle(&case.inputs);
            for spec in case.problem.inputs() {
                if spec.name == "lengths" {
                    continue;
                }
                let gradient = outputs[&format!("grad_{}", spec.name)].as_f64().unwrap();
                // Every seventh element meets every position, duration and label in turn.
                for element in (0..gradient.len()).step_by(7) {
                    let difference = case.difference(&spec.name, element);
                    assert!(
                        (gradient[element] - difference).abs() < 1e-6,
                        "{words:?} {semiring} {} {element}: {} {difference}",
                        spec.name,
                        gradient[element]
                    );
                }
            }
        }
    }
}

impl Case {
    /// Central difference, over a step that f32 inputs hold exactly enough.
    fn difference(&self, name: &str, element: usize) -> f64 {
        let step = |by: f32| {
            let mut inputs = self.inputs.clone();
            let mut values = inputs[name].as_f32().unwrap().to_vec();
            values[element] += by;
            let moved = f64::from(values[element]);
            let shape = inputs[name].shape().to_vec();
            inputs.insert(name.to_owned(), Tensor::f32(shape, values));
            (objective(&self.oracle(&inputs)), moved)
        };
        let ((above, high), (below, low)) = (step(1e-3), step(-1e-3));
        (above - below) / (high - low)
    }
}

#[test]
fn the_best_segmentation_has_the_best_score() {
    for words in all_words() {
        let case = case(words, "max");
        let outputs = case.oracle(&case.inputs);
        let mut score = 0.0;
        for spec in case.problem.inputs() {
            if spec.name != "lengths" {
                let gradient = &outputs[&format!("grad_{}", spec.name)];
                let pairs = elements(&case.inputs[&spec.name]).zip(elements(gradient));
                score += pairs.map(|(score, mark)| score * mark).sum::<f64>();
            }
        }
        assert!((score - objective(&outputs)).abs() < 1e-12, "{words:?}");
        let check = case
            .problem
            .check(&case.inputs, &outputs, &outputs, Phase::Both);
        assert!(check.passed(), "{words:?} {check:?}");
    }
}
