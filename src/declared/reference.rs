//! The right answer by elementwise expressions, and tolerances that follow from them.

use std::collections::BTreeMap;

use rayon::prelude::*;
use sweeper_program::check::as_f64;
use sweeper_program::workload::{ParameterInfo, TensorSpec};
use sweeper_program::{Dtype, Element, Tensor, Tensors, with_element_type};

use super::scope;
use crate::expression::{Expression, Kind, Precision, Scope};

/// Elements that a thread computes one after another.
const PIECE: usize = 1 << 14;

/// The names of a reference expression: parameters, then inputs.
pub(crate) fn reference_scope<'a>(
    parameters: &[ParameterInfo],
    inputs: impl IntoIterator<Item = &'a str>,
) -> Scope {
    let mut scope = scope::problem_scope(parameters);
    let inputs = inputs.into_iter();
    scope
        .names
        .extend(inputs.map(|name| scope::number(name, Kind::Float)));
    scope
}

/// Elementwise expressions of outputs, by name.
#[derive(Debug)]
pub(super) struct Elementwise {
    expressions: BTreeMap<String, Expression>,
    /// Parameters, then inputs.
    scope: Scope,
}

/// An input as an output's elements read it.
struct Operand<'a> {
    values: std::borrow::Cow<'a, [f64]>,
    /// Distance of neighbours along each axis of the output; 0 where the input is broadcast.
    strides: Vec<usize>,
}

impl Elementwise {
    /// # Errors
    /// A sentence: the text is from another version of the program.
    pub(super) fn new(texts: &BTreeMap<String, String>, scope: &Scope) -> Result<Self, String> {
        let compiled = texts.iter().map(|(name, text)| {
            let expression = scope::compile(text, scope)?;
            Ok((name.clone(), expression))
        });
        Ok(Elementwise {
            expressions: compiled.collect::<Result<_, String>>()?,
            scope: scope.clone(),
        })
    }

    /// Whether the expression of an output reads an input.
    pub(super) fn reads(&self, output: &str, input: &str) -> bool {
        let slot = self.scope.find(input).map(|(slot, _)| slot);
        let expression = self.expressions.get(output);
        expression
            .zip(slot)
            .is_some_and(|(it, slot)| it.slots().contains(&slot))
    }

    /// Operations of all `outputs`.
    pub(super) fn operations(&self, outputs: &[TensorSpec]) -> f64 {
        let operations = |spec: &TensorSpec| {
            let expression = self.expressions.get(&spec.name);
            expression.map_or(0.0, |it| it.operations() as f64 * spec.elements() as f64)
        };
        outputs.iter().map(operations).sum()
    }

    /// The elements of an output; none where there is no expression for it.
    pub(super) fn evaluate(
        &self,
        output: &TensorSpec,
        parameters: &[f64],
        inputs: &[(&TensorSpec, &Tensor)],
        precision: Precision,
    ) -> Option<Vec<f64>> {
        let expression = self.expressions.get(&output.name)?;
        let operands: Vec<Operand<'_>> = inputs
            .iter()
            .map(|(spec, tensor)| Operand {
                values: as_f64(tensor),
                strides: strides(&spec.shape, &output.shape).unwrap_or_default(),
            })
            .collect();
        let mut elements = vec![0.0; output.elements() as usize];
        let pieces = elements.par_chunks_mut(PIECE).enumerate();
        pieces.for_each(|(piece, chunk)| {
            let mut slots = parameters.to_vec();
            slots.resize(parameters.len() + operands.len(), 0.0);
            for (offset, element) in chunk.iter_mut().enumerate() {
                let index = piece * PIECE + offset;
                for (slot, operand) in slots[parameters.len()..].iter_mut().zip(&operands) {
                    *slot = operand.at(index, &output.shape);
                }
                *element = expression.elementwise(&slots, precision);
            }
        });
        Some(elements)
    }
}

impl Operand<'_> {
    fn at(&self, mut index: usize, shape: &[usize]) -> f64 {
        let mut position = 0;
        for (&extent, &stride) in shape.iter().zip(&self.strides).rev() {
            position += index % extent * stride;
            index /= extent;
        }
        self.values.get(position).copied().unwrap_or(f64::NAN)
    }
}

/// Distances of an input's neighbours along the axes of an output, where the input's shape
/// broadcasts to it: axes are aligned at the last, and extents are equal or 1.
pub(super) fn strides(input: &[usize], output: &[usize]) -> Option<Vec<usize>> {
    let missing = output.len().checked_sub(input.len())?;
    let mut strides = vec![0; output.len()];
    let mut stride = 1;
    for (at, &extent) in input.iter().enumerate().rev() {
        if extent == output[missing + at] {
            strides[missing + at] = stride;
        } else if extent != 1 {
            return None;
        }
        stride *= extent;
    }
    Some(strides)
}

/// The tolerance of the relative L2 norm of an output: four times the error of the same
/// expressions in f32, rounded once to `dtype`, or four unit roundoffs of `dtype` where that is
/// more.
pub(super) fn derived_tolerance(dtype: Dtype, exact: &[f64], in_f32: &[f64]) -> f64 {
    let rounded = |value: f64| with_element_type!(dtype, T => T::from_f64(value).to_f64());
    let (mut error, mut scale) = (0.0, 0.0);
    for (&exact, &value) in exact.iter().zip(in_f32) {
        if exact.is_finite() {
            error += (rounded(value) - exact).powi(2);
            scale += exact * exact;
        }
    }
    let relative = match scale {
        0.0 => f64::sqrt(error),
        scale => f64::sqrt(error / scale),
    };
    4.0 * f64::max(relative, dtype.unit_roundoff())
}

/// The tensors of `specs` among `tensors`, in the order of `specs`.
pub(super) fn given<'a>(
    specs: &'a [TensorSpec],
    tensors: &'a Tensors,
) -> Vec<(&'a TensorSpec, &'a Tensor)> {
    let pair = |spec: &'a TensorSpec| Some((spec, tensors.get(&spec.name)?));
    specs.iter().filter_map(pair).collect()
}
