//! Sizes of the kernels' arrays, each for one sequence. The C sources name the functions here.

use crate::semicrf::sizes::{Semiring, Sizes};

/// Floats of a line of cache: `LINE` in vector.h.
pub(super) const LINE: usize = 16;

/// Floats of the narrowest vectors: `LANES` in vector.h.
const LEAST_LANES: usize = 4;

/// Elements of a chunk: `CHUNK` in flat.h.
const CHUNK: usize = 4096;

#[derive(Clone, Copy)]
pub(super) struct Layout {
    sizes: Sizes,
    /// Floats of a row of labels, whole lines.
    pub(super) pitch: usize,
    /// Longest duration that fits into the longest sequence.
    pub(super) longest: usize,
}

impl Layout {
    pub(super) fn new(sizes: &Sizes, lines: usize) -> Self {
        Layout {
            sizes: *sizes,
            pitch: lines * LINE,
            longest: sizes.longest().min(sizes.last_end()),
        }
    }

    fn has_entropy(&self) -> bool {
        self.sizes.semiring == Semiring::Entropy
    }

    /// Log weights, and entropies.
    pub(super) fn row_floats(&self) -> usize {
        self.pitch * if self.has_entropy() { 2 } else { 1 }
    }

    /// Boundaries between checkpoints. Checkpoints hold K C floats each, an interval C floats a
    /// boundary: their sum is least at sqrt(T K). Not less than the rows that a
    /// checkpoint holds, and never the first boundary alone.
    pub(super) fn interval(&self) -> usize {
        let product = (self.sizes.last_end() * self.longest) as f64;
        (product.sqrt().ceil() as usize).max(self.longest).max(2)
    }

    fn is_materialized(&self) -> bool {
        !self.sizes.is_decomposed()
    }

    fn transition_tables(&self) -> usize {
        if self.sizes.transition_per_duration {
            self.longest
        } else {
            1
        }
    }

    /// Elements after which rows of labels and vectors begin together again.
    fn period(&self) -> usize {
        self.sizes.c >> self.sizes.c.trailing_zeros().min(LINE.ilog2()) << LINE.ilog2()
    }

    /// `place_messages` in messages.h.
    pub(super) fn message_floats(&self) -> usize {
        let planes = match self.sizes.semiring {
            Semiring::Max => 1,
            Semiring::Log => 2,
            Semiring::Entropy => 4,
        };
        let width = match (self.is_materialized(), self.sizes.transition_per_duration) {
            (true, _) => self.longest * self.sizes.c + self.pitch,
            (false, false) => self.pitch,
            (false, true) => self.longest * self.pitch + self.pitch,
        };
        planes * self.longest * width + self.pitch
    }

    /// Floats of the ring: `ring_rows` and the arrays after it in ring.h; 0 in other forms.
    pub(super) fn ring_floats(&self) -> usize {
        if self.is_materialized() || self.sizes.transition_per_duration {
            return 0;
        }
        let rings = if self.has_entropy() { 2 } else { 1 };
        (2 * self.longest * rings + 2 * self.longest + 2) * self.pitch
    }

    /// `Flat` in materialized.h, or the tables of decomposed.h; then the shifts of forward.h.
    pub(super) fn table_floats(&self) -> usize {
        let shifts = 3 * self.longest.next_multiple_of(LINE);
        if self.is_materialized() {
            let period = self.period();
            let chunk = if period >= CHUNK {
                period
            } else {
                CHUNK / period * period
            };
            let patterns = 2 * (period + self.pitch);
            return patterns + 2 * (chunk + period + 3 * LINE) + shifts;
        }
        let products = if self.has_entropy() { 2 } else { 1 };
        let rows = self.longest + products * self.transition_tables() * self.sizes.c + 2;
        rows * self.pitch + self.transition_tables() + shifts
    }

    /// `Targets` in targets.h.
    pub(super) fn target_floats(&self) -> usize {
        4 * self.longest * self.pitch
    }

    /// `Work` of the form's backward pass.
    pub(super) fn work_floats(&self) -> usize {
        if self.is_materialized() {
            let (rows, period) = (self.longest * self.sizes.c + 2 * self.pitch, self.period());
            3 * rows + 3 * period + period / LEAST_LANES
        } else {
            (3 * self.transition_tables() * self.sizes.c + 8) * self.pitch
        }
    }

    /// A sequence's part of the gradients of bias and transition, in decomposed_backward.h.
    pub(super) fn part_floats(&self) -> usize {
        (self.longest + self.transition_tables() * self.sizes.c) * self.pitch
    }
}
