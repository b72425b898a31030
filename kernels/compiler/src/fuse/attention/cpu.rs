//! The kernels of attention in C: their text, geometry, and how blocks share the keys of a head.

use super::call::{Call, Form, Words};
use crate::graph::AttentionPart;
use sweeper_program::headers::{CPU_H, ELEMENTARY_H, VECTOR_H};
use sweeper_program::{Geometry, SourceFile};

static FILES: [SourceFile; 4] = [
    SourceFile::embedded("attention.c", include_str!("attention.c")),
    CPU_H,
    VECTOR_H,
    ELEMENTARY_H,
];

/// Rows of the result that a block has, or has at a time.
const ROWS: usize = 64;

/// Floats of the widest vectors, to which widths are rounded up.
const LANES: usize = 16;

/// Blocks that keep a large CPU busy; each of a head's has a gradient by queries of its own.
const BUSY_BLOCKS: usize = 32;

/// Counts of heads' blocks that are done are so many, rounded up: what follows is aligned.
const COUNTS: usize = 8;

/// The text of a call's kernel, and the macros of sizes by which it is compiled.
pub(super) fn source(call: &Call) -> (&'static [SourceFile], Vec<(&'static str, usize)>) {
    let wide = |columns: usize| columns.next_multiple_of(LANES);
    let sizes = [
        ("DEPTH", wide(call.depth)),
        ("WIDTH", wide(call.width)),
        ("ROWS", ROWS),
    ];
    (&FILES, sizes.to_vec())
}

pub(super) fn geometry(call: &Call) -> Geometry {
    let tiles = call.rows().div_ceil(ROWS);
    let of_head = parts(call).unwrap_or(tiles);
    Geometry::blocks((call.heads() * of_head) as u32)
}

/// Memory for the gradient by queries: counts of blocks that are done, and the sums of each block.
pub(super) fn words(call: &Call) -> Words {
    let Some(parts) = parts(call).filter(|_| call.writes(AttentionPart::GradQ)) else {
        return Words::default();
    };
    let zeros = call.heads().next_multiple_of(COUNTS);
    let floats = call.heads() * parts * call.queries * call.depth.next_multiple_of(LANES);
    Words {
        zeros,
        all: zeros + floats / 2,
    }
}

/// Blocks that share the keys of a head, for any number of threads; none forward.
pub(super) fn parts(call: &Call) -> Option<usize> {
    let tiles = call.keys.div_ceil(ROWS);
    (call.form() == Form::Grad).then(|| BUSY_BLOCKS.div_ceil(call.heads()).min(tiles))
}
