//! Columns of loops that decide themselves whether to compile.

use super::Field;
use super::column::{Column, Group, count, float, int, number, text, word};
use crate::row::hot_path::{HotOutcome, HotPath};
use crate::row::lines::TableError;
use crate::row::measured::Measured;
use crate::word::Word;

const LOOP: &str = "the first loop of `auto`";

macro_rules! whole {
    ($name:literal, $field:ident, $meaning:literal) => {
        count($name, $meaning, LOOP)
            .group(Group::Program)
            .of_measurement(
                |found| int(found.hot_path.as_ref()?.$field?),
                |found, field| {
                    let read = field.count()?;
                    read.into_iter()
                        .for_each(|read| of(found).$field = Some(read));
                    Ok(())
                },
            )
    };
}

macro_rules! counted {
    ($name:literal, $field:ident, $meaning:literal) => {
        count($name, $meaning, LOOP)
            .group(Group::Program)
            .of_measurement(
                |found| int(found.hot_path.as_ref()?.$field),
                |found, field| {
                    let read = field.count()?;
                    read.into_iter().for_each(|read| of(found).$field = read);
                    Ok(())
                },
            )
    };
}

macro_rules! time {
    ($name:literal, $field:ident, $meaning:literal) => {
        number($name, $meaning, LOOP)
            .unit("ns")
            .group(Group::Program)
            .of_measurement(
                |found| float(found.hot_path.as_ref()?.$field?),
                |found, field| {
                    let read = field.amount()?;
                    read.into_iter()
                        .for_each(|read| of(found).$field = Some(read));
                    Ok(())
                },
            )
    };
}

macro_rules! always {
    ($name:literal, $field:ident, $meaning:literal) => {
        number($name, $meaning, LOOP)
            .unit("ns")
            .group(Group::Program)
            .of_measurement(
                |found| float(found.hot_path.as_ref()?.$field),
                |found, field| {
                    let read = field.amount()?;
                    read.into_iter().for_each(|read| of(found).$field = read);
                    Ok(())
                },
            )
    };
}

/// What became of the first loop of a point of `auto`; empty for other backends. Iterations are
/// counted from 1.
pub(super) const HOT: &[Column] = &[
    text(
        "hot_outcome",
        "end of the search for a program: `kept`, `kept_parts`, `back`, `remembered`, `undetected`, \
         `parts`, `short`, `unpaid`, `worthless`, `compiling`, `trying` or `failed`",
        LOOP,
    )
    .group(Group::Program)
    .of_measurement(
        |found| word(found.hot_path.as_ref()?.outcome.word()),
        read_outcome,
    ),
    text(
        "hot_note",
        "why there is no program, and what became of compiling one (empty where there is one)",
        LOOP,
    )
    .group(Group::Program)
    .of_measurement(
        |found| word(found.hot_path.as_ref()?.note.as_deref()?),
        |found, field| {
            let note = field.owned();
            note.into_iter()
                .for_each(|note| of(found).note = Some(note));
            Ok(())
        },
    ),
    whole!(
        "hot_detected_at",
        detected_at,
        "iteration in which the loop was found"
    ),
    whole!(
        "hot_parts_at",
        parts_at,
        "first iteration that a program ran whose repeated parts alone are compiled"
    ),
    whole!(
        "hot_switched_at",
        switched_at,
        "first iteration that the compiled program ran"
    ),
    counted!(
        "hot_replaced",
        replaced,
        "iterations that compiled programs ran"
    ),
    counted!(
        "hot_regressions",
        regressions,
        "compiled programs that were not faster, so that the loop went back"
    ),
    time!(
        "hot_detection_ns",
        detection_ns,
        "time of recording operations until the loop was found"
    ),
    always!(
        "hot_background_ns",
        background_ns,
        "time of planning and compiling beside the loop, until its end at most"
    ),
    time!(
        "hot_price_ns",
        predicted_price_ns,
        "predicted time of compiling"
    ),
    time!(
        "hot_gain_ns",
        predicted_gain_ns,
        "predicted gain of the compiled program, an iteration"
    ),
    time!(
        "hot_eager_ns",
        eager_ns,
        "time of an iteration by single operations, as the loop measured it"
    ),
    time!(
        "hot_compiled_ns",
        compiled_ns,
        "time of an iteration of the compiled program that was tried last, in turns with what ran before"
    ),
    always!("hot_total_ns", total_ns, "time of the whole loop"),
];

/// The loop of a measurement whose first column was read.
fn of(found: &mut Measured) -> &mut HotPath {
    found.hot_path.get_or_insert_default()
}

fn read_outcome(found: &mut Measured, field: &mut Field<'_>) -> Result<(), TableError> {
    if let Some(outcome) = field.word::<HotOutcome>("an outcome of `auto`")? {
        of(found).outcome = outcome;
    }
    Ok(())
}
