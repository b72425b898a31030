//! Planes of short rows as one stretch each, where the machine has AVX-512.
//!
//! Where an operand has one element a row, or one row for a whole plane, and rows are short (an
//! element for each label), blocks of rows waste lanes, and most of them lie across two cache
//! lines. Taken as a stretch, a plane of 12 x 12 is nine vectors; the elements for their lanes are
//! picked from the small operand, which one vector holds, by one permutation for all planes.

#![cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "there are no vectors of that width")
)]

use super::loops::Loops;

/// Two operands of an operation on planes, and where the result goes.
pub(super) struct Operands<'a> {
    /// Dense planes, or nothing where planes are changed in place.
    pub(super) full: Option<&'a [f32]>,
    /// At most [`LANES`] elements a plane.
    pub(super) small: &'a [f32],
    /// Dense planes.
    pub(super) out: &'a mut [f32],
}

/// Lanes of a vector.
const LANES: usize = 16;

/// Vectors of the longest plane.
const BLOCKS: usize = LANES;

/// The relation between elements of the small operand and elements of a plane.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pattern {
    /// Each to a row.
    OneARow,
    /// Together they are every row.
    EveryRow,
}

/// The data that all planes share.
struct Planes {
    /// Rows of a plane and elements of a row.
    rows: usize,
    row: usize,
    pattern: Pattern,
}

impl Planes {
    /// The planes of the two inner loops, if operand `small` is one that is spread over them and
    /// all others are dense within a plane.
    fn find<const N: usize>(loops: &Loops<N>, small: usize) -> Option<Self> {
        let [_, _, rows, row] = loops.extents;
        let len = rows * row;
        let is_dense = |operand: usize| loops.steps[operand][2..] == [row as isize, 1];
        let pattern = match loops.steps[small][2..] {
            [1, 0] if rows <= LANES => Pattern::OneARow,
            [0, 1] if row <= LANES => Pattern::EveryRow,
            _ => return None,
        };
        let are_dense = (0..N).all(|operand| operand == small || is_dense(operand));
        let fits = (LANES..=LANES * BLOCKS).contains(&len);
        (are_dense && fits).then_some(Planes { rows, row, pattern })
    }

    fn len(&self) -> usize {
        self.rows * self.row
    }

    /// Number of elements of the small operand.
    fn small(&self) -> usize {
        match self.pattern {
            Pattern::OneARow => self.rows,
            Pattern::EveryRow => self.row,
        }
    }

    /// The element of the small operand for each element of a plane.
    fn picked(&self) -> Picked {
        let mut all = Picked([0; LANES * BLOCKS]);
        let rows = all.0[..self.len()].chunks_exact_mut(self.row);
        for (row, picked) in rows.enumerate() {
            match self.pattern {
                Pattern::OneARow => picked.fill(row as u32),
                Pattern::EveryRow => {
                    for (lane, picked) in picked.iter_mut().enumerate() {
                        *picked = lane as u32;
                    }
                }
            }
        }
        all
    }
}

/// Vectors that don't lie across cache lines.
#[repr(align(64))]
struct Picked([u32; LANES * BLOCKS]);

#[cfg(target_arch = "x86_64")]
pub(super) use wide::run;

#[cfg(target_arch = "x86_64")]
mod wide {
    use pulp::x86::V4;
    use pulp::{NullaryFnOnce, cast, f32x16};

    use super::{LANES, Loops, Operands, Planes};
    use crate::ops::map::Binary;

    /// Computes the operation on planes; returns whether this was possible. `SMALL` is the operand
    /// in `loops` that is spread, the first operand of `F` if `IS_FIRST`; `full` is the other
    /// operand, and the last operand is the result.
    #[inline]
    pub(in crate::ops) fn run<
        F: Binary,
        const N: usize,
        const SMALL: usize,
        const IS_FIRST: bool,
    >(
        loops: &Loops<N>,
        operands: Operands<'_>,
    ) -> bool {
        let Some(planes) = Planes::find(loops, SMALL) else {
            return false;
        };
        let Some(simd) = V4::try_new() else {
            return false;
        };
        simd.vectorize(Run::<F, N, SMALL, IS_FIRST> {
            simd,
            loops,
            planes,
            operands,
            function: std::marker::PhantomData,
        });
        true
    }

