//! The right answer by elementwise expressions, and its evaluations with rounding.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use rayon::prelude::*;
use sweeper_program::check::as_f64;
use sweeper_program::rounding::UNIT_ROUNDOFF;
use sweeper_program::workload::{ParameterInfo, TensorSpec};
use sweeper_program::{Dtype, Tensor, Tensors};

use super::scope;
use sweeper_model::expression::{Column, Expression, Format, Kind, Precision, Scope};

/// Evaluations with rounding, and those of an output of few elements.
const PROBES: u64 = 4;
const PROBES_OF_FEW: u64 = 16;
const FEW_ELEMENTS: u64 = 256;

/// Elements that a thread computes one operation after another: what an operation yields stays in
/// the first cache.
pub(super) const PIECE: usize = 1 << 10;

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
    values: Cow<'a, [f64]>,
    /// It has the output's shape.
    is_whole: bool,
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

    /// Outputs in evaluations with rounding, which a derived tolerance follows from: results of
    /// arithmetic in f32, or in f64 for tensors of that type, are rounded once more where a tensor
    /// has a shorter type.
    pub(super) fn probes(
        &self,
        output: &TensorSpec,
        parameters: &[f64],
        inputs: &[(&TensorSpec, &Tensor)],
    ) -> Vec<Vec<f64>> {
        let stored = Format::of_elements(output.dtype);
        let is_short = stored.unit > UNIT_ROUNDOFF;
        let format = match is_short {
            true => Format::of_elements(Dtype::F32),
            false => stored,
        };
        let few = output.elements() < FEW_ELEMENTS;
        let count = if few { PROBES_OF_FEW } else { PROBES };
        let probe = |probe| {
            let precision = Precision::Rounded { format, probe };
            let mut found = self.evaluate(output, parameters, inputs, precision)?;
            if is_short {
                let elements = found.par_iter_mut();
                elements.for_each(|element| *element = precision.stored(*element, stored));
            }
            Some(found)
        };
        (0..count).filter_map(probe).collect()
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
                is_whole: spec.shape == output.shape,
                strides: strides(&spec.shape, &output.shape).unwrap_or_default(),
            })
            .collect();
        let mut elements = vec![0.0; output.elements() as usize];
        let pieces = elements.par_chunks_mut(PIECE).enumerate();
        pieces.for_each(|(piece, chunk)| {
            let first = piece * PIECE;
            let elements = first..first + chunk.len();
            let mut slots: Vec<_> = parameters.iter().copied().map(Column::One).collect();
            let columns = operands.iter();
            slots.extend(columns.map(|it| it.column(elements.clone(), &output.shape)));
            expression.elementwise(&slots, precision, chunk);
        });
        Some(elements)
    }
}

impl Operand<'_> {
    /// What elements of an output read.
    fn column(&self, elements: Range<usize>, shape: &[usize]) -> Column<'_> {
        if self.is_whole
            && let Some(values) = self.values.get(elements.clone())
        {
            return Column::Each(Cow::Borrowed(values));
        }
        let values = elements.map(|index| self.at(index, shape));
        Column::Each(values.collect())
    }

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

/// The tensors of `specs` among `tensors`, in the order of `specs`.
pub(super) fn given<'a>(
    specs: &'a [TensorSpec],
    tensors: &'a Tensors,
) -> Vec<(&'a TensorSpec, &'a Tensor)> {
    let pair = |spec: &'a TensorSpec| Some((spec, tensors.get(&spec.name)?));
    specs.iter().filter_map(pair).collect()
}
