//! Scores of edges in both forms, and where an edge's gradient goes.

use super::noise::{GRADIENT_LANES, add_own, add_weighted};
use crate::semicrf::sizes::Sizes;
use sweeper_program::rounding::of_sum;

/// One edge: a segment over `(from, from + duration]` with label `dst`, after one with label `src`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) duration: usize,
    pub(super) dst: usize,
    pub(super) src: usize,
}

/// The gradient by an edge's score, with its noise.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marginal {
    pub(super) value: f64,
    pub(super) noise: [f64; GRADIENT_LANES],
}

impl Marginal {
    /// Of an edge that is certainly taken.
    pub(super) const CERTAIN: Marginal = Marginal {
        value: 1.0,
        noise: [0.0; GRADIENT_LANES],
    };
}

/// The gradient by a number that several edges have in their scores.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GradientSum {
    value: f64,
    noise: [f64; GRADIENT_LANES],
    /// Sums over the terms of their sizes, of their squares, and of ones.
    sizes: f64,
    squares: f64,
    terms: usize,
}

impl GradientSum {
    fn add(&mut self, sign: f64, marginal: &Marginal) {
        self.value += sign * marginal.value;
        add_weighted(&mut self.noise, sign, &marginal.noise);
        self.sizes += marginal.value.abs();
        self.squares += marginal.value * marginal.value;
        self.terms += 1;
    }

    fn add_all(&mut self, other: &GradientSum) {
        self.value += other.value;
        add_weighted(&mut self.noise, 1.0, &other.noise);
        self.sizes += other.sizes;
        self.squares += other.squares;
        self.terms += other.terms;
    }
}

/// A gradient, with what it is in evaluations with rounding.
pub(super) struct Gradient {
    pub(super) values: Vec<f64>,
    pub(super) probes: Vec<Vec<f64>>,
}

impl Gradient {
    /// By so many scores of edges of which none was added yet.
    pub(super) fn zero(scores: usize) -> Self {
        Gradient {
            values: vec![0.0; scores],
            probes: vec![vec![0.0; scores]; GRADIENT_LANES],
        }
    }

    /// Of sums, whose own roundings are added.
    fn from_sums(sums: &[GradientSum]) -> Self {
        let mut noisy = sums.to_vec();
        for (at, sum) in noisy.iter_mut().enumerate() {
            let variance = of_sum(sum.terms, sum.sizes, sum.squares);
            add_own(&mut sum.noise, variance, at as u64);
        }
        let probe = |lane: usize| {
            noisy
                .iter()
                .map(|sum| sum.value + sum.noise[lane])
                .collect()
        };
        Gradient {
            values: sums.iter().map(|sum| sum.value).collect(),
            probes: (0..GRADIENT_LANES).map(probe).collect(),
        }
    }
}

/// The edges of one sequence.
pub(super) trait Edges {
    /// The score of an edge, and its variance by the roundings that form it.
    fn score(&self, edge: Edge) -> (f64, f64);
    /// Adds the gradient of an edge's score to the gradients of its terms.
    fn add(&mut self, edge: Edge, marginal: Marginal);
}

/// Scores of edges in a tensor (T-1, K, C, C).
pub(super) struct Materialized<'a> {
    sizes: Sizes,
    edge: &'a [f64],
    values: &'a mut [f64],
    probes: [&'a mut [f64]; GRADIENT_LANES],
}

impl<'a> Materialized<'a> {
    /// Of each sequence, with its part of a gradient, which is empty where none is asked for.
    pub(super) fn of_batch(
        sizes: &Sizes,
        edge: &'a [f64],
        gradient: &'a mut Gradient,
    ) -> Vec<Self> {
        let part = edge.len() / sizes.b;
        let mut values = gradient.values.chunks_mut(part);
        let probes = gradient.probes.iter_mut();
        let mut probes: Vec<_> = probes.map(|probe| probe.chunks_mut(part)).collect();
        edge.chunks(part)
            .map(|edge| Materialized {
                sizes: *sizes,
                edge,
                values: values.next().unwrap_or_default(),
                probes: std::array::from_fn(|lane| probes[lane].next().unwrap_or_default()),
            })
            .collect()
    }

