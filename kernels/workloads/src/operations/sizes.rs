//! What an operation is applied to.

/// Names of its extents, outermost first.
pub(super) const AXES: [&str; 3] = ["batch", "sequence", "dimension"];

/// Extents of the operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Outermost.
    pub(super) batch: usize,
    /// Positions.
    pub(super) sequence: usize,
    /// Elements that are normalised, or classes.
    pub(super) dimension: usize,
}

impl Sizes {
    /// Shape of the operand.
    pub(super) fn shape(&self) -> [usize; 3] {
        [self.batch, self.sequence, self.dimension]
    }

    /// Rows of [`Sizes::dimension`] elements.
    pub(super) fn rows(&self) -> usize {
        self.batch * self.sequence
    }

    /// Elements of the operand.
    pub(super) fn elements(&self) -> usize {
        self.rows() * self.dimension
    }

    /// Row `row` of an operand.
    pub(super) fn row<'a>(&self, values: &'a [f64], row: usize) -> &'a [f64] {
        &values[row * self.dimension..][..self.dimension]
    }
}
