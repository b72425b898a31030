//! Rows in blocks of a fixed number of lanes, which the compiler turns into vectors.
//!
//! Rows are often short, with an element for each label; a short row is read as two overlapping
//! blocks instead of one block and single elements: 12 labels are two blocks of 8.

use std::array::from_fn;

/// Access to an operand's row.
pub(crate) trait Lanes {
    /// Whether a row has elements of its own. A single repeated element stays in a register if the
    /// compiler writes the loop, but not if the code asks for blocks.
    const IS_ROW: bool;

    /// Elements that it holds for a row of `row` elements.
    fn extent(row: usize) -> usize;
    /// The row from element `at` on.
    fn from(row: &[f32], at: usize) -> &[f32];
    /// Element `at` of the row.
    fn element(row: &[f32], at: usize) -> f32;
    /// `W` elements of the row from `at` on.
    fn block<const W: usize>(row: &[f32], at: usize) -> [f32; W];
}

/// One element after another.
pub(crate) struct Dense;

/// One element for the whole row.
pub(crate) struct Splat;

impl Lanes for Dense {
    const IS_ROW: bool = true;

    #[inline(always)]
    fn extent(row: usize) -> usize {
        row
    }

    #[inline(always)]
    fn from(row: &[f32], at: usize) -> &[f32] {
        &row[at..]
    }

    #[inline(always)]
    fn element(row: &[f32], at: usize) -> f32 {
        row[at]
    }

    #[inline(always)]
    fn block<const W: usize>(row: &[f32], at: usize) -> [f32; W] {
        taken(row, at)
    }
}

impl Lanes for Splat {
    const IS_ROW: bool = false;

    #[inline(always)]
    fn extent(_row: usize) -> usize {
        1
    }

    #[inline(always)]
    fn from(row: &[f32], _at: usize) -> &[f32] {
        row
    }

    #[inline(always)]
    fn element(row: &[f32], _at: usize) -> f32 {
        row[0]
    }

    #[inline(always)]
    fn block<const W: usize>(row: &[f32], _at: usize) -> [f32; W] {
        [row[0]; W]
    }
}

/// `out = apply(a, b)` for a row.
#[inline(always)]
pub(crate) fn blocks<A: Lanes, B: Lanes>(
    a: &[f32],
    b: &[f32],
    out: &mut [f32],
    apply: impl Fn(f32, f32) -> f32 + Copy,
) {
    let row = out.len();
    let (a, b) = (&a[..A::extent(row)], &b[..B::extent(row)]);
    match row {
        0 => {}
        1 => row_of::<A, B, 1>(a, b, out, apply),
        2..4 => row_of::<A, B, 2>(a, b, out, apply),
        4..8 => row_of::<A, B, 4>(a, b, out, apply),
        8..16 => row_of::<A, B, 8>(a, b, out, apply),
        // Left to the compiler, which does well where a function takes more than a few
        // instructions.
        16.. => {
            for (at, out) in out.iter_mut().enumerate() {
                *out = apply(A::element(a, at), B::element(b, at));
            }
        }
    }
}

/// The width that stands for rows of at least as many elements.
pub(crate) const LONG: usize = 16;

/// A row of `W` to `2 W` elements, or of [`LONG`] and more: blocks, and [`blocks`] for the rest,
/// where the compiler's loop does elements one by one.
#[inline(always)]
pub(crate) fn row_of<A: Lanes, B: Lanes, const W: usize>(
    a: &[f32],
    b: &[f32],
    out: &mut [f32],
    apply: impl Fn(f32, f32) -> f32 + Copy,
) {
    if W == LONG && !(A::IS_ROW && B::IS_ROW) {
        blocks::<A, B>(a, b, out, apply);
        return;
    }
    if W == LONG {
        let (whole, rest) = out.as_chunks_mut::<LONG>();
        let mut at = 0;
        for out in whole {
            *out = both(A::block(a, at), B::block(b, at), apply);
            at += LONG;
        }
        blocks::<A, B>(A::from(a, at), B::from(b, at), rest, apply);
        return;
    }
    let last = out.len() - W;
    let one = both(A::block::<W>(a, 0), B::block::<W>(b, 0), apply);
    let two = both(A::block::<W>(a, last), B::block::<W>(b, last), apply);
    out[..W].copy_from_slice(&one);
    out[last..].copy_from_slice(&two);
}

