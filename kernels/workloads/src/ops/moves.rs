//! Operations that move elements: strided copies, windows of a ring, rows picked by length.

use sweeper_program::vectorised;

use super::lanes::{Dense, Splat, blocks};
use super::loops::Loops;
use sweeper_program::builtin::{Builtin, Call};

/// `out = x`, f32, where both step as they like: gathers, scatters and transposes.
///
/// Arguments: `x`, `out` (written), four extents, start and four steps of `x`, start and four steps
/// of `out`, in elements. The steps of `out` visit no element twice; other elements stay as they
/// are.
pub const COPY: Builtin = Builtin {
    name: "ops.copy",
    function: copy,
};

/// The newest rows of a ring, f64: `out[b, j, :] = ring[(newest - j) mod slots, b, :]`.
///
/// Arguments: `ring` (slots, batch, row), `out` (batch, count, row; written), slots, newest, batch,
/// count, row. `newest` is from 0 to slots-1, `count` at most slots.
pub const RING_WINDOW: Builtin = Builtin {
    name: "ops.ring_window",
    function: ring_window,
};

/// Rows of f64 where an index matches: `out[b, :] = x[b, :]` if `index[b] == wanted`.
///
/// Arguments: `x` (batch, row), `index` (batch; i64), `out` (batch, row; written where it matches),
/// wanted, row, batch.
pub const SELECT_ROWS: Builtin = Builtin {
    name: "ops.select_rows",
    function: select_rows,
};

/// Rows of f32 to where an index says: `out[index[b] + shift, b, :] = x[b, :]`.
///
/// Arguments: `x` (batch, row), `index` (batch; i64), `out` (slots, batch, row; written where an
/// index points), shift, row, batch.
pub const SCATTER_ROWS: Builtin = Builtin {
    name: "ops.scatter_rows",
    function: scatter_rows,
};

/// Elements of f32 to where the reduction [`super::ARGMAX`] found them, zeros elsewhere:
/// `out[o, i / last, kept, i mod last] = x[o, kept]` for `i = index[o, kept]`.
///
/// Arguments: `x` (outer, kept), `index` (outer, kept; i64), `out` (outer, first, kept, last;
/// written), the four extents.
pub const SCATTER_INDEX: Builtin = Builtin {
    name: "ops.scatter_index",
    function: scatter_index,
};

fn copy(call: &mut Call<'_>) {
    let (x, out) = (call.read(0), call.write(1));
    let loops = Loops::<2>::read(call, 2, 2);
    let row = loops.row();
    vectorised(
        #[inline(always)]
        || match loops.row_steps() {
            [1, 1] => loops.rows(
                #[inline(always)]
                |[from, to]| {
                    let (x, out) = (&x[from..][..row], &mut out[to..][..row]);
                    blocks::<Dense, Splat>(x, &[0.0], out, |x, _| x);
                },
            ),
            [step_from, step_to] => loops.rows(|[mut from, mut to]| {
                for _ in 0..row {
                    out[to] = x[from];
                    from = from.wrapping_add_signed(step_from);
                    to = to.wrapping_add_signed(step_to);
                }
            }),
        },
    );
}

fn ring_window(call: &mut Call<'_>) {
    let (ring, out) = (call.read_f64(0), call.write_f64(1));
    let [slots, newest, batch, count, row] = [2, 3, 4, 5, 6].map(|at| call.size(at));
    let window = Window {
        slots,
        newest,
        batch,
        count,
    };
    vectorised(
        #[inline(always)]
        || match row {
            4 => window.copy::<1>(ring, out),
            8 => window.copy::<2>(ring, out),
            12 => window.copy::<3>(ring, out),
            16 => window.copy::<4>(ring, out),
            20 => window.copy::<5>(ring, out),
            24 => window.copy::<6>(ring, out),
            2..4 => window.copy_rows::<2>(ring, out, row),
            5..8 => window.copy_rows::<4>(ring, out, row),
            9..12 | 13..16 => window.copy_rows::<8>(ring, out, row),
            17..20 | 21..24 | 25..32 => window.copy_rows::<16>(ring, out, row),
            _ => window.copy_rows::<0>(ring, out, row),
        },
    );
}

struct Window {
    slots: usize,
    newest: usize,
    batch: usize,
    count: usize,
}

impl Window {
    /// Copies rows of `Q` vectors of four elements without a call; no vector lies across two cache
    /// lines if the first one does not.
    #[inline(always)]
    fn copy<const Q: usize>(&self, ring: &[f64], out: &mut [f64]) {
        let (ring, _) = ring.as_chunks::<4>();
        let (out, _) = out.as_chunks_mut::<4>();
        let (ring, _) = ring.as_chunks::<Q>();
        let (out, _) = out.as_chunks_mut::<Q>();
        for (sequence, window) in out
            .chunks_exact_mut(self.count)
            .take(self.batch)
            .enumerate()
        {
            let mut slot = self.newest;
            for to in window {
                *to = ring[slot * self.batch + sequence];
                slot = if slot == 0 { self.slots - 1 } else { slot - 1 };
            }
        }
    }

    /// Rows of `W` to `2 W` elements as two blocks that overlap: they are too short for a call to
    /// be worth it. Rows of any length for `W` = 0.
    #[inline(always)]
    fn copy_rows<const W: usize>(&self, ring: &[f64], out: &mut [f64], row: usize) {
        let windows = out.chunks_exact_mut(self.count * row).take(self.batch);
        for (sequence, window) in windows.enumerate() {
            let mut slot = self.newest;
            for to in window.chunks_exact_mut(row) {
                let from = &ring[(slot * self.batch + sequence) * row..][..row];
                if W == 0 {
                    to.copy_from_slice(from);
                } else {
                    to[..W].copy_from_slice(&from[..W]);
                    to[row - W..].copy_from_slice(&from[row - W..]);
                }
                slot = if slot == 0 { self.slots - 1 } else { slot - 1 };
            }
        }
    }
}

fn select_rows(call: &mut Call<'_>) {
    let (x, index, out) = (call.read_f64(0), call.read_i64(1), call.write_f64(2));
    let (wanted, row, batch) = (call.int(3), call.size(4), call.size(5));
    let rows = x.chunks_exact(row).zip(out.chunks_exact_mut(row));
    for (&index, (x, out)) in index[..batch].iter().zip(rows) {
        if index == wanted {
            out.copy_from_slice(x);
        }
    }
}

fn scatter_rows(call: &mut Call<'_>) {
    let (x, index, out) = (call.read(0), call.read_i64(1), call.write(2));
    let (shift, row, batch) = (call.int(3), call.size(4), call.size(5));
    for (sequence, (&index, x)) in index[..batch].iter().zip(x.chunks_exact(row)).enumerate() {
        let slot = (index + shift) as usize;
        out[(slot * batch + sequence) * row..][..row].copy_from_slice(x);
    }
}

fn scatter_index(call: &mut Call<'_>) {
    let (x, index, out) = (call.read(0), call.read_i64(1), call.write(2));
    let [outer, first, kept, last] = [3, 4, 5, 6].map(|at| call.size(at));
    let out = &mut out[..outer * first * kept * last];
    out.fill(0.0);
    for (at, (&x, &index)) in x.iter().zip(index).enumerate() {
        let (block, keep) = (at / kept, at % kept);
        let (one, two) = (index as usize / last, index as usize % last);
        out[((block * first + one) * kept + keep) * last + two] = x;
    }
}
