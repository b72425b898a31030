//! Judging all outputs of a phase by their answers and the answers' spreads.

use sweeper_program::check::Check;
use sweeper_program::spread;
use sweeper_program::tensor::Tensors;
use sweeper_program::workload::TensorSpec;

/// Judges the outputs that `specs` lists.
pub(crate) fn check(outputs: &Tensors, expected: &Tensors, specs: &[TensorSpec]) -> Check {
    let judge = |spec: &TensorSpec| spread::judge(&spec.name, outputs.get(&spec.name), expected);
    Check {
        tensors: specs.iter().map(judge).collect(),
    }
}
