//! The backward pass over one sequence: gradients from the value back through every boundary.
//!
//! Terms are made again as in the forward pass; their sums are in the tables.

use sweeper_program::vectorised;

use super::scores::Gradients;
use super::sequence::{Sequence, Stage};
use super::sums;
use super::whole;
use crate::ops::lanes::{Dense, blocks_in_place};
use crate::ops::reduce::{Axes, fold_axes};

/// Gradients of arrivals, or of states where transitions are not factored out: (boundaries, C).
#[derive(Debug)]
pub(super) struct Tables<'a> {
    pub(super) weights: &'a mut [f32],
    /// For the entropy semiring, else empty.
    pub(super) entropies: &'a mut [f32],
}

impl<D: AsRef<[f64]>> Sequence<'_, D> {
    /// Writes the gradients of this sequence's value (plus its entropy, where there is one).
    pub(super) fn backward(&mut self, tables: &mut Tables<'_>, gradients: &mut Gradients<'_>) {
        tables.weights.fill(0.0);
        tables.entropies.fill(0.0);
        clear(gradients);
        self.scratch.gradients.weights[0] = 1.0;
        self.scratch.gradients.entropies.fill(1.0);
        self.turn(Stage::Last);
        match gradients {
            Gradients::Parts(_) if self.factored().is_some() => {
                self.backward_factored(tables, gradients);
            }
            _ => self.backward_whole(tables, gradients),
        }
    }

    /// Turns the terms of a stage into their gradients, from the gradients of its sums.
    fn turn(&mut self, stage: Stage) {
        let references = self.load(stage);
        if matches!(stage, Stage::Last) {
            self.sum(stage);
            self.load(stage);
        } else {
            self.recall(stage, references);
        }
        let (extents, scratch) = (self.extents(stage), &mut self.scratch);
        let semiring = self.sizes.semiring;
        sums::backward(
            semiring,
            extents,
            &mut scratch.terms,
            &scratch.sums,
            &scratch.gradients,
        );
    }

    /// The sums of a stage as they were before they went to their table.
    fn recall(&mut self, stage: Stage, references: [f64; 2]) {
        for dst in 0..self.sizes.c {
            let weight = self.weight.result(stage)[dst] - self.common(stage, dst);
            self.scratch.sums.weights[dst] = (weight - references[0]) as f32;
            if let Some(entropy) = &self.entropy {
                let entropy = entropy.result(stage)[dst] - references[1];
                self.scratch.sums.entropies[dst] = entropy as f32;
            }
        }
    }

    fn backward_factored(&mut self, tables: &mut Tables<'_>, gradients: &mut Gradients<'_>) {
        let Gradients::Parts(parts) = gradients else {
            return;
        };
        let c = self.sizes.c;
        self.take_terms(c);
        for n in (1..=self.end).rev() {
            self.turn(Stage::Extend(n));
            let len = self.extents(Stage::Extend(n)).len();
            let terms = &self.scratch.terms;
            for (age, terms) in terms.weights[..len].chunks_exact(c).enumerate() {
                let index = age + self.sizes.first_duration_index();
                parts.add_segment(c, n, age + 1, index, terms);
            }
            add_window(tables.weights, n, c, &terms.weights[..len]);
            add_window(
                tables.entropies,
                n,
                c,
                &terms.entropies[..len.min(terms.entropies.len())],
            );

            let t = n - 1;
            self.take_row(tables, t);
            self.turn(Stage::Arrive(t));
            let scratch = &mut self.scratch;
            let terms = &scratch.terms.weights[..c * c];
            add(parts.transition, terms);
            fold_rows(terms, c, scratch.gradients.weights);
            if self.entropy.is_some() {
                let terms = &scratch.terms.entropies[..c * c];
                fold_rows(terms, c, scratch.gradients.entropies);
            }
        }
    }

    fn backward_whole(&mut self, tables: &mut Tables<'_>, gradients: &mut Gradients<'_>) {
        let c = self.sizes.c;
        let row = self.end * c..(self.end + 1) * c;
        tables.weights[row.clone()].copy_from_slice(&self.scratch.terms.weights[..c]);
        if self.entropy.is_some() {
            tables.entropies[row].copy_from_slice(&self.scratch.terms.entropies[..c]);
        }
        for n in (1..=self.end).rev() {
            self.take_row(tables, n);
            self.turn(Stage::Whole(n));
            let len = self.extents(Stage::Whole(n)).len();
            let scratch = &mut self.scratch;
            let window = &mut scratch.window[..len / c];
            whole::add_to_scores(&self.sizes, gradients, n, &scratch.terms.weights[..len]);
            whole::add_to_states(&self.sizes, &scratch.terms.weights[..len], window);
            add_window(tables.weights, n, c, window);
            if self.entropy.is_some() {
                whole::add_to_states(&self.sizes, &scratch.terms.entropies[..len], window);
                add_window(tables.entropies, n, c, window);
            }
        }
    }

    /// Takes the gradients of the first `len` terms as gradients of the next sums.
    fn take_terms(&mut self, len: usize) {
        let scratch = &mut self.scratch;
        scratch.gradients.weights[..len].copy_from_slice(&scratch.terms.weights[..len]);
        if self.entropy.is_some() {
            scratch.gradients.entropies[..len].copy_from_slice(&scratch.terms.entropies[..len]);
        }
    }

    /// The gradients of the next sums are a boundary's.
    fn take_row(&mut self, tables: &Tables<'_>, boundary: usize) {
        let c = self.sizes.c;
        let row = boundary * c..(boundary + 1) * c;
        let gradients = &mut self.scratch.gradients;
        gradients
            .weights
            .copy_from_slice(&tables.weights[row.clone()]);
        if self.entropy.is_some() {
            gradients.entropies.copy_from_slice(&tables.entropies[row]);
        }
    }
}

fn clear(gradients: &mut Gradients<'_>) {
    match gradients {
        Gradients::Edges(edge) => edge.fill(0.0),
        Gradients::Parts(parts) => {
            parts.cum_scores.fill(0.0);
            parts.transition.fill(0.0);
            parts.bias.fill(0.0);
        }
    }
}

/// Adds gradients (durations, C) to the boundaries before `n`, newest first.
fn add_window(table: &mut [f32], n: usize, labels: usize, window: &[f32]) {
    for (age, gradient) in window.chunks_exact(labels).enumerate() {
        add(&mut table[(n - 1 - age) * labels..][..labels], gradient);
    }
}

fn add(sums: &mut [f32], gradients: &[f32]) {
    vectorised(
        #[inline(always)]
        || blocks_in_place::<Dense>(gradients, sums, |sum, gradient| sum + gradient),
    );
}

/// Sums of rows of `labels` elements.
fn fold_rows(terms: &[f32], labels: usize, out: &mut [f32]) {
    let axes = Axes {
        outer: terms.len() / labels,
        first: 1,
        kept: 1,
        last: labels,
    };
    vectorised(
        #[inline(always)]
        || fold_axes(terms, out, axes, 0.0, |a, b| a + b),
    );
}
