//! Judging outputs: values and gradients within tolerance, and a best segmentation by its score.
//!
//! Tolerances are for f32 against f64, where half a unit in the last place is `u = 2^-24`:
//!
//! * A value is a sum of T steps that are kept apart from their growing offset, and rounded as a
//!   whole when it is stored: by up to `u`. Three earlier roundings of this size (the offset, and
//!   its summands) are independent of it. The tolerance of 4e-7 is `6.7 u`, relative to the value
//!   or to the greatest score if that is larger. At a value of 2000 it is 8e-4: a missing segment
//!   shows in the value if one in 1250 of the preferred sequences has it. Rarer segments show in
//!   the gradient alone.
//! * Scores are rounded in f32 before any arithmetic: by half a unit in the last place of the
//!   greatest score. An entropy takes on such errors one to one, five of up to twice a score for
//!   each term: 6e-7 for each unit of the greatest score, beside 2e-6, since it is a difference of
//!   sums that are larger than it.
//! * A gradient holds products of up to T steps. Each is off by a few `u` of scores of a few units,
//!   and roundings are as good as independent, so that errors grow as `sqrt(T)`: 2e-5 in relative
//!   L2 at T = 1024 and below, where gradients of cumulative scores cancel most, and 6e-5 at 10^4;
//!   and 3.6e-7 for each unit of the greatest score. Gradients of an entropy are differences of
//!   products with the entropies before and after a segment, and their errors are five times as
//!   large.

use rayon::prelude::*;

use super::sizes::{Semiring, Sizes};
use sweeper_program::check::{self, Check, Metric, TensorCheck};
use sweeper_program::tensor::{Data, Tensor, Tensors};
use sweeper_program::workload::{Phase, TensorSpec};

mod best;

/// Greatest relative error of values.
const VALUE_TOLERANCE: f64 = 4e-7;

/// Tolerance of a value in the entropy semiring, where 5.1e-7 was seen: a logarithm that is needed
/// again for the entropy is rounded more often.
const ENTROPY_VALUE_TOLERANCE: f64 = 8e-7;

/// Greatest relative error of entropies, beside the rounding of scores.
const ENTROPY_TOLERANCE: f64 = 2e-6;

/// Error of a term of an entropy, in half units in the last place of the greatest score: five
/// roundings (a difference of cumulative scores, bias, transition, the state, and its offset) of up
/// to twice the score.
const ENTROPY_TERM_ROUNDINGS: f64 = 10.0;

/// Error of a term of an entropy's gradient, in which the segments of a sequence share the
/// roundings.
const GRADIENT_TERM_ROUNDINGS: f64 = 6.0;

/// Greatest relative L2 error of gradients of sequences of up to `t` positions, where rounding
/// moves scores by `rounding`.
fn gradient_tolerance(semiring: Semiring, t: usize, rounding: f64) -> f64 {
    let growth = (t as f64 / 1024.0).max(1.0).sqrt();
    let of_log = 2e-5 * growth + GRADIENT_TERM_ROUNDINGS * rounding;
    match semiring {
        Semiring::Entropy => 5.0 * of_log,
        Semiring::Log | Semiring::Max => of_log,
    }
}

