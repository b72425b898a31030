//! Our own `records.csv`, with or without the run's folder around it.

use std::collections::HashMap;
use std::path::Path;

use sweeper_program::workload::ParameterKind;
use sweeper_program::{Phase, Value};
use sweeper_workloads::registry;

use super::SourceError;
use sweeper_model::identity::{Digest, PointId, ProblemId};
use sweeper_model::row::entry::{Entry, Times, Words};
use sweeper_model::row::lines::{Line, Table, TableError};
use sweeper_model::row::outcome::Status;
use sweeper_model::row::schema::{self, Field};

/// Columns that every file must have. The first column tells this format from others.
pub(super) const REQUIRED: [&str; 9] = [
    "point",
    "problem",
    "workload",
    "backend",
    "phase",
    "dtype",
    "status",
    "reason",
    "median_ns",
];

/// The version of the file's format: its column `schema`. Files without this column are version 1
/// if rows state how warm the cache was, and 0 if they do not.
///
/// # Errors
/// If it is a version that this program does not know, or lines differ.
pub(super) fn schema(table: &Table, path: &Path) -> Result<u32, SourceError> {
    if !table.has("schema") {
        return Ok(u32::from(table.has("l2") && table.has("mode")));
    }
    let mut found = None;
    table.each(|line| {
        let version: u32 = line
            .count("schema")?
            .ok_or_else(|| line.refuse("schema", "the version of the file's format"))?;
        match found {
            Some(held) if held != version => {
                Err(line.refuse("schema", &format!("{held}, as in the lines above")))
            }
            _ => {
                found = Some(version);
                Ok(())
            }
        }
    })?;
    match found.unwrap_or(schema::SCHEMA) {
        version if version > schema::SCHEMA => Err(SourceError::Newer {
            path: path.to_owned(),
            found: version,
        }),
        version => Ok(version),
    }
}

/// The file's rows.
///
/// # Errors
/// If a line or a field can't be read.
pub(super) fn entries(table: &Table) -> Result<Vec<Entry>, TableError> {
    let columns = table.header().iter().map(String::as_str);
    let named: Vec<(&str, &str)> = columns
        .filter_map(|column| Some((schema::axis_of_column(column)?, column)))
        .collect();
    let metrics = schema::metric::of_columns(table.header());
    let mut words = Words::default();
    let mut entries = Vec::new();
    table.each(|line| {
        let mut entry = entry(line, &named, &mut words)?;
        schema::metric::read(&mut entry, line, &metrics, &mut words)?;
        entries.push(entry);
        Ok(())
    })?;
    Ok(entries)
}

/// Adds samples from the `samples.csv` beside the file, except those of rows that were made of more
/// or of fewer, which is a warning.
///
/// # Errors
/// If a line or a field can't be read.
pub(super) fn add_samples(
    entries: &mut [Entry],
    table: &Table,
) -> Result<Option<String>, TableError> {
    let mut samples: HashMap<PointId, Vec<f64>> = HashMap::new();
    table.each(|line| {
        let point = PointId(digest(line, "point")?);
        let time_ns = line.amount("time_ns")?;
        let time_ns = time_ns.ok_or_else(|| line.refuse("time_ns", "a number of nanoseconds"))?;
        samples.entry(point).or_default().push(time_ns);
        Ok(())
    })?;
    let mut others = 0;
    for entry in entries {
        let found = entry.point.and_then(|point| samples.remove(&point));
        let found = found.unwrap_or_default();
        let n = entry.times.and_then(|times| times.n);
        match n.is_none_or(|n| n as usize == found.len()) {
            true => entry.samples_ns = found,
            false => others += 1,
        }
    }
    Ok((others > 0).then(|| {
        let rows = if others == 1 { "row says" } else { "rows say" };
        format!(
            "samples.csv has not as many samples as {others} {rows} (`n`), and these are left out: \
             the file was cut off or edited, or belongs to another one"
        )
    }))
}

fn entry(line: &Line<'_>, named: &[(&str, &str)], words: &mut Words) -> Result<Entry, TableError> {
    let needed = |column, expected| line.refuse(column, expected);
    let phase: Option<Phase> = line.word("phase", "`forward`, `backward`, `both` or `step`")?;
    let status: Option<Status> = line.word("status", "a status such as `ok` or `oom`")?;
    let mut entry = Entry::new(
        words.get(line.text("workload")),
        words.get(line.text("backend")),
        phase.ok_or_else(|| needed("phase", "`forward`, `backward` or `both`"))?,
        status.ok_or_else(|| needed("status", "a status such as `ok` or `oom`"))?,
    );
    entry.point = Some(PointId(digest(line, "point")?));
    entry.problem = Some(ProblemId(digest(line, "problem")?));
    add_values(&mut entry, line, named, words)?;
    add_columns(&mut entry, line, words)?;
    if entry.status == Status::Ok && entry.times.is_none() {
        entry.reason = words.some("no time");
    }
    Ok(entry)
}

/// Reads the columns that every file has. A row with a median has statistics; a row with a number
/// of iterations has a measurement.
fn add_columns(entry: &mut Entry, line: &Line<'_>, words: &mut Words) -> Result<(), TableError> {
    entry.times = line.amount("median_ns")?.map(|median| Times {
        median,
        ..Times::default()
    });
    let iterations: Option<u32> = line.count("iterations")?;
    entry.measurement = iterations.map(|_| Box::default());
    for column in schema::columns() {
        let mut field = Field {
            line,
            column: column.name,
            words,
        };
        column.read(entry, &mut field)?;
    }
    Ok(())
}

fn digest(line: &Line<'_>, column: &str) -> Result<Digest, TableError> {
    let parsed = line.text(column).parse();
    parsed.map_err(|_| line.refuse(column, "an identity of 64 hex digits"))
}

/// Parameters and other values from `named`, names and their columns; the workload of a row says
/// which kind a parameter is.
fn add_values(
    entry: &mut Entry,
    line: &Line<'_>,
    named: &[(&str, &str)],
    words: &mut Words,
) -> Result<(), TableError> {
    let workload = registry::workload(&entry.workload).map(|workload| workload.info());
    for &(name, column) in named {
        let text = line.text(column);
        if text.is_empty() {
            continue;
        }
        let known = workload.map(|info| info.parameters.iter().find(|held| held.name == name));
        let value = match known.flatten().map(|parameter| &parameter.kind) {
            Some(ParameterKind::Int { .. }) => line.count(column)?.map(Value::Int),
            Some(ParameterKind::Float { .. }) => line.number(column)?.map(Value::Float),
            Some(ParameterKind::Bool) => {
                let parsed = text.parse().map(Value::Bool);
                Some(parsed.map_err(|_| line.refuse(column, "`true` or `false`"))?)
            }
            Some(ParameterKind::Choice(_)) => Some(Value::Text(words.get(text))),
            None => Some(guess(text, words)),
        };
        let Some(value) = value else { continue };
        let is_parameter = known.is_none_or(|known| known.is_some());
        let values = match is_parameter {
            true => &mut entry.parameters,
            false => &mut entry.values,
        };
        values.insert(words.get(name), value);
    }
    Ok(())
}

fn guess(text: &str, words: &mut Words) -> Value {
    match (
        text.parse::<i64>(),
        text.parse::<f64>(),
        text.parse::<bool>(),
    ) {
        (Ok(value), ..) => Value::Int(value),
        (_, Ok(value), _) if !value.is_nan() => Value::Float(value),
        (.., Ok(value)) => Value::Bool(value),
        _ => Value::Text(words.get(text)),
    }
}
