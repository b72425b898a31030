//! The kernels of attention in f32 for GPUs: tiles, shared memory and geometry.

use std::cmp::Reverse;

use super::call::{Call, Form, Words};
use crate::graph::AttentionPart;
use sweeper_program::headers::CUDA_H;
use sweeper_program::workload::Capabilities;
use sweeper_program::{Geometry, SourceFile};

const TILES_H: SourceFile = SourceFile::embedded("tiles.h", include_str!("tiles.h"));

static FORWARD_FILES: [SourceFile; 4] = [
    SourceFile::embedded("attention.cu", include_str!("attention.cu")),
    SourceFile::embedded("parts.h", include_str!("parts.h")),
    TILES_H,
    CUDA_H,
];

static GRAD_FILES: [SourceFile; 3] = [
    SourceFile::embedded("attention_grad.cu", include_str!("attention_grad.cu")),
    TILES_H,
    CUDA_H,
];

/// Columns of operands are rounded up to a multiple of this. There are kernels for one and for two
/// times as many.
pub(super) const COLUMNS: usize = 64;

/// Floats after each row of a tile of shared memory.
const PAD: usize = 4;

/// Rows of the result that warps share.
const TEAM_ROWS: usize = 32;

/// Blocks that keep a large GPU busy, one to a multiprocessor.
pub(super) const BUSY_BLOCKS: usize = 132;

/// Keys of a tile of queries that must be saved, at least, where several blocks share them: work
/// that takes longer than to fill words with zeros and to combine the parts.
const SAVED_KEYS: usize = 128;

/// Lanes of a warp that share a row of the result.
const SHARERS: usize = 8;

/// Rows of the result that a thread of the forward kernel has.
const OWN_ROWS: usize = 8;

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

    fn grad(call: &Call, (warps, keys, queries): (usize, usize, usize)) -> Tiles {
        let wide = widest(call);
        let keys_and_values = 2 * keys * (wide + PAD);
        // Two tiles of queries, by turns, and one of their gradients.
        let slots = 3 * (wide * (queries + PAD) + 2 * queries);
        let weights = 2 * queries * (keys + PAD);
        Tiles {
            warps,
            own: Own::Keys { keys, queries },
            // And what the first thread of the block and of each half tells the others.
            shared_floats: keys_and_values + slots + weights + 3,
        }
    }

    /// All that the kernel can be compiled for, the fastest of large problems first.
    fn all(call: &Call) -> Vec<Tiles> {
        let (forward, grad): (&[_], &[_]) = match (call.form(), widest(call) > COLUMNS) {
            // A thread has eight columns of the result: two warps share more than 64.
            (Form::Forward, _) if wide(call)[1] > COLUMNS => (&[(8, 2), (4, 2), (2, 2)], &[]),
            (Form::Forward, _) => (&[(8, 1), (8, 2), (4, 1), (2, 1)], &[]),
            (_, true) => (&[], &[(8, 64, 64), (8, 64, 32)]),
            (_, false) => (&[], &[(8, 128, 64), (8, 64, 64), (4, 64, 32)]),
        };
        let forward = forward.iter().map(|&of| Tiles::forward(call, of));
        let grad = grad.iter().map(|&of| Tiles::grad(call, of));
        forward.chain(grad).collect()
    }

    /// Of those that a multiprocessor has room for, and that have the most warps: the first one;
    /// where its blocks are too few to keep a GPU busy, the one with the most tiles.
    fn of(call: &Call, arch: &str) -> Tiles {
        let mut all = Tiles::all(call);
        let smallest = all.pop();
        let bytes = Capabilities::of(arch).shared_bytes;
        all.retain(|tiles| tiles.shared_bytes() <= bytes);
        all.extend(smallest.filter(|tiles| all.is_empty() || tiles.shared_bytes() <= bytes));
        let most = all.iter().map(|tiles| tiles.warps).max();
        all.retain(|tiles| Some(tiles.warps) == most);
        let is_busy = |tiles: &Tiles| tiles.tiles(call) >= BUSY_BLOCKS;
        let rank = |tiles: &Tiles| Reverse(tiles.tiles(call));
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

    /// Tiles of the rows of all heads.
    fn tiles(&self, call: &Call) -> usize {
        call.heads() * call.rows().div_ceil(self.rows())
    }

    fn blocks(&self, call: &Call) -> usize {
        match self.part_keys(call) {
            Some(keys) => call.heads() * self.parts(call, keys),
            None => self.tiles(call),
        }
    }

    /// Blocks of a head, each of which has as many of the keys that a tile of queries sees.
    fn parts(&self, call: &Call, keys: usize) -> usize {
        let tiles = call.rows().div_ceil(self.rows());
        match call.attention.is_causal {
            // The `t`th tile sees keys up to its own last query.
            true => (0..tiles).map(|t| t * self.rows() / keys + 1).sum(),
            false => tiles * call.keys.div_ceil(keys),
        }
    }

    /// Keys of a block, where tiles of queries are so few that several blocks share each: as few
    /// as keep the blocks one to a multiprocessor.
    fn part_keys(&self, call: &Call) -> Option<usize> {
        let Own::Queries { sharing } = self.own else {
            return None;
        };
        if self.tiles(call) >= BUSY_BLOCKS || !call.writes(AttentionPart::Out) {
            return None;
        }
        let keys = COLUMNS * sharing;
        // A causal part sees a key of every row: it begins with a tile of queries.
        let step = match call.attention.is_causal {
            true => keys.max(self.rows()),
            false => keys,
        };
        let is_one_wave = |&keys: &usize| call.heads() * self.parts(call, keys) <= BUSY_BLOCKS;
        let mut lengths = (step..call.keys).step_by(step);
        let fewest = lengths.find(is_one_wave)?;
        (call.keys.next_multiple_of(keys) >= fewest + SAVED_KEYS).then_some(fewest)
    }

    /// Memory of the forward kernel where several blocks share a tile.
    fn words_of_parts(&self, call: &Call, sharing: usize) -> Words {
        let zeros = self.tiles(call) * self.warps;
        let columns = wide(call)[1] / sharing / SHARERS;
        let of_thread = OWN_ROWS * columns + 2 * OWN_ROWS;
        let floats = self.blocks(call) * self.warps * 32 * of_thread;
        Words {
            zeros,
            all: zeros + floats / 2,
        }
    }

    fn shared_bytes(&self) -> usize {
        4 * self.shared_floats
    }
}