/// Judges every output of `phase`. Gradients of the best score pass if they are the indicator of
/// any one legal segmentation for each sequence whose score is right.
pub fn check(
    sizes: &Sizes,
    inputs: &Tensors,
    outputs: &Tensors,
    expected: &Tensors,
    phase: Phase,
) -> Check {
    let gradients = sizes.score_specs("grad_");
    let greatest = greatest_score(sizes, inputs);
    let rounding = HALF_UNIT * greatest;
    let mut best = None;
    let tensors = sizes
        .outputs(phase)
        .into_iter()
        .map(|spec| {
            let is_gradient = gradients.contains(&spec);
            if is_gradient && sizes.semiring == Semiring::Max {
                let error = *best.get_or_insert_with(|| {
                    if all_present(outputs, &gradients) {
                        best::error(sizes, inputs, outputs, expected)
                    } else {
                        f64::INFINITY
                    }
                });
                return TensorCheck {
                    tensor: spec.name,
                    metric: Metric::Custom,
                    error,
                    tolerance: VALUE_TOLERANCE,
                };
            }
            if spec.name == "entropy" {
                return entropy_check(outputs, expected, rounding);
            }
            if !is_gradient {
                return value_check(sizes.semiring, outputs, expected, greatest);
            }
            let tolerance = gradient_tolerance(sizes.semiring, sizes.t, rounding);
            let (out, expected) = (outputs.get(&spec.name), &expected[&spec.name]);
            check::compare(&spec.name, out, expected, Metric::RelativeL2, tolerance)
        })
        .collect();
    Check { tensors }
}

/// Half a unit in the last place of 1.
const HALF_UNIT: f64 = f32::EPSILON as f64 / 2.0;

/// The greatest score that does not mean a forbidden edge.
fn greatest_score(sizes: &Sizes, inputs: &Tensors) -> f64 {
    let scores = sizes.score_specs("");
    let scores = scores
        .iter()
        .map(|spec| greatest_allowed(&inputs[&spec.name]));
    scores.fold(0.0, f64::max)
}

/// Values relative to the greatest score where that is more: a value may be small because large
/// scores cancel in it.
fn value_check(
    semiring: Semiring,
    outputs: &Tensors,
    expected: &Tensors,
    greatest: f64,
) -> TensorCheck {
    let scale = greatest.max(1.0);
    let scaled = |tensor: &Tensor| {
        let values = check::as_f64(tensor);
        Tensor::f64(tensor.shape(), values.iter().map(|x| x / scale).collect())
    };
    let out = outputs.get("value").map(scaled);
    let expected = scaled(&expected["value"]);
    let tolerance = match semiring {
        Semiring::Entropy => ENTROPY_VALUE_TOLERANCE,
        Semiring::Log | Semiring::Max => VALUE_TOLERANCE,
    };
    let metric = Metric::MaxRelative;
    check::compare("value", out.as_ref(), &expected, metric, tolerance)
}

/// Entropies move with the scores: terms that are off by d each make an entropy wrong by the
/// covariance of d and log p over segmentations, which is about d for each nat of entropy where d
/// is independent from term to term.
fn entropy_check(outputs: &Tensors, expected: &Tensors, rounding: f64) -> TensorCheck {
    check::compare(
        "entropy",
        outputs.get("entropy"),
        &expected["entropy"],
        Metric::MaxRelative,
        ENTROPY_TOLERANCE + ENTROPY_TERM_ROUNDINGS * rounding,
    )
}

/// The greatest size of a score that does not stand for a forbidden transition. Read without a
/// copy: there may be gigabytes.
fn greatest_allowed(scores: &Tensor) -> f64 {
    let greatest = |sizes: &mut dyn Iterator<Item = f64>| {
        let allowed = sizes.filter(|&size| size < FORBIDDEN);
        allowed.fold(0.0, f64::max)
    };
    match scores.data() {
        Data::F32(values) => values
            .par_chunks(PIECE)
            .map(|piece| greatest(&mut piece.iter().map(|score| f64::from(score.abs()))))
            .reduce(|| 0.0, f64::max),
        _ => greatest(&mut check::elements(scores).map(f64::abs)),
    }
}

/// Scores that one task looks at.
const PIECE: usize = 1 << 16;

/// Scores beyond this stand for forbidden transitions, written as -1e9.
const FORBIDDEN: f64 = 1e8;

fn all_present(outputs: &Tensors, specs: &[TensorSpec]) -> bool {
    specs.iter().all(|spec| {
        outputs
            .get(&spec.name)
            .is_some_and(|tensor| tensor.shape() == spec.shape)
    })
}

#[cfg(test)]
mod tests;
