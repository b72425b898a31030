//! Our own `records.csv`, with or without the run's folder around it.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use sweeper_kernels::program::Role;
use sweeper_kernels::registry;
use sweeper_kernels::workload::ParameterKind;
use sweeper_kernels::{Phase, Value};

use super::super::entry::{Entry, Memory, Program, TensorError, Times, Words};
use super::SourceError;
use super::table::{Line, Table, parse_word};
use crate::device::clocks::ClockSummary;
use crate::execute::outcome::{Checked, FirstRuns, Flag, Starting, Status};
use crate::identity::{Digest, PointId, ProblemId};
use crate::record::row::CompileUse;
use crate::record::tables;

/// Columns without which nothing can be made of the file. The first tells it from other formats.
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

/// The version of the file's format: its column `schema`. Files from before there was one are version
/// 1 if rows say in which state the cache was, and 0 if they do not.
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
    match found.unwrap_or(tables::SCHEMA) {
        version if version > tables::SCHEMA => Err(SourceError::Newer {
            path: path.to_owned(),
            found: version,
        }),
        version => Ok(version),
    }
}

/// The file's rows.
///
/// # Errors
/// Those of lines and fields.
pub(super) fn entries(table: &Table) -> Result<Vec<Entry>, SourceError> {
    let columns = table.header().iter().map(String::as_str);
    let named: Vec<(&str, &str)> = columns
        .filter_map(|column| Some((tables::axis_of_column(column)?, column)))
        .collect();
    let mut words = Words::default();
    let mut entries = Vec::new();
    table.each(|line| {
        entries.push(entry(line, &named, &mut words)?);
        Ok(())
    })?;
    Ok(entries)
}

/// Adds samples from the `samples.csv` beside the file.
///
/// # Errors
/// Those of lines and fields.
pub(super) fn add_samples(entries: &mut [Entry], table: &Table) -> Result<(), SourceError> {
    let mut samples: HashMap<PointId, Vec<f64>> = HashMap::new();
    table.each(|line| {
        let point = PointId(digest(line, "point")?);
        let time_ns = line.amount("time_ns")?;
        let time_ns = time_ns.ok_or_else(|| line.refuse("time_ns", "a number of nanoseconds"))?;
        samples.entry(point).or_default().push(time_ns);
        Ok(())
    })?;
    for entry in entries {
        if let Some(found) = entry.point.and_then(|point| samples.remove(&point)) {
            entry.samples_ns = found;
        }
    }
    Ok(())
}

fn entry(line: &Line<'_>, named: &[(&str, &str)], words: &mut Words) -> Result<Entry, SourceError> {
    let needed = |column, expected| line.refuse(column, expected);
    let phase: Option<Phase> = line.word("phase", "`forward`, `backward` or `both`")?;
    let status: Option<Status> = line.word("status", "a status such as `ok` or `oom`")?;
    let mut entry = Entry::new(
        words.get(line.text("workload")),
        words.get(line.text("backend")),
        phase.ok_or_else(|| needed("phase", "`forward`, `backward` or `both`"))?,
        status.ok_or_else(|| needed("status", "a status such as `ok` or `oom`"))?,
    );
    entry.point = Some(PointId(digest(line, "point")?));
    entry.problem = Some(ProblemId(digest(line, "problem")?));
    if let Some(case) = words.some(line.text("case")) {
        entry.case = case;
    }
    add_values(&mut entry, line, named, words)?;
    entry.dtype = line.word("dtype", "`f32`, `f64`, `i32` or `i64`")?;
    entry.canonical = canonical(line, words)?;
    entry.device = line.word("device", "`cpu`, `cuda` or `null`")?;
    entry.device_name = words.some(line.text("device_name"));
    entry.l2 = words.some(line.text("l2"));
    entry.mode = words.some(line.text("mode"));
    entry.threads = line.count("threads")?;
    entry.reason = words.some(line.text("reason"));
    entry.times = times(line)?;
    if entry.status == Status::Ok && entry.times.is_none() {
        entry.reason = words.some("no time");
    }
    entry.memory = memory(line)?;
    entry.program = program(line, words)?;
    entry.compile = CompileUse {
        kernels: line.count("kernels")?.unwrap_or(0),
        hits: line.count("kernel_hits")?.unwrap_or(0),
        compile_ns: line.count("compile_ns")?.unwrap_or(0),
        wall_ns: line.count("compile_wall_ns")?,
        read_ns: line.count("cache_read_ns")?,
    };
    entry.roofline_ns = line.amount("roofline_ns")?;
    entry.unix_time_s = line.amount("unix_time_s")?;
    Ok(entry)
}

fn digest(line: &Line<'_>, column: &str) -> Result<Digest, SourceError> {
    let parsed = line.text(column).parse();
    parsed.map_err(|_| line.refuse(column, "an identity of 64 hex digits"))
}

