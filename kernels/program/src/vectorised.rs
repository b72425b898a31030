//! Code compiled for several instruction sets, of which the machine's best is run.

use pulp::{Arch, Simd, WithSimd};

/// Runs `run` as compiled for AVX-512, for AVX2 with fused multiply-adds, or for the baseline of
/// the architecture.
///
/// Only what is inlined into `run` is compiled so. `run` itself and closures that it calls in a
/// loop are `#[inline(always)]`, and functions are given to a loop as such closures: the shims that
/// make a function, or a closure that can be called often, into one that is called once are not
/// inlined.
#[inline(always)]
pub fn vectorised<R>(run: impl FnMut() -> R) -> R {
    Arch::new().dispatch(Inlined(run))
}

struct Inlined<F>(F);

impl<R, F: FnMut() -> R> WithSimd for Inlined<F> {
    type Output = R;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _simd: S) -> R {
        (self.0)()
    }
}
