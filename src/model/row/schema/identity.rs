//! Columns of the point, of the conditions of its measurement, and of its result.

use std::sync::Arc;

use sweeper_program::{Dtype, Value};

use super::column::{Column, Group, count, digest, float, int, number, put, text, word};
use super::{Field, SCHEMA};
use crate::hardware::DeviceKind;
use crate::row::entry::Entry;
use crate::row::lines::TableError;
use crate::row::named::Named;

const PLAN: &str = "plan";
const MANIFEST: &str = "manifest";

/// The columns of the point.
pub(super) const IDENTITY: &[Column] = &[
    digest(
        "point",
        "identity of the row: SHA-256 of problem, backend, phase, canonical shape and \
         conditions, 64 hex digits",
        PLAN,
    )
    .group(Group::Identity)
    .written(|entry| word(&entry.point?.0.hex())),
    digest(
        "problem",
        "identity of workload, parameters, type and inputs, 64 hex digits",
        PLAN,
    )
    .group(Group::Identity)
    .written(|entry| word(&entry.problem?.0.hex())),
    text("case", "name of the case in the manifest", MANIFEST)
        .group(Group::Axis)
        .of_entry(
            |entry| shared(&entry.case),
            |entry, field| put(&mut entry.case, Ok(field.shared())),
        ),
    text("workload", "name of the computation", MANIFEST)
        .group(Group::Axis)
        .written(|entry| shared(&entry.workload)),
    text("backend", "name of the implementation", MANIFEST)
        .group(Group::Axis)
        .written(|entry| shared(&entry.backend)),
    text("phase", "`forward`, `backward` or `both`", MANIFEST)
        .group(Group::Axis)
        .written(|entry| word(entry.phase.name())),
    text("dtype", "type of the elements, such as `f32`", MANIFEST)
        .group(Group::Axis)
        .of_entry(
            |entry| word(entry.dtype?.name()),
            |entry, field| {
                put(
                    &mut entry.dtype,
                    field.word::<Dtype>("`f32`, `f64`, `i32` or `i64`"),
                )
            },
        ),
];

/// How it was measured.
pub(super) const CONDITIONS: &[Column] = &[
    text(
        "canonical",
        "bounds that kernels were compiled for, as `K<=8 T<=128`; empty where there are none",
        PLAN,
    )
    .group(Group::Program)
    .of_entry(|entry| word(&bounds(entry)), read_bounds),
    text("device", "`cpu`, `cuda` or `null`", "device").of_entry(
        |entry| word(entry.device?.name()),
        |entry, field| {
            put(
                &mut entry.device,
                field.word::<DeviceKind>("`cpu`, `cuda` or `null`"),
            )
        },
    ),
    text("device_name", "product, and the unit of a GPU", "device")
        .group(Group::Axis)
        .of_entry(
            |entry| shared(entry.device_name.as_ref()?),
            |entry, field| put(&mut entry.device_name, Ok(field.shared())),
        ),
    text(
        "l2",
        "second-level cache before a sample: `cold`, `clean` or `hot`",
        MANIFEST,
    )
    .group(Group::Axis)
    .of_entry(
        |entry| shared(entry.l2.as_ref()?),
        |entry, field| put(&mut entry.l2, Ok(field.shared())),
    ),
    text(
        "mode",
        "how the program is run: `launch` by launch, as one `graph`, or as whole loops (`loop:100`)",
        MANIFEST,
    )
    .group(Group::Axis)
    .of_entry(
        |entry| shared(entry.mode.as_ref()?),
        |entry, field| put(&mut entry.mode, Ok(field.shared())),
    ),
    count("threads", "CPU threads of the measured program", MANIFEST)
        .group(Group::Axis)
        .of_entry(
            |entry| int(entry.threads?),
            |entry, field| put(&mut entry.threads, field.count::<u32>()),
        ),
];

/// The columns of the result.
pub(super) const OUTCOME: &[Column] = &[
    text(
        "status",
        "`ok`, or one word for why there is no result (docs/codes.md)",
        "run",
    )
    .group(Group::Result)
    .written(|entry| word(entry.status.name())),
    text("reason", "why the status is not `ok`", "run")
        .group(Group::Result)
        .of_entry(
            |entry| shared(entry.reason.as_ref()?),
            |entry, field| put(&mut entry.reason, Ok(field.shared())),
        ),
];

/// When the row was made, and by which version.
pub(super) const ORIGIN: &[Column] = &[
    number(
        "unix_time_s",
        "time at which the row was made, since 1970 (0 on the null device)",
        "clock",
    )
    .unit("s")
    .group(Group::Identity)
    .of_entry(
        |entry| float(entry.unix_time_s?),
        |entry, field| put(&mut entry.unix_time_s, field.amount()),
    ),
    text(
        "reused_from",
        "earlier run that the result was taken from (`--reuse`, or other backends were edited); empty where it was measured in this run",
        "run",
    )
    .group(Group::Identity)
    .of_entry(
        |entry| shared(entry.reused_from.as_ref()?),
        |entry, field| put(&mut entry.reused_from, Ok(field.shared())),
    ),
    count("schema", "version of this format", "program").written(|_| int(SCHEMA)),
];

fn shared(word: &Arc<str>) -> Option<Value> {
    (!word.is_empty()).then(|| Value::Text(Arc::clone(word)))
}

fn bounds(entry: &Entry) -> String {
    let bounds = entry.canonical.iter();
    let bounds: Vec<String> = bounds
        .map(|(name, bound)| format!("{name}<={bound}"))
        .collect();
    bounds.join(" ")
}

fn read_bounds(entry: &mut Entry, field: &mut Field<'_>) -> Result<(), TableError> {
    let line = field.line;
    let mut bound = |part: &str| {
        let (name, bound) = part.split_once("<=")?;
        Some((field.words.get(name), bound.parse().ok()?))
    };
    let parts = line.text(field.column).split_whitespace();
    let bounds: Option<Named<Arc<str>, u64>> = parts.map(&mut bound).collect();
    entry.canonical = bounds.ok_or_else(|| field.refuse("bounds such as `T<=128 K<=8`"))?;
    Ok(())
}
