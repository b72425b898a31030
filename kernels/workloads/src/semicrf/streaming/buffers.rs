//! The memory of a scan, by role.

use std::borrow::Cow;

use super::position::Position;
use crate::ops::emit::Emitter;
use crate::semicrf::sizes::{Semiring, Sizes};
use sweeper_program::workload::Phase;
use sweeper_program::{Binding, BufferId, Dtype, Index, Role, View};

/// A tensor that a position makes: overwritten by the next one, or saved for the backward pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    buffer: BufferId,
    len: usize,
    saved: bool,
}

impl Slot {
    /// The tensor of a position.
    pub(super) fn at(self, position: Position) -> View {
        let offset = if self.saved {
            position.newest(self.len, 0)
        } else {
            Index::fixed(0)
        };
        View::new(self.buffer, offset, self.len)
    }
}

/// One component of the states: log weights, or entropies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Component {
    /// (slots, B, C), f64: a ring, or all boundaries where a backward pass follows.
    pub(super) state: BufferId,
    /// (B, C), f64: the states at each sequence's end.
    pub(super) last: BufferId,
    /// (B, span, C), f64: the states of the window.
    pub(super) window: BufferId,
    /// (B), f64: the offset that states are relative to.
    pub(super) reference: BufferId,
    /// (B, span, C): the window's states, relative.
    pub(super) relative: Slot,
    /// (B, C): the last states, relative.
    pub(super) last_relative: BufferId,
    /// (B, C): the sums of a position, relative.
    pub(super) sum: Slot,
    /// (B): the sum over the last states, relative.
    pub(super) last_sum: BufferId,
    /// (B): the result.
    pub(super) result: BufferId,
}

/// Buffers of the decomposed form.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    /// Given, (B, T+1, C).
    pub(super) cum_scores: BufferId,
    /// Given, (C_src, C_dst) or (K, C_src, C_dst).
    pub(super) transition: BufferId,
    /// Given, (K, C).
    pub(super) bias: BufferId,
    /// The transition with destinations first, as the scores of edges have them.
    pub(super) turned: BufferId,
    /// (B, span, C): scores of segments without their transition.
    pub(super) segments: BufferId,
}

/// Origin of the scores.
#[derive(Clone, Copy, Debug)]
pub(super) enum Given {
    /// (B, T-1, K, C, C).
    Edges(BufferId),
    /// The decomposed form.
    Parts(Parts),
}

/// All memory of the forward pass, and the values that it keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffers {
    /// Most durations that end at one boundary.
    pub(super) span: usize,
    /// Slots of [`Component::state`].
    pub(super) slots: usize,
    pub(super) lengths: BufferId,
    pub(super) given: Given,
    /// (B, span, C, C): scores of the edges that end at the position.
    pub(super) edges: BufferId,
    /// (B, span, C, C): the scores with the states added.
    pub(super) scores: Slot,
    /// Like `scores`, temporary: going back, gradients of scores.
    pub(super) first: Option<BufferId>,
    /// Like `scores`, temporary; for the entropy.
    pub(super) second: Option<BufferId>,
    /// (B, C), temporary: maxima.
    pub(super) most: Option<BufferId>,
    /// (B, C), i64: where maxima were found, and (B) of the last states.
    pub(super) index: Option<(Slot, BufferId)>,
    pub(super) weight: Component,
    pub(super) entropy: Option<Component>,
}

impl Buffers {
    /// One of the optional buffers above, where the semiring has it.
    pub(super) fn held(buffer: Option<BufferId>) -> BufferId {
        buffer.unwrap_or_else(|| unreachable!("made for every semiring that uses it"))
    }

    pub(super) fn new(sizes: &Sizes, phase: Phase, emit: &mut Emitter) -> Self {
        let mut maker = Maker {
            sizes: *sizes,
            phase,
            span: sizes.longest().min(sizes.last_end()),
            emit,
        };
        let plane = sizes.b * maker.span * sizes.c * sizes.c;
        let is = |semiring| sizes.semiring == semiring;
        Buffers {
            span: maker.span,
            slots: maker.slots(),
            lengths: maker.given("lengths".to_owned(), Dtype::I64, sizes.b),
            given: maker.scores_given(),
            edges: maker.scratch("edges", Dtype::F32, plane, Role::Potentials),
            scores: maker.slot("scores", Dtype::F32, plane, !is(Semiring::Max)),
            first: (!is(Semiring::Max) || phase.has_gradients())
                .then(|| maker.workspace("temporary", plane)),
            second: is(Semiring::Entropy).then(|| maker.workspace("temporary_2", plane)),
            most: (!is(Semiring::Max)).then(|| maker.workspace("maxima", sizes.b * sizes.c)),
            index: is(Semiring::Max).then(|| {
                let index = maker.slot("index", Dtype::I64, sizes.b * sizes.c, true);
                (index, maker.last("last_index", Dtype::I64, sizes.b))
            }),
            weight: maker.component("", "value", !is(Semiring::Max)),
            entropy: is(Semiring::Entropy).then(|| maker.component("entropy_", "entropy", true)),
        }
    }
}

