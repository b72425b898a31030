//! One sum a boundary, over durations and sources at once: for scores that depend on both.
//!
//! Terms are laid out as the scores are: (duration, destination, source) for materialised edges,
//! (duration, source, destination) for decomposed ones with a transition for each duration.

use sweeper_program::vectorised;

use super::scores::{Gradients, Parts, Scores};
use super::sums::Extents;
use crate::ops::lanes::{Dense, blocks, blocks_in_place};
use crate::ops::reduce::{Axes, fold_axes};
use crate::semicrf::sizes::Sizes;

/// Extents of the terms of a boundary at which `count` durations end.
pub(super) fn extents(sizes: &Sizes, count: usize) -> Extents {
    let c = sizes.c;
    if sizes.is_decomposed() {
        Extents {
            first: count * c,
            kept: c,
            last: 1,
        }
    } else {
        Extents {
            first: count,
            kept: c,
            last: c,
        }
    }
}

/// Log weights of the terms of boundary `n`: states of the `window` (durations, sources) plus
/// scores.
pub(super) fn weights(
    sizes: &Sizes,
    scores: &Scores<'_>,
    n: usize,
    window: &[f32],
    out: &mut [f32],
) {
    vectorised(
        #[inline(always)]
        || match scores {
            Scores::Edges(edge) => edge_weights(sizes, edge, n, window, out),
            Scores::Parts(parts) => part_weights(sizes, parts, n, window, out),
        },
    );
}

#[inline(always)]
fn edge_weights(sizes: &Sizes, edge: &[f32], n: usize, window: &[f32], out: &mut [f32]) {
    let c = sizes.c;
    let planes = out.chunks_exact_mut(c * c).zip(window.chunks_exact(c));
    for (age, (out, states)) in planes.enumerate() {
        let plane = &edge[ending(sizes, n, age + 1)..][..c * c];
        for (out, row) in out.chunks_exact_mut(c).zip(plane.chunks_exact(c)) {
            blocks::<Dense, Dense>(row, states, out, |score, state| score + state);
        }
    }
}

/// Beginning of the plane of the edges of a duration that end at boundary `n`.
fn ending(sizes: &Sizes, n: usize, duration: usize) -> usize {
    let index = duration - 1 + sizes.first_duration_index();
    ((n - duration) * sizes.k + index) * sizes.c * sizes.c
}

#[inline(always)]
fn part_weights(sizes: &Sizes, parts: &Parts<'_>, n: usize, window: &[f32], out: &mut [f32]) {
    let c = sizes.c;
    let planes = out.chunks_exact_mut(c * c).zip(window.chunks_exact(c));
    for (age, (out, states)) in planes.enumerate() {
        let duration = age + 1;
        let index = age + sizes.first_duration_index();
        let transition = &parts.transition[index * c * c..][..c * c];
        let rows = out.chunks_exact_mut(c).zip(transition.chunks_exact(c));
        for ((out, row), state) in rows.zip(states) {
            for (dst, (out, &score)) in out.iter_mut().zip(row).enumerate() {
                let covered = parts.sums(n, c)[dst] - parts.sums(n - duration, c)[dst];
                *out = covered + parts.bias[index * c + dst] + score + state;
            }
        }
    }
}

/// Entropies of terms: the entropies of the states in the `window`.
pub(super) fn entropies(sizes: &Sizes, window: &[f32], out: &mut [f32]) {
    let c = sizes.c;
    for (out, states) in out.chunks_exact_mut(c * c).zip(window.chunks_exact(c)) {
        for (at, out) in out.chunks_exact_mut(c).enumerate() {
            if sizes.is_decomposed() {
                out.fill(states[at]);
            } else {
                out.copy_from_slice(states);
            }
        }
    }
}

/// Adds gradients of terms to the gradients of the states that they came from, (durations,
/// sources).
pub(super) fn add_to_states(sizes: &Sizes, terms: &[f32], window: &mut [f32]) {
    let c = sizes.c;
    let (kept, last) = if sizes.is_decomposed() {
        (c, c)
    } else {
        (c, 1)
    };
    let first = c * c / (kept * last);
    let axes = Axes {
        outer: terms.len() / (c * c),
        first,
        kept,
        last,
    };
    vectorised(
        #[inline(always)]
        || fold_axes(terms, window, axes, 0.0, |a, b| a + b),
    );
}

/// Adds gradients of the terms of boundary `n` to the gradients of scores.
pub(super) fn add_to_scores(sizes: &Sizes, gradients: &mut Gradients<'_>, n: usize, terms: &[f32]) {
    let c = sizes.c;
    for (age, terms) in terms.chunks_exact(c * c).enumerate() {
        let duration = age + 1;
        match gradients {
            Gradients::Edges(edge) => {
                edge[ending(sizes, n, duration)..][..c * c].copy_from_slice(terms);
            }
            Gradients::Parts(parts) => {
                let index = age + sizes.first_duration_index();
                let transition = &mut parts.transition[index * c * c..][..c * c];
                blocks_in_place::<Dense>(terms, transition, |sum, gradient| sum + gradient);
                for row in terms.chunks_exact(c) {
                    parts.add_segment(c, n, duration, index, row);
                }
            }
        }
    }
}
