//! Judging outputs: values and gradients within tolerance, and a best segmentation by its score.
//!
//! Tolerances are for f32 against f64. A value is a sum of T rounded steps, each off by about half a
//! unit in the last place, that are kept apart from their growing offset: 2e-6 relative. A gradient
//! holds products of up to T such steps: 1e-4 in relative L2 up to T = 1024, growing with T to 1e-3.

use super::sizes::{Semiring, Sizes};
use crate::check::{self, Check, Metric, TensorCheck};
use crate::tensor::{Tensor, Tensors};
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

/// Entropies are differences of log Z and a mean score: a log weight that is rounded at the size of
/// the scores moves them by as much. So the error is taken relative to the greatest score too.
fn entropy_check(
    sizes: &Sizes,
    inputs: &Tensors,
    outputs: &Tensors,
    expected: &Tensors,
) -> TensorCheck {
    let scores = sizes.score_specs("");
    let greatest = scores
        .iter()
        .flat_map(|spec| check::elements(&inputs[&spec.name]))
        .map(f64::abs)
        .filter(|&score| score < FORBIDDEN)
        .fold(1.0, f64::max);
    let scale = |entropies: &Tensor| {
        let values = check::elements(entropies).map(|entropy| entropy / greatest);
        Tensor::f64(entropies.shape().to_vec(), values.collect())
    };
    // The metric's denominator is at least 1: of the scaled values, at least the greatest score.
    let out = outputs.get("entropy").map(scale);
    let expected = scale(&expected["entropy"]);
    check::compare(
        "entropy",
        out.as_ref(),
        &expected,
        Metric::MaxRelative,
        VALUE_TOLERANCE,
    )
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
