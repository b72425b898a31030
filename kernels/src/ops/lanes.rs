//! Rows in blocks of a fixed number of lanes, which the compiler turns into vectors.
//!
//! The last block of a row overlaps the one before instead of leaving single elements over: rows of
//! 12 labels are two blocks of 8.

/// How an operand's row is read.
pub(crate) trait Lanes {
    /// Elements that it holds for a row of `row` elements.
    fn extent(row: usize) -> usize;
    /// `W` elements from position `at` of the row.
    fn block<const W: usize>(row: &[f32], at: usize) -> [f32; W];
}

/// One element after another.
pub(crate) struct Dense;

/// The same element for the whole row.
pub(crate) struct Splat;

impl Lanes for Dense {
    #[inline(always)]
    fn extent(row: usize) -> usize {
        row
    }

    #[inline(always)]
    fn block<const W: usize>(row: &[f32], at: usize) -> [f32; W] {
        let mut block = [0.0; W];
        block.copy_from_slice(&row[at..at + W]);
        block
    }
}

impl Lanes for Splat {
    #[inline(always)]
    fn extent(_row: usize) -> usize {
        1
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
    match out.len() {
        16.. => blocks_of::<A, B, 16>(a, b, out, apply),
        8..16 => blocks_of::<A, B, 8>(a, b, out, apply),
        4..8 => blocks_of::<A, B, 4>(a, b, out, apply),
        _ => blocks_of::<A, B, 1>(a, b, out, apply),
    }
}

#[inline(always)]
fn blocks_of<A: Lanes, B: Lanes, const W: usize>(
    a: &[f32],
    b: &[f32],
    out: &mut [f32],
    apply: impl Fn(f32, f32) -> f32 + Copy,
) {
    let len = out.len();
    let mut at = 0;
    while at + W <= len {
        let block = mapped(A::block::<W>(a, at), B::block::<W>(b, at), apply);
        out[at..at + W].copy_from_slice(&block);
        at += W;
    }
    if at < len {
        let at = len - W;
        let block = mapped(A::block::<W>(a, at), B::block::<W>(b, at), apply);
        out[at..].copy_from_slice(&block);
    }
}

#[inline(always)]
fn mapped<const W: usize>(
    a: [f32; W],
    b: [f32; W],
    apply: impl Fn(f32, f32) -> f32 + Copy,
) -> [f32; W] {
    let mut out = [0.0; W];
    for lane in 0..W {
        out[lane] = apply(a[lane], b[lane]);
    }
    out
}

/// `x = apply(x, b)` for a row.
#[inline(always)]
pub(crate) fn blocks_in_place<B: Lanes>(
    b: &[f32],
    x: &mut [f32],
    apply: impl Fn(f32, f32) -> f32 + Copy,
) {
    match x.len() {
        16.. => blocks_of_in_place::<B, 16>(b, x, apply),
        8..16 => blocks_of_in_place::<B, 8>(b, x, apply),
        4..8 => blocks_of_in_place::<B, 4>(b, x, apply),
        _ => blocks_of_in_place::<B, 1>(b, x, apply),
    }
}

/// The last block is computed first, while all its elements are old, and written last.
#[inline(always)]
fn blocks_of_in_place<B: Lanes, const W: usize>(
    b: &[f32],
    x: &mut [f32],
    apply: impl Fn(f32, f32) -> f32 + Copy,
) {
    let len = x.len();
    if len < W {
        return;
    }
    let last = mapped(
        Dense::block::<W>(x, len - W),
        B::block::<W>(b, len - W),
        apply,
    );
    let mut at = 0;
    while at + W < len {
        let next = mapped(Dense::block::<W>(x, at), B::block::<W>(b, at), apply);
        x[at..at + W].copy_from_slice(&next);
        at += W;
    }
    x[len - W..].copy_from_slice(&last);
}

/// Folds a row into one element: lanes first, then across them, in an order that depends on the
/// row's length alone.
#[inline(always)]
pub(crate) fn fold<T: Copy>(row: &[T], apply: impl Fn(T, T) -> T + Copy) -> T {
    let (blocks, rest) = row.as_chunks::<16>();
    let Some((&first, blocks)) = blocks.split_first() else {
        return rest[1..]
            .iter()
            .fold(rest[0], |folded, &lane| apply(folded, lane));
    };
    let mut lanes = first;
    for block in blocks {
        for (lane, &value) in lanes.iter_mut().zip(block) {
            *lane = apply(*lane, value);
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(rest) {
        *lane = apply(*lane, value);
    }
    let mut width = 8;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = apply(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}