/// Whether a block has room for tiles of more than [`COLUMNS`] columns.
pub(super) fn has_room_for_wide(arch: &str) -> bool {
    Capabilities::of(arch).shared_bytes >= 163 << 10
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
            let sizes = [
                ("DEPTH", depth),
                ("WIDTH", width),
                ("SHARING", sharing),
                ("IS_SPLIT", usize::from(tiles.part_keys(call).is_some())),
            ];
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

/// Options of a call's kernel. That of gradients has its multiply-adds in an order of the fewest
/// reads of registers, in which the assembler leaves them at its first level of optimization alone.
pub(super) fn options(call: &Call) -> &'static [&'static str] {
    match call.form() {
        Form::Forward => &[],
        _ => &["--ptxas-options=-O1"],
    }
}

pub(super) fn geometry(call: &Call, arch: &str) -> Geometry {
    let tiles = Tiles::of(call, arch);
    Geometry {
        shared_bytes: tiles.shared_bytes() as u32,
        ..Geometry::linear(tiles.blocks(call) as u32, (tiles.warps * 32) as u32)
    }
}

/// Words of memory by which blocks of one result work together: those of the gradient by queries
/// take turns, those of one tile's keys store their parts.
pub(super) fn words(call: &Call, arch: &str) -> Words {
    let tiles = Tiles::of(call, arch);
    match tiles.own {
        Own::Keys { queries, .. } if call.writes(AttentionPart::GradQ) => {
            // Each half of a block's warps has turns of its own.
            let turns = 1 + 2 * call.heads() * call.queries.div_ceil(queries);
            Words {
                zeros: turns,
                all: turns,
            }
        }
        Own::Queries { sharing } if tiles.part_keys(call).is_some() => {
            tiles.words_of_parts(call, sharing)
        }
        _ => Words::default(),
    }
}

/// Keys of a block of the forward kernel, where several share a tile of queries.
pub(super) fn part_keys(call: &Call, arch: &str) -> Option<usize> {
    Tiles::of(call, arch).part_keys(call)
}
