//! The backward pass: from the value back through every position, as autograd runs it.

use super::Scan;
use super::buffers::{Buffers, Given};
use super::position::Position;
use super::semiring::Gradients;
use crate::ops;
use crate::ops::emit::Strided;
use crate::semicrf::sizes::Sizes;
use sweeper_program::{Arg, Binding, BufferId, Dtype, Index, Role, View};

/// Gradients of the decomposed form.
struct PartGradients {
    cum_scores: BufferId,
    transition: BufferId,
    bias: BufferId,
    /// Gradient of the transition with destinations first.
    turned: BufferId,
    /// (B, span, C): of segments.
    segments: BufferId,
    /// A buffer that is large enough for one position's part of any gradient.
    part: BufferId,
}

enum Target {
    Edges(BufferId),
    Parts(PartGradients),
}

/// Gradients of states, (boundaries, B, C): log weights, and entropies where there are any.
struct StateGradients {
    weights: BufferId,
    entropies: Option<BufferId>,
    /// (B, span, C): the terms of one position.
    window: BufferId,
}

impl Scan {
    /// Writes the backward pass.
    pub(super) fn backward(&mut self) {
        let target = self.target();
        let states = self.state_gradients();
        self.seed(&states);
        let last = self.sizes.last_end();
        let position = Position::backward(self.buffers.span, last);
        self.emit.open_loop();
        self.step_back(position, &states);
        match &target {
            Target::Edges(gradient) => self.scatter_edges(position, *gradient),
            Target::Parts(parts) => self.add_parts(position, parts),
        }
        self.emit.close_loop(last);
        if let Target::Parts(parts) = target {
            let (from, to, extents) = self.turned(parts.turned, parts.transition);
            self.emit.onto(ops::COPY, extents, from, to);
        }
    }

    fn workspace(&mut self, name: &'static str, len: usize) -> BufferId {
        self.emit
            .buffer(name, Dtype::F32, len, Role::Workspace, Binding::Scratch)
    }

    /// Gradients of the inputs, set to zero.
    fn target(&mut self) -> Target {
        let Sizes { b, c, k, .. } = self.sizes;
        let specs = self.sizes.score_specs("grad_");
        let mut ids = Vec::new();
        for spec in specs {
            let len = spec.shape.iter().product();
            let id = self
                .emit
                .buffer(spec.name, Dtype::F32, len, Role::Gradient, Binding::Result);
            ids.push(id);
        }
        let target = match (ids[..].as_ref(), self.buffers.given) {
            (&[cum_scores, transition, bias], Given::Parts(parts)) => {
                let turned = self.emit.all(parts.turned).len;
                let tables = if self.sizes.transition_per_duration {
                    k
                } else {
                    1
                };
                Target::Parts(PartGradients {
                    cum_scores,
                    transition,
                    bias,
                    turned: self.workspace("grad_transition_turned", turned),
                    segments: self.workspace("grad_segments", b * self.buffers.span * c),
                    part: self.workspace("grad_part", (tables * c * c).max(k * c).max(b * c)),
                })
            }
            _ => Target::Edges(ids[0]),
        };
        match &target {
            Target::Edges(edge) => self.emit.fill(self.emit.all(*edge), 0.0),
            Target::Parts(parts) => {
                for buffer in [parts.cum_scores, parts.turned, parts.bias] {
                    self.emit.fill(self.emit.all(buffer), 0.0);
                }
            }
        }
        target
    }

    fn state_gradients(&mut self) -> StateGradients {
        let all = (self.sizes.last_end() + 1) * self.states();
        StateGradients {
            weights: self.workspace("grad_state", all),
            entropies: (self.buffers.entropy.is_some())
                .then(|| self.workspace("grad_entropy_state", all)),
            window: self.workspace("grad_window", self.states() * self.buffers.span),
        }
    }

    /// Gradients of the sum over the batch, with respect to the states at the sequences' ends.
    fn seed(&mut self, states: &StateGradients) {
        let ones = self.workspace("grad_value", self.sizes.b);
        let ones = self.emit.all(ones);
        self.emit.fill(ones.clone(), 1.0);
        let terms = self.last_terms();
        let gradients = self.gradients(ones.clone(), Some(ones), self.states());
        self.sum_backward(&terms, &gradients);
        self.scatter_last(gradients.weights, states.weights);
        if let (Some(from), Some(to)) = (gradients.entropies, states.entropies) {
            self.scatter_last(from, to);
        }
    }

    /// Gradients of `len` terms in the temporaries, from the gradients of their sums.
    fn gradients(&self, sums: View, entropy_sums: Option<View>, len: usize) -> Gradients {
        let buffers = &self.buffers;
        let entropies = buffers.second.map(|second| self.part(second, len));
        Gradients {
            sums,
            entropy_sums: entropy_sums.filter(|_| entropies.is_some()),
            weights: self.part(Buffers::held(buffers.first), len),
            entropies,
        }
    }

    /// The gradient of each sequence's last states to where they are; zeros elsewhere.
    fn scatter_last(&mut self, from: View, to: BufferId) {
        self.emit.fill(self.emit.all(to), 0.0);
        let states = self.states();
        let args = vec![
            Arg::Read(from),
            Arg::Read(self.emit.all(self.buffers.lengths)),
            Arg::Write(self.emit.all(to).touching(states.into())),
            Arg::Int(Index::fixed(-(self.shortest() as i64))),
            Arg::Int(self.sizes.c.into()),
            Arg::Int(self.sizes.b.into()),
        ];
        self.emit.launch(ops::SCATTER_ROWS, args);
    }

