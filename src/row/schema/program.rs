//! Columns of the program: its work and rates, and what compiling it took.

use super::{Access, Column, Group, Kind, float, int, put, word};
use crate::row::CompileUse;
use crate::row::entry::Entry;
use crate::row::outcome::Measurement;

const PROGRAM: &str = "program, before it runs";
const CACHE: &str = "kernel cache";
const FORMULA: &str = "workload's formula";

/// Digits of a key that name it in tables.
const SHORT_KEY: usize = 12;

/// The work of an iteration, and how fast it was done.
pub(super) const WORK: &[Column] = &[
    Column {
        name: "launches",
        kind: Kind::Int,
        unit: "",
        meaning: "kernels launched in an iteration, copies and fills included",
        source: PROGRAM,
        group: Some(Group::Program),
        access: Access::Measurement(
            |found| int(found.totals.launches),
            |found, field| put(&mut found.totals.launches, field.count::<u64>()),
        ),
    },
    Column {
        name: "library_launches",
        kind: Kind::Int,
        unit: "",
        meaning: "launches that are calls of a vendor's or another library; the others are kernels of ours",
        source: PROGRAM,
        group: Some(Group::Program),
        access: Access::Measurement(
            |found| int(found.totals.calls),
            |found, field| put(&mut found.totals.calls, field.count::<u64>()),
        ),
    },
    Column {
        name: "read_bytes",
        kind: Kind::Int,
        unit: "bytes",
        meaning: "memory that an iteration reads",
        source: PROGRAM,
        group: Some(Group::Program),
        access: Access::Measurement(
            |found| int(found.totals.read_bytes),
            |found, field| put(&mut found.totals.read_bytes, field.count::<u64>()),
        ),
    },
    Column {
        name: "written_bytes",
        kind: Kind::Int,
        unit: "bytes",
        meaning: "memory that an iteration writes",
        source: PROGRAM,
        group: Some(Group::Program),
        access: Access::Measurement(
            |found| int(found.totals.written_bytes),
            |found, field| put(&mut found.totals.written_bytes, field.count::<u64>()),
        ),
    },
    Column {
        name: "flops",
        kind: Kind::Float,
        unit: "operations",
        meaning: "useful floating-point work of an iteration",
        source: FORMULA,
        group: Some(Group::Program),
        access: Access::Measurement(
            |found| float(found.flops),
            |found, field| put(&mut found.flops, field.amount()),
        ),
    },
    Column {
        name: "compulsory_bytes",
        kind: Kind::Float,
        unit: "bytes",
        meaning: "the least memory traffic of an iteration",
        source: FORMULA,
        group: Some(Group::Program),
        access: Access::Measurement(
            |found| float(found.compulsory_bytes),
            |found, field| put(&mut found.compulsory_bytes, field.amount()),
        ),
    },
    Column {
        name: "flops_per_s",
        kind: Kind::Float,
        unit: "operations/s",
        meaning: "`flops` over `median_ns`",
        source: "both columns",
        group: Some(Group::Result),
        access: Access::Written(|entry| entry.flops_per_s().and_then(float)),
    },
    Column {
        name: "bytes_per_s",
        kind: Kind::Float,
        unit: "bytes/s",
        meaning: "`compulsory_bytes` over `median_ns`",
        source: "both columns",
        group: Some(Group::Result),
        access: Access::Written(|entry| entry.bytes_per_s().and_then(float)),
    },
    Column {
        name: "roofline_ns",
        kind: Kind::Float,
        unit: "ns",
        meaning: "the least time that the device's measured ceilings allow",
        source: "ceilings",
        group: Some(Group::Result),
        access: Access::Entry(
            |entry| entry.roofline_ns.and_then(float),
            |entry, field| put(&mut entry.roofline_ns, field.amount()),
        ),
    },
    Column {
        name: "efficiency",
        kind: Kind::Float,
        unit: "",
        meaning: "`roofline_ns` over `median_ns`: above 1 where data stays in a cache",
        source: "both columns",
        group: Some(Group::Result),
        access: Access::Written(|entry| entry.efficiency().and_then(float)),
    },
];

