//! Sums and greatest elements over dimensions.

use rayon::prelude::*;

use super::array::Array;
use crate::graph::op::Reduction;

/// Results along the last dimension that are found together, where it is kept.
const COLUMNS: usize = 512;

fn start(reduction: Reduction) -> f64 {
    match reduction {
        Reduction::Sum => 0.0,
        Reduction::Max => f64::NEG_INFINITY,
    }
}

/// The greatest of some numbers is not a number if one of them is not.
fn combine(reduction: Reduction, one: f64, other: f64) -> f64 {
    match reduction {
        Reduction::Sum => one + other,
        Reduction::Max if other > one || other.is_nan() => other,
        Reduction::Max => one,
    }
}

/// `x` reduced over `dims`, row-major.
pub(super) fn reduce(reduction: Reduction, x: Array<f64>, dims: &[usize]) -> Vec<f64> {
    let rank = x.shape().len();
    let is_kept = |dim: &usize| !dims.contains(dim);
    let mut order: Vec<usize> = (0..rank).filter(is_kept).collect();
    let kept: usize = order.iter().map(|&dim| x.shape()[dim]).product();
    let many: usize = dims.iter().map(|&dim| x.shape()[dim]).product();
    let is_last_kept = rank > 0 && is_kept(&(rank - 1));
    if !is_last_kept {
        order.extend(dims);
        let x = x.transpose(&order);
        return lanes(reduction, &x, kept, many);
    }
    // The last dimension stays the last, so that neighbours are read together.
    order.pop();
    let outer = kept / x.shape()[rank - 1];
    order.extend(dims);
    order.push(rank - 1);
    columns(reduction, &x.transpose(&order), outer, many)
}

/// Each result reduces `many` consecutive elements of a row.
fn lanes(reduction: Reduction, x: &Array<f64>, kept: usize, many: usize) -> Vec<f64> {
    let columns = x.shape().last().copied().unwrap_or(1);
    let rows = many / columns;
    let result = |out: usize| {
        let mut value = start(reduction);
        for row in 0..rows {
            let start = x.row(out * rows + row);
            for along in 0..columns {
                value = combine(reduction, value, x.at(start, along));
            }
        }
        value
    };
    (0..kept).into_par_iter().map(result).collect()
}

/// Each result reduces elements below each other: of `many` rows, in each of `outer` blocks of
/// rows.
fn columns(reduction: Reduction, x: &Array<f64>, outer: usize, many: usize) -> Vec<f64> {
    let width = x.shape().last().copied().unwrap_or(1);
    let mut out = vec![start(reduction); outer * width];
    let blocks = out.par_chunks_mut(width).enumerate();
    blocks.for_each(|(block, out)| {
        let pieces = out.par_chunks_mut(COLUMNS).enumerate();
        pieces.for_each(|(piece, out)| {
            for row in block * many..(block + 1) * many {
                let start = x.row(row);
                for (at, out) in out.iter_mut().enumerate() {
                    let value = x.at(start, piece * COLUMNS + at);
                    *out = combine(reduction, *out, value);
                }
            }
        });
    });
    out
}
