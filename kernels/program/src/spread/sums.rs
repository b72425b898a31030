//! Sums over all elements of a tensor and over each slice along each axis, in an order that does
//! not depend on the number of threads.

use rayon::prelude::*;

use super::is_sliced;

/// Pieces that are summed in parallel, at most: each has a sum for each slice.
const PIECES: usize = 32;

/// Elements of a piece, at least.
const PIECE: usize = 1 << 14;

/// Sums of a number that each element of a tensor has.
#[derive(Clone, Debug, PartialEq)]
pub struct SliceSums {
    /// Number of elements.
    pub elements: usize,
    /// Over all of them.
    pub whole: f64,
    /// Over the slices along each axis that [`is_sliced`], in order.
    pub axes: Vec<Vec<f64>>,
}

impl SliceSums {
    /// Of a tensor of this shape without any elements added yet.
    pub fn zero(shape: &[usize]) -> Self {
        let elements = shape.iter().product();
        let sliced = shape.iter().filter(|extent| is_sliced(**extent, elements));
        SliceSums {
            elements,
            whole: 0.0,
            axes: sliced.map(|&extent| vec![0.0; extent]).collect(),
        }
    }

    /// The sums of `number`, a function of an element's place in row-major order.
    pub fn from_elements(shape: &[usize], number: impl Fn(usize) -> f64 + Sync) -> Self {
        let columns = shape.last().copied().unwrap_or(1);
        let elements: usize = shape.iter().product();
        let mut sums = SliceSums::zero(shape);
        if elements == 0 {
            return sums;
        }
        // A long last axis is cut, too: a tensor may be a single row.
        let cut = columns.min(PIECE);
        let parts = columns.div_ceil(cut);
        let units = elements / columns * parts;
        let in_piece = units.div_ceil(PIECES).max(PIECE.div_ceil(cut));
        let pieces: Vec<SliceSums> = (0..units.div_ceil(in_piece))
            .into_par_iter()
            .map(|piece| {
                let mut sums = SliceSums::zero(shape);
                for unit in piece * in_piece..((piece + 1) * in_piece).min(units) {
                    let first = unit % parts * cut;
                    let columns = first..(first + cut).min(columns);
                    sums.add_part(shape, unit / parts, columns, &number);
                }
                sums
            })
            .collect();
        for piece in &pieces {
            sums.add(piece);
        }
        sums
    }

    /// Adds the elements of some columns of a row.
    fn add_part(
        &mut self,
        shape: &[usize],
        row: usize,
        columns: std::ops::Range<usize>,
        number: &impl Fn(usize) -> f64,
    ) {
        let extent = shape.last().copied().unwrap_or(1);
        let last_is_sliced = !shape.is_empty() && is_sliced(extent, self.elements);
        let mut total = 0.0;
        match self.axes.last_mut().filter(|_| last_is_sliced) {
            Some(sums) => {
                let places = row * extent + columns.start..;
                for (sum, at) in sums[columns].iter_mut().zip(places) {
                    let value = number(at);
                    *sum += value;
                    total += value;
                }
            }
            None => {
                let values = columns.map(|column| number(row * extent + column));
                total += values.sum::<f64>();
            }
        }
        self.whole += total;
        self.add_to_outer(shape, row, total, last_is_sliced);
    }

    /// Adds the sum over a row, or a part of one, to the slices that it lies in.
    fn add_to_outer(&mut self, shape: &[usize], mut row: usize, total: f64, last_is_sliced: bool) {
        let outer = &shape[..shape.len().saturating_sub(1)];
        let mut axis = self.axes.len() - usize::from(last_is_sliced);
        for &extent in outer.iter().rev() {
            let index = row % extent;
            row /= extent;
            if is_sliced(extent, self.elements) {
                axis -= 1;
                self.axes[axis][index] += total;
            }
        }
    }

    /// Sums of the same tensor, taken from the front of `rest`; none if there are too few.
    pub(super) fn filled_from(&self, rest: &mut &[f64]) -> Option<Self> {
        let whole = *rest.split_off_first()?;
        let axes = self
            .axes
            .iter()
            .map(|sums| Some(rest.split_off(..sums.len())?.to_vec()));
        Some(SliceSums {
            whole,
            axes: axes.collect::<Option<_>>()?,
            elements: self.elements,
        })
    }

    /// Adds the sums over other elements.
    pub fn add(&mut self, other: &SliceSums) {
        self.whole += other.whole;
        for (sums, others) in self.axes.iter_mut().zip(&other.axes) {
            for (sum, other) in sums.iter_mut().zip(others) {
                *sum += other;
            }
        }
    }
}