/// The kernels of the program, and what compiling them took.
pub(super) const COMPILING: &[Column] = &[
    Column {
        name: "kernels",
        kind: Kind::Int,
        unit: "",
        meaning: "kernels that had to be compiled",
        source: "plan",
        group: Some(Group::Program),
        access: Access::Entry(
            |entry| int(compiling(entry)?.kernels),
            |entry, field| put(&mut entry.compile.kernels, field.count::<u32>()),
        ),
    },
    Column {
        name: "kernel_hits",
        kind: Kind::Int,
        unit: "",
        meaning: "kernels that had to be compiled and that the cache had",
        source: CACHE,
        group: Some(Group::Program),
        access: Access::Entry(
            |entry| int(compiling(entry)?.hits),
            |entry, field| put(&mut entry.compile.hits, field.count::<u32>()),
        ),
    },
    Column {
        name: "compile_ns",
        kind: Kind::Int,
        unit: "ns",
        meaning: "compile times of the program's kernels, whenever they were compiled, added up: more than anybody \
                  waited, where some were compiled side by side",
        source: CACHE,
        group: Some(Group::Program),
        access: Access::Entry(
            |entry| int(compiling(entry)?.compile_ns),
            |entry, field| put(&mut entry.compile.compile_ns, field.count::<u64>()),
        ),
    },
    Column {
        name: "compile_wall_ns",
        kind: Kind::Int,
        unit: "ns",
        meaning: "time in which at least one of the program's kernels was being compiled (empty where there are \
                  none)",
        source: CACHE,
        group: Some(Group::Program),
        access: Access::Entry(
            |entry| int(compiling(entry)?.wall_ns?),
            |entry, field| put(&mut entry.compile.wall_ns, field.count::<u64>()),
        ),
    },
    Column {
        name: "cache_read_ns",
        kind: Kind::Int,
        unit: "ns",
        meaning: "times to read the program's kernels from the cache, added up (empty where one is in none)",
        source: CACHE,
        group: Some(Group::Program),
        access: Access::Entry(
            |entry| int(compiling(entry)?.read_ns?),
            |entry, field| put(&mut entry.compile.read_ns, field.count::<u64>()),
        ),
    },
    Column {
        name: "kernel_keys",
        kind: Kind::Text,
        unit: "",
        meaning: "first digits of the keys of compiled kernels, in the order of the program; `sweeper cache \
                  show` finds them",
        source: CACHE,
        group: None,
        access: Access::Written(|entry| word(&kernel_keys(entry.measurement.as_ref()?))),
    },
    Column {
        name: "same_program_as",
        kind: Kind::Text,
        unit: "",
        meaning: "backend, earlier in the block, that has the same program, launch by launch (empty where none \
                  has)",
        source: PROGRAM,
        group: Some(Group::Program),
        access: Access::Measurement(
            |found| word(found.same_program_as.as_deref()?),
            |found, field| {
                let backend = field.text();
                found.same_program_as = (!backend.is_empty()).then(|| backend.to_owned());
                Ok(())
            },
        ),
    },
];

/// What the kernel cache did, of rows that were measured.
fn compiling(entry: &Entry) -> Option<&CompileUse> {
    entry.measurement.as_ref().map(|_| &entry.compile)
}

/// Keys of compiled kernels, each once.
fn kernel_keys(found: &Measurement) -> String {
    let kernels = found.kernels.iter();
    let keys = kernels.filter_map(|kernel| kernel.key.as_deref());
    let mut short: Vec<&str> = Vec::new();
    for key in keys.map(|key| key.get(..SHORT_KEY).unwrap_or(key)) {
        if !short.contains(&key) {
            short.push(key);
        }
    }
    short.join(" ")
}