    /// Gradients of the scores of a position, and of the states before it.
    fn step_back(&mut self, position: Position, states: &StateGradients) {
        let len = self.states();
        let of_states = |buffer| View::new(buffer, position.boundary(len, 0), len);
        let plane = self.emit.all(self.buffers.edges).len;
        let gradients = self.gradients(
            of_states(states.weights),
            states.entropies.map(of_states),
            plane,
        );
        let terms = self.terms(position);
        self.sum_backward(&terms, &gradients);
        self.add_states(position, gradients.weights, states.weights, states.window);
        if let (Some(from), Some(to)) = (gradients.entropies, states.entropies) {
            self.add_states(position, from, to, states.window);
        }
    }

    /// Sums gradients of terms over destinations and adds them to the gradients of the states they
    /// came from.
    fn add_states(&mut self, position: Position, terms: View, states: BufferId, window: BufferId) {
        let Sizes { b, c, .. } = self.sizes;
        let window = self.emit.all(window);
        let extents = [position.durations(b), c.into(), c.into(), 1.into()];
        self.emit.reduce(ops::SUM, terms, window.clone(), extents);
        let extents = [b.into(), position.durations(1), c.into(), 1.into()];
        let from = self.per_segment(position, window);
        let older = Index::fixed(-(self.states() as i64));
        let to = Strided::new(self.emit.all(states), [c.into(), older, 1.into(), 0.into()])
            .from(position.newest(self.states(), 0));
        self.emit.onto(ops::ADD_IN_PLACE, extents, from, to);
    }

    /// A dense tensor (B, durations, C) as (B, durations, C, 1).
    pub(super) fn per_segment(&self, position: Position, view: View) -> Strided {
        let c = self.sizes.c;
        Strided::new(view, [position.durations(c), c.into(), 1.into(), 0.into()])
    }

    /// The gradient of scores is the gradient of edges, each of which ends at one position.
    fn scatter_edges(&mut self, position: Position, gradient: BufferId) {
        let Sizes { b, c, .. } = self.sizes;
        let plane = c * c;
        let scores = self.emit.all(Buffers::held(self.buffers.first));
        let steps = [position.durations(plane), plane.into(), c.into(), 1.into()];
        let extents = [b.into(), position.durations(1), c.into(), c.into()];
        let to = self.ending_edges(position, self.emit.all(gradient));
        self.emit
            .onto(ops::COPY, extents, Strided::new(scores, steps), to);
    }

    /// Adds the gradient of scores to the gradients of transition, bias and cumulative scores.
    fn add_parts(&mut self, position: Position, parts: &PartGradients) {
        let Sizes { b, c, .. } = self.sizes;
        let scores = self.emit.all(Buffers::held(self.buffers.first));
        let segments = self.emit.all(parts.segments);
        let rows = [1.into(), 1.into(), position.durations(b * c), c.into()];
        self.emit
            .reduce(ops::SUM, scores.clone(), segments.clone(), rows);
        self.add_transition(position, parts, scores);
        self.add_bias(position, parts, segments.clone());
        self.add_cum_scores(position, parts, segments);
    }

    fn add_transition(&mut self, position: Position, parts: &PartGradients, scores: View) {
        let Sizes { b, c, .. } = self.sizes;
        let plane = c * c;
        let (extents, count, start) = if self.sizes.transition_per_duration {
            let kept = position.durations(plane);
            let start = self.sizes.first_duration_index() * plane;
            ([1.into(), b.into(), kept.clone(), 1.into()], kept, start)
        } else {
            let summed = position.durations(b);
            ([1.into(), summed, plane.into(), 1.into()], plane.into(), 0)
        };
        let part = self.emit.all(parts.part);
        self.emit.reduce(ops::SUM, scores, part.clone(), extents);
        self.add_flat(part, parts.turned, start, count);
    }

    fn add_bias(&mut self, position: Position, parts: &PartGradients, segments: View) {
        let Sizes { b, c, .. } = self.sizes;
        let part = self.emit.all(parts.part);
        let kept = position.durations(c);
        let extents = [1.into(), b.into(), kept.clone(), 1.into()];
        self.emit.reduce(ops::SUM, segments, part.clone(), extents);
        let start = self.sizes.first_duration_index() * c;
        self.add_flat(part, parts.bias, start, kept);
    }

    /// `to[start + i] += part[i]` for `count` elements.
    fn add_flat(&mut self, part: View, to: BufferId, start: usize, count: Index) {
        let flat = |view| Strided::new(view, [0, 0, 0, 1].map(Index::from));
        let to = flat(self.emit.all(to)).from(start.into());
        let extents = [1.into(), 1.into(), 1.into(), count];
        self.emit.onto(ops::ADD_IN_PLACE, extents, flat(part), to);
    }

    /// Plus at the end of each segment, minus at its start.
    fn add_cum_scores(&mut self, position: Position, parts: &PartGradients, segments: View) {
        let Sizes { b, t, c, .. } = self.sizes;
        let row = (t + 1) * c;
        let part = self.emit.all(parts.part);
        let extents = [b.into(), position.durations(1), c.into(), 1.into()];
        self.emit
            .reduce(ops::SUM, segments.clone(), part.clone(), extents.clone());
        let cum_scores = self.emit.all(parts.cum_scores);
        let to = Strided::new(cum_scores.clone(), [row, 0, 1, 0].map(Index::from))
            .from(position.boundary(c, 0));
        let ends = Strided::new(part, [c, 0, 1, 0].map(Index::from));
        self.emit
            .onto(ops::ADD_IN_PLACE, [b, 1, c, 1].map(Index::from), ends, to);
        let older = Index::fixed(-(c as i64));
        let to = Strided::new(cum_scores, [row.into(), older, 1.into(), 0.into()])
            .from(position.newest(c, 0));
        let from = self.per_segment(position, segments);
        self.emit.onto(ops::SUB_IN_PLACE, extents, from, to);
    }
}
