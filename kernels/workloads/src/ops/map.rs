//! Elementwise operations, with broadcasting by steps of 0.

use sweeper_program::vectorised;

use super::lanes::{Dense, LONG, Lanes, Splat, blocks, row_in_place_of, row_of};
use super::loops::{Loops, threads_for};
use super::math;
use super::planes::{self, Operands};
use super::windows;
use pulp::Simd;
use rayon::prelude::*;
use sweeper_program::builtin::{Builtin, Call};

/// `out = a + b`, f32.
///
/// Arguments: `a`, `b`, `out` (written, dense), four extents, start and four steps of `a`, start
/// and four steps of `b`, all in elements. A step of 0 broadcasts; starts count from the views'
/// starts.
pub const ADD: Builtin = Builtin {
    name: "ops.add",
    function: binary::<Add>,
};

/// `out = a - b`, f32. Arguments as of [`ADD`].
pub const SUB: Builtin = Builtin {
    name: "ops.sub",
    function: binary::<Sub>,
};

/// `out = a * b`, f32. Arguments as of [`ADD`].
pub const MUL: Builtin = Builtin {
    name: "ops.mul",
    function: binary::<Mul>,
};

/// `x = x + b`, f32.
///
/// Arguments: `b`, `x` (written in place), four extents, start and four steps of `b`, start and
/// four steps of `x`, all in elements. The steps of `x` visit no element twice.
pub const ADD_IN_PLACE: Builtin = Builtin {
    name: "ops.add_",
    function: binary_in_place::<Add>,
};

/// `x = x - b`, f32. Arguments as of [`ADD_IN_PLACE`].
pub const SUB_IN_PLACE: Builtin = Builtin {
    name: "ops.sub_",
    function: binary_in_place::<Sub>,
};

/// `x = x * b`, f32. Arguments as of [`ADD_IN_PLACE`].
pub const MUL_IN_PLACE: Builtin = Builtin {
    name: "ops.mul_",
    function: binary_in_place::<Mul>,
};

/// `x = e^x`, f32. Arguments: `x` (written in place), the number of elements.
pub const EXP_IN_PLACE: Builtin = Builtin {
    name: "ops.exp_",
    function: unary_in_place::<Exp>,
};

/// `out = e^x`, f32. Arguments: `x`, `out` (written), the number of elements.
pub const EXP: Builtin = Builtin {
    name: "ops.exp",
    function: unary::<Exp>,
};

/// `x = ln x`, f32. Arguments: `x` (written in place), the number of elements.
pub const LN_IN_PLACE: Builtin = Builtin {
    name: "ops.log_",
    function: unary_in_place::<Ln>,
};

/// A function of one element. It is a type because a function that is given as a value is not
/// inlined into a loop.
trait Unary {
    fn apply(x: f32) -> f32;
}

/// A function of two elements.
pub(super) trait Binary {
    fn apply(a: f32, b: f32) -> f32;
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "there are no vectors of that width")
    )]
    fn wide<S: Simd>(simd: S, a: S::f32s, b: S::f32s) -> S::f32s;
}

struct Exp;
struct Ln;
struct Add;
struct Sub;
struct Mul;

impl Unary for Exp {
    #[inline(always)]
    fn apply(x: f32) -> f32 {
        math::exp(x)
    }
}

impl Unary for Ln {
    #[inline(always)]
    fn apply(x: f32) -> f32 {
        math::ln(x)
    }
}

impl Binary for Add {
    #[inline(always)]
    fn apply(a: f32, b: f32) -> f32 {
        a + b
    }

    #[inline(always)]
    fn wide<S: Simd>(simd: S, a: S::f32s, b: S::f32s) -> S::f32s {
        simd.add_f32s(a, b)
    }
}

impl Binary for Sub {
    #[inline(always)]
    fn apply(a: f32, b: f32) -> f32 {
        a - b
    }

    #[inline(always)]
    fn wide<S: Simd>(simd: S, a: S::f32s, b: S::f32s) -> S::f32s {
        simd.sub_f32s(a, b)
    }
}

