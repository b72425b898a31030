//! Elements of declared inputs.

use rayon::prelude::*;
use sweeper_program::inputs::Stream;
use sweeper_program::{Data, Dtype, Element, with_element_type};

use super::declaration::Fill;
use super::reference::PIECE;
use super::scope;
use sweeper_model::expression::{Column, Expression, Precision, Scope};

/// A fill with its expression compiled.
#[derive(Debug)]
pub(super) enum Filler {
    Plain(Fill),
    Expression(Expression),
    Sorted(Box<Filler>),
}

impl Filler {
    /// # Errors
    /// A sentence: the text is from another version of the program.
    pub(super) fn new(fill: &Fill, scope: &Scope) -> Result<Self, String> {
        Ok(match fill {
            Fill::Expr(text) => Filler::Expression(scope::compile(text, scope)?),
            Fill::Sorted(inner) => Filler::Sorted(Box::new(Filler::new(inner, scope)?)),
            plain => Filler::Plain(plain.clone()),
        })
    }

    /// Whether elements are normal numbers: others may be all that a problem is defined for.
    pub(super) fn is_normal(&self) -> bool {
        matches!(self, Filler::Plain(Fill::Normal(..)))
    }

    /// The elements of a tensor with `len` elements in rows of `row`; `parameters` are the
    /// problem's, as numbers.
    pub(super) fn data(
        &self,
        stream: Stream,
        dtype: Dtype,
        len: usize,
        row: usize,
        parameters: &[f64],
    ) -> Data {
        // The generator's own types need no detour.
        match (self, dtype) {
            (Filler::Plain(Fill::Normal(mean, deviation)), Dtype::F32) if *mean == 0.0 => {
                return Data::F32(stream.normal(len, *deviation as f32));
            }
            (Filler::Plain(Fill::Integers(low, high)), Dtype::I64) => {
                return Data::I64(stream.integers(len, *low, *high));
            }
            _ => {}
        }
        let values = self.values(stream, len, row, parameters);
        with_element_type!(dtype, T => {
            Element::data(values.par_iter().map(|&value| T::from_f64(value)).collect::<Vec<T>>())
        })
    }

    fn values(&self, stream: Stream, len: usize, row: usize, parameters: &[f64]) -> Vec<f64> {
        match self {
            Filler::Plain(fill) => plain(fill, stream, len),
            Filler::Expression(expression) => {
                let mut elements = vec![0.0; len];
                let pieces = elements.par_chunks_mut(PIECE).enumerate();
                pieces.for_each(|(piece, chunk)| {
                    let first = piece * PIECE;
                    let indices = (first..first + chunk.len()).map(|index| index as f64);
                    let mut slots: Vec<_> = parameters.iter().copied().map(Column::One).collect();
                    slots.push(Column::Each(indices.collect()));
                    expression.elementwise(&slots, Precision::F64, chunk);
                });
                elements
            }
            Filler::Sorted(inner) => {
                let mut values = inner.values(stream, len, row, parameters);
                let rows = values.par_chunks_mut(row.max(1));
                rows.for_each(|row| row.sort_unstable_by(f64::total_cmp));
                values
            }
        }
    }
}

fn plain(fill: &Fill, stream: Stream, len: usize) -> Vec<f64> {
    let widened = |values: Vec<f32>, add: f64| -> Vec<f64> {
        values
            .into_par_iter()
            .map(|value| f64::from(value) + add)
            .collect()
    };
    match *fill {
        // Rounded to f32 first, so that all types of a tensor hold the same values.
        Fill::Normal(mean, deviation) => widened(stream.normal(len, deviation as f32), mean),
        Fill::Uniform(low, high) => widened(stream.uniform(len, low as f32, high as f32), 0.0),
        Fill::Integers(low, high) => {
            let values = stream.integers(len, low, high);
            values.into_par_iter().map(|value| value as f64).collect()
        }
        Fill::Constant(value) => vec![value; len],
        Fill::Arange(first, step) => {
            let value = |index: usize| first + step * index as f64;
            (0..len).into_par_iter().map(value).collect()
        }
        Fill::Permutation => permutation(stream, len),
        Fill::Choice(ref values) => {
            let chosen = stream.integers(len, 0, values.len() as i64 - 1);
            chosen
                .into_par_iter()
                .map(|at| values[at as usize])
                .collect()
        }
        Fill::Expr(_) | Fill::Sorted(_) => vec![f64::NAN; len],
    }
}

/// The numbers below `len` in an order of chance (Fisher and Yates).
fn permutation(stream: Stream, len: usize) -> Vec<f64> {
    let mut values: Vec<f64> = (0..len).map(|value| value as f64).collect();
    for at in (1..len).rev() {
        let [high, low, ..] = stream.block(at as u64);
        let random = u128::from(high) << 32 | u128::from(low);
        values.swap(at, ((random * (at as u128 + 1)) >> 64) as usize);
    }
    values
}
