//! The operations on a GPU: the entry point of each in the source, and its number of threads.

use std::borrow::Cow;

use sweeper_program::builtin::Builtin;
use sweeper_program::headers::CUDA_H;
use sweeper_program::{Arg, Geometry, KernelSource, Language, SourceFile};

static FILES: [SourceFile; 2] = [
    SourceFile::embedded("ops.cu", include_str!("ops.cu")),
    CUDA_H,
];

/// Threads of a block, as the source has them.
const THREADS: u64 = 256;

/// Threads of a warp.
const WARP: u64 = 32;

/// The launch of one operation.
struct Entry {
    builtin: &'static str,
    name: &'static str,
    /// Threads for each result.
    threads: u64,
    /// The arguments whose product is how many results there are.
    extents: &'static [usize],
}

const fn entry(
    builtin: &'static str,
    name: &'static str,
    threads: u64,
    extents: &'static [usize],
) -> Entry {
    Entry {
        builtin,
        name,
        threads,
        extents,
    }
}

static ENTRIES: [Entry; 21] = [
    entry("ops.add", "ops_add", 1, &[3, 4, 5, 6]),
    entry("ops.sub", "ops_sub", 1, &[3, 4, 5, 6]),
    entry("ops.mul", "ops_mul", 1, &[3, 4, 5, 6]),
    entry("ops.add_", "ops_add_", 1, &[2, 3, 4, 5]),
    entry("ops.sub_", "ops_sub_", 1, &[2, 3, 4, 5]),
    entry("ops.mul_", "ops_mul_", 1, &[2, 3, 4, 5]),
    entry("ops.copy", "ops_copy", 1, &[2, 3, 4, 5]),
    entry("ops.exp", "ops_exp", 1, &[2]),
    entry("ops.exp_", "ops_exp_", 1, &[1]),
    entry("ops.log_", "ops_log_", 1, &[1]),
    entry("ops.amax", "ops_amax", WARP, &[2, 4]),
    entry("ops.sum", "ops_sum", WARP, &[2, 4]),
    entry("ops.amax_f64", "ops_amax_f64", WARP, &[2, 4]),
    entry("ops.argmax", "ops_argmax", WARP, &[3, 5]),
    entry("ops.scatter_index", "ops_scatter_index", 1, &[3, 4, 5, 6]),
    entry("ops.ring_window", "ops_ring_window", 1, &[4, 5, 6]),
    entry("ops.select_rows", "ops_select_rows", 1, &[4, 5]),
    entry("ops.scatter_rows", "ops_scatter_rows", 1, &[4, 5]),
    entry("ops.relative", "ops_relative", 1, &[3, 4]),
    entry("ops.absolute", "ops_absolute", 1, &[3, 4]),
    entry("ops.absolute_f32", "ops_absolute_f32", 1, &[3]),
];

fn find(builtin: &Builtin) -> &'static Entry {
    let mut entries = ENTRIES.iter();
    let found = entries.find(|entry| entry.builtin == builtin.name);
    found.unwrap_or_else(|| unreachable!("`{}` is not an operation of this folder", builtin.name))
}

/// The source to compile for an operation.
pub(super) fn kernel(builtin: &Builtin) -> KernelSource {
    KernelSource {
        language: Language::Cuda,
        files: Cow::Borrowed(&FILES),
        entry: find(builtin).name.into(),
        defines: vec![],
        options: Vec::new(),
        user: None,
    }
}

/// Threads for the greatest extents that the arguments ever have: all iterations of a loop launch
/// with one geometry.
pub(super) fn geometry(builtin: &Builtin, args: &[Arg]) -> Geometry {
    let entry = find(builtin);
    let extent = |&at: &usize| match &args[at] {
        Arg::Int(extent) => extent.most().max(1) as u64,
        other => unreachable!("an extent of `{}` is {other:?}", entry.name),
    };
    let results: u64 = entry.extents.iter().map(extent).product();
    let blocks = (results * entry.threads).div_ceil(THREADS);
    Geometry::linear(blocks as u32, THREADS as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_in_the_source() {
        for entry in &ENTRIES {
            let text = &FILES[0].text;
            let is_there = ["KERNEL", "BINARY", "ONTO"]
                .iter()
                .any(|word| text.contains(&format!("\n{word}({},", entry.name)));
            assert!(is_there, "{}", entry.name);
            assert_eq!(entry.name, entry.builtin.replace('.', "_"));
        }
    }
}
