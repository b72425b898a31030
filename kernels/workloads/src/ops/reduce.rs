//! Reductions over one axis, or over two with one between them that is kept.
//!
//! An operand is seen as (outer, first, kept, last); `first` and `last` are reduced. This covers a
//! reduction over the last axes (kept = 1), over a leading one (last = 1), and over the durations
//! and sources of (batch, duration, destination, source). Sums have one order for any number of
//! threads.

use std::array::from_fn;

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;
use sweeper_program::vectorised;

use super::lanes::{fold, fold_long, fold_rows, folded_columns};
use super::loops::threads_for;
use sweeper_program::builtin::{Builtin, Call};

/// Greatest element. If an element is not a number, the result may be any element, or not a number,
/// depending on positions and on the device.
///
/// Arguments: `x` (outer, first, kept, last), `out` (outer, kept; written), the four extents.
pub const AMAX: Builtin = Builtin {
    name: "ops.amax",
    function: |call| {
        let (x, out) = (call.read(0), call.write(1));
        reduce(x, out, Axes::read(call, 2), 0.0, greater);
    },
};

/// Sum. Arguments as of [`AMAX`].
pub const SUM: Builtin = Builtin {
    name: "ops.sum",
    function: |call| {
        let (x, out) = (call.read(0), call.write(1));
        reduce(
            x,
            out,
            Axes::read(call, 2),
            0.0,
            #[inline(always)]
            |a, b| a + b,
        );
    },
};

/// Greatest element of f64. Arguments as of [`AMAX`].
pub const AMAX_F64: Builtin = Builtin {
    name: "ops.amax_f64",
    function: |call| {
        let (x, out) = (call.read_f64(0), call.write_f64(1));
        let axes = Axes::read(call, 2);
        if axes.first == 1 && axes.last >= LONG {
            share(x, out, axes, |x, out| {
                Arch::new().dispatch(Greatest {
                    x,
                    row: axes.last,
                    out,
                });
            });
        } else {
            reduce(x, out, axes, 0.0, greater);
        }
    },
};

/// Columns that are folded before rows of them are.
const TILE: usize = 256;

/// Columns that are folded at once where they are results.
const LONG_TILE: usize = 4096;

/// Rows shorter than this are folded in registers.
const NARROW: usize = 32;

/// Rows at least as long as this are folded in several vectors at once.
const LONG: usize = 64;

/// The greater one, as one instruction.
#[inline(always)]
pub(crate) fn greater<T: PartialOrd>(a: T, b: T) -> T {
    if a > b { a } else { b }
}

/// Extents of a reduction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axes {
    pub(crate) outer: usize,
    pub(crate) first: usize,
    pub(crate) kept: usize,
    pub(crate) last: usize,
}

impl Axes {
    pub(crate) fn read(call: &Call<'_>, position: usize) -> Self {
        let size = |offset: usize| call.size(position + offset);
        Axes {
            outer: size(0),
            first: size(1),
            kept: size(2),
            last: size(3),
        }
    }

    pub(crate) fn plane(&self) -> usize {
        self.kept * self.last
    }

    pub(crate) fn len(&self) -> usize {
        self.outer * self.first * self.plane()
    }
}

fn reduce<T: Copy + Send + Sync>(
    x: &[T],
    out: &mut [T],
    axes: Axes,
    zero: T,
    apply: impl Fn(T, T) -> T + Copy + Sync,
) {
    share(x, out, axes, |x, out| {
        vectorised(
            #[inline(always)]
            || fold_axes(x, out, axes, zero, apply),
        );
    });
}

/// Runs `part` over parts of `x` and of `out` that belong together, as many as the work is worth
/// threads.
fn share<T: Send + Sync>(x: &[T], out: &mut [T], axes: Axes, part: impl Fn(&[T], &mut [T]) + Sync) {
    let (x, out) = (&x[..axes.len()], &mut out[..axes.outer * axes.kept]);
    let threads = threads_for(axes.len()).min(axes.outer);
    if threads == 1 {
        part(x, out);
    } else {
        let share = axes.outer.div_ceil(threads);
        x.par_chunks(share * axes.first * axes.plane())
            .zip(out.par_chunks_mut(share * axes.kept))
            .for_each(|(x, out)| part(x, out));
    }
}

/// The greatest element of each of `x`'s rows, to `out`.
///
/// Vectors are asked for: a compiler takes lanes of arrays apart where they are folded to one. The
/// last four overlap others, which changes no maximum, and leaves no rest to branch on.
struct Greatest<'a> {
    x: &'a [f64],
    row: usize,
    out: &'a mut [f64],
}

