//! The greatest element and where it is.

use sweeper_program::vectorised;

use super::lanes::fold;
use super::reduce::{Axes, greater};
use sweeper_program::builtin::Builtin;

/// Greatest element, and the index `first * last_extent + last` of the first of several equal ones.
///
/// Arguments: `x` (outer, first, kept, last), `out` (outer, kept; written), `index` (outer, kept;
/// i64, written), the four extents. `first` and `last` are reduced, as in [`super::AMAX`].
pub const ARGMAX: Builtin = Builtin {
    name: "ops.argmax",
    function: |call| {
        let (x, out, index) = (call.read(0), call.write(1), call.write_i64(2));
        let axes = Axes::read(call, 3);
        vectorised(
            #[inline(always)]
            || argmax(x, out, index, axes),
        );
    },
};

/// Elements of a plane that are searched at once.
const TILE: usize = 256;

#[inline(always)]
fn argmax(x: &[f32], out: &mut [f32], index: &mut [i64], axes: Axes) {
    let Axes {
        first, kept, last, ..
    } = axes;
    let plane = axes.plane();
    let results = out.chunks_exact_mut(kept).zip(index.chunks_exact_mut(kept));
    for (x, (out, index)) in x[..axes.len()].chunks_exact(first * plane).zip(results) {
        out.fill(f32::NEG_INFINITY);
        index.fill(0);
        for start in (0..plane).step_by(TILE) {
            let width = TILE.min(plane - start);
            let (mut best, mut at) = ([f32::NEG_INFINITY; TILE], [0i32; TILE]);
            search(x, plane, start, &mut best[..width], &mut at[..width]);
            merge(&best[..width], &at[..width], start, last, out, index);
        }
    }
}

/// Finds the first row with the greatest element of each column from `start` on. Blocks of columns
/// stay in registers; the last block overlaps the block before it.
#[inline(always)]
fn search(x: &[f32], plane: usize, start: usize, best: &mut [f32], at: &mut [i32]) {
    match best.len() {
        16.. => search_blocks::<16>(x, plane, start, best, at),
        8..16 => search_blocks::<8>(x, plane, start, best, at),
        _ => search_blocks::<1>(x, plane, start, best, at),
    }
}

#[inline(always)]
fn search_blocks<const W: usize>(
    x: &[f32],
    plane: usize,
    start: usize,
    best: &mut [f32],
    at: &mut [i32],
) {
    let last = best.len() - W;
    for block in (0..last).step_by(W).chain([last]) {
        let (mut most, mut found) = ([f32::NEG_INFINITY; W], [0i32; W]);
        for (number, row) in x.chunks_exact(plane).enumerate() {
            let row = &row[start + block..][..W];
            for lane in 0..W {
                let better = row[lane] > most[lane];
                found[lane] = if better { number as i32 } else { found[lane] };
                most[lane] = if better { row[lane] } else { most[lane] };
            }
        }
        best[block..block + W].copy_from_slice(&most);
        at[block..block + W].copy_from_slice(&found);
    }
}

/// Merges the maxima of the columns from `start` on into the results: the greater maximum; of equal
/// maxima the one with the least index.
#[inline(always)]
fn merge(best: &[f32], at: &[i32], start: usize, last: usize, out: &mut [f32], index: &mut [i64]) {
    let mut column = 0;
    while column < best.len() {
        let (keep, lane) = ((start + column) / last, (start + column) % last);
        let width = (last - lane).min(best.len() - column);
        let (best, at) = (&best[column..][..width], &at[column..][..width]);
        let most = fold(best, greater);
        let found = i64::from(least_place(best, at, most, last, lane));
        if most > out[keep] || (most == out[keep] && found < index[keep]) {
            (out[keep], index[keep]) = (most, found);
        }
        column += width;
    }
}

/// The least index of the columns whose greatest element is `most`: rows of `last` elements, the
/// first column at `lane`.
#[inline(always)]
fn least_place(best: &[f32], at: &[i32], most: f32, last: usize, lane: usize) -> i32 {
    match best.len() {
        16.. => least_of_blocks::<16>(best, at, most, last, lane),
        8..16 => least_of_blocks::<8>(best, at, most, last, lane),
        4..8 => least_of_blocks::<4>(best, at, most, last, lane),
        _ => least_of_blocks::<1>(best, at, most, last, lane),
    }
}

#[inline(always)]
fn least_of_blocks<const W: usize>(
    best: &[f32],
    at: &[i32],
    most: f32,
    last: usize,
    lane: usize,
) -> i32 {
    let end = best.len() - W;
    let mut least = [i32::MAX; W];
    for block in (0..end).step_by(W).chain([end]) {
        let (best, at) = (&best[block..][..W], &at[block..][..W]);
        let first = (lane + block) as i32;
        for offset in 0..W {
            let here = at[offset] * last as i32 + first + offset as i32;
            let here = if best[offset] == most { here } else { i32::MAX };
            least[offset] = least[offset].min(here);
        }
    }
    fold(&least, |a, b| if b < a { b } else { a })
}
