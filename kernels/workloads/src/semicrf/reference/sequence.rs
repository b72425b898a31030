//! Both passes over one sequence.
//!
//! With a fixed transition the sum over durations and sources is done in two steps, which are
//! exact:
//!
//! ```text
//! G[t, dst] = (+) over src of alpha[t, src] (x) transition[src, dst]          once a boundary Q[t,
//! dst] = G[t, dst] - S[t, dst]                                          the stored form alpha[n,
//! dst] = S[n, dst] (x) (+) over k of Q[n-k, dst] (x) bias[k, dst]
//! ```
//!
//! so that C (C + K) terms are summed at a boundary instead of C C K. The backward pass takes these
//! two steps in reverse.

use super::scores::{Parts, Scores};
use super::sums::{self, Extents, Sums, Terms};
use super::tables::Table;
use super::whole;
use crate::semicrf::sizes::Sizes;

/// One component of the states: log weights or entropies.
#[derive(Debug)]
pub(super) struct Component<D> {
    /// States by (boundary, label).
    pub(super) alpha: Table<D>,
    /// Q by (boundary, label); no slots where transitions are not factored out.
    pub(super) arrivals: Table<D>,
}

/// Temporary memory of one sequence.
#[derive(Debug)]
pub(super) struct Scratch<'a> {
    pub(super) terms: Terms<'a>,
    /// (C) each: sums relative to their reference, and gradients of sums.
    pub(super) sums: Sums<'a>,
    pub(super) gradients: Sums<'a>,
    /// (span, C): states of a window; going back, gradients for it.
    pub(super) window: &'a mut [f32],
}

/// One sequence, and where its states are.
#[derive(Debug)]
pub(super) struct Sequence<'a, D> {
    pub(super) sizes: Sizes,
    pub(super) end: usize,
    pub(super) scores: Scores<'a>,
    pub(super) weight: Component<D>,
    /// For the entropy semiring.
    pub(super) entropy: Option<Component<D>>,
    pub(super) scratch: Scratch<'a>,
}

/// One sum: its terms, and the place of its result.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    /// Over sources, from the states of a boundary to its arrivals.
    Arrive(usize),
    /// Over durations, from arrivals to the states of a boundary.
    Extend(usize),
    /// Over both, to the states of a boundary.
    Whole(usize),
    /// Over the states at the end, to the value.
    Last,
}

