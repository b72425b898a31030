//! The scores of one sequence in both forms, and their gradients.

/// Scores.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scores<'a> {
    /// (T-1, K, C_dst, C_src).
    Edges(&'a [f32]),
    /// Sums of parts.
    Parts(Parts<'a>),
}

/// The tensors that decomposed scores are made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'a> {
    /// (T+1, C).
    pub(super) cum_scores: &'a [f32],
    /// (C_src, C_dst) or (K, C_src, C_dst).
    pub(super) transition: &'a [f32],
    /// (K, C).
    pub(super) bias: &'a [f32],
}

impl<'a> Parts<'a> {
    /// Cumulative scores at a boundary.
    pub(super) fn sums(&self, boundary: usize, labels: usize) -> &'a [f32] {
        &self.cum_scores[boundary * labels..][..labels]
    }
}

/// Gradients of [`Scores`].
#[derive(Debug)]
pub(super) enum Gradients<'a> {
    /// (T-1, K, C_dst, C_src).
    Edges(&'a mut [f32]),
    /// Gradients of parts.
    Parts(PartGradients<'a>),
}

/// Gradients of [`Parts`]; transition and bias are this sequence's share.
#[derive(Debug)]
pub(super) struct PartGradients<'a> {
    pub(super) cum_scores: &'a mut [f32],
    pub(super) transition: &'a mut [f32],
    pub(super) bias: &'a mut [f32],
}

impl PartGradients<'_> {
    /// Adds the gradient of segments of a duration, held at `index`, that end at boundary `n`, by
    /// destination.
    pub(super) fn add_segment(
        &mut self,
        labels: usize,
        n: usize,
        duration: usize,
        index: usize,
        gradient: &[f32],
    ) {
        let start = (n - duration) * labels;
        for (dst, &gradient) in gradient.iter().enumerate() {
            self.bias[index * labels + dst] += gradient;
            self.cum_scores[n * labels + dst] += gradient;
            self.cum_scores[start + dst] -= gradient;
        }
    }
}
