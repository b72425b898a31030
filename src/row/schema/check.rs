//! Columns of how outputs were judged, how the device was doing, and what else to know.

use super::{Access, Column, Field, Group, Kind, float, int, put, with_another, word};
use crate::hardware::clocks::ClockSummary;
use crate::row::entry::{Entry, WorstOutput};
use crate::row::lines::{TableError, parse_word};
use crate::row::outcome::{Checked, Flag, Measurement};

const ORACLE: &str = "oracle";
const NVML: &str = "NVML";

/// The judgement, the device's clocks, and flags.
pub(super) const CHECK: &[Column] = &[
    Column {
        name: "checked",
        kind: Kind::Text,
        unit: "",
        meaning: "how outputs were compared with the oracle's: `full`, `reduced` or `none`",
        source: ORACLE,
        group: Some(Group::Result),
        access: Access::Measurement(
            |found| word(found.checked.name()),
            |found, field| {
                put(
                    &mut found.checked,
                    field.word::<Checked>("`full`, `reduced` or `none`"),
                )
            },
        ),
    },
    Column {
        name: "worst_tensor",
        kind: Kind::Text,
        unit: "",
        meaning: "the output with the greatest error in units of its tolerance",
        source: ORACLE,
        group: Some(Group::Program),
        access: Access::Entry(|entry| word(&entry.worst.as_ref()?.tensor), read_worst),
    },
    Column {
        name: "worst_error",
        kind: Kind::Float,
        unit: "",
        meaning: "distance of that output from the oracle's, in the metric of the tensor",
        source: ORACLE,
        group: Some(Group::Program),
        access: Access::Entry(|entry| float(entry.worst.as_ref()?.error), with_another),
    },
    Column {
        name: "worst_tolerance",
        kind: Kind::Float,
        unit: "",
        meaning: "distance up to which that output is right",
        source: "workload",
        group: Some(Group::Program),
        access: Access::Entry(|entry| float(entry.worst.as_ref()?.tolerance), with_another),
    },
    Column {
        name: "output_digest",
        kind: Kind::Digest,
        unit: "",
        meaning: "SHA-256 of the outputs, 64 hex digits",
        source: "outputs",
        group: Some(Group::Identity),
        access: Access::Measurement(
            |found| word(found.output_digest.as_deref()?),
            |found, field| {
                let digest = field.text();
                found.output_digest = (!digest.is_empty()).then(|| digest.to_owned());
                Ok(())
            },
        ),
    },
    Column {
        name: "sm_mhz",
        kind: Kind::Int,
        unit: "MHz",
        meaning: "median clock of the multiprocessors",
        source: NVML,
        group: Some(Group::Program),
        access: Access::Measurement(|found| int(found.clocks.as_ref()?.sm_mhz), read_clocks),
    },
    Column {
        name: "temperature_c",
        kind: Kind::Int,
        unit: "degrees C",
        meaning: "greatest temperature",
        source: NVML,
        group: Some(Group::Program),
        access: Access::Measurement(
            |found| int(found.clocks.as_ref()?.temperature_c),
            with_another,
        ),
    },
    Column {
        name: "power_w",
        kind: Kind::Float,
        unit: "W",
        meaning: "median power",
        source: NVML,
        group: Some(Group::Program),
        access: Access::Measurement(|found| float(found.clocks.as_ref()?.power_w), with_another),
    },
    Column {
        name: "throttled_by",
        kind: Kind::Text,
        unit: "",
        meaning: "reasons for which the device held its clocks back, in words with spaces between",
        source: NVML,
        group: Some(Group::Program),
        access: Access::Measurement(
            |found| word(&found.clocks.as_ref()?.throttled_by.join(" ")),
            with_another,
        ),
    },
    Column {
        name: "flags",
        kind: Kind::Text,
        unit: "",
        meaning: "remarks on the row (docs/codes.md), in words with spaces between",
        source: "run",
        group: Some(Group::Result),
        access: Access::Measurement(|found| word(&flags(found)), read_flags),
    },
];

fn read_worst(entry: &mut Entry, field: &mut Field<'_>) -> Result<(), TableError> {
    let Some(tensor) = field.shared().filter(|_| entry.measurement.is_some()) else {
        return Ok(());
    };
    let mut number = |column| {
        let field = field.sibling(column);
        field.number()?.ok_or_else(|| field.refuse("a number"))
    };
    entry.worst = Some(WorstOutput {
        tensor,
        error: number("worst_error")?,
        tolerance: number("worst_tolerance")?,
    });
    Ok(())
}

fn read_clocks(found: &mut Measurement, field: &mut Field<'_>) -> Result<(), TableError> {
    let Some(sm_mhz) = field.count()? else {
        return Ok(());
    };
    let throttled_by = field.sibling("throttled_by");
    let throttled_by = throttled_by.text().split_whitespace();
    found.clocks = Some(ClockSummary {
        sm_mhz,
        throttled_by: throttled_by.map(str::to_owned).collect(),
        temperature_c: field.sibling("temperature_c").count()?.unwrap_or(0),
        power_w: field.sibling("power_w").amount()?.unwrap_or(0.0),
    });
    Ok(())
}

fn flags(found: &Measurement) -> String {
    let names: Vec<&str> = found.flags.iter().map(|flag| flag.name()).collect();
    names.join(" ")
}

fn read_flags(found: &mut Measurement, field: &mut Field<'_>) -> Result<(), TableError> {
    let words = field.text().split_whitespace();
    let flags: Option<Vec<Flag>> = words.map(parse_word).collect();
    found.flags = flags.ok_or_else(|| field.refuse("words such as `unsteady`"))?;
    Ok(())
}
