//! The kernels of attention in f32 for GPUs: tiles, shared memory and geometry.

use std::cmp::Reverse;

use super::call::{Call, Form};
use crate::graph::AttentionPart;
use sweeper_program::headers::CUDA_H;
use sweeper_program::workload::generation;
use sweeper_program::{Geometry, SourceFile};

const TILES_H: SourceFile = SourceFile::embedded("tiles.h", include_str!("tiles.h"));

static FORWARD_FILES: [SourceFile; 3] = [
    SourceFile::embedded("attention.cu", include_str!("attention.cu")),
    TILES_H,
    CUDA_H,
];

static GRAD_FILES: [SourceFile; 3] = [
    SourceFile::embedded("attention_grad.cu", include_str!("attention_grad.cu")),
    TILES_H,
    CUDA_H,
];

/// Columns of operands are rounded up to a multiple of this.
const COLUMNS: usize = 64;

/// Floats after each row of a tile of shared memory.
const PAD: usize = 4;

/// Rows of the result that warps share.
const TEAM_ROWS: usize = 32;

/// Blocks that keep a large GPU busy, one to a multiprocessor.
pub(super) const BUSY_BLOCKS: usize = 132;

/// How a block of a kernel shares out its work.
struct Tiles {
    warps: usize,
    own: Own,
    shared_floats: usize,
}

/// Rows of the result that a block has.
enum Own {
    /// The forward kernel's queries: as many warps share 32 of them.
    Queries { sharing: usize },
    /// Keys of the kernel of gradients, which goes over so many queries at a time.
    Keys { keys: usize, queries: usize },
}

impl Tiles {
    fn forward(call: &Call, (warps, sharing): (usize, usize)) -> Tiles {
        let [depth, width] = wide(call);
        let (teams, keys) = (warps / sharing, COLUMNS * sharing);
        let queries = depth * (teams * TEAM_ROWS + PAD);
        let weights = teams * keys * (TEAM_ROWS + PAD);
        let slots = 2 * COLUMNS * width.max(keys + PAD);
        Tiles {
            warps,
            own: Own::Queries { sharing },
            shared_floats: queries + weights + slots + warps * TEAM_ROWS,
        }
    }

    fn grad(call: &Call, (keys, queries): (usize, usize)) -> Tiles {
        let wide = widest(call);
        let keys_and_values = 2 * keys * (wide + PAD);
        let slots = 2 * (wide * (queries + PAD) + queries);
        let weights = 2 * queries * (keys + PAD);
        Tiles {
            warps: 8,
            own: Own::Keys { keys, queries },
            shared_floats: keys_and_values + slots + weights,
        }
    }

    /// All that the kernel can be compiled for, the fastest of large problems first.
    fn all(call: &Call) -> Vec<Tiles> {
        let (forward, grad): (&[_], &[_]) = match (call.form(), widest(call) > COLUMNS) {
            // A thread has eight columns of the result: two warps share more than 64.
            (Form::Forward, _) if wide(call)[1] > COLUMNS => (&[(8, 2), (4, 2), (2, 2)], &[]),
            (Form::Forward, _) => (&[(8, 1), (8, 2), (4, 1), (2, 1)], &[]),
            (_, true) => (&[], &[(64, 64), (64, 32)]),
            (_, false) => (&[], &[(128, 64), (64, 64)]),
        };
        let forward = forward.iter().map(|&of| Tiles::forward(call, of));
        let grad = grad.iter().map(|&of| Tiles::grad(call, of));
        forward.chain(grad).collect()
    }

    /// Of those that a multiprocessor has room for, and that have the most warps: the first one;
    /// where its blocks are too few to keep a GPU busy, the one with the most blocks.
    fn of(call: &Call, arch: &str) -> Tiles {
        let mut all = Tiles::all(call);
        let smallest = all.pop();
        let bytes = shared_bytes_of(arch);
        all.retain(|tiles| tiles.shared_bytes() <= bytes);
        all.extend(smallest.filter(|tiles| all.is_empty() || tiles.shared_bytes() <= bytes));
        let most = all.iter().map(|tiles| tiles.warps).max();
        all.retain(|tiles| Some(tiles.warps) == most);
        let is_busy = |tiles: &Tiles| tiles.blocks(call) >= BUSY_BLOCKS;
        let rank = |tiles: &Tiles| Reverse(tiles.blocks(call));
        match all.iter().position(is_busy) {
            Some(at) => all.swap_remove(at),
            None => {
                all.sort_by_key(rank);
                all.swap_remove(0)
            }
        }
    }

    /// Rows of the result that a block has.
    fn rows(&self) -> usize {
        match self.own {
            Own::Queries { sharing } => self.warps / sharing * TEAM_ROWS,
            Own::Keys { keys, .. } => keys,
        }
    }

    fn blocks(&self, call: &Call) -> usize {
        call.heads() * call.rows().div_ceil(self.rows())
    }

    fn shared_bytes(&self) -> usize {
        4 * self.shared_floats
    }
}

/// Shared memory that a block can have, by the table of compute capabilities in NVIDIA's CUDA C++
/// programming guide.
pub(super) fn shared_bytes_of(arch: &str) -> usize {
    let kib = match generation(arch) {
        70 | 72 => 96,
        75 => 64,
        80 | 87 => 163,
        90 | 100..=110 => 227,
        _ => 99,
    };
    kib << 10
}

/// Columns of queries and keys, and of values, as tiles have them.
fn wide(call: &Call) -> [usize; 2] {
    [call.depth, call.width].map(|columns| columns.next_multiple_of(COLUMNS))
}

fn widest(call: &Call) -> usize {
    let [depth, width] = wide(call);
    depth.max(width)
}

/// The text of a call's kernel, and the macros by which it is compiled; those of all targets are
/// not among them.
pub(super) fn source(
    call: &Call,
    arch: &str,
) -> (&'static [SourceFile], Vec<(&'static str, usize)>) {
    let tiles = Tiles::of(call, arch);
    let [depth, width] = wide(call);
    let warps = ("WARPS", tiles.warps);
    match tiles.own {
        Own::Queries { sharing } => {
            let sizes = [("DEPTH", depth), ("WIDTH", width), ("SHARING", sharing)];
            (&FORWARD_FILES, [&sizes[..], &[warps]].concat())
        }
        Own::Keys { keys, queries } => {
            let sizes = [
                ("COLUMNS", widest(call)),
                ("KEYS", keys),
                ("QUERIES", queries),
            ];
            (&GRAD_FILES, [&sizes[..], &[warps]].concat())
        }
    }
}

pub(super) fn geometry(call: &Call, arch: &str) -> Geometry {
    let tiles = Tiles::of(call, arch);
    Geometry {
        shared_bytes: tiles.shared_bytes() as u32,
        ..Geometry::linear(tiles.blocks(call) as u32, (tiles.warps * 32) as u32)
    }
}

/// Words of memory by which blocks take turns, zeros before a launch: for the gradient by queries,
/// to which all blocks of a head add.
pub(super) fn turns(call: &Call, arch: &str) -> usize {
    match Tiles::of(call, arch).own {
        Own::Keys { queries, .. } if call.writes(AttentionPart::GradQ) => {
            1 + call.heads() * call.queries.div_ceil(queries)
        }
        _ => 0,
    }
}
