//! Attention on Hopper's tensor cores, by warpgroups: tiles, shared memory and geometry.

use super::call::{Call, Form};
use super::packed::{self, PACKED_H, PADDED, WEIGHTS_H};
use sweeper_program::headers::{CUDA_H, FACTORS_H, HOPPER_H};
use sweeper_program::{Geometry, Kernel, Precision, SourceFile};

static FILES: [SourceFile; 7] = [
    SourceFile::embedded("attention_hopper.cu", include_str!("hopper.cu")),
    SourceFile::embedded("ring.h", include_str!("ring.h")),
    WEIGHTS_H,
    PACKED_H,
    HOPPER_H,
    FACTORS_H,
    CUDA_H,
];

/// Threads of a block: two warpgroups that multiply, and one that copies.
const THREADS: u32 = 384;

/// The kernel of a call.
pub(super) fn kernel(call: &Call) -> Kernel {
    let Ring { rows, slots } = ring(call);
    let in_place = usize::from(call.is_in_place);
    let sizes = [("ROWS", rows), ("SLOTS", slots), ("IN_PLACE", in_place)];
    packed::main_kernel(call, &FILES, &sizes)
}

/// The geometry of a call's kernel.
pub(super) fn geometry(call: &Call) -> Geometry {
    Geometry {
        shared_bytes: shared_bytes(call) as u32,
        ..Geometry::linear(blocks(call) as u32, THREADS)
    }
}

/// Blocks of a call's kernel.
pub(super) fn blocks(call: &Call) -> usize {
    call.heads() * call.rows().div_ceil(PADDED)
}

/// Tiles in shared memory: rows of each, and how many there are.
struct Ring {
    rows: usize,
    slots: usize,
}

/// The ring of a kernel: as many rows as registers hold scores of, and as many slots as there is
/// shared memory for beside the block's own rows.
fn ring(call: &Call) -> Ring {
    let is_bf16 = call.precision == Precision::Bf16;
    let is_narrow = packed::most(call) <= 64;
    let (rows, slots) = match (call.form(), is_bf16, is_narrow) {
        (Form::Forward, true, _) => (128, 4),
        (Form::Forward, false, true) => (64, 6),
        (Form::Forward, false, false) => (64, 4),
        (_, true, _) => (64, 6),
        (_, false, true) => (64, 8),
        (_, false, false) => (32, 6),
    };
    Ring { rows, slots }
}

/// Shared memory of a block: its own rows, tiles, numbers of their rows, and barriers.
fn shared_bytes(call: &Call) -> usize {
    let Ring { rows, slots } = ring(call);
    let number = packed::number_bytes(call);
    let own = packed::own_columns(call);
    let sums = usize::from(call.form() == Form::GradKv) * slots * rows * 4;
    PADDED * own * number + slots * rows * packed::most(call) * number + sums + (2 * slots + 1) * 8
}
