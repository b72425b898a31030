//! Columns of the program: its work and rates, and the costs of compiling it.

use sweeper_program::Totals;

use super::Field;
use super::column::{Column, Group, count, float, int, number, put, text, word};
use crate::row::CompileUse;
use crate::row::entry::Entry;
use crate::row::lines::TableError;
use crate::row::measured::Measured;

const PROGRAM: &str = "program, before it runs";
const CACHE: &str = "kernel cache";
const FORMULA: &str = "workload's formula";

/// Digits of a key that name it in tables.
const SHORT_KEY: usize = 12;

/// The work of an iteration, and how fast it was done.
pub(super) const WORK: &[Column] = &[
    count(
        "launches",
        "kernels launched in an iteration, copies and fills included",
        PROGRAM,
    )
    .group(Group::Program)
    .of_measurement(
        |found| int(found.totals?.launches),
        |found, field| read_total(found, field, |totals| &mut totals.launches),
    ),
    count(
        "library_launches",
        "launches that are calls of a vendor's or another library; the others are kernels of \
         ours",
        PROGRAM,
    )
    .group(Group::Program)
    .of_measurement(
        |found| int(found.totals?.calls),
        |found, field| read_total(found, field, |totals| &mut totals.calls),
    ),
    count("read_bytes", "memory that an iteration reads", PROGRAM)
        .unit("bytes")
        .group(Group::Program)
        .of_measurement(
            |found| int(found.totals?.read_bytes),
            |found, field| read_total(found, field, |totals| &mut totals.read_bytes),
        ),
    count("written_bytes", "memory that an iteration writes", PROGRAM)
        .unit("bytes")
        .group(Group::Program)
        .of_measurement(
            |found| int(found.totals?.written_bytes),
            |found, field| read_total(found, field, |totals| &mut totals.written_bytes),
        ),
    number(
        "flops",
        "useful floating-point work of an iteration",
        FORMULA,
    )
    .unit("operations")
    .group(Group::Program)
    .of_measurement(
        |found| float(found.flops),
        |found, field| put(&mut found.flops, field.amount()),
    ),
    number(
        "compulsory_bytes",
        "the least memory traffic of an iteration",
        FORMULA,
    )
    .unit("bytes")
    .group(Group::Program)
    .of_measurement(
        |found| float(found.compulsory_bytes),
        |found, field| put(&mut found.compulsory_bytes, field.amount()),
    ),
    number("flops_per_s", "`flops` over `median_ns`", "both columns")
        .unit("operations/s")
        .group(Group::Result)
        .written(|entry| entry.flops_per_s().and_then(float)),
    number(
        "bytes_per_s",
        "`compulsory_bytes` over `median_ns`",
        "both columns",
    )
    .unit("bytes/s")
    .group(Group::Result)
    .written(|entry| entry.bytes_per_s().and_then(float)),
    number(
        "roofline_ns",
        "the least time that the device's measured ceilings allow",
        "ceilings",
    )
    .unit("ns")
    .group(Group::Result)
    .of_entry(
        |entry| entry.roofline_ns.and_then(float),
        |entry, field| put(&mut entry.roofline_ns, field.amount()),
    ),
    number(
        "efficiency",
        "`roofline_ns` over `median_ns`: above 1 where data stays in a cache",
        "both columns",
    )
    .group(Group::Result)
    .written(|entry| entry.efficiency().and_then(float)),
    number(
        "ceiling_flops_per_s",
        "the most operations a second that were measured on the device, in the row's arithmetic \
         (`precision`, else `dtype`)",
        "ceilings",
    )
    .unit("operations/s")
    .group(Group::Result)
    .of_entry(
        |entry| entry.ceiling_flops_per_s.and_then(float),
        |entry, field| put(&mut entry.ceiling_flops_per_s, field.amount()),
    ),
    number(
        "flops_utilization",
        "model FLOPs utilisation: `flops_per_s` over `ceiling_flops_per_s` (empty where nothing \
         useful is computed)",
        "both columns",
    )
    .group(Group::Result)
    .written(|entry| entry.flops_utilization().and_then(float)),
];

fn read_total(
    found: &mut Measured,
    field: &mut Field<'_>,
    place: impl Fn(&mut Totals) -> &mut u64,
) -> Result<(), TableError> {
    if let Some(total) = field.count::<u64>()? {
        *place(found.totals.get_or_insert_default()) = total;
    }
    Ok(())
}

/// The kernels of the program, and the costs of compiling them.
pub(super) const COMPILING: &[Column] = &[
    count("kernels", "kernels that had to be compiled", "plan")
        .group(Group::Program)
        .of_entry(
            |entry| int(compiling(entry)?.kernels),
            |entry, field| put(&mut entry.compile.kernels, field.count::<u32>()),
        ),
    count(
        "kernel_hits",
        "kernels that had to be compiled and that the cache had",
        CACHE,
    )
    .group(Group::Program)
    .of_entry(
        |entry| int(compiling(entry)?.hits),
        |entry, field| put(&mut entry.compile.hits, field.count::<u32>()),
    ),
    count(
        "compile_ns",
        "compile times of the program's kernels, whenever they were compiled, added up: more \
         than anybody waited, where some were compiled side by side",
        CACHE,
    )
    .unit("ns")
    .group(Group::Program)
    .of_entry(
        |entry| int(compiling(entry)?.compile_ns),
        |entry, field| put(&mut entry.compile.compile_ns, field.count::<u64>()),
    ),
    count(
        "compile_wall_ns",
        "time in which at least one of the program's kernels was being compiled (empty where \
         there are none)",
        CACHE,
    )
    .unit("ns")
    .group(Group::Program)
    .of_entry(
        |entry| int(compiling(entry)?.wall_ns?),
        |entry, field| put(&mut entry.compile.wall_ns, field.count::<u64>()),
    ),
    count(
        "cache_read_ns",
        "times to read the program's kernels from the cache, added up (empty where one is in \
         none)",
        CACHE,
    )
    .unit("ns")
    .group(Group::Program)
    .of_entry(
        |entry| int(compiling(entry)?.read_ns?),
        |entry, field| put(&mut entry.compile.read_ns, field.count::<u64>()),
    ),
    text(
        "kernel_keys",
        "first digits of the keys of compiled kernels, in the order of the program; `sweeper \
         cache show` finds them",
        CACHE,
    )
    .written(|entry| word(&kernel_keys(entry.measurement.as_ref()?))),
    text(
        "same_program_as",
        "backend, earlier in the block, that has the same program, launch by launch (empty \
         where none has)",
        PROGRAM,
    )
    .group(Group::Program)
    .of_measurement(
        |found| word(found.same_program_as.as_deref()?),
        |found, field| put(&mut found.same_program_as, Ok(field.shared())),
    ),
];

/// The use of the kernel cache, of rows that were measured.
fn compiling(entry: &Entry) -> Option<&CompileUse> {
    entry.measurement.as_ref().map(|_| &entry.compile)
}

/// Keys of compiled kernels, each once.
fn kernel_keys(found: &Measured) -> String {
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
