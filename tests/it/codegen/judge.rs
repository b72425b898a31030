//! Compares results with the interpreter's, within tolerances.

use sweeper_compiler::graph::op::{Reduction, Unary};
use sweeper_compiler::nest::{Launch, Over, Value, ValueId};
use sweeper_program::{Tensors, check};

use super::harness::Case;
use super::interpret;

/// A sum over rows or over all may be off by this part of the sum of its terms' magnitudes, beyond
/// what other values may: where terms of both signs cancel, the sum itself is not a measure.
const CANCELLATION_TOLERANCE: f64 = 1e-6;

impl Case {
    /// The meaning of the nest for these inputs: the elements of each operand; for partials the
    /// first one has the total of all.
    pub(super) fn meaning(
        &self,
        prefix: &str,
        launch: &Launch,
        parts: usize,
        inputs: &Tensors,
    ) -> Vec<interpret::Elements> {
        let operands = 0..self.nest.operands.len();
        let mut expected: Vec<interpret::Elements> = operands
            .map(
                |at| match inputs.get(&format!("{prefix}{}", self.name(at))) {
                    Some(tensor) => check::elements(tensor).collect(),
                    None => vec![f64::NAN; self.steps(at, parts).3],
                },
            )
            .collect();
        let rows = 0..launch.extents.row_count() as usize;
        interpret::run(&self.nest, launch, rows, &mut expected);
        expected
    }

    /// The sums of the terms' magnitudes, for operands that have sums over rows or over all.
    fn magnitudes(
        &self,
        prefix: &str,
        launch: &Launch,
        parts: usize,
        inputs: &Tensors,
    ) -> Vec<Option<interpret::Elements>> {
        let mut case = self.clone();
        let mut are_sums = vec![false; self.nest.operands.len()];
        for store in &mut case.nest.stores {
            let values = &mut case.nest.values;
            let Value::Reduce {
                reduction: Reduction::Sum,
                over: over @ (Over::Rows | Over::All),
                of,
            } = values[store.value.0]
            else {
                continue;
            };
            are_sums[store.operand.0] = true;
            values.push(Value::Unary(Unary::Abs, of));
            values.push(Value::Reduce {
                reduction: Reduction::Sum,
                over,
                of: ValueId(values.len() - 1),
            });
            store.value = ValueId(values.len() - 1);
        }
        if !are_sums.contains(&true) {
            return vec![None; are_sums.len()];
        }
        let sums = case.meaning(prefix, launch, parts, inputs);
        let sums = sums.into_iter().zip(are_sums);
        sums.map(|(sums, is_sum)| is_sum.then_some(sums)).collect()
    }

    /// Compares the existing outputs with the meaning of the nest for these inputs.
    pub(super) fn judge(
        &self,
        prefix: &str,
        launch: &Launch,
        parts: usize,
        (inputs, outputs): (&Tensors, &Tensors),
        what: &dyn Fn() -> String,
    ) {
        let expected = self.meaning(prefix, launch, parts, inputs);
        let magnitudes = self.magnitudes(prefix, launch, parts, inputs);
        for store in &self.nest.stores {
            let at = store.operand.0;
            let Some(got) = outputs.get(&format!("{prefix}{}", self.name(at))) else {
                continue;
            };
            let got = self.joined(at, check::elements(got).collect(), parts);
            // Sums over rows and over all have thousands of terms; here many are equal, and
            // roundings add up.
            let tolerance = if self.nest.is_cross_block(store.value) {
                2e-5
            } else {
                4e-6
            };
            let scale = expected[at]
                .iter()
                .copied()
                .filter(|x| x.is_finite())
                .map(f64::abs)
                .sum::<f64>()
                / expected[at].len() as f64;
            for (place_of, (got, expected)) in got.iter().zip(&expected[at]).enumerate() {
                let allowed = tolerance * (expected.abs() + scale + 1.0)
                    + magnitudes[at]
                        .as_ref()
                        .map_or(0.0, |sums| CANCELLATION_TOLERANCE * sums[place_of]);
                let close = (got - expected).abs() <= allowed
                    || got == expected
                    || got.is_nan() && expected.is_nan();
                assert!(
                    close,
                    "operand {at}, element {place_of}: {got}, not {expected}\n{:?} {:?}\n{}",
                    self.extents,
                    self.nest,
                    what()
                );
            }
        }
    }

    /// Parts of an operand, reduced to one.
    fn joined(&self, operand: usize, got: Vec<f64>, parts: usize) -> Vec<f64> {
        if !self.is_part(operand) {
            return got;
        }
        let mut stores = self.nest.stores.iter();
        let store = stores.find(|store| store.operand.0 == operand).unwrap();
        let is_sum = matches!(
            self.nest.values[store.value.0],
            Value::Reduce {
                reduction: Reduction::Sum,
                ..
            }
        );
        let each = match self.nest.varies()[store.value.0].columns {
            true => self.extents.columns as usize,
            false => 1,
        };
        let mut joined = vec![f64::NAN; got.len()];
        for at in 0..each {
            let terms = (0..parts).map(|part| got[part * each + at]);
            joined[at] = match is_sum {
                true => terms.sum(),
                false => terms.fold(f64::NEG_INFINITY, f64::max),
            };
        }
        joined
    }
}
