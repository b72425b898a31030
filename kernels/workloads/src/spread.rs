//! How far results may be from answers: so many *spreads* of them, each being the L2 norm of what
//! rounding to f32 does to an answer's elements. A result is judged by its relative L2 error.

use rayon::prelude::*;

use sweeper_program::check::{self, Check, Metric};
use sweeper_program::tensor::Tensors;
use sweeper_program::workload::TensorSpec;

/// The name of an answer's spread among the answers.
pub(crate) fn spread_of(name: &str) -> String {
    format!("spread of {name}")
}

/// The L2 norm, the same whatever the number of threads.
pub(crate) fn norm(values: &[f64]) -> f64 {
    let pieces: Vec<f64> = values
        .par_chunks(1 << 14)
        .map(|piece| piece.iter().map(|value| value * value).sum())
        .collect();
    pieces.iter().sum::<f64>().sqrt()
}

/// Judges the outputs that `specs` lists: they may be `margin` spreads out, and at least `least` of
/// an answer's norm.
pub(crate) fn check(
    outputs: &Tensors,
    expected: &Tensors,
    specs: &[TensorSpec],
    margin: f64,
    least: f64,
) -> Check {
    let judge = |spec: &TensorSpec| {
        let answer = &expected[&spec.name];
        let norm = norm(&check::as_f64(answer));
        let spread = check::as_f64(&expected[&spread_of(&spec.name)])[0];
        let scale = if norm > 0.0 { norm } else { 1.0 };
        let tolerance = (margin * spread / scale).max(least);
        let out = outputs.get(&spec.name);
        check::compare(&spec.name, out, answer, Metric::RelativeL2, tolerance)
    };
    Check {
        tensors: specs.iter().map(judge).collect(),
    }
}