impl Binary for Mul {
    #[inline(always)]
    fn apply(a: f32, b: f32) -> f32 {
        a * b
    }

    #[inline(always)]
    fn wide<S: Simd>(simd: S, a: S::f32s, b: S::f32s) -> S::f32s {
        simd.mul_f32s(a, b)
    }
}

fn binary<F: Binary>(call: &mut Call<'_>) {
    let (a, b, out) = (call.read(0), call.read(1), call.write(2));
    let loops = Loops::<3>::read(call, 3, 2);
    loops.split(&mut out[..loops.len()], |loops, out| {
        if windows::onto::<F>(loops, a, b, out) || on_planes::<F>(loops, a, b, out) {
            return;
        }
        vectorised(
            #[inline(always)]
            || match loops.row_steps() {
                [1, 1, _] => rows::<F, Dense, Dense>(loops, a, b, out),
                [1, 0, _] => rows::<F, Dense, Splat>(loops, a, b, out),
                [0, 1, _] => rows::<F, Splat, Dense>(loops, a, b, out),
                _ => scattered::<F>(loops, a, b, out),
            },
        );
    });
}

/// Computes plane by plane, if one of the operands allows this; returns whether it did.
fn on_planes<F: Binary>(loops: &Loops<3>, a: &[f32], b: &[f32], out: &mut [f32]) -> bool {
    let operands = Operands {
        full: Some(a),
        small: b,
        out: &mut *out,
    };
    if planes::run::<F, 3, 1, false>(loops, operands) {
        return true;
    }
    let operands = Operands {
        full: Some(b),
        small: a,
        out,
    };
    planes::run::<F, 3, 0, true>(loops, operands)
}

/// Picks the width of blocks once for all rows.
#[inline(always)]
fn rows<F: Binary, A: Lanes, B: Lanes>(loops: &Loops<3>, a: &[f32], b: &[f32], out: &mut [f32]) {
    match loops.row() {
        1 => rows_of::<F, A, B, 1>(loops, a, b, out),
        2..4 => rows_of::<F, A, B, 2>(loops, a, b, out),
        4..8 => rows_of::<F, A, B, 4>(loops, a, b, out),
        8..16 => rows_of::<F, A, B, 8>(loops, a, b, out),
        _ => rows_of::<F, A, B, LONG>(loops, a, b, out),
    }
}

#[inline(always)]
fn rows_of<F: Binary, A: Lanes, B: Lanes, const W: usize>(
    loops: &Loops<3>,
    a: &[f32],
    b: &[f32],
    out: &mut [f32],
) {
    let [.., count, row] = loops.extents;
    let [step_a, step_b, _] = loops.steps.map(|steps| steps[2]);
    loops.planes(
        #[inline(always)]
        |[mut at_a, mut at_b, at_out]| {
            for out in out[at_out..][..count * row].chunks_exact_mut(row) {
                let a = &a[at_a..][..A::extent(row)];
                let b = &b[at_b..][..B::extent(row)];
                at_a = at_a.wrapping_add_signed(step_a);
                at_b = at_b.wrapping_add_signed(step_b);
                row_of::<A, B, W>(
                    a,
                    b,
                    out,
                    #[inline(always)]
                    |a, b| F::apply(a, b),
                );
            }
        },
    );
}

/// Rows of any steps, one element at a time.
#[inline(always)]
fn scattered<F: Binary>(loops: &Loops<3>, a: &[f32], b: &[f32], out: &mut [f32]) {
    let [step_a, step_b, _] = loops.row_steps();
    loops.rows(|[mut at_a, mut at_b, at_out]| {
        for out in &mut out[at_out..][..loops.row()] {
            *out = F::apply(a[at_a], b[at_b]);
            at_a = at_a.wrapping_add_signed(step_a);
            at_b = at_b.wrapping_add_signed(step_b);
        }
    });
}

