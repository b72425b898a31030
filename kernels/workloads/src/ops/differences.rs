//! Differences of f64 to one reference a row, rounded to f32, where the machine has AVX-512.
//!
//! A vector that lies across two cache lines takes twice as long to load and three times as long to
//! store, and a row begins where the last row ends. So all rows are one stretch of vectors, none of
//! which lies across two lines if the first one does not; a vector in which a row ends has lanes of
//! two rows.

#[cfg(target_arch = "x86_64")]
pub(super) use wide::rows;

#[cfg(target_arch = "x86_64")]
mod wide {
    use pulp::x86::V4;
    use pulp::{NullaryFnOnce, cast};

    /// Lanes of a vector of f64.
    const LANES: usize = 8;

    /// `out[o, i] = x[o, i] - reference[o]` for rows of `inner` elements; whether it could.
    #[inline]
    pub(in crate::ops) fn rows(
        x: &[f64],
        reference: &[f64],
        out: &mut [f32],
        inner: usize,
    ) -> bool {
        // A vector has lanes of two rows at most if no row is shorter than a vector.
        let Some(simd) = V4::try_new().filter(|_| inner >= LANES) else {
            return false;
        };
        simd.vectorize(Rows {
            simd,
            x,
            reference,
            out,
            inner,
        });
        true
    }

    struct Rows<'a> {
        simd: V4,
        x: &'a [f64],
        reference: &'a [f64],
        out: &'a mut [f32],
        inner: usize,
    }

    impl NullaryFnOnce for Rows<'_> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            let simd = self.simd;
            let (x, x_rest) = self.x.as_chunks::<LANES>();
            let (out, out_rest) = self.out.as_chunks_mut::<LANES>();
            let mut begin = 0;
            let mut end = 0;
            for (row, &own) in self.reference.iter().enumerate() {
                end += self.inner;
                let whole = end / LANES;
                row_of(simd, &x[begin..whole], own, &mut out[begin..whole]);
                begin = whole;
                let shared = (
                    x.get(whole),
                    out.get_mut(whole),
                    self.reference.get(row + 1),
                );
                if let (lanes @ 1.., (Some(x), Some(out), Some(&next))) = (end % LANES, shared) {
                    let [own, next] = [own, next].map(
                        #[inline(always)]
                        |one| cast([one; LANES]),
                    );
                    let both = simd.avx512f._mm512_mask_blend_pd(0xff << lanes, own, next);
                    *out = vector(simd, x, cast(both));
                    begin += 1;
                }
            }
            if let Some(&own) = self.reference.last() {
                for (out, &x) in out_rest.iter_mut().zip(x_rest) {
                    *out = (x - own) as f32;
                }
            }
        }
    }

    /// The vectors whose lanes all belong to one row, four at once.
    #[inline(always)]
    fn row_of(simd: V4, x: &[[f64; LANES]], reference: f64, out: &mut [[f32; LANES]]) {
        let reference = [reference; LANES];
        let (fours, x_rest) = x.as_chunks::<4>();
        let (out_fours, out_rest) = out.as_chunks_mut::<4>();
        for (x, out) in fours.iter().zip(out_fours) {
            for (x, out) in x.iter().zip(out) {
                *out = vector(simd, x, reference);
            }
        }
        for (x, out) in x_rest.iter().zip(out_rest) {
            *out = vector(simd, x, reference);
        }
    }

    #[inline(always)]
    fn vector(simd: V4, x: &[f64; LANES], reference: [f64; LANES]) -> [f32; LANES] {
        let difference = simd.avx512f._mm512_sub_pd(cast(*x), cast(reference));
        cast(simd.avx512f._mm512_cvtpd_ps(difference))
    }
}

/// Does nothing: there are no vectors of that width.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn rows(_x: &[f64], _reference: &[f64], _out: &mut [f32], _inner: usize) -> bool {
    false
}
