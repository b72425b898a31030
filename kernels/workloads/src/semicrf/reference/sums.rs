//! The sum of a semiring over terms (first, kept, last) -> (kept), and its derivative, in a cache.

use sweeper_program::vectorised;

use crate::ops::lanes::{Dense, Splat, blocks, blocks_in_place};
use crate::ops::math;
use crate::ops::reduce::{Axes, fold_axes, greater};
use crate::semicrf::sizes::Semiring;

/// Extents of terms; `first` and `last` are summed over, in this order where terms are equal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extents {
    pub(super) first: usize,
    pub(super) kept: usize,
    pub(super) last: usize,
}

impl Extents {
    /// Number of terms.
    pub(super) fn len(self) -> usize {
        self.first * self.kept * self.last
    }

    fn axes(self) -> Axes {
        let Extents { first, kept, last } = self;
        Axes {
            outer: 1,
            first,
            kept,
            last,
        }
    }
}

/// Memory for terms: log weights, entropies, and values made of them.
#[derive(Debug)]
pub(super) struct Terms<'a> {
    /// Log weights; going back, their gradients.
    pub(super) weights: &'a mut [f32],
    /// Entropies, none in other semirings; in the backward pass their gradients.
    pub(super) entropies: &'a mut [f32],
    /// Temporary, as long.
    pub(super) spare: &'a mut [f32],
    /// Temporary, one for each that is kept.
    pub(super) most: &'a mut [f32],
}

/// Sums over terms, or gradients of such sums: one sum for each index that is kept.
#[derive(Debug)]
pub(super) struct Sums<'a> {
    pub(super) weights: &'a mut [f32],
    /// None in other semirings than the entropy's.
    pub(super) entropies: &'a mut [f32],
}

/// Sums terms, which are lost.
pub(super) fn sum(
    semiring: Semiring,
    extents: Extents,
    terms: &mut Terms<'_>,
    sums: &mut Sums<'_>,
) {
    vectorised(
        #[inline(always)]
        || match semiring {
            Semiring::Max => total(extents, terms.weights, sums.weights, greater),
            Semiring::Log => log_sum(extents, terms, sums.weights),
            Semiring::Entropy => {
                log_sum(extents, terms, sums.weights);
                entropy_sum(extents, terms, sums);
            }
        },
    );
}

/// The greatest term is subtracted first: all terms of the sum are at most 1, and one term is 1, so
/// that nothing overflows and a sum is never 0, however far below zero all terms are.
#[inline(always)]
fn log_sum(extents: Extents, terms: &mut Terms<'_>, sums: &mut [f32]) {
    total(extents, terms.weights, terms.most, greater);
    let spare = &mut terms.spare[..extents.len()];
    let weights = &terms.weights[..extents.len()];
    blocks::<Dense, Splat>(weights, &[0.0], spare, |x, _| x);
    by_kept(extents, spare, terms.most, |x, most| x - most);
    blocks_in_place::<Splat>(
        &[0.0],
        spare,
        #[inline(always)]
        |x, _| math::exp(x),
    );
    total(extents, spare, sums, |a, b| a + b);
    for (sum, &most) in sums.iter_mut().zip(&*terms.most) {
        *sum = most + math::ln(*sum);
    }
}

/// `sum p (h - log p)`.
#[inline(always)]
fn entropy_sum(extents: Extents, terms: &mut Terms<'_>, sums: &mut Sums<'_>) {
    probabilities(extents, terms, sums.weights);
    let len = extents.len();
    let entropies = &mut terms.entropies[..len];
    blocks_in_place::<Dense>(&terms.spare[..len], entropies, |h, p| h * p);
    total(extents, entropies, sums.entropies, |a, b| a + b);
}

