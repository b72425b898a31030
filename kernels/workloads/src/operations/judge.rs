//! How near to the right answer an operation's result has to be.
//!
//! Every result is measured by its relative L2 error: one wrong element among 10^8 shows, at 1e-4.
//! The oracle gives the *spread* of each answer with it: the L2 norm of the standard deviations of
//! its elements, if it were computed in f32 ([`sweeper_program::rounding`]). A result may be
//! [`MARGIN`] spreads out.
//!
//! So a term that is missing shows if it is more than rounding does. What that comes to:
//!
//! * `1e-5` that is not added to a variance of 1 is 5e-6 of normalised rows, and 3.5e-6 beside a
//!   bias. Tolerances are 3e-7 to 6e-7 up to 4096 columns, and reach 3e-6 at 2^19.
//! * one row of a mean over n is `1 / n` of it. The tolerance of a mean over rows (`out` of losses)
//!   is below half of that up to 2.5 10^5 rows. Beyond, f32 does not tell one row of the sum that
//!   backends add up; the gradient `grad_x` has each row's own elements, and there a row shows at
//!   any number of them. A row of less than a tenth of the mean does not show in the mean of 10^5
//!   either.
//! * a mean of squares over n - 1 instead of n is `1 / 2n` off: it shows up to 10^6 columns.

use crate::spread;
use sweeper_program::check::Check;
use sweeper_program::tensor::Tensors;
use sweeper_program::workload::TensorSpec;

/// How many spreads a result may be out: four deviations, where it is one number.
const MARGIN: f64 = 4.0;

/// Judges the outputs that `specs` lists.
pub(super) fn check(outputs: &Tensors, expected: &Tensors, specs: &[TensorSpec]) -> Check {
    spread::check(outputs, expected, specs, MARGIN, 0.0)
}