/// `x = apply(x, b)` for a row.
#[inline(always)]
pub(crate) fn blocks_in_place<B: Lanes>(
    b: &[f32],
    x: &mut [f32],
    apply: impl Fn(f32, f32) -> f32 + Copy,
) {
    let row = x.len();
    let b = &b[..B::extent(row)];
    match row {
        0 => {}
        1 => row_in_place_of::<B, 1>(b, x, apply),
        2..4 => row_in_place_of::<B, 2>(b, x, apply),
        4..8 => row_in_place_of::<B, 4>(b, x, apply),
        8..16 => row_in_place_of::<B, 8>(b, x, apply),
        16.. => {
            for (at, x) in x.iter_mut().enumerate() {
                *x = apply(*x, B::element(b, at));
            }
        }
    }
}

/// A row as of [`row_of`]; both blocks are computed while all elements are old.
#[inline(always)]
pub(crate) fn row_in_place_of<B: Lanes, const W: usize>(
    b: &[f32],
    x: &mut [f32],
    apply: impl Fn(f32, f32) -> f32 + Copy,
) {
    if W == LONG && !B::IS_ROW {
        blocks_in_place::<B>(b, x, apply);
        return;
    }
    if W == LONG {
        let (whole, rest) = x.as_chunks_mut::<LONG>();
        let mut at = 0;
        for x in whole {
            *x = both(*x, B::block(b, at), apply);
            at += LONG;
        }
        blocks_in_place::<B>(B::from(b, at), rest, apply);
        return;
    }
    let last = x.len() - W;
    let one = both(taken::<f32, W>(x, 0), B::block::<W>(b, 0), apply);
    let two = both(taken::<f32, W>(x, last), B::block::<W>(b, last), apply);
    x[..W].copy_from_slice(&one);
    x[last..].copy_from_slice(&two);
}

/// Folds rows as long as `out` into one, which are in registers if they are short.
#[inline(always)]
pub(crate) fn fold_rows<T: Copy>(rows: &[T], out: &mut [T], apply: impl Fn(T, T) -> T + Copy) {
    match out.len() {
        0 => {}
        1 => two_columns::<T, 1>(rows, out, apply),
        2..4 => two_columns::<T, 2>(rows, out, apply),
        4..8 => two_columns::<T, 4>(rows, out, apply),
        8..16 => two_columns::<T, 8>(rows, out, apply),
        16..32 => two_columns::<T, 16>(rows, out, apply),
        32.. => {
            let width = out.len();
            out.copy_from_slice(&rows[..width]);
            for row in rows[width..].chunks_exact(width) {
                for (out, &value) in out.iter_mut().zip(row) {
                    *out = apply(*out, value);
                }
            }
        }
    }
}

/// A block of columns from `start` on, folded over the rows of `width` elements: four rows at once,
/// then one by one.
#[inline(always)]
pub(crate) fn folded_columns<T: Copy, const W: usize>(
    rows: &[T],
    width: usize,
    start: usize,
    apply: impl Fn(T, T) -> T + Copy,
) -> [T; W] {
    let row = |number: usize| &rows[number * width + start..][..W];
    let count = rows.len() / width;
    let mut sums = [rows[start]; W];
    sums.copy_from_slice(row(0));
    let mut number = 1;
    while number + 4 <= count {
        let [a, b, c, d] = [0, 1, 2, 3].map(|next| row(number + next));
        for lane in 0..W {
            let four = apply(apply(a[lane], b[lane]), apply(c[lane], d[lane]));
            sums[lane] = apply(sums[lane], four);
        }
        number += 4;
    }
    while number < count {
        let row = row(number);
        for lane in 0..W {
            sums[lane] = apply(sums[lane], row[lane]);
        }
        number += 1;
    }
    sums
}

/// Rows of `W` to `2 W` elements, as two blocks that overlap.
#[inline(always)]
fn two_columns<T: Copy, const W: usize>(
    rows: &[T],
    out: &mut [T],
    apply: impl Fn(T, T) -> T + Copy,
) {
    let width = out.len();
    let last = width - W;
    let (mut one, mut two) = (taken::<T, W>(rows, 0), taken::<T, W>(rows, last));
    let mut rows = rows[width..].chunks_exact(4 * width);
    for four in &mut rows {
        one = both(one, four_rows(four, width, 0, apply), apply);
        two = both(two, four_rows(four, width, last, apply), apply);
    }
    for row in rows.remainder().chunks_exact(width) {
        one = both(one, taken::<T, W>(row, 0), apply);
        two = both(two, taken::<T, W>(row, last), apply);
    }
    out[..W].copy_from_slice(&one);
    out[last..].copy_from_slice(&two);
}

#[inline(always)]
fn four_rows<T: Copy, const W: usize>(
    rows: &[T],
    width: usize,
    at: usize,
    apply: impl Fn(T, T) -> T + Copy,
) -> [T; W] {
    let front = both(taken(rows, at), taken(rows, width + at), apply);
    let back = both(
        taken(rows, 2 * width + at),
        taken(rows, 3 * width + at),
        apply,
    );
    both(front, back, apply)
}