impl<D: AsRef<[f64]>> Sequence<'_, D> {
    /// The parts of scores whose transition is factored out.
    pub(super) fn factored(&self) -> Option<Parts<'_>> {
        match self.scores {
            Scores::Parts(parts) if !self.sizes.transition_per_duration => Some(parts),
            _ => None,
        }
    }

    /// Number of durations that end at a boundary.
    fn count(&self, n: usize) -> usize {
        self.sizes.longest().min(n)
    }

    pub(super) fn extents(&self, stage: Stage) -> Extents {
        let c = self.sizes.c;
        let (first, kept, last) = match stage {
            Stage::Arrive(_) => (c, c, 1),
            Stage::Extend(n) => (self.count(n), c, 1),
            Stage::Whole(n) => return whole::extents(&self.sizes, self.count(n)),
            Stage::Last => (1, 1, c),
        };
        Extents { first, kept, last }
    }

    /// Fills the terms of a stage. Returns the offset of each component that they are relative to.
    pub(super) fn load(&mut self, stage: Stage) -> [f64; 2] {
        let mut references = [self.load_window(stage, false), 0.0];
        self.load_weights(stage);
        if self.entropy.is_some() {
            references[1] = self.load_window(stage, true);
            self.load_entropies(stage);
        }
        references
    }

    /// The states or arrivals that a stage sums over, relative to the greatest one.
    fn load_window(&mut self, stage: Stage, of_entropy: bool) -> f64 {
        let component = match (&self.entropy, of_entropy) {
            (Some(entropy), true) => entropy,
            _ => &self.weight,
        };
        let (table, boundary, count) = match stage {
            Stage::Arrive(t) => (&component.alpha, t + 1, 1),
            Stage::Extend(n) => (&component.arrivals, n, self.count(n)),
            Stage::Whole(n) => (&component.alpha, n, self.count(n)),
            Stage::Last => (&component.alpha, self.end + 1, 1),
        };
        let window = &mut self.scratch.window[..count * self.sizes.c];
        table.window(boundary, count, window)
    }

    fn load_weights(&mut self, stage: Stage) {
        let c = self.sizes.c;
        let len = self.extents(stage).len();
        let first = self.sizes.first_duration_index();
        let (out, window) = (
            &mut self.scratch.terms.weights[..len],
            &*self.scratch.window,
        );
        match (stage, &self.scores) {
            (Stage::Arrive(_), Scores::Parts(parts)) => {
                let rows = out
                    .chunks_exact_mut(c)
                    .zip(parts.transition.chunks_exact(c));
                for ((out, transition), &state) in rows.zip(window) {
                    for (out, &score) in out.iter_mut().zip(transition) {
                        *out = state + score;
                    }
                }
            }
            (Stage::Extend(_), Scores::Parts(parts)) => {
                let terms = window.iter().zip(&parts.bias[first * c..]);
                for (out, (&arrival, &bias)) in out.iter_mut().zip(terms) {
                    *out = arrival + bias;
                }
            }
            (Stage::Whole(n), scores) => {
                whole::weights(&self.sizes, scores, n, &window[..len / c], out);
            }
            _ => out.copy_from_slice(&window[..len]),
        }
    }

    fn load_entropies(&mut self, stage: Stage) {
        let c = self.sizes.c;
        let len = self.extents(stage).len();
        let (out, window) = (
            &mut self.scratch.terms.entropies[..len],
            &*self.scratch.window,
        );
        match stage {
            Stage::Arrive(_) => {
                for (out, &state) in out.chunks_exact_mut(c).zip(window) {
                    out.fill(state);
                }
            }
            Stage::Whole(_) => whole::entropies(&self.sizes, window, out),
            Stage::Extend(_) | Stage::Last => out.copy_from_slice(&window[..len]),
        }
    }

    pub(super) fn sum(&mut self, stage: Stage) {
        let (extents, scratch) = (self.extents(stage), &mut self.scratch);
        sums::sum(
            self.sizes.semiring,
            extents,
            &mut scratch.terms,
            &mut scratch.sums,
        );
    }

    /// The addend of the sums of a stage: the scores that all their terms have in common.
    pub(super) fn common(&self, stage: Stage, dst: usize) -> f64 {
        let c = self.sizes.c;
        match (stage, &self.scores) {
            (Stage::Arrive(t), Scores::Parts(parts)) => -f64::from(parts.sums(t, c)[dst]),
            (Stage::Extend(n), Scores::Parts(parts)) => f64::from(parts.sums(n, c)[dst]),
            _ => 0.0,
        }
    }
}

impl<D: AsRef<[f64]> + AsMut<[f64]>> Sequence<'_, D> {
    /// Fills the tables; the value, and the entropy where there is one.
    pub(super) fn forward(&mut self) -> [f64; 2] {
        for component in std::iter::once(&mut self.weight).chain(&mut self.entropy) {
            component.alpha.row_mut(0).fill(0.0);
        }
        for n in 1..=self.end {
            if self.factored().is_some() {
                self.advance(Stage::Arrive(n - 1));
                self.advance(Stage::Extend(n));
            } else {
                self.advance(Stage::Whole(n));
            }
        }
        let references = self.load(Stage::Last);
        self.sum(Stage::Last);
        let sums = &self.scratch.sums;
        let entropy = sums.entropies.first().copied().unwrap_or(0.0);
        [
            references[0] + f64::from(sums.weights[0]),
            references[1] + f64::from(entropy),
        ]
    }

    /// One sum, to its table.
    fn advance(&mut self, stage: Stage) {
        let references = self.load(stage);
        self.sum(stage);
        for dst in 0..self.sizes.c {
            let common = self.common(stage, dst);
            let sums = &self.scratch.sums;
            let weight = references[0] + f64::from(sums.weights[dst]) + common;
            self.weight.result_mut(stage)[dst] = weight;
            if let Some(entropy) = &mut self.entropy {
                let sum = f64::from(sums.entropies[dst]);
                entropy.result_mut(stage)[dst] = references[1] + sum;
            }
        }
    }
}

impl<D: AsRef<[f64]>> Component<D> {
    /// Place of the sums of a stage.
    pub(super) fn result(&self, stage: Stage) -> &[f64] {
        match stage {
            Stage::Arrive(t) => self.arrivals.row(t),
            Stage::Extend(n) | Stage::Whole(n) => self.alpha.row(n),
            Stage::Last => unreachable!("the value is in no table"),
        }
    }
}

impl<D: AsRef<[f64]> + AsMut<[f64]>> Component<D> {
    fn result_mut(&mut self, stage: Stage) -> &mut [f64] {
        match stage {
            Stage::Arrive(t) => self.arrivals.row_mut(t),
            Stage::Extend(n) | Stage::Whole(n) => self.alpha.row_mut(n),
            Stage::Last => unreachable!("the value is in no table"),
        }
    }
}