struct Maker<'a> {
    sizes: Sizes,
    phase: Phase,
    span: usize,
    emit: &'a mut Emitter,
}

impl Maker<'_> {
    fn slots(&self) -> usize {
        if self.phase.has_gradients() {
            self.sizes.last_end() + 1
        } else {
            self.span + 1
        }
    }

    fn given(&mut self, name: String, dtype: Dtype, len: usize) -> BufferId {
        let role = match name.as_str() {
            "edge" => Role::Potentials,
            "transition" | "duration_bias" => Role::Parameter,
            _ => Role::Input,
        };
        self.emit.buffer(name, dtype, len, role, Binding::Given)
    }

    fn scratch(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        dtype: Dtype,
        len: usize,
        role: Role,
    ) -> BufferId {
        self.emit.buffer(name, dtype, len, role, Binding::Scratch)
    }

    fn workspace(&mut self, name: impl Into<Cow<'static, str>>, len: usize) -> BufferId {
        self.scratch(name, Dtype::F32, len, Role::Workspace)
    }

    /// A slot of `len` elements a position, for all positions if `saved` and there is a backward
    /// pass.
    fn slot(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        dtype: Dtype,
        len: usize,
        saved: bool,
    ) -> Slot {
        let saved = saved && self.phase.has_gradients();
        let (count, role) = if saved {
            (self.sizes.last_end(), Role::Saved)
        } else {
            (1, Role::Workspace)
        };
        Slot {
            buffer: self.scratch(name, dtype, count * len, role),
            len,
            saved,
        }
    }

    /// Made once, after the last position.
    fn last(&mut self, name: impl Into<Cow<'static, str>>, dtype: Dtype, len: usize) -> BufferId {
        let role = if self.phase.has_gradients() {
            Role::Saved
        } else {
            Role::Workspace
        };
        self.scratch(name, dtype, len, role)
    }

    fn scores_given(&mut self) -> Given {
        let sizes = self.sizes;
        let specs = sizes.score_specs("");
        let transition_len = specs.get(1).map_or(0, |spec| spec.shape.iter().product());
        let ids: Vec<BufferId> = specs
            .into_iter()
            .map(|spec| {
                let len = spec.shape.iter().product();
                self.given(spec.name, spec.dtype, len)
            })
            .collect();
        match ids[..] {
            [cum_scores, transition, bias] => Given::Parts(Parts {
                cum_scores,
                transition,
                bias,
                turned: self.scratch(
                    "transition_turned",
                    Dtype::F32,
                    transition_len,
                    Role::Workspace,
                ),
                segments: self.scratch(
                    "segments",
                    Dtype::F32,
                    sizes.b * self.span * sizes.c,
                    Role::Potentials,
                ),
            }),
            _ => Given::Edges(ids[0]),
        }
    }

    /// `saved`: whether the sums of each position are kept.
    fn component(&mut self, prefix: &str, result: &'static str, saved: bool) -> Component {
        let Sizes { b, c, .. } = self.sizes;
        let name = |what: &str| format!("{prefix}{what}");
        let (slots, window) = (self.slots(), b * self.span * c);
        let is_entropy = !prefix.is_empty();
        let binding = if self.phase == Phase::Backward {
            Binding::Scratch
        } else {
            Binding::Result
        };
        Component {
            state: self.scratch(name("state"), Dtype::F64, slots * b * c, Role::DpState),
            last: self.scratch(name("last"), Dtype::F64, b * c, Role::DpState),
            window: self.scratch(name("window"), Dtype::F64, window, Role::Workspace),
            reference: self.scratch(name("reference"), Dtype::F64, b, Role::Workspace),
            relative: self.slot(name("relative"), Dtype::F32, window, is_entropy),
            last_relative: self.last(name("last_relative"), Dtype::F32, b * c),
            sum: self.slot(name("sum"), Dtype::F32, b * c, saved),
            last_sum: self.last(name("last_sum"), Dtype::F32, b),
            result: self
                .emit
                .buffer(result, Dtype::F32, b, Role::Output, binding),
        }
    }
}