/// Leaves `log p` for the log weights, `p` in the spare memory and `h - log p` for the entropies.
#[inline(always)]
fn probabilities(extents: Extents, terms: &mut Terms<'_>, sums: &[f32]) {
    let len = extents.len();
    let (weights, spare) = (&mut terms.weights[..len], &mut terms.spare[..len]);
    by_kept(extents, weights, sums, |x, sum| x - sum);
    blocks::<Dense, Splat>(
        weights,
        &[0.0],
        spare,
        #[inline(always)]
        |x, _| math::exp(x),
    );
    if let Some(entropies) = terms.entropies.get_mut(..len) {
        blocks_in_place::<Dense>(weights, entropies, |h, log_p| h - log_p);
    }
}

/// Turns terms into their gradients, from their sums and the gradients of the sums.
///
/// With `gL`, `gH` the gradients of sums: `p gL` for log weights, `gL` at the first of equal
/// greatest terms for a maximum; for the entropy semiring `p (gL + gH (h - log p - H))`, and `p gH`
/// for entropies.
pub(super) fn backward(
    semiring: Semiring,
    extents: Extents,
    terms: &mut Terms<'_>,
    sums: &Sums<'_>,
    gradients: &Sums<'_>,
) {
    vectorised(
        #[inline(always)]
        || {
            if semiring == Semiring::Max {
                return mark_greatest(extents, terms, gradients.weights);
            }
            probabilities(extents, terms, sums.weights);
            let len = extents.len();
            let (weights, spare) = (&mut terms.weights[..len], &mut terms.spare[..len]);
            if semiring == Semiring::Log {
                by_kept(extents, spare, gradients.weights, |p, gradient| {
                    p * gradient
                });
                blocks::<Dense, Splat>(spare, &[0.0], weights, |x, _| x);
                return;
            }
            let entropies = &mut terms.entropies[..len];
            by_kept(extents, entropies, sums.entropies, |x, entropy| x - entropy);
            by_kept(extents, entropies, gradients.entropies, |x, gradient| {
                x * gradient
            });
            by_kept(extents, entropies, gradients.weights, |x, gradient| {
                x + gradient
            });
            blocks::<Dense, Dense>(entropies, spare, weights, |x, p| x * p);
            by_kept(extents, spare, gradients.entropies, |p, gradient| {
                p * gradient
            });
            blocks::<Dense, Splat>(spare, &[0.0], entropies, |x, _| x);
        },
    );
}

/// Zeros but for the first of the greatest terms, which get the gradient of their sum.
#[inline(always)]
fn mark_greatest(extents: Extents, terms: &mut Terms<'_>, gradients: &[f32]) {
    let Extents { kept, last, .. } = extents;
    let weights = &mut terms.weights[..extents.len()];
    let (best, at) = (&mut terms.most[..kept], &mut terms.spare[..kept]);
    best.fill(f32::NEG_INFINITY);
    for (row, weights) in weights.chunks_exact(kept * last).enumerate() {
        for (keep, weights) in weights.chunks_exact(last).enumerate() {
            for (lane, &weight) in weights.iter().enumerate() {
                if weight > best[keep] {
                    best[keep] = weight;
                    at[keep] = f32::from_bits((row * last + lane) as u32);
                }
            }
        }
    }
    weights.fill(0.0);
    for keep in 0..kept {
        let found = at[keep].to_bits() as usize;
        weights[(found / last * kept + keep) * last + found % last] = gradients[keep];
    }
}

/// Folds terms to one for each that is kept.
#[inline(always)]
fn total(extents: Extents, terms: &[f32], out: &mut [f32], apply: impl Fn(f32, f32) -> f32 + Copy) {
    fold_axes(&terms[..extents.len()], out, extents.axes(), 0.0, apply);
}

/// `x = apply(x, by)` for all terms of the row that `by` belongs to.
#[inline(always)]
fn by_kept(extents: Extents, x: &mut [f32], by: &[f32], apply: impl Fn(f32, f32) -> f32 + Copy) {
    let Extents { kept, last, .. } = extents;
    for plane in x.chunks_exact_mut(kept * last) {
        if last == 1 {
            blocks_in_place::<Dense>(&by[..kept], plane, apply);
        } else {
            for (row, by) in plane.chunks_exact_mut(last).zip(by) {
                blocks_in_place::<Splat>(std::slice::from_ref(by), row, apply);
            }
        }
    }
}
