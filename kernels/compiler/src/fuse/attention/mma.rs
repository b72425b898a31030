//! Attention on the tensor cores of GPUs from compute capability 8.0 on, by warps: tiles, shared
//! memory and geometry.

use super::call::{Call, Form};
use super::cuda::BUSY_BLOCKS;
use super::packed::{self, PACKED_H, PADDED, WEIGHTS_H};
use sweeper_program::headers::{CUDA_H, FACTORS_H, MMA_H};
use sweeper_program::workload::{Capabilities, Target};
use sweeper_program::{Geometry, Kernel, Precision, SourceFile};

static FILES: [SourceFile; 7] = [
    SourceFile::embedded("attention_mma.cu", include_str!("mma.cu")),
    SourceFile::embedded("fragments.h", include_str!("fragments.h")),
    WEIGHTS_H,
    PACKED_H,
    MMA_H,
    FACTORS_H,
    CUDA_H,
];

/// Warps of a block, as many as a multiprocessor has schedulers.
const WARPS: usize = 4;

/// Rows of a product of one instruction.
const BAND: usize = 16;

/// Tiles in shared memory: one that is multiplied, and one that comes.
const SLOTS: usize = 2;

/// Shared memory of each block beside its own, by NVIDIA's CUDA C++ programming guide.
const RESERVED_BYTES: usize = 1 << 10;

/// How a block of a kernel shares out its work.
#[derive(Clone, Copy)]
struct Tiles {
    /// Rows of a warp, in bands.
    bands: usize,
    /// Rows of a tile.
    rows: usize,
}

impl Tiles {
    /// As many rows as registers hold sums of: of a warp, but where blocks would be too few to keep
    /// a large GPU busy; of a tile, but where a multiprocessor has no room for two blocks, one of
    /// which multiplies while the other waits.
    fn of(call: &Call, target: &Target) -> Tiles {
        let mut largest = Tiles::largest(call);
        if largest.blocks(call) < BUSY_BLOCKS {
            largest.bands = 1;
        }
        let bytes = match target {
            Target::Cuda { arch } => Capabilities::of(arch).shared_bytes,
            Target::Cpu => 0,
        };
        let halves = std::iter::successors(Some(largest), |tiles| {
            let rows = tiles.rows / 2;
            (rows >= BAND).then_some(Tiles { rows, ..*tiles })
        });
        let fit = |count: usize| {
            let most = (bytes + RESERVED_BYTES) / count - RESERVED_BYTES;
            halves.clone().find(|it| it.shared_bytes(call) <= most)
        };
        fit(2).or_else(|| fit(1)).unwrap_or(largest)
    }

    fn largest(call: &Call) -> Tiles {
        let is_bf16 = call.precision == Precision::Bf16;
        let is_narrow = packed::most(call) <= 64;
        let (bands, rows) = match (call.form(), is_bf16, is_narrow) {
            (Form::Forward, true, _) | (Form::Forward, false, true) => (2, 64),
            (Form::Forward, false, false) => (2, 32),
            (_, _, true) => (2, 32),
            // Sums of two gradients: a warp has registers for those of one band.
            (_, true, false) => (1, 64),
            (_, false, false) => (1, 32),
        };
        Tiles { bands, rows }
    }

    /// Rows of the result that a block has.
    fn own(&self) -> usize {
        WARPS * self.bands * BAND
    }

    fn blocks(&self, call: &Call) -> usize {
        call.heads() * call.rows().div_ceil(self.own())
    }

    /// A block's own rows, and slots: of a tile, or of two and numbers of their rows.
    fn shared_bytes(&self, call: &Call) -> usize {
        let number = packed::number_bytes(call);
        let own = packed::own_columns(call);
        let slot = match call.form() {
            Form::Forward => self.rows * packed::most(call) * number,
            Form::GradQ => self.rows * own * number,
            Form::GradKv | Form::Grad => self.rows * (own * number + 8),
        };
        self.own() * own * number + SLOTS * slot
    }
}

/// The kernel of a call.
pub(super) fn kernel(call: &Call, target: &Target) -> Kernel {
    let Tiles { bands, rows } = Tiles::of(call, target);
    let tiles = [
        ("WARPS", WARPS),
        ("BANDS", bands),
        ("ROWS", rows),
        ("SLOTS", SLOTS),
    ];
    packed::main_kernel(call, &FILES, &tiles)
}

/// The geometry of a call's kernel.
pub(super) fn geometry(call: &Call, target: &Target) -> Geometry {
    let tiles = Tiles::of(call, target);
    Geometry {
        shared_bytes: tiles.shared_bytes(call) as u32,
        ..Geometry::linear(tiles.blocks(call) as u32, (WARPS * 32) as u32)
    }
}

const _: () = assert!(
    PADDED.is_multiple_of(WARPS * 2 * BAND),
    "tiles are packed whole"
);
