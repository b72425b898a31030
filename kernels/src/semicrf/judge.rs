//! Judging outputs: values and gradients within tolerance, and a best segmentation by its score.
//!
//! Tolerances are for f32 against f64. A value is a sum of T rounded steps, each off by about half a
//! unit in the last place, that are kept apart from their growing offset: 2e-6 relative. An entropy is
//! allowed the rounding of scores as large as they are given, too. A gradient holds products of up to T such steps: 1e-4 in relative L2 up to T = 1024, growing with T to 1e-3.

use rayon::prelude::*;

use super::sizes::{Semiring, Sizes};
use crate::check::{self, Check, Metric, TensorCheck};
use crate::tensor::Tensors;
use crate::workload::{Phase, TensorSpec};

mod best;

/// Greatest relative error of values and entropies.
pub const VALUE_TOLERANCE: f64 = 2e-6;

/// Greatest relative L2 error of gradients.
pub fn gradient_tolerance(t: usize) -> f64 {
    (1e-4 * t as f64 / 1024.0).clamp(1e-4, 1e-3)
}

/// Judges every output of `phase`. Gradients of the best score pass if they are the indicator of one
/// legal segmentation a sequence whose score is right, whichever it is.
pub fn check(
    sizes: &Sizes,
    inputs: &Tensors,
    outputs: &Tensors,
    expected: &Tensors,
    phase: Phase,
) -> Check {
    let gradients = sizes.score_specs("grad_");
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
                return entropy_check(sizes, inputs, outputs, expected);
            }
            let (metric, tolerance) = if is_gradient {
                (Metric::RelativeL2, gradient_tolerance(sizes.t))
            } else {
                (Metric::MaxRelative, VALUE_TOLERANCE)
            };
            let (out, expected) = (outputs.get(&spec.name), &expected[&spec.name]);
            check::compare(&spec.name, out, expected, metric, tolerance)
        })
        .collect();
    Check { tensors }
}

/// How many times a term of a sum is rounded on its way from scores, each time by up to half a unit in the
/// last place of twice the greatest score: a difference of cumulative scores, bias, transition, the
/// state, and what it is relative to.
const TERM_ROUNDINGS: f64 = 5.0;

/// Entropies move with the scores: terms that are off by d each make an entropy wrong by the covariance of
/// d and log p over segmentations, which is about d for each nat of entropy where d is independent from
/// term to term. Scores of size G are rounded in f32 by up to G / 2^24, whatever is done with them after, so
/// that much is allowed per rounding, beyond the tolerance of values.
fn entropy_check(
    sizes: &Sizes,
    inputs: &Tensors,
    outputs: &Tensors,
    expected: &Tensors,
) -> TensorCheck {
    let scores = sizes.score_specs("");
    let greatest = scores
        .iter()
        .map(|spec| greatest_allowed(&check::as_f64(&inputs[&spec.name])))
        .fold(0.0, f64::max);
    let half_unit = f64::from(f32::EPSILON) / 2.0;
    check::compare(
        "entropy",
        outputs.get("entropy"),
        &expected["entropy"],
        Metric::MaxRelative,
        VALUE_TOLERANCE + TERM_ROUNDINGS * half_unit * 2.0 * greatest,
    )
}

/// The greatest size of a score that does not stand for what is forbidden.
fn greatest_allowed(scores: &[f64]) -> f64 {
    let sizes = scores.par_iter().map(|score| score.abs());
    sizes
        .filter(|&size| size < FORBIDDEN)
        .reduce(|| 0.0, f64::max)
}

/// Scores beyond this stand for what is forbidden, written as -1e9.
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