    fn position(&self, edge: Edge) -> usize {
        let Sizes { k, c, .. } = self.sizes;
        let duration = edge.duration - 1 + self.sizes.first_duration_index();
        ((edge.from * k + duration) * c + edge.dst) * c + edge.src
    }
}

impl Edges for Materialized<'_> {
    fn score(&self, edge: Edge) -> (f64, f64) {
        (self.edge[self.position(edge)], 0.0)
    }

    fn add(&mut self, edge: Edge, marginal: Marginal) {
        let position = self.position(edge);
        self.values[position] = marginal.value;
        for (probe, noise) in self.probes.iter_mut().zip(marginal.noise) {
            probe[position] = marginal.value + noise;
        }
    }
}

/// Scores of edges as sums of parts.
pub(super) struct Decomposed<'a> {
    sizes: Sizes,
    cum_scores: &'a [f64],
    transition: &'a [f64],
    bias: &'a [f64],
    cum_scores_gradient: Vec<GradientSum>,
    transition_gradient: Vec<GradientSum>,
    bias_gradient: Vec<GradientSum>,
}

impl<'a> Decomposed<'a> {
    pub(super) fn of_batch(
        sizes: &Sizes,
        cum_scores: &'a [f64],
        transition: &'a [f64],
        bias: &'a [f64],
    ) -> Vec<Self> {
        cum_scores
            .chunks(cum_scores.len() / sizes.b)
            .map(|cum_scores| Decomposed {
                sizes: *sizes,
                cum_scores,
                transition,
                bias,
                cum_scores_gradient: vec![GradientSum::default(); cum_scores.len()],
                transition_gradient: vec![GradientSum::default(); transition.len()],
                bias_gradient: vec![GradientSum::default(); bias.len()],
            })
            .collect()
    }

    /// Gradients of the batch: gradients of cumulative scores side by side, all others summed.
    pub(super) fn joined(parts: Vec<Self>) -> Vec<Gradient> {
        let mut sums = [Vec::new(), Vec::new(), Vec::new()];
        for part in parts {
            sums[0].extend(part.cum_scores_gradient);
            for (sums, part) in sums[1..]
                .iter_mut()
                .zip([part.transition_gradient, part.bias_gradient])
            {
                sums.resize(part.len(), GradientSum::default());
                for (sum, part) in sums.iter_mut().zip(&part) {
                    sum.add_all(part);
                }
            }
        }
        sums.iter().map(|sums| Gradient::from_sums(sums)).collect()
    }

    /// Positions of an edge's parts: the sums at its end and start, its transition, its bias.
    fn positions(&self, edge: Edge) -> [usize; 4] {
        let c = self.sizes.c;
        let duration = edge.duration - 1 + self.sizes.first_duration_index();
        let transition = edge.src * c + edge.dst;
        [
            (edge.from + edge.duration) * c + edge.dst,
            edge.from * c + edge.dst,
            if self.sizes.transition_per_duration {
                duration * c * c + transition
            } else {
                transition
            },
            duration * c + edge.dst,
        ]
    }
}

impl Edges for Decomposed<'_> {
    fn score(&self, edge: Edge) -> (f64, f64) {
        let [end, start, transition, bias] = self.positions(edge);
        let [end, start] = [self.cum_scores[end], self.cum_scores[start]];
        let with_bias = end - start + self.bias[bias];
        let score = with_bias + self.transition[transition];
        // A program may as well take the sum at the start off what led there, and add that at the
        // end.
        let of_sums = end * end + start * start;
        (score, of_sums + with_bias * with_bias + score * score)
    }

    fn add(&mut self, edge: Edge, marginal: Marginal) {
        let [end, start, transition, bias] = self.positions(edge);
        self.cum_scores_gradient[end].add(1.0, &marginal);
        self.cum_scores_gradient[start].add(-1.0, &marginal);
        self.transition_gradient[transition].add(1.0, &marginal);
        self.bias_gradient[bias].add(1.0, &marginal);
    }
}
