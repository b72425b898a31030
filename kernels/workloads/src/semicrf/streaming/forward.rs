//! The forward pass: states from boundary to boundary, and the value at each sequence's end.

use super::Scan;
use super::buffers::{Component, Given, Parts};
use super::position::Position;
use super::semiring::{EntropyTerms, Terms};
use crate::ops;
use crate::ops::emit::Strided;
use crate::semicrf::sizes::Sizes;
use sweeper_program::{Arg, BufferId, Index, View};

impl Scan {
    /// Writes the forward pass.
    pub(super) fn forward(&mut self) {
        let components: Vec<Component> = self.components().collect();
        for component in &components {
            let start = self.part(component.state, self.states());
            self.emit.fill(start.clone(), 0.0);
            self.select_last(component, start, self.shortest().into());
        }
        if let Given::Parts(parts) = self.buffers.given {
            self.turn_transition(&parts);
        }
        let position = Position::forward(self.buffers.span);
        self.emit.open_loop();
        self.step(position, &components);
        self.emit.close_loop(self.sizes.last_end());
        self.finish(&components);
    }

    /// Log weights, and entropies where there are any.
    pub(super) fn components(&self) -> impl Iterator<Item = Component> + use<> {
        let entropy = self.buffers.entropy;
        std::iter::once(self.buffers.weight).chain(entropy)
    }

    /// One boundary.
    fn step(&mut self, position: Position, components: &[Component]) {
        match self.buffers.given {
            Given::Edges(edge) => self.gather_edges(position, self.emit.all(edge)),
            Given::Parts(parts) => self.compose_edges(position, &parts),
        }
        for component in components {
            self.gather_states(position, component);
        }
        let terms = self.terms(position);
        let states = terms.of_sources(self.buffers.weight.relative.at(position));
        let Sizes { b, c, .. } = self.sizes;
        let plane = c * c;
        let edges = Strided::new(
            self.emit.all(self.buffers.edges),
            [position.durations(plane), plane.into(), c.into(), 1.into()],
        );
        let extents = [b.into(), position.durations(1), c.into(), c.into()];
        self.emit
            .binary(ops::ADD, extents, edges, states, terms.weights.clone());
        self.sum(&terms);
        for component in components {
            self.store_states(position, component);
        }
    }

    /// The terms that are summed at a position, over durations and sources.
    pub(super) fn terms(&self, position: Position) -> Terms {
        let buffers = &self.buffers;
        Terms {
            outer: self.sizes.b,
            kept: self.sizes.c,
            last: self.sizes.c,
            durations: Some(position),
            weights: buffers.scores.at(position),
            sums: buffers.weight.sum.at(position),
            index: buffers.index.map(|(index, _)| index.at(position)),
            entropy: buffers.entropy.map(|component| EntropyTerms {
                terms: component.relative.at(position),
                sums: component.sum.at(position),
            }),
        }
    }

    /// The terms of the value: the last states.
    pub(super) fn last_terms(&self) -> Terms {
        let buffers = &self.buffers;
        Terms {
            outer: self.sizes.b,
            kept: 1,
            last: self.sizes.c,
            durations: None,
            weights: self.emit.all(buffers.weight.last_relative),
            sums: self.emit.all(buffers.weight.last_sum),
            index: buffers.index.map(|(_, last)| self.emit.all(last)),
            entropy: buffers.entropy.map(|component| EntropyTerms {
                terms: self.emit.all(component.last_relative),
                sums: self.emit.all(component.last_sum),
            }),
        }
    }

    /// `edge[:, n - k, k]` for all k that end here, shortest first.
    fn gather_edges(&mut self, position: Position, edge: View) {
        let Sizes { b, c, .. } = self.sizes;
        let plane = c * c;
        let dense = [position.durations(plane), plane.into(), c.into(), 1.into()];
        let extents = [b.into(), position.durations(1), c.into(), c.into()];
        let from = self.ending_edges(position, edge);
        let to = Strided::new(self.emit.all(self.buffers.edges), dense);
        self.emit.onto(ops::COPY, extents, from, to);
    }

    /// The edges of a tensor (B, T-1, K, C, C) that end at a position, as (B, durations, C, C).
    pub(super) fn ending_edges(&self, position: Position, edge: View) -> Strided {
        let Sizes { t, k, c, .. } = self.sizes;
        let plane = c * c;
        let older = plane as i64 - (k * plane) as i64;
        let steps = [
            ((t - 1) * k * plane).into(),
            Index::fixed(older),
            c.into(),
            1.into(),
        ];
        let first = self.sizes.first_duration_index() * plane;
        Strided::new(edge, steps).from(position.newest(k * plane, first))
    }

    /// The transition with destinations first.
    fn turn_transition(&mut self, parts: &Parts) {
        let (from, to, extents) = self.turned(parts.transition, parts.turned);
        self.emit.onto(ops::COPY, extents, from, to);
    }

    /// Operands that copy `from`, with its last two axes exchanged, in loops over `to`.
    pub(super) fn turned(&self, from: BufferId, to: BufferId) -> (Strided, Strided, [Index; 4]) {
        let c = self.sizes.c;
        let straight = self.emit.all(from);
        let tables = straight.len / (c * c);
        let from = Strided::new(straight, [0, c * c, 1, c].map(Index::from));
        let to = Strided::new(self.emit.all(to), [0, c * c, c, 1].map(Index::from));
        (from, to, [1, tables, c, c].map(Index::from))
    }