#[inline(always)]
fn taken<T: Copy, const W: usize>(row: &[T], at: usize) -> [T; W] {
    let row = &row[at..at + W];
    from_fn(
        #[inline(always)]
        |lane| row[lane],
    )
}

#[inline(always)]
fn both<T: Copy, const W: usize>(a: [T; W], b: [T; W], apply: impl Fn(T, T) -> T + Copy) -> [T; W] {
    from_fn(
        #[inline(always)]
        |lane| apply(a[lane], b[lane]),
    )
}

/// Folds a row into one element: lanes first, then across them, in an order that depends on the
/// row's length alone.
#[inline(always)]
pub(crate) fn fold<T: Copy>(row: &[T], apply: impl Fn(T, T) -> T + Copy) -> T {
    match row.len() {
        16.. => {
            let (blocks, rest) = row.as_chunks::<16>();
            let mut lanes = blocks[0];
            for block in &blocks[1..] {
                lanes = both(lanes, *block, apply);
            }
            let halves = both(taken(&lanes, 0), taken(&lanes, 8), apply);
            fold_eight(halves, rest, apply)
        }
        8..16 => fold_four(halved::<T, 8, 4>(taken(row, 0), apply), &row[8..], apply),
        4..8 => fold_two(halved::<T, 4, 2>(taken(row, 0), apply), &row[4..], apply),
        2..4 => fold_one(apply(row[0], row[1]), &row[2..], apply),
        _ => row[0],
    }
}

/// As [`fold`], for rows of 64 elements and more: four times as many lanes.
#[inline(always)]
pub(crate) fn fold_long<T: Copy>(row: &[T], apply: impl Fn(T, T) -> T + Copy) -> T {
    let (fours, rest) = row.as_chunks::<64>();
    let block = |four: &[T; 64], at: usize| taken::<T, 16>(four, 16 * at);
    let (mut a, mut b) = (block(&fours[0], 0), block(&fours[0], 1));
    let (mut c, mut d) = (block(&fours[0], 2), block(&fours[0], 3));
    for four in &fours[1..] {
        a = both(a, block(four, 0), apply);
        b = both(b, block(four, 1), apply);
        c = both(c, block(four, 2), apply);
        d = both(d, block(four, 3), apply);
    }
    let mut sixteen = both(both(a, b, apply), both(c, d, apply), apply);
    let (blocks, rest) = rest.as_chunks::<16>();
    for block in blocks {
        sixteen = both(sixteen, *block, apply);
    }
    let halves = both(taken(&sixteen, 0), taken(&sixteen, 8), apply);
    fold_eight(halves, rest, apply)
}

/// Goes on with eight lanes and fewer than sixteen elements.
#[inline(always)]
fn fold_eight<T: Copy>(mut lanes: [T; 8], mut rest: &[T], apply: impl Fn(T, T) -> T + Copy) -> T {
    if rest.len() & 8 != 0 {
        lanes = both(lanes, taken(rest, 0), apply);
        rest = &rest[8..];
    }
    fold_four(halved::<T, 8, 4>(lanes, apply), rest, apply)
}

#[inline(always)]
fn fold_four<T: Copy>(mut lanes: [T; 4], mut rest: &[T], apply: impl Fn(T, T) -> T + Copy) -> T {
    if rest.len() & 4 != 0 {
        lanes = both(lanes, taken(rest, 0), apply);
        rest = &rest[4..];
    }
    fold_two(halved::<T, 4, 2>(lanes, apply), rest, apply)
}

#[inline(always)]
fn fold_two<T: Copy>(mut lanes: [T; 2], mut rest: &[T], apply: impl Fn(T, T) -> T + Copy) -> T {
    if rest.len() & 2 != 0 {
        lanes = both(lanes, taken(rest, 0), apply);
        rest = &rest[2..];
    }
    fold_one(apply(lanes[0], lanes[1]), rest, apply)
}

#[inline(always)]
fn fold_one<T: Copy>(lane: T, rest: &[T], apply: impl Fn(T, T) -> T + Copy) -> T {
    match rest.first() {
        Some(&last) => apply(lane, last),
        None => lane,
    }
}

/// The lower half of the lanes with the upper half.
#[inline(always)]
fn halved<T: Copy, const W: usize, const H: usize>(
    lanes: [T; W],
    apply: impl Fn(T, T) -> T + Copy,
) -> [T; H] {
    both(taken(&lanes, 0), taken(&lanes, H), apply)
}
