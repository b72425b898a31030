//! What an operation is applied to, and which one it is.

/// Extents of the operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
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
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Rows less their mean, over their deviation.
    LayerNorm,
    /// Rows over their root mean square.
    RmsNorm,
    /// Rows of weights that sum to 1.
    Softmax,
    /// By the error function.
    GeluErf,
    /// By the hyperbolic tangent.
    GeluTanh,
    /// `x sigmoid(x)`
    Swish,
    /// Mean of squared differences.
    Mse,
    /// Mean of what the labels' logarithms lack.
    CrossEntropy,
}

impl Kind {
    /// Whether the result is one number.
    pub(super) fn is_loss(self) -> bool {
        matches!(self, Kind::Mse | Kind::CrossEntropy)
    }
}

/// Added to variances and mean squares.
pub(super) const EPS: f64 = 1e-5;