    /// `S[n] - S[n - k] + bias[k]`, then plus the transition.
    fn compose_edges(&mut self, position: Position, parts: &Parts) {
        let Sizes { b, t, c, .. } = self.sizes;
        let first = self.sizes.first_duration_index();
        let extents = [b.into(), position.durations(1), c.into(), 1.into()];
        let cum_scores = self.emit.all(parts.cum_scores);
        let row = (t + 1) * c;
        let to = Strided::new(cum_scores.clone(), [row, 0, 1, 0].map(Index::from))
            .from(position.boundary(c, 0));
        let from = Strided::new(
            cum_scores,
            [row.into(), Index::fixed(-(c as i64)), 1.into(), 0.into()],
        )
        .from(position.newest(c, 0));
        let segments = self.emit.all(parts.segments);
        self.emit
            .binary(ops::SUB, extents.clone(), to, from, segments.clone());
        let per_segment = |last: usize| {
            let steps = [position.durations(c), c.into(), 1.into(), last.into()];
            Strided::new(segments.clone(), steps)
        };
        let bias = Strided::new(self.emit.all(parts.bias), [0, c, 1, 0].map(Index::from))
            .from((first * c).into());
        self.emit
            .onto(ops::ADD_IN_PLACE, extents, bias, per_segment(0));
        let per_duration = self.sizes.transition_per_duration;
        let (table, start) = if per_duration {
            (c * c, first * c * c)
        } else {
            (0, 0)
        };
        let transition = Strided::new(
            self.emit.all(parts.turned),
            [0, table, c, 1].map(Index::from),
        )
        .from(start.into());
        let extents = [b.into(), position.durations(1), c.into(), c.into()];
        let edges = self.emit.all(self.buffers.edges);
        self.emit
            .binary(ops::ADD, extents, per_segment(0), transition, edges);
    }

    /// The states of the boundaries before, relative to the greatest of each sequence.
    fn gather_states(&mut self, position: Position, component: &Component) {
        let Sizes { b, c, .. } = self.sizes;
        let slots = self.buffers.slots;
        let window = self.emit.all(component.window);
        let all = position.durations(b * c);
        let args = vec![
            Arg::Read(self.emit.all(component.state).touching(all.clone())),
            Arg::Write(window.clone().touching(all)),
            Arg::Int(slots.into()),
            Arg::Int(position.slot(0, slots, 1)),
            Arg::Int(b.into()),
            Arg::Int(position.durations(1)),
            Arg::Int(c.into()),
        ];
        self.emit.launch(ops::RING_WINDOW, args);
        let relative = component.relative.at(position);
        self.relative(component, window, relative, position.durations(c));
    }

    /// f64 states (B, inner) relative to the greatest of each sequence.
    fn relative(&mut self, component: &Component, x: View, out: View, inner: Index) {
        let b = Index::from(self.sizes.b);
        let reference = self.emit.all(component.reference);
        let extents = [b.clone(), 1.into(), 1.into(), inner.clone()];
        self.emit
            .reduce(ops::AMAX_F64, x.clone(), reference.clone(), extents);
        let all = inner.clone().times(self.sizes.b as i64);
        let args = vec![
            Arg::Read(x.touching(all.clone())),
            Arg::Read(reference),
            Arg::Write(out.touching(all)),
            Arg::Int(b),
            Arg::Int(inner),
        ];
        self.emit.launch(ops::RELATIVE, args);
    }

    /// The sums of a position are the states of its boundary; for sequences that end here they are
    /// the last states.
    fn store_states(&mut self, position: Position, component: &Component) {
        let states = self.states();
        let offset = position.slot(1, self.buffers.slots, states);
        let state = View::new(component.state, offset, states);
        let args = vec![
            Arg::Read(component.sum.at(position)),
            Arg::Read(self.emit.all(component.reference)),
            Arg::Write(state.clone()),
            Arg::Int(self.sizes.b.into()),
            Arg::Int(self.sizes.c.into()),
        ];
        self.emit.launch(ops::ABSOLUTE, args);
        self.select_last(component, state, position.boundary(1, self.shortest()));
    }

    /// The length of a sequence that ends at boundary 0.
    pub(super) fn shortest(&self) -> usize {
        1 - self.sizes.end(1)
    }

    /// Keeps the states of the sequences of length `wanted`. Its traffic is not counted: it is one
    /// row of each sequence in the whole pass, at a position that depends on data.
    fn select_last(&mut self, component: &Component, state: View, wanted: Index) {
        let args = vec![
            Arg::Read(state.touching(0.into())),
            Arg::Read(self.emit.all(self.buffers.lengths)),
            Arg::Write(self.emit.all(component.last).touching(0.into())),
            Arg::Int(wanted),
            Arg::Int(self.sizes.c.into()),
            Arg::Int(self.sizes.b.into()),
        ];
        self.emit.launch(ops::SELECT_ROWS, args);
    }

    /// The value of each sequence.
    fn finish(&mut self, components: &[Component]) {
        for component in components {
            let (last, relative) = (
                self.emit.all(component.last),
                self.emit.all(component.last_relative),
            );
            self.relative(component, last, relative, self.sizes.c.into());
        }
        let terms = self.last_terms();
        self.sum(&terms);
        for component in components {
            let args = vec![
                Arg::Read(self.emit.all(component.last_sum)),
                Arg::Read(self.emit.all(component.reference)),
                Arg::Write(self.emit.all(component.result)),
                Arg::Int(self.sizes.b.into()),
            ];
            self.emit.launch(ops::ABSOLUTE_F32, args);
        }
    }
}
