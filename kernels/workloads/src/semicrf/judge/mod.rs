//! Judging outputs: values and gradients by their spreads, and a best segmentation by its score.
//!
//! The oracle gives the spread of each output with its answer: what rounding does in a plain
//! program in f32 (`oracle/noise.rs`). Values are sums along a chain of segments, whose roundings
//! grow with the value, so that those of a sequence share one error. A gradient of the best score
//! need not be the oracle's: it is right if it marks a legal segmentation whose score is as good as
//! the best one, but for what rounding does to two values.

use super::sizes::{Semiring, Sizes};
use sweeper_program::check::{Check, Metric, TensorCheck};
use sweeper_program::spread::{self, Spread, line, name_of};
use sweeper_program::tensor::Tensors;
use sweeper_program::workload::{Phase, TensorSpec};

mod best;

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
    let mut best = None;
    let tensors = sizes.outputs(phase).into_iter().map(|spec| {
        if sizes.semiring == Semiring::Max && gradients.contains(&spec) {
            let (error, tolerance) =
                *best.get_or_insert_with(|| match all_present(outputs, &gradients) {
                    true => best::error(sizes, inputs, outputs, expected),
                    false => (f64::INFINITY, 0.0),
                });
            return TensorCheck {
                tensor: spec.name,
                metric: Metric::Custom,
                error,
                tolerance,
                spreads: None,
                notices: None,
                is_inexact: false,
            };
        }
        spread::judge(&spec.name, outputs.get(&spec.name), expected)
    });
    Check {
        tensors: tensors.collect(),
    }
}

/// How far the score of a marked segmentation may be from the best one's: a program compares two
/// sums, each of which is off as values are.
fn tolerance_of_scores(sizes: &Sizes, expected: &Tensors) -> f64 {
    let spread = expected.get(&name_of("value"));
    let spread = spread.and_then(|spread| Spread::from_tensor(&[sizes.b], spread));
    spread.map_or(0.0, |spread| {
        let noise = spread.whole;
        2.0 * line(noise.freedom, spread.probes, 1) * noise.mean_square.sqrt()
    })
}

fn all_present(outputs: &Tensors, specs: &[TensorSpec]) -> bool {
    specs.iter().all(|spec| {
        outputs
            .get(&spec.name)
            .is_some_and(|tensor| tensor.shape() == spec.shape)
    })
}

#[cfg(test)]
mod tests;
