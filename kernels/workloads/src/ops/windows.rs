//! Short rows that go back in memory while the rows of the other operand go forward: a scan reads
//! earlier positions like this, the newest first.
//!
//! Finding such a row and checking its bounds takes longer than its arithmetic. So memory is cut
//! into rows once, the compiler knows their length, and each row is two overlapping vectors, where
//! the machine has AVX2.

#![cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "there are no vectors of that width")
)]

use super::loops::Loops;

/// Lanes of a vector.
const LANES: usize = 8;

/// Rows, each of which lies `step` elements before its predecessor.
#[derive(Clone, Copy, Debug)]
struct Back {
    /// Elements of a row, from [`LANES`] to less than twice as many.
    row: usize,
    /// Distance between two rows in elements: at least the length of a row.
    step: usize,
    /// Number of rows.
    count: usize,
}

impl Back {
    /// The rows of operand 1 of the two inner loops, if they are short and go back, and the rows of
    /// operand 0 step by `steady` elements.
    #[inline]
    fn find<const N: usize>(loops: &Loops<N>, steady: usize) -> Option<Self> {
        let [.., count, row] = loops.extents;
        let [first, second] = [loops.steps[0], loops.steps[1]];
        let is_dense = first[3] == 1 && second[3] == 1;
        let is_steady = first[2] == steady as isize;
        let is_back = (LANES..2 * LANES).contains(&row) && second[2] <= -(row as isize);
        (is_dense && is_steady && is_back).then_some(Back {
            row,
            step: second[2].unsigned_abs(),
            count,
        })
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use wide::{in_place, onto};

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::marker::PhantomData;

    use pulp::x86::V3;
    use pulp::{NullaryFnOnce, cast, f32x8};

    use super::{Back, LANES, Loops};
    use crate::ops::map::Binary;

    /// `out = F(a, b)` where the rows of `b` go back and all rows of a plane share one row of `a`;
    /// returns whether this was possible.
    #[inline]
    pub(in crate::ops) fn onto<F: Binary>(
        loops: &Loops<3>,
        a: &[f32],
        b: &[f32],
        out: &mut [f32],
    ) -> bool {
        let (Some(back), Some(simd)) = (Back::find(loops, 0), V3::try_new()) else {
            return false;
        };
        let rows = Rows::<F>(simd, PhantomData);
        match back.row {
            8 => rows.onto::<8>(back, loops, a, b, out),
            9 => rows.onto::<9>(back, loops, a, b, out),
            10 => rows.onto::<10>(back, loops, a, b, out),
            11 => rows.onto::<11>(back, loops, a, b, out),
            12 => rows.onto::<12>(back, loops, a, b, out),
            13 => rows.onto::<13>(back, loops, a, b, out),
            14 => rows.onto::<14>(back, loops, a, b, out),
            _ => rows.onto::<15>(back, loops, a, b, out),
        }
        true
    }

    /// `x = F(x, b)` where the rows of `x` go back and the rows of `b` follow one another; returns
    /// whether this was possible.
    #[inline]
    pub(in crate::ops) fn in_place<F: Binary>(loops: &Loops<2>, b: &[f32], x: &mut [f32]) -> bool {
        let (Some(back), Some(simd)) = (Back::find(loops, loops.row()), V3::try_new()) else {
            return false;
        };
        let rows = Rows::<F>(simd, PhantomData);
        match back.row {
            8 => rows.in_place::<8>(back, loops, b, x),
            9 => rows.in_place::<9>(back, loops, b, x),
            10 => rows.in_place::<10>(back, loops, b, x),
            11 => rows.in_place::<11>(back, loops, b, x),
            12 => rows.in_place::<12>(back, loops, b, x),
            13 => rows.in_place::<13>(back, loops, b, x),
            14 => rows.in_place::<14>(back, loops, b, x),
            _ => rows.in_place::<15>(back, loops, b, x),
        }
        true
    }

    struct Planes<R>(R);

    impl<R: FnOnce()> NullaryFnOnce for Planes<R> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            (self.0)();
        }
    }

    struct Rows<F>(V3, PhantomData<F>);

    impl<F: Binary> Rows<F> {
        fn onto<const ROW: usize>(
            &self,
            back: Back,
            loops: &Loops<3>,
            a: &[f32],
            b: &[f32],
            out: &mut [f32],
        ) {
            self.0.vectorize(Planes(
                #[inline(always)]
                || {
                    loops.planes(
                        #[inline(always)]
                        |[at_a, at_b, at_out]| {
                            let b = &b[..at_b + ROW];
                            let out = &mut out[at_out..][..back.count * ROW];
                            self.plane_onto::<ROW>(back, &a[at_a..], b, out);
                        },
                    );
                },
            ));
        }

        /// `b` ends with its first row.
        #[inline(always)]
        fn plane_onto<const ROW: usize>(&self, back: Back, a: &[f32], b: &[f32], out: &mut [f32]) {
            let a = blocks::<ROW>(a);
            let out = out.as_chunks_mut::<ROW>().0.iter_mut();
            if back.step == ROW {
                let b = b[b.len() - back.count * ROW..].as_chunks::<ROW>().0;
                for (b, out) in b.iter().rev().zip(out) {
                    self.row(a, blocks::<ROW>(b), out);
                }
            } else {
                let b = b.rchunks(back.step);
                for (b, out) in b.filter_map(|b| b.last_chunk::<ROW>()).zip(out) {
                    self.row(a, blocks::<ROW>(b), out);
                }
            }
        }

        fn in_place<const ROW: usize>(
            &self,
            back: Back,
            loops: &Loops<2>,
            b: &[f32],
            x: &mut [f32],
        ) {
            self.0.vectorize(Planes(
                #[inline(always)]
                || {
                    loops.planes(
                        #[inline(always)]
                        |[at_b, at_x]| {
                            let b = &b[at_b..][..back.count * ROW];
                            self.plane_in_place::<ROW>(back, b, &mut x[..at_x + ROW]);
                        },
                    );
                },
            ));
        }

        /// `x` ends with its first row.
        #[inline(always)]
        fn plane_in_place<const ROW: usize>(&self, back: Back, b: &[f32], x: &mut [f32]) {
            let b = b.as_chunks::<ROW>().0;
            if back.step == ROW {
                let start = x.len() - back.count * ROW;
                let x = x[start..].as_chunks_mut::<ROW>().0;
                for (x, b) in x.iter_mut().rev().zip(b) {
                    self.row(blocks::<ROW>(x), blocks::<ROW>(b), x);
                }
            } else {
                let x = x.rchunks_mut(back.step);
                for (x, b) in x.filter_map(|x| x.last_chunk_mut::<ROW>()).zip(b) {
                    self.row(blocks::<ROW>(x), blocks::<ROW>(b), x);
                }
            }
        }

        #[inline(always)]
        fn row<const ROW: usize>(&self, a: [f32x8; 2], b: [f32x8; 2], out: &mut [f32; ROW]) {
            let one: [f32; LANES] = cast(F::wide(self.0, a[0], b[0]));
            let two: [f32; LANES] = cast(F::wide(self.0, a[1], b[1]));
            out[..LANES].copy_from_slice(&one);
            // Half a vector where that is enough: fewer stores lie across two cache lines.
            if ROW <= LANES + LANES / 2 {
                out[ROW - LANES / 2..].copy_from_slice(&two[LANES / 2..]);
            } else {
                out[ROW - LANES..].copy_from_slice(&two);
            }
        }
    }

    /// The first and the last lanes of a row.
    #[inline(always)]
    fn blocks<const ROW: usize>(row: &[f32]) -> [f32x8; 2] {
        let row = &row[..ROW];
        let (mut one, mut two) = ([0.0f32; LANES], [0.0f32; LANES]);
        one.copy_from_slice(&row[..LANES]);
        two.copy_from_slice(&row[ROW - LANES..]);
        [cast(one), cast(two)]
    }
}

/// Does nothing: there are no vectors of that width.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn onto<F>(_loops: &Loops<3>, _a: &[f32], _b: &[f32], _out: &mut [f32]) -> bool {
    false
}

/// Does nothing: there are no vectors of that width.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn in_place<F>(_loops: &Loops<2>, _b: &[f32], _x: &mut [f32]) -> bool {
    false
}
