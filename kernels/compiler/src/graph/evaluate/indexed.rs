//! Operations by indices that are data: rows taken out, rows added up, one element of each row.

use super::array::Array;

/// An index that its tensor does not have, and where among the indices it is.
pub(super) struct Outside {
    pub(super) position: usize,
    pub(super) index: i64,
}

/// The indices as positions below `extent`.
fn checked(indices: &Array<i64>, extent: usize) -> Result<Vec<usize>, Outside> {
    let indices = indices.to_dense();
    let position = |(position, &index): (usize, &i64)| {
        usize::try_from(index)
            .ok()
            .filter(|&index| index < extent)
            .ok_or(Outside { position, index })
    };
    indices.iter().enumerate().map(position).collect()
}

/// Arrays one after another along a dimension of `shape`.
pub(super) fn concat<'a>(
    arrays: impl Iterator<Item = &'a Array<f64>>,
    shape: &[usize],
    dim: usize,
) -> Vec<f64> {
    let inner: usize = shape[dim + 1..].iter().product();
    let parts: Vec<_> = arrays
        .map(|array| (array.shape()[dim] * inner, array.to_dense()))
        .collect();
    let outer = shape[..dim].iter().product();
    let rows = (0..outer).flat_map(|row: usize| {
        let parts = parts.iter();
        parts.flat_map(move |(len, elements)| &elements[row * len..(row + 1) * len])
    });
    rows.copied().collect()
}

/// `rows[indices]` of `rows` (V, ..).
pub(super) fn gather(rows: &Array<f64>, indices: &Array<i64>) -> Result<Vec<f64>, Outside> {
    let width: usize = rows.shape()[1..].iter().product();
    let indices = checked(indices, rows.shape()[0])?;
    let rows = rows.to_dense();
    let row = |index: usize| &rows[index * width..(index + 1) * width];
    Ok(indices.into_iter().flat_map(row).copied().collect())
}

/// `x[.., indices]` of `x` (.., N).
pub(super) fn pick(x: &Array<f64>, indices: &Array<i64>) -> Result<Vec<f64>, Outside> {
    let columns = x.shape().last().copied().unwrap_or(1);
    let indices = checked(indices, columns)?;
    let rows = indices.into_iter().enumerate();
    Ok(rows.map(|(row, index)| x.at(x.row(row), index)).collect())
}

/// Rows of `values` added up by their indices, into `shape` (V, ..).
pub(super) fn scatter_add(
    values: &Array<f64>,
    indices: &Array<i64>,
    shape: &[usize],
) -> Result<Vec<f64>, Outside> {
    let width: usize = shape[1..].iter().product();
    let indices = checked(indices, shape[0])?;
    let mut sums = vec![0.0; shape.iter().product()];
    let values = values.to_dense();
    for (index, values) in indices.into_iter().zip(values.chunks_exact(width)) {
        let row = &mut sums[index * width..(index + 1) * width];
        for (sum, value) in row.iter_mut().zip(values) {
            *sum += value;
        }
    }
    Ok(sums)
}

/// `x` in a tensor of zeros of `shape`: index `i` of `dim` goes to `start + i step`.
pub(super) fn unslice(
    x: &Array<f64>,
    shape: &[usize],
    dim: usize,
    start: usize,
    step: usize,
) -> Vec<f64> {
    let width: usize = shape[dim + 1..].iter().product();
    let (own, extent) = (x.shape()[dim], shape[dim]);
    let mut out = vec![0.0; shape.iter().product()];
    for (at, values) in x.to_dense().chunks_exact(width).enumerate() {
        let to = at / own * extent + start + at % own * step;
        out[to * width..(to + 1) * width].copy_from_slice(values);
    }
    out
}