fn binary_in_place<F: Binary>(call: &mut Call<'_>) {
    let (b, x) = (call.read(0), call.write(1));
    let loops = Loops::<2>::read(call, 2, 2);
    let is_dense = loops.starts[1] == 0 && x.len() >= loops.len() && {
        let dense = super::loops::dense(loops.extents);
        (0..4).all(|dimension| {
            loops.extents[dimension] == 1 || loops.steps[1][dimension] == dense[dimension]
        })
    };
    if is_dense {
        loops.split(&mut x[..loops.len()], |loops, x| {
            in_place::<F>(loops, b, x);
        });
    } else {
        in_place::<F>(&loops, b, x);
    }
}

fn in_place<F: Binary>(loops: &Loops<2>, b: &[f32], x: &mut [f32]) {
    let operands = Operands {
        full: None,
        small: b,
        out: &mut *x,
    };
    if planes::run::<F, 2, 0, false>(loops, operands) || windows::in_place::<F>(loops, b, x) {
        return;
    }
    vectorised(
        #[inline(always)]
        || match loops.row_steps() {
            [1, 1] => rows_in_place::<F, Dense>(loops, b, x),
            [0, 1] => rows_in_place::<F, Splat>(loops, b, x),
            [step_b, step_x] => loops.rows(|[mut at_b, mut at_x]| {
                for _ in 0..loops.row() {
                    x[at_x] = F::apply(x[at_x], b[at_b]);
                    at_b = at_b.wrapping_add_signed(step_b);
                    at_x = at_x.wrapping_add_signed(step_x);
                }
            }),
        },
    );
}

/// As [`rows`].
#[inline(always)]
fn rows_in_place<F: Binary, B: Lanes>(loops: &Loops<2>, b: &[f32], x: &mut [f32]) {
    match loops.row() {
        1 => rows_in_place_of::<F, B, 1>(loops, b, x),
        2..4 => rows_in_place_of::<F, B, 2>(loops, b, x),
        4..8 => rows_in_place_of::<F, B, 4>(loops, b, x),
        8..16 => rows_in_place_of::<F, B, 8>(loops, b, x),
        _ => rows_in_place_of::<F, B, LONG>(loops, b, x),
    }
}

#[inline(always)]
fn rows_in_place_of<F: Binary, B: Lanes, const W: usize>(
    loops: &Loops<2>,
    b: &[f32],
    x: &mut [f32],
) {
    let row = loops.row();
    loops.rows(
        #[inline(always)]
        |[at_b, at_x]| {
            row_in_place_of::<B, W>(
                &b[at_b..][..B::extent(row)],
                &mut x[at_x..][..row],
                #[inline(always)]
                |x, b| F::apply(x, b),
            );
        },
    );
}

fn unary<F: Unary>(call: &mut Call<'_>) {
    let len = call.size(2);
    let (x, out) = (&call.read(0)[..len], &mut call.write(1)[..len]);
    let piece = |x: &[f32], out: &mut [f32]| {
        vectorised(
            #[inline(always)]
            || {
                blocks::<Dense, Splat>(
                    x,
                    &[0.0],
                    out,
                    #[inline(always)]
                    |x, _| F::apply(x),
                );
            },
        );
    };
    let share = len.div_ceil(threads_for(len)).max(1);
    if share >= len {
        piece(x, out);
    } else {
        x.par_chunks(share)
            .zip(out.par_chunks_mut(share))
            .for_each(|(x, out)| piece(x, out));
    }
}

fn unary_in_place<F: Unary>(call: &mut Call<'_>) {
    let len = call.size(1);
    let x = &mut call.write(0)[..len];
    let piece = |x: &mut [f32]| {
        vectorised(
            #[inline(always)]
            || {
                // Not left to the compiler, which takes elements one by one where there are fewer
                // than 64.
                let (blocks, rest) = x.as_chunks_mut::<16>();
                for block in blocks {
                    for x in block {
                        *x = F::apply(*x);
                    }
                }
                for x in rest {
                    *x = F::apply(*x);
                }
            },
        );
    };
    let share = len.div_ceil(threads_for(len)).max(1);
    if share >= len {
        piece(x);
    } else {
        x.par_chunks_mut(share).for_each(piece);
    }
}