    struct Run<'a, F, const N: usize, const SMALL: usize, const IS_FIRST: bool> {
        simd: V4,
        loops: &'a Loops<N>,
        planes: Planes,
        operands: Operands<'a>,
        function: std::marker::PhantomData<F>,
    }

    impl<F: Binary, const N: usize, const SMALL: usize, const IS_FIRST: bool> NullaryFnOnce
        for Run<'_, F, N, SMALL, IS_FIRST>
    {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            let Operands { full, small, out } = self.operands;
            let picked = self.planes.picked();
            let picked = &picked.0[..self.planes.len()];
            let plane = Plane::<F, IS_FIRST> {
                simd: self.simd,
                picked: picked.as_chunks().0,
                last: last(picked),
                function: self.function,
            };
            let (len, count) = (self.planes.len(), self.planes.small());
            // The dense operand that is read comes before or after the small one.
            let at_full = if SMALL == 0 { 1 } else { 0 };
            self.loops.planes(
                #[inline(always)]
                |at| {
                    let values = head(&small[at[SMALL]..], count);
                    let out = &mut out[at[N - 1]..][..len];
                    match full {
                        Some(full) => plane.onto(values, &full[at[at_full]..][..len], out),
                        None => plane.in_place(values, out),
                    }
                },
            );
        }
    }

    /// The first `count` elements, and anything after them.
    #[inline(always)]
    fn head(values: &[f32], count: usize) -> f32x16 {
        if let Some(values) = values.first_chunk::<LANES>() {
            return cast(*values);
        }
        let mut first = [0.0; LANES];
        first[..count].copy_from_slice(&values[..count]);
        cast(first)
    }

    #[inline(always)]
    fn last<T: Copy>(values: &[T]) -> [T; LANES] {
        let last = values.last_chunk::<LANES>();
        *last.unwrap_or_else(|| unreachable!("a plane has a vector's worth of elements"))
    }

    /// The operation on one plane: vectors from its start on, and one at its end that may overlap
    /// them.
    struct Plane<'a, F, const IS_FIRST: bool> {
        simd: V4,
        picked: &'a [[u32; LANES]],
        last: [u32; LANES],
        function: std::marker::PhantomData<F>,
    }

    impl<F: Binary, const IS_FIRST: bool> Plane<'_, F, IS_FIRST> {
        #[inline(always)]
        fn apply(&self, small: f32x16, picked: [u32; LANES], full: [f32; LANES]) -> [f32; LANES] {
            let spread = self.simd.avx512f;
            let spread = cast(spread._mm512_permutexvar_ps(cast(picked), cast(small)));
            let full = cast(full);
            cast(if IS_FIRST {
                F::wide(self.simd, spread, full)
            } else {
                F::wide(self.simd, full, spread)
            })
        }

        #[inline(always)]
        fn onto(&self, small: f32x16, full: &[f32], out: &mut [f32]) {
            let blocks = full.as_chunks().0.iter().zip(out.as_chunks_mut().0);
            for ((full, out), &picked) in blocks.zip(self.picked) {
                *out = self.apply(small, picked, *full);
            }
            if !full.len().is_multiple_of(LANES) {
                let end = self.apply(small, self.last, last(full));
                let start = out.len() - LANES;
                out[start..].copy_from_slice(&end);
            }
        }

        #[inline(always)]
        fn in_place(&self, small: f32x16, x: &mut [f32]) {
            // While all elements are old.
            let end = self.apply(small, self.last, last(x));
            for (x, &picked) in x.as_chunks_mut().0.iter_mut().zip(self.picked) {
                *x = self.apply(small, picked, *x);
            }
            if !x.len().is_multiple_of(LANES) {
                let start = x.len() - LANES;
                x[start..].copy_from_slice(&end);
            }
        }
    }
}

/// Does nothing: there are no vectors of that width.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn run<F, const N: usize, const SMALL: usize, const IS_FIRST: bool>(
    _loops: &Loops<N>,
    _operands: Operands<'_>,
) -> bool {
    false
}