impl WithSimd for Greatest<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for (row, out) in self.x.chunks_exact(self.row).zip(self.out) {
            let end = &row[row.len() - 4 * S::F64_LANES..];
            let mut lanes: [S::f64s; 4] = from_fn(
                #[inline(always)]
                |number| S::as_simd_f64s(end).0[number],
            );
            for four in S::as_simd_f64s(row).0.as_chunks::<4>().0 {
                for (lanes, &vector) in lanes.iter_mut().zip(four) {
                    *lanes = simd.max_f64s(*lanes, vector);
                }
            }
            let [a, b, c, d] = lanes;
            let most = simd.max_f64s(simd.max_f64s(a, b), simd.max_f64s(c, d));
            *out = simd.reduce_max_f64s(most);
        }
    }
}

/// Folds all of `x` (outer, first, kept, last) to `out` (outer, kept). `zero` is never folded in.
#[inline(always)]
pub(crate) fn fold_axes<T: Copy>(
    x: &[T],
    out: &mut [T],
    axes: Axes,
    zero: T,
    apply: impl Fn(T, T) -> T + Copy,
) {
    let Axes {
        first, kept, last, ..
    } = axes;
    let plane = axes.plane();
    if first == 1 && last > 1 {
        let rows = x.chunks_exact(last).zip(out);
        if last >= LONG {
            for (row, out) in rows {
                *out = fold_long(row, apply);
            }
        } else {
            for (row, out) in rows {
                *out = fold(row, apply);
            }
        }
        return;
    }
    for (x, out) in x
        .chunks_exact(first * plane)
        .zip(out.chunks_exact_mut(kept))
    {
        if last > TILE {
            for (at, out) in out.iter_mut().enumerate() {
                let rows = x
                    .chunks_exact(plane)
                    .map(|x| fold(&x[at * last..][..last], apply));
                *out = rows.reduce(apply).unwrap_or(zero);
            }
        } else if plane < NARROW && last == 1 {
            fold_rows(x, out, apply);
        } else if last == 1 {
            for (tile, out) in out.chunks_mut(LONG_TILE).enumerate() {
                columns(x, plane, tile * LONG_TILE, out, apply);
            }
        } else {
            let step = TILE / last;
            for (tile, out) in out.chunks_mut(step).enumerate() {
                let start = tile * step * last;
                let mut sums = [zero; TILE];
                let sums = &mut sums[..out.len() * last];
                columns(x, plane, start, sums, apply);
                for (sums, out) in sums.chunks_exact(last).zip(out) {
                    *out = fold(sums, apply);
                }
            }
        }
    }
}

/// `sums` = the columns from `start` on, folded over the rows of `plane` elements of `x`. Blocks of
/// columns stay in registers; the last block overlaps the block before it, and yields equal bits.
#[inline(always)]
fn columns<T: Copy>(
    x: &[T],
    plane: usize,
    start: usize,
    sums: &mut [T],
    apply: impl Fn(T, T) -> T + Copy,
) {
    if sums.len() >= BLOCK && x.len() >= 8 * plane {
        column_blocks::<T, BLOCK>(x, plane, start, sums, apply);
        return;
    }
    let width = sums.len();
    let mut rows = x;
    if x.len() >= 4 * plane {
        let [a, b, c, d] = [0, 1, 2, 3].map(|row| &rows[row * plane + start..][..width]);
        for at in 0..width {
            sums[at] = apply(apply(a[at], b[at]), apply(c[at], d[at]));
        }
        rows = &rows[4 * plane..];
    } else {
        sums.copy_from_slice(&rows[start..][..width]);
        rows = &rows[plane..];
    }
    while rows.len() >= 4 * plane {
        let [a, b, c, d] = [0, 1, 2, 3].map(|row| &rows[row * plane + start..][..width]);
        for at in 0..width {
            sums[at] = apply(sums[at], apply(apply(a[at], b[at]), apply(c[at], d[at])));
        }
        rows = &rows[4 * plane..];
    }
    while rows.len() >= plane {
        for (sum, &value) in sums.iter_mut().zip(&rows[start..][..width]) {
            *sum = apply(*sum, value);
        }
        rows = &rows[plane..];
    }
}

/// Columns that are folded in a register.
const BLOCK: usize = 16;

#[inline(always)]
fn column_blocks<T: Copy, const W: usize>(
    x: &[T],
    plane: usize,
    start: usize,
    sums: &mut [T],
    apply: impl Fn(T, T) -> T + Copy,
) {
    let last = sums.len() - W;
    for at in (0..last).step_by(W).chain([last]) {
        let block = folded_columns::<T, W>(x, plane, start + at, apply);
        sums[at..at + W].copy_from_slice(&block);
    }
}
