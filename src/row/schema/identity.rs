//! Columns that say what was measured, under which conditions, and what became of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use sweeper_kernels::{Dtype, Value};

use super::{Access, Column, Field, Group, Kind, SCHEMA, float, int, put, word};
use crate::hardware::DeviceKind;
use crate::row::entry::Entry;
use crate::row::lines::TableError;

const PLAN: &str = "plan";
const MANIFEST: &str = "manifest";

/// What was measured.
pub(super) const IDENTITY: &[Column] = &[
    Column {
        name: "point",
        kind: Kind::Digest,
        unit: "",
        meaning: "identity of the row: SHA-256 of problem, backend, phase, canonical shape and conditions, \
                  64 hex digits",
        source: PLAN,
        group: Some(Group::Identity),
        access: Access::Written(|entry| word(&entry.point?.0.hex())),
    },
    Column {
        name: "problem",
        kind: Kind::Digest,
        unit: "",
        meaning: "identity of workload, parameters, type and inputs, 64 hex digits",
        source: PLAN,
        group: Some(Group::Identity),
        access: Access::Written(|entry| word(&entry.problem?.0.hex())),
    },
    Column {
        name: "case",
        kind: Kind::Text,
        unit: "",
        meaning: "name of the case in the manifest",
        source: MANIFEST,
        group: Some(Group::Axis),
        access: Access::Entry(
            |entry| shared(&entry.case),
            |entry, field| put(&mut entry.case, Ok(field.shared())),
        ),
    },
    Column {
        name: "workload",
        kind: Kind::Text,
        unit: "",
        meaning: "name of the computation",
        source: MANIFEST,
        group: Some(Group::Axis),
        access: Access::Written(|entry| shared(&entry.workload)),
    },
    Column {
        name: "backend",
        kind: Kind::Text,
        unit: "",
        meaning: "name of the implementation",
        source: MANIFEST,
        group: Some(Group::Axis),
        access: Access::Written(|entry| shared(&entry.backend)),
    },
    Column {
        name: "phase",
        kind: Kind::Text,
        unit: "",
        meaning: "`forward`, `backward` or `both`",
        source: MANIFEST,
        group: Some(Group::Axis),
        access: Access::Written(|entry| word(entry.phase.name())),
    },
    Column {
        name: "dtype",
        kind: Kind::Text,
        unit: "",
        meaning: "type of the elements, such as `f32`",
        source: MANIFEST,
        group: Some(Group::Axis),
        access: Access::Entry(
            |entry| word(entry.dtype?.name()),
            |entry, field| {
                put(
                    &mut entry.dtype,
                    field.word::<Dtype>("`f32`, `f64`, `i32` or `i64`"),
                )
            },
        ),
    },
];

/// How it was measured.
pub(super) const CONDITIONS: &[Column] = &[
    Column {
        name: "canonical",
        kind: Kind::Text,
        unit: "",
        meaning: "bounds that kernels were compiled for, as `K<=8 T<=128`; empty where there are none",
        source: PLAN,
        group: Some(Group::Program),
        access: Access::Entry(|entry| word(&bounds(entry)), read_bounds),
    },
    Column {
        name: "device",
        kind: Kind::Text,
        unit: "",
        meaning: "`cpu`, `cuda` or `null`",
        source: "device",
        group: None,
        access: Access::Entry(
            |entry| word(entry.device?.name()),
            |entry, field| {
                put(
                    &mut entry.device,
                    field.word::<DeviceKind>("`cpu`, `cuda` or `null`"),
                )
            },
        ),
    },
    Column {
        name: "device_name",
        kind: Kind::Text,
        unit: "",
        meaning: "product, and the unit of a GPU",
        source: "device",
        group: Some(Group::Axis),
        access: Access::Entry(
            |entry| shared(entry.device_name.as_ref()?),
            |entry, field| put(&mut entry.device_name, Ok(field.shared())),
        ),
    },
    Column {
        name: "l2",
        kind: Kind::Text,
        unit: "",
        meaning: "second-level cache before a sample: `cold`, `clean` or `hot`",
        source: MANIFEST,
        group: Some(Group::Axis),
        access: Access::Entry(
            |entry| shared(entry.l2.as_ref()?),
            |entry, field| put(&mut entry.l2, Ok(field.shared())),
        ),
    },
    Column {
        name: "mode",
        kind: Kind::Text,
        unit: "",
        meaning: "way of launching: `launch` by launch, or as one `graph`",
        source: MANIFEST,
        group: Some(Group::Axis),
        access: Access::Entry(
            |entry| shared(entry.mode.as_ref()?),
            |entry, field| put(&mut entry.mode, Ok(field.shared())),
        ),
    },
    Column {
        name: "threads",
        kind: Kind::Int,
        unit: "",
        meaning: "CPU threads of the measured program",
        source: MANIFEST,
        group: Some(Group::Axis),
        access: Access::Entry(
            |entry| int(entry.threads?),
            |entry, field| put(&mut entry.threads, field.count::<u32>()),
        ),
    },
];

/// What became of it.
pub(super) const OUTCOME: &[Column] = &[
    Column {
        name: "status",
        kind: Kind::Text,
        unit: "",
        meaning: "`ok`, or one word for why there is no result (docs/codes.md)",
        source: "run",
        group: Some(Group::Result),
        access: Access::Written(|entry| word(entry.status.name())),
    },
    Column {
        name: "reason",
        kind: Kind::Text,
        unit: "",
        meaning: "why the status is not `ok`",
        source: "run",
        group: Some(Group::Result),
        access: Access::Entry(
            |entry| shared(entry.reason.as_ref()?),
            |entry, field| put(&mut entry.reason, Ok(field.shared())),
        ),
    },
];

/// When the row was made, and by which version.
pub(super) const ORIGIN: &[Column] = &[
    Column {
        name: "unix_time_s",
        kind: Kind::Float,
        unit: "s",
        meaning: "time at which the row was made, since 1970 (0 on the null device)",
        source: "clock",
        group: Some(Group::Identity),
        access: Access::Entry(
            |entry| float(entry.unix_time_s?),
            |entry, field| put(&mut entry.unix_time_s, field.amount()),
        ),
    },
    Column {
        name: "schema",
        kind: Kind::Int,
        unit: "",
        meaning: "version of this format",
        source: "program",
        group: None,
        access: Access::Written(|_| int(SCHEMA)),
    },
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
    let bounds: Option<BTreeMap<Arc<str>, u64>> = parts.map(&mut bound).collect();
    entry.canonical = bounds.ok_or_else(|| field.refuse("bounds such as `T<=128 K<=8`"))?;
    Ok(())
}