/// Parameters and other values from `named`, names and their columns; of which kind a parameter is, its
/// workload says.
fn add_values(
    entry: &mut Entry,
    line: &Line<'_>,
    named: &[(&str, &str)],
    words: &mut Words,
) -> Result<(), SourceError> {
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

fn canonical(line: &Line<'_>, words: &mut Words) -> Result<BTreeMap<Arc<str>, u64>, SourceError> {
    let bound = |part: &str| {
        let (name, bound) = part.split_once("<=")?;
        Some((words.get(name), bound.parse().ok()?))
    };
    let parts = line.text("canonical").split_whitespace();
    let bounds: Option<_> = parts.map(bound).collect();
    bounds.ok_or_else(|| line.refuse("canonical", "bounds such as `T<=128 K<=8`"))
}

fn times(line: &Line<'_>) -> Result<Option<Times>, SourceError> {
    let Some(median) = line.amount("median_ns")? else {
        return Ok(None);
    };
    Ok(Some(Times {
        n: line.count("n")?,
        median,
        ci_low: line.amount("median_low_ns")?,
        ci_high: line.amount("median_high_ns")?,
        coverage: line.amount("median_coverage")?,
        mean: line.amount("mean_ns")?,
        std: line.amount("std_ns")?,
        min: line.amount("min_ns")?,
        p5: line.amount("p5_ns")?,
        q1: line.amount("q1_ns")?,
        q3: line.amount("q3_ns")?,
        p95: line.amount("p95_ns")?,
        max: line.amount("max_ns")?,
        mad: line.amount("mad_ns")?,
    }))
}

fn memory(line: &Line<'_>) -> Result<Memory, SourceError> {
    let mut by_role = BTreeMap::new();
    for role in Role::ALL {
        if let Some(held) = line.count(&tables::memory_column(role))? {
            by_role.insert(role, held);
        }
    }
    let autograd = [Role::Gradient, Role::Saved].map(|role| by_role.get(&role));
    let peak_allocated = line.count("peak_allocated_bytes")?;
    Ok(Memory {
        autograd: peak_allocated.map(|_: u64| autograd.into_iter().flatten().sum()),
        by_role,
        peak_allocated,
        peak_reserved: line.count("peak_reserved_bytes")?,
    })
}

fn program(line: &Line<'_>, words: &mut Words) -> Result<Option<Box<Program>>, SourceError> {
    let Some(iterations) = line.count("iterations")? else {
        return Ok(None);
    };
    let clocks = match line.count("sm_mhz")? {
        Some(sm_mhz) => Some(ClockSummary {
            sm_mhz,
            temperature_c: line.count("temperature_c")?.unwrap_or(0),
            power_w: line.amount("power_w")?.unwrap_or(0.0),
            throttled_by: list(line.text("throttled_by")),
        }),
        None => None,
    };
    let flags: Option<Vec<Flag>> = line
        .text("flags")
        .split_whitespace()
        .map(parse_word)
        .collect();
    let checked: Option<Checked> = line.word("checked", "`full`, `reduced` or `none`")?;
    Ok(Some(Box::new(Program {
        iterations,
        warmup_samples: line.count("warmup_samples")?.unwrap_or(0),
        first_runs: match (line.count("first_runs")?, line.amount("first_runs_ns")?) {
            (Some(count), Some(elapsed_ns)) => Some(FirstRuns { count, elapsed_ns }),
            _ => None,
        },
        prepare_ns: line.count("prepare_ns")?,
        fresh_starting: fresh_starting(line)?,
        launches: line.count("launches")?.unwrap_or(0),
        calls: line.count("library_launches")?.unwrap_or(0),
        read_bytes: line.count("read_bytes")?.unwrap_or(0),
        written_bytes: line.count("written_bytes")?.unwrap_or(0),
        flops: line.amount("flops")?.unwrap_or(0.0),
        compulsory_bytes: line.amount("compulsory_bytes")?.unwrap_or(0.0),
        same_program_as: words.some(line.text("same_program_as")),
        kernels: Vec::new(),
        checked: checked.unwrap_or_default(),
        errors: worst(line, words)?.into_iter().collect(),
        output_digest: words.some(line.text("output_digest")),
        clocks,
        flags: flags.ok_or_else(|| line.refuse("flags", "words such as `unsteady`"))?,
    })))
}

fn fresh_starting(line: &Line<'_>) -> Result<Option<Starting>, SourceError> {
    let (processes, iterations) = (line.count("fresh_starts")?, line.count("start_runs")?);
    let median_ns = line.amount("start_ns")?;
    let ends = (line.amount("start_low_ns")?, line.amount("start_high_ns")?);
    let (Some(processes @ 1..), Some(iterations), Some(median_ns)) =
        (processes, iterations, median_ns)
    else {
        return Ok(None);
    };
    Ok(Some(Starting {
        processes,
        iterations,
        median_ns,
        interval_ns: ends.0.zip(ends.1),
    }))
}

fn list(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn worst(line: &Line<'_>, words: &mut Words) -> Result<Option<TensorError>, SourceError> {
    let Some(tensor) = words.some(line.text("worst_tensor")) else {
        return Ok(None);
    };
    let number = |column| {
        let found = line.number(column)?;
        found.ok_or_else(|| line.refuse(column, "a number"))
    };
    Ok(Some(TensorError {
        tensor,
        metric: None,
        error: number("worst_error")?,
        tolerance: number("worst_tolerance")?,
    }))
}
