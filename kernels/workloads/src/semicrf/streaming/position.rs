//! Offsets and extents that depend on the position of a scan.

use sweeper_program::{Index, Term};

/// The boundary `n` that an iteration of the scan is at, from 1 on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    /// `n - 1` in the first iteration.
    first: i64,
    /// 1 going forward, -1 going back.
    step: i64,
    /// Most durations that end at one boundary.
    span: i64,
}

impl Position {
    /// A scan from boundary 1 forward.
    pub(super) fn forward(span: usize) -> Self {
        Position {
            first: 0,
            step: 1,
            span: span as i64,
        }
    }

    /// A scan from boundary `last` back to 1.
    pub(super) fn backward(span: usize, last: usize) -> Self {
        Position {
            first: last as i64 - 1,
            step: -1,
            span: span as i64,
        }
    }

    /// `n * stride + base`.
    pub(super) fn boundary(self, stride: usize, base: usize) -> Index {
        self.scaled(stride, base, 1)
    }

    /// `(n - 1) * stride + base`: where the shortest segment that ends here comes from.
    pub(super) fn newest(self, stride: usize, base: usize) -> Index {
        self.scaled(stride, base, 0)
    }

    fn scaled(self, stride: usize, base: usize, shift: i64) -> Index {
        let stride = stride as i64;
        let first = (self.first + shift) * stride + base as i64;
        Index::affine(first, 0, self.step * stride)
    }

    /// Number of durations that end here, `min(span, n)`, times `factor`.
    pub(super) fn durations(self, factor: usize) -> Index {
        let factor = factor as i64;
        Index::affine((self.first + 1) * factor, 0, self.step * factor)
            .clamped(factor, factor * self.span)
    }

    /// Place of boundary `n - 1 + shift` in a ring of `slots` slots of `stride` elements. Forward
    /// scans only.
    pub(super) fn slot(self, shift: i64, slots: usize, stride: usize) -> Index {
        Index::fixed(0).plus(Term {
            depth: 0,
            stride: stride as i64,
            shift: self.first + shift,
            modulus: Some(slots as i64),
        })
    }
}
