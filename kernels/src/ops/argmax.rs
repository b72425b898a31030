//! The greatest element and where it is.

use pulp::Arch;

use super::reduce::Axes;
use crate::builtin::Builtin;

/// Greatest element, and the index `first * last_extent + last` of the first one of equals.
///
/// Arguments: `x` (outer, first, kept, last), `out` (outer, kept; written), `index` (outer, kept; i64,
/// written), the four extents. `first` and `last` are reduced, as in [`super::AMAX`].
pub const ARGMAX: Builtin = Builtin {
    name: "ops.argmax",
    function: |call| {
        let (x, out, index) = (call.read(0), call.write(1), call.write_i64(2));
        let axes = Axes::read(call, 3);
        Arch::new().dispatch(
            #[inline(always)]
            || argmax(x, out, index, axes),
        );
    },
};

/// Elements of a plane that are searched at once.
const TILE: usize = 256;

#[inline(always)]
fn argmax(x: &[f32], out: &mut [f32], index: &mut [i64], axes: Axes) {
    let Axes {
        first, kept, last, ..
    } = axes;
    let plane = axes.plane();
    let results = out.chunks_exact_mut(kept).zip(index.chunks_exact_mut(kept));
    for (x, (out, index)) in x[..axes.len()].chunks_exact(first * plane).zip(results) {
        out.fill(f32::NEG_INFINITY);
        index.fill(0);
        for start in (0..plane).step_by(TILE) {
            let width = TILE.min(plane - start);
            let (mut best, mut at) = ([f32::NEG_INFINITY; TILE], [0i32; TILE]);
            for (number, row) in x.chunks_exact(plane).enumerate() {
                let row = &row[start..][..width];
                for ((best, at), &value) in best.iter_mut().zip(&mut at).zip(row) {
                    *at = if value > *best { number as i32 } else { *at };
                    *best = if value > *best { value } else { *best };
                }
            }
            for column in 0..width {
                let (keep, lane) = ((start + column) / last, (start + column) % last);
                let found = i64::from(at[column]) * last as i64 + lane as i64;
                let better =
                    best[column] > out[keep] || (best[column] == out[keep] && found < index[keep]);
                if better {
                    (out[keep], index[keep]) = (best[column], found);
                }
            }
        }
    }
}
