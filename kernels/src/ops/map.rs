//! Elementwise operations, with broadcasting by steps of 0.

use pulp::Arch;

use super::lanes::{Dense, Lanes, Splat, blocks, blocks_in_place};
use super::loops::{Loops, threads_for};
use super::math;
use crate::builtin::{Builtin, Call};
use rayon::prelude::*;

/// `out = a + b`, f32.
///
/// Arguments: `a`, `b`, `out` (written, dense), four extents, start and four steps of `a`, start and
/// four steps of `b`, all in elements. A step of 0 broadcasts; starts count from the views' starts.
pub const ADD: Builtin = Builtin {
    name: "ops.add",
    function: |call| binary(call, |a, b| a + b),
};

/// `out = a - b`, f32. Arguments as of [`ADD`].
pub const SUB: Builtin = Builtin {
    name: "ops.sub",
    function: |call| binary(call, |a, b| a - b),
};

/// `out = a * b`, f32. Arguments as of [`ADD`].
pub const MUL: Builtin = Builtin {
    name: "ops.mul",
    function: |call| binary(call, |a, b| a * b),
};

/// `x = x + b`, f32.
///
/// Arguments: `b`, `x` (written in place), four extents, start and four steps of `b`, start and four
/// steps of `x`, all in elements. The steps of `x` visit no element twice.
pub const ADD_IN_PLACE: Builtin = Builtin {
    name: "ops.add_",
    function: |call| binary_in_place(call, |x, b| x + b),
};

/// `x = x - b`, f32. Arguments as of [`ADD_IN_PLACE`].
pub const SUB_IN_PLACE: Builtin = Builtin {
    name: "ops.sub_",
    function: |call| binary_in_place(call, |x, b| x - b),
};

/// `x = x * b`, f32. Arguments as of [`ADD_IN_PLACE`].
pub const MUL_IN_PLACE: Builtin = Builtin {
    name: "ops.mul_",
    function: |call| binary_in_place(call, |x, b| x * b),
};

/// `x = e^x`, f32. Arguments: `x` (written in place), the number of elements.
pub const EXP_IN_PLACE: Builtin = Builtin {
    name: "ops.exp_",
    function: |call| unary_in_place(call, math::exp),
};

/// `out = e^x`, f32. Arguments: `x`, `out` (written), the number of elements.
pub const EXP: Builtin = Builtin {
    name: "ops.exp",
    function: |call| unary(call, math::exp),
};

/// `x = ln x`, f32. Arguments: `x` (written in place), the number of elements.
pub const LN_IN_PLACE: Builtin = Builtin {
    name: "ops.log_",
    function: |call| unary_in_place(call, math::ln),
};

fn binary(call: &mut Call<'_>, apply: impl Fn(f32, f32) -> f32 + Copy + Sync) {
    let (a, b, out) = (call.read(0), call.read(1), call.write(2));
    let loops = Loops::<3>::read(call, 3, 2);
    loops.split(&mut out[..loops.len()], |loops, out| {
        Arch::new().dispatch(
            #[inline(always)]
            || match loops.row_steps() {
                [1, 1, _] => rows::<Dense, Dense>(&loops, a, b, out, apply),
                [1, 0, _] => rows::<Dense, Splat>(&loops, a, b, out, apply),
                [0, 1, _] => rows::<Splat, Dense>(&loops, a, b, out, apply),
                _ => scattered(&loops, a, b, out, apply),
            },
        );
    });
}

#[inline(always)]
fn rows<A: Lanes, B: Lanes>(
    loops: &Loops<3>,
    a: &[f32],
    b: &[f32],
    out: &mut [f32],
    apply: impl Fn(f32, f32) -> f32 + Copy,
) {
    let row = loops.row();
    let mut outs = out.chunks_exact_mut(row);
    loops.rows(
        #[inline(always)]
        |[at_a, at_b, _]| {
            let a = &a[at_a..][..A::extent(row)];
            let b = &b[at_b..][..B::extent(row)];
            if let Some(out) = outs.next() {
                blocks::<A, B>(a, b, out, apply);
            }
        },
    );
}

/// Rows of any steps, one element at a time.
#[inline(always)]
fn scattered(
    loops: &Loops<3>,
    a: &[f32],
    b: &[f32],
    out: &mut [f32],
    apply: impl Fn(f32, f32) -> f32 + Copy,
) {
    let [step_a, step_b, _] = loops.row_steps();
    loops.rows(|[mut at_a, mut at_b, at_out]| {
        for out in &mut out[at_out..][..loops.row()] {
            *out = apply(a[at_a], b[at_b]);
            at_a = at_a.wrapping_add_signed(step_a);
            at_b = at_b.wrapping_add_signed(step_b);
        }
    });
}

fn binary_in_place(call: &mut Call<'_>, apply: impl Fn(f32, f32) -> f32 + Copy + Sync) {
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
            in_place(&loops, b, x, apply);
        });
    } else {
        in_place(&loops, b, x, apply);
    }
}

fn in_place(loops: &Loops<2>, b: &[f32], x: &mut [f32], apply: impl Fn(f32, f32) -> f32 + Copy) {
    let row = loops.row();
    Arch::new().dispatch(
        #[inline(always)]
        || match loops.row_steps() {
            [1, 1] => loops.rows(
                #[inline(always)]
                |[at_b, at_x]| {
                    blocks_in_place::<Dense>(&b[at_b..][..row], &mut x[at_x..][..row], apply);
                },
            ),
            [0, 1] => loops.rows(
                #[inline(always)]
                |[at_b, at_x]| {
                    blocks_in_place::<Splat>(&b[at_b..][..1], &mut x[at_x..][..row], apply);
                },
            ),
            [step_b, step_x] => loops.rows(|[mut at_b, mut at_x]| {
                for _ in 0..row {
                    x[at_x] = apply(x[at_x], b[at_b]);
                    at_b = at_b.wrapping_add_signed(step_b);
                    at_x = at_x.wrapping_add_signed(step_x);
                }
            }),
        },
    );
}

fn unary(call: &mut Call<'_>, apply: impl Fn(f32) -> f32 + Copy + Sync) {
    let len = call.size(2);
    let (x, out) = (&call.read(0)[..len], &mut call.write(1)[..len]);
    let piece = |x: &[f32], out: &mut [f32]| {
        Arch::new().dispatch(
            #[inline(always)]
            || {
                blocks::<Dense, Splat>(
                    x,
                    &[0.0],
                    out,
                    #[inline(always)]
                    |x, _| apply(x),
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

fn unary_in_place(call: &mut Call<'_>, apply: impl Fn(f32) -> f32 + Copy + Sync) {
    let len = call.size(1);
    let x = &mut call.write(0)[..len];
    let piece = |x: &mut [f32]| {
        Arch::new().dispatch(
            #[inline(always)]
            || {
                blocks_in_place::<Splat>(
                    &[0.0],
                    x,
                    #[inline(always)]
                    |x, _| apply(x),
                );
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
