//! Scores of edges in both forms, and where an edge's gradient goes.

use crate::semicrf::sizes::Sizes;

/// One edge: a segment over `(from, from + duration]` with label `dst`, after one with label `src`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) duration: usize,
    pub(super) dst: usize,
    pub(super) src: usize,
}

/// The edges of one sequence.
pub(super) trait Edges {
    /// The score of an edge.
    fn score(&self, edge: Edge) -> f64;
    /// Adds the gradient of an edge's score to the gradients of its terms.
    fn add(&mut self, edge: Edge, gradient: f64);
}

/// Scores of edges in a tensor (T-1, K, C, C).
pub(super) struct Materialized<'a> {
    sizes: Sizes,
    edge: &'a [f64],
    pub(super) gradient: Vec<f64>,
}

impl<'a> Materialized<'a> {
    pub(super) fn of_batch(sizes: &Sizes, edge: &'a [f64]) -> Vec<Self> {
        edge.chunks(edge.len() / sizes.b)
            .map(|edge| Materialized {
                sizes: *sizes,
                edge,
                gradient: vec![0.0; edge.len()],
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
    fn score(&self, edge: Edge) -> f64 {
        self.edge[self.position(edge)]
    }

    fn add(&mut self, edge: Edge, gradient: f64) {
        let position = self.position(edge);
        self.gradient[position] += gradient;
    }
}

/// Scores of edges as sums of parts.
pub(super) struct Decomposed<'a> {
    sizes: Sizes,
    cum_scores: &'a [f64],
    transition: &'a [f64],
    bias: &'a [f64],
    cum_scores_gradient: Vec<f64>,
    transition_gradient: Vec<f64>,
    bias_gradient: Vec<f64>,
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
                cum_scores_gradient: vec![0.0; cum_scores.len()],
                transition_gradient: vec![0.0; transition.len()],
                bias_gradient: vec![0.0; bias.len()],
            })
            .collect()
    }

    /// Gradients of the batch: gradients of cumulative scores side by side, all others summed.
    pub(super) fn sum_of_batch(parts: Vec<Self>) -> Vec<Vec<f64>> {
        let mut sum = [Vec::new(), Vec::new(), Vec::new()];
        for part in parts {
            sum[0].extend(part.cum_scores_gradient);
            for (sum, part) in sum[1..]
                .iter_mut()
                .zip([part.transition_gradient, part.bias_gradient])
            {
                sum.resize(part.len(), 0.0);
                for (sum, part) in sum.iter_mut().zip(part) {
                    *sum += part;
                }
            }
        }
        sum.into()
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
    fn score(&self, edge: Edge) -> f64 {
        let [end, start, transition, bias] = self.positions(edge);
        self.cum_scores[end] - self.cum_scores[start]
            + self.bias[bias]
            + self.transition[transition]
    }

    fn add(&mut self, edge: Edge, gradient: f64) {
        let [end, start, transition, bias] = self.positions(edge);
        self.cum_scores_gradient[end] += gradient;
        self.cum_scores_gradient[start] -= gradient;
        self.transition_gradient[transition] += gradient;
        self.bias_gradient[bias] += gradient;
    }
}
