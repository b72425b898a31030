//! Columns of how outputs were judged, how the device was doing, and flags.

use super::Field;
use super::column::{
    Column, Group, count, digest, float, int, number, put, text, with_another, word,
};
use crate::hardware::clocks::ClockSummary;
use crate::row::entry::{Entry, WorstOutput};
use crate::row::lines::{TableError, parse_word};
use crate::row::measured::Measured;
use crate::row::outcome::{Checked, Flag};

const ORACLE: &str = "oracle";
const NVML: &str = "NVML";

/// The judgement, the device's clocks, and flags.
pub(super) const CHECK: &[Column] = &[
    text("checked", Checked::ABOUT, ORACLE)
        .group(Group::Result)
        .of_measurement(
            |found| word(found.checked.name()),
            |found, field| put(&mut found.checked, field.word::<Checked>(Checked::WORDS)),
        ),
    text(
        "worst_tensor",
        "the output with the greatest error in units of its tolerance",
        ORACLE,
    )
    .group(Group::Program)
    .of_entry(|entry| word(&entry.worst.as_ref()?.tensor), read_worst),
    number(
        "worst_error",
        "distance of that output from the oracle's, in the metric of the tensor",
        ORACLE,
    )
    .group(Group::Program)
    .of_entry(|entry| float(entry.worst.as_ref()?.error), with_another),
    number(
        "worst_tolerance",
        "distance up to which that output is right",
        "workload",
    )
    .group(Group::Program)
    .of_entry(|entry| float(entry.worst.as_ref()?.tolerance), with_another),
    number(
        "worst_spreads",
        "distance of that output in spreads: 1 is what rounding does in an honest program, or in the reference itself",
        "workload",
    )
    .group(Group::Program)
    .of_entry(|entry| float(entry.worst.as_ref()?.spreads?), with_another),
    text(
        "notices",
        "the least relative L2 error of each output that would be noticed, with `; ` between",
        "workload",
    )
    .group(Group::Program)
    .of_entry(
        |entry| word(entry.notices.as_deref()?),
        |entry, field| {
            entry.notices = field.shared();
            Ok(())
        },
    ),
    digest(
        "input_digest",
        "SHA-256 of inputs that a function made (`inputs_from`), 64 hex digits",
        "inputs",
    )
    .group(Group::Identity)
    .of_measurement(
        |found| word(found.input_digest.as_deref()?),
        |found, field| put(&mut found.input_digest, Ok(field.owned().map(Box::from))),
    ),
    digest(
        "output_digest",
        "SHA-256 of the outputs, 64 hex digits; of sums over all of their bits where they stayed on a GPU",
        "outputs",
    )
    .group(Group::Identity)
    .of_measurement(
        |found| word(found.output_digest.as_deref()?),
        |found, field| put(&mut found.output_digest, Ok(field.owned().map(Box::from))),
    ),
    count("sm_mhz", "median clock of the multiprocessors", NVML)
        .unit("MHz")
        .group(Group::Program)
        .of_measurement(|found| int(found.clocks.as_ref()?.sm_mhz), read_clocks),
    count("temperature_c", "greatest temperature", NVML)
        .unit("degrees C")
        .group(Group::Program)
        .of_measurement(
            |found| int(found.clocks.as_ref()?.temperature_c),
            with_another,
        ),
    number("power_w", "median power", NVML)
        .unit("W")
        .group(Group::Program)
        .of_measurement(|found| float(found.clocks.as_ref()?.power_w), with_another),
    text(
        "throttled_by",
        "reasons for which the device held its clocks back, in words with spaces between",
        NVML,
    )
    .group(Group::Program)
    .of_measurement(
        |found| word(&found.clocks.as_ref()?.throttled_by.join(" ")),
        with_another,
    ),
    text(
        "unlisted_sources",
        "files that a function in Python loaded and that are not part of the run's identity, with `; ` between",
        "run",
    )
    .group(Group::Program)
    .of_measurement(
        |found| word(found.unlisted_sources.as_deref()?),
        |found, field| put(&mut found.unlisted_sources, Ok(field.owned().map(Box::from))),
    ),
    text(
        "process_changes",
        "states of its process that a program of the user changed for others, with `; ` between",
        "run",
    )
    .group(Group::Program)
    .of_measurement(
        |found| word(found.process_changes.as_deref()?),
        |found, field| put(&mut found.process_changes, Ok(field.owned().map(Box::from))),
    ),
    text(
        "autotuned",
        "configurations that autotuners of Triton and PyTorch chose for kernels that a function in Python launches, \
         with `; ` between",
        "run",
    )
    .group(Group::Program)
    .of_measurement(
        |found| word(found.autotuned.as_deref()?),
        |found, field| put(&mut found.autotuned, Ok(field.owned().map(Box::from))),
    ),
    text(
        "flags",
        "remarks on the row (docs/codes.md), in words with spaces between",
        "run",
    )
    .group(Group::Result)
    .of_measurement(|found| word(&flags(found)), read_flags),
];

fn read_worst(entry: &mut Entry, field: &mut Field<'_>) -> Result<(), TableError> {
    let Some(tensor) = field.shared().filter(|_| entry.measurement.is_some()) else {
        return Ok(());
    };
    let spreads = field.sibling("worst_spreads").number()?;
    let mut number = |column| {
        let field = field.sibling(column);
        field.number()?.ok_or_else(|| field.refuse("a number"))
    };
    entry.worst = Some(WorstOutput {
        tensor,
        error: number("worst_error")?,
        tolerance: number("worst_tolerance")?,
        spreads,
    });
    Ok(())
}

fn read_clocks(found: &mut Measured, field: &mut Field<'_>) -> Result<(), TableError> {
    let Some(sm_mhz) = field.count()? else {
        return Ok(());
    };
    let throttled_by = field.sibling("throttled_by");
    let throttled_by = throttled_by.text().split_whitespace();
    found.clocks = Some(Box::new(ClockSummary {
        sm_mhz,
        throttled_by: throttled_by.map(str::to_owned).collect(),
        temperature_c: field.sibling("temperature_c").count()?.unwrap_or(0),
        power_w: field.sibling("power_w").amount()?.unwrap_or(0.0),
    }));
    Ok(())
}

fn flags(found: &Measured) -> String {
    let names: Vec<&str> = found.flags.iter().map(|flag| flag.name()).collect();
    names.join(" ")
}

fn read_flags(found: &mut Measured, field: &mut Field<'_>) -> Result<(), TableError> {
    let words = field.text().split_whitespace();
    let flags: Option<Vec<Flag>> = words.map(parse_word).collect();
    found.flags = flags.ok_or_else(|| field.refuse("words such as `unsteady`"))?;
    Ok(())
}
