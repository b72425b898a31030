//! Operations between f64 states and f32 terms.
//!
//! A state grows with the position and at 3e4 an f32 has a spacing of 0.002, so states are f64.
//! Operations on many states at once use f32, relative to a reference near the states.

use super::differences;
use sweeper_program::builtin::{Builtin, Call};
use sweeper_program::vectorised;

/// `out[o, i] = x[o, i] - reference[o]`, rounded to f32 once.
///
/// Arguments: `x` (outer, inner; f64), `reference` (outer; f64), `out` (outer, inner; f32,
/// written), outer, inner.
pub const RELATIVE: Builtin = Builtin {
    name: "ops.relative",
    function: relative,
};

/// `out[o, i] = reference[o] + x[o, i]` in f64.
///
/// Arguments: `x` (outer, inner; f32), `reference` (outer; f64), `out` (outer, inner; f64,
/// written), outer, inner.
pub const ABSOLUTE: Builtin = Builtin {
    name: "ops.absolute",
    function: absolute,
};

/// `out[o] = reference[o] + x[o]`, rounded to f32 once.
///
/// Arguments: `x` (f32), `reference` (f64), `out` (f32, written), elements.
pub const ABSOLUTE_F32: Builtin = Builtin {
    name: "ops.absolute_f32",
    function: absolute_f32,
};

fn relative(call: &mut Call<'_>) {
    let (x, reference, out) = (call.read_f64(0), call.read_f64(1), call.write(2));
    let (outer, inner) = (call.size(3), call.size(4));
    let (x, out) = (&x[..outer * inner], &mut out[..outer * inner]);
    let reference = &reference[..outer];
    if differences::rows(x, reference, out, inner) {
        return;
    }
    vectorised(
        #[inline(always)]
        || {
            let rows = x.chunks_exact(inner).zip(out.chunks_exact_mut(inner));
            for (&reference, (x, out)) in reference.iter().zip(rows) {
                for (out, &x) in out.iter_mut().zip(x) {
                    *out = (x - reference) as f32;
                }
            }
        },
    );
}

fn absolute(call: &mut Call<'_>) {
    let (x, reference, out) = (call.read(0), call.read_f64(1), call.write_f64(2));
    let (outer, inner) = (call.size(3), call.size(4));
    let rows = x.chunks_exact(inner).zip(out.chunks_exact_mut(inner));
    for (&reference, (x, out)) in reference[..outer].iter().zip(rows) {
        for (out, &x) in out.iter_mut().zip(x) {
            *out = reference + f64::from(x);
        }
    }
}

fn absolute_f32(call: &mut Call<'_>) {
    let (x, reference, out) = (call.read(0), call.read_f64(1), call.write(2));
    let len = call.size(3);
    for (out, (&x, &reference)) in out[..len].iter_mut().zip(x.iter().zip(reference)) {
        *out = (reference + f64::from(x)) as f32;
    }
}
