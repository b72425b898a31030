//! Products of matrices in f64: tiles of the result in registers, the second matrix packed once.

use rayon::prelude::*;

use super::array::Array;
use sweeper_program::vectorised;

/// Rows and columns of a tile.
const ROWS: usize = 4;
const COLUMNS: usize = 8;

/// Rows of the result that one task computes.
const BLOCK: usize = 32;

/// `a` (.., M, K) times `b` (.., K, N), leading extents being equal: (.., M, N), row-major.
pub(super) fn matmul(a: &Array<f64>, b: &Array<f64>) -> Vec<f64> {
    let (a_shape, b_shape) = (a.shape(), b.shape());
    let rank = a_shape.len();
    let (m, k, n) = (a_shape[rank - 2], a_shape[rank - 1], b_shape[rank - 1]);
    let (a, b) = (a.to_dense(), b.to_dense());
    let mut out = vec![0.0; a_shape[..rank - 2].iter().product::<usize>() * m * n];
    let products = out
        .par_chunks_mut(m * n)
        .zip(a.par_chunks(m * k).zip(b.par_chunks(k * n)));
    products.for_each(|(out, (a, b))| product(a, b, [k, n], out));
    out
}

/// `a` (M, K) times `b` (K, N), to `out` (M, N).
pub(super) fn product(a: &[f64], b: &[f64], [k, n]: [usize; 2], out: &mut [f64]) {
    let packed = pack(b, k, n);
    let blocks = out.par_chunks_mut(BLOCK * n).zip(a.par_chunks(BLOCK * k));
    blocks.for_each(|(out, a)| block(a, &packed, out, k, n));
}

/// The columns of `b` (k, n) in panels of [`COLUMNS`], each (k, COLUMNS), the last filled up with
/// zeros.
fn pack(b: &[f64], k: usize, n: usize) -> Vec<[f64; COLUMNS]> {
    let mut packed = vec![[0.0; COLUMNS]; n.div_ceil(COLUMNS) * k];
    for (row, b) in b.chunks_exact(n).enumerate() {
        for (panel, b) in b.chunks(COLUMNS).enumerate() {
            packed[panel * k + row][..b.len()].copy_from_slice(b);
        }
    }
    packed
}

/// Some rows of `a` times all panels.
fn block(a: &[f64], packed: &[[f64; COLUMNS]], out: &mut [f64], k: usize, n: usize) {
    let rows = out.len() / n;
    for (panel, b) in packed.chunks_exact(k).enumerate() {
        let first = panel * COLUMNS;
        let width = COLUMNS.min(n - first);
        for row in (0..rows).step_by(ROWS) {
            // The last rows are computed again where a tile would reach beyond them.
            let row_of = |at: usize| (row + at).min(rows - 1);
            let lanes: [&[f64]; ROWS] =
                std::array::from_fn(|at| &a[row_of(at) * k..(row_of(at) + 1) * k]);
            let sums = tile(lanes, b);
            for (at, sums) in sums.iter().enumerate() {
                let start = row_of(at) * n + first;
                out[start..start + width].copy_from_slice(&sums[..width]);
            }
        }
    }
}

/// Inner products of rows with the columns of a panel.
fn tile(a: [&[f64]; ROWS], b: &[[f64; COLUMNS]]) -> [[f64; COLUMNS]; ROWS] {
    vectorised(
        #[inline(always)]
        || {
            let [a0, a1, a2, a3] = a;
            let mut sums = [[0.0; COLUMNS]; ROWS];
            let rows = a0.iter().zip(a1).zip(a2.iter().zip(a3));
            for (((&a0, &a1), (&a2, &a3)), b) in rows.zip(b) {
                for column in 0..COLUMNS {
                    sums[0][column] += a0 * b[column];
                    sums[1][column] += a1 * b[column];
                    sums[2][column] += a2 * b[column];
                    sums[3][column] += a3 * b[column];
                }
            }
            sums
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_sums_of_products() {
        for [batch, m, k, n] in [[1, 1, 1, 1], [2, 5, 3, 9], [3, 33, 17, 8], [1, 70, 2, 31]] {
            let value = |at: usize| ((at * 37 + 11) % 23) as f64 - 11.0;
            let a: Vec<f64> = (0..batch * m * k).map(value).collect();
            let b: Vec<f64> = (0..batch * k * n).map(|at| value(at + 5)).collect();
            let out = matmul(
                &Array::dense(&[batch, m, k], a.clone()),
                &Array::dense(&[batch, k, n], b.clone()),
            );
            for (at, out) in out.into_iter().enumerate() {
                let (batch, row, column) = (at / (m * n), at / n % m, at % n);
                let product =
                    |i: usize| a[(batch * m + row) * k + i] * b[(batch * k + i) * n + column];
                assert_eq!(out, (0..k).map(product).sum::<f64>());
            }
        }
    }
}
