//! Noise beside the tables: what rounding does to each number in several evaluations at once.
//!
//! Roundings are so small that their effects add up linearly. So every number of a table carries
//! the differences that it has in each of [`LANES`] evaluations of a plain f32 program, which keeps
//! logarithms as they are, adds a segment's score to them, and takes the logarithm of the sum of
//! exponentials ([`sweeper_program::rounding`] has the sizes of single roundings). A number that is
//! computed from others has their differences, weighted with its derivatives by them, and one of
//! its own in a direction of chance.

use sweeper_program::rounding::{DEVIATION, LOG2_E, mixed};

/// Evaluations at once.
pub(super) const LANES: usize = 8;

/// Those of them that gradients have, which are large.
pub(super) const GRADIENT_LANES: usize = 4;

/// The difference of a number in each evaluation.
pub(super) type Lanes = [f64; LANES];

/// The relative difference of all scores in each evaluation: a program whose weights are powers of
/// 2 multiplies scores by a rounded constant. Over a chain such differences add up.
pub(super) const OF_SCORES: Lanes = {
    let size = LOG2_E.abs();
    [size, -size, -size, size, size, size, -size, -size]
};

/// Adds `weight` times the differences of another number.
pub(super) fn add_weighted(lanes: &mut [f64], weight: f64, others: &[f64]) {
    for (lane, other) in lanes.iter_mut().zip(others) {
        *lane += weight * other;
    }
}

/// Adds a difference of a number's own to each lane, with a variance in squares of [`DEVIATION`].
/// Its directions follow from `place`, which no two numbers share.
pub(super) fn add_own(lanes: &mut [f64], variance: f64, place: u64) {
    let size = DEVIATION * variance.sqrt();
    let bits = mixed(place);
    for (at, lane) in lanes.iter_mut().enumerate() {
        *lane += if bits >> (8 * at) & 1 == 0 {
            size
        } else {
            -size
        };
    }
}
