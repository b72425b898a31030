//! A point of a sweep in 16 bytes: a case, a backend, a phase, and one row of each dimension.
//!
//! The rows are the digits of one number in a mixed base, so that points are cheap to hold, to
//! compare and to hash. A conditional dimension has one digit more, which says that it does not
//! exist.

use std::sync::Arc;

use sweeper_program::Phase;

use crate::model::case::Case;

/// A point of the grid. Its [`Grid`](super::Grid) knows its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Point {
    /// Index into `Manifest::cases`.
    pub case: u16,
    /// The rows of the case's dimensions, as one number.
    pub(crate) code: u64,
    /// Index into `Case::backends`.
    pub backend: u16,
    /// The timed phase.
    pub phase: Phase,
}

/// A point that is not measured because the manifest says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// The point.
    pub point: Point,
    /// Why, for people.
    pub reason: Arc<str>,
}

/// How many values each digit of a case's points has, and the weight of a digit.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    strides: Vec<u64>,
    bases: Vec<u64>,
}

impl Layout {
    /// The layout of a case; `None` if its points don't fit 64 bits.
    pub(crate) fn new(case: &Case) -> Option<Self> {
        let bases: Vec<u64> = case
            .dimensions
            .iter()
            .map(|dimension| dimension.rows.len() as u64 + u64::from(dimension.when.is_some()))
            .collect();
        let mut strides = vec![1; bases.len()];
        let mut stride = 1u64;
        for (index, base) in bases.iter().enumerate().rev() {
            strides[index] = stride;
            stride = stride.checked_mul(*base)?;
        }
        Some(Layout { strides, bases })
    }

    /// The row of dimension `index`; equal to the number of rows where it does not exist.
    pub(crate) fn digit(&self, code: u64, index: usize) -> usize {
        match self.bases[index] {
            1 => 0,
            base => ((code / self.strides[index]) % base) as usize,
        }
    }

    /// The weight of dimension `index` in a code.
    pub(crate) fn stride(&self, index: usize) -> u64 {
        self.strides[index]
    }
}
