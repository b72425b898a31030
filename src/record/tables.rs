//! `records.csv` and `samples.csv`: one line a row, one line a sample. Column names carry units.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::Write;

use sweeper_kernels::program::Role;

use super::row::Row;
use crate::execute::outcome::Measurement;

/// Version of the format of `records.csv`; its column `schema` in every line. It grows when a column
/// goes or changes its meaning, not when one is added.
pub const SCHEMA: u32 = 1;

/// Digits of a key that name it in tables.
const SHORT_KEY: usize = 12;

/// Columns that say what was measured, before those of parameters.
const IDENTITY: [&str; 7] = [
    "point", "problem", "case", "workload", "backend", "phase", "dtype",
];

/// Columns after those of parameters and derived values.
const RESULT: [&str; 61] = [
    "canonical",
    "device",
    "device_name",
    "l2",
    "mode",
    "threads",
    "status",
    "reason",
    "n",
    "median_ns",
    "median_low_ns",
    "median_high_ns",
    "median_coverage",
    "mean_ns",
    "std_ns",
    "min_ns",
    "p5_ns",
    "q1_ns",
    "q3_ns",
    "p95_ns",
    "max_ns",
    "mad_ns",
    "iterations",
    "warmup_samples",
    "first_runs",
    "first_runs_ns",
    "prepare_ns",
    "fresh_starts",
    "start_runs",
    "start_ns",
    "start_low_ns",
    "start_high_ns",
    "launches",
    "library_launches",
    "read_bytes",
    "written_bytes",
    "flops",
    "compulsory_bytes",
    "flops_per_s",
    "bytes_per_s",
    "roofline_ns",
    "efficiency",
    "peak_allocated_bytes",
    "peak_reserved_bytes",
    "kernels",
    "kernel_hits",
    "compile_ns",
    "compile_wall_ns",
    "cache_read_ns",
    "kernel_keys",
    "same_program_as",
    "checked",
    "worst_tensor",
    "worst_error",
    "worst_tolerance",
    "output_digest",
    "sm_mhz",
    "temperature_c",
    "power_w",
    "throttled_by",
    "flags",
];

/// Before the name of a parameter, axis or derived value that is called like a column of every file.
const AXIS_PREFIX: &str = "axis_";

/// Columns after those of memory.
const LAST: [&str; 2] = ["unix_time_s", "schema"];

/// The column that holds how much memory a role takes.
pub fn memory_column(role: Role) -> String {
    format!("memory_{}_bytes", role.name())
}

/// The column of a parameter, axis or derived value: its name, after `axis_` where a column that every
/// `records.csv` has is called like that (`n` of a product, and the number of samples).
pub fn axis_column(name: &str) -> Cow<'_, str> {
    match is_fixed(name) {
        true => Cow::Owned(format!("{AXIS_PREFIX}{name}")),
        false => Cow::Borrowed(name),
    }
}

/// The parameter, axis or derived value that a column holds; none for columns that every file has.
pub fn axis_of_column(column: &str) -> Option<&str> {
    match column.strip_prefix(AXIS_PREFIX) {
        Some(name) if is_fixed(name) => Some(name),
        _ => (!is_fixed(column)).then_some(column),
    }
}

/// True for the columns that every `records.csv` has; the others are parameters, axes and derived
/// values.
pub fn is_fixed(column: &str) -> bool {
    [&IDENTITY[..], &RESULT, &LAST]
        .iter()
        .any(|columns| columns.contains(&column))
        || Role::ALL.iter().any(|&role| memory_column(role) == column)
}

/// Writes `records.csv`. Values that a row lacks are empty fields.
///
/// # Errors
/// Those of the stream.
pub fn write_records(rows: &[Row], out: impl Write) -> csv::Result<()> {
    let parameters: BTreeSet<&str> = rows
        .iter()
        .flat_map(|row| row.parameters.keys().map(String::as_str))
        .collect();
    let values: BTreeSet<&str> = rows
        .iter()
        .flat_map(|row| row.values.keys().map(String::as_str))
        .collect();
    let named: Vec<&str> = parameters.into_iter().chain(values).collect();
    let mut writer = csv::Writer::from_writer(out);
    let memory = Role::ALL.map(memory_column);
    let columns: Vec<Cow<'_, str>> = named.iter().map(|name| axis_column(name)).collect();
    let header = IDENTITY
        .into_iter()
        .chain(columns.iter().map(AsRef::as_ref))
        .chain(RESULT);
    writer.write_record(header.chain(memory.iter().map(String::as_str)).chain(LAST))?;
    for row in rows {
        let mut record = identity(row);
        record.extend(named.iter().map(|name| text(row.value(name))));
        record.extend(result(row));
        record.extend(Role::ALL.map(|role| {
            text(
                row.outcome
                    .measurement
                    .as_ref()
                    .and_then(|found| found.memory_bytes.get(&role)),
            )
        }));
        record.extend([row.unix_time_s.to_string(), SCHEMA.to_string()]);
        writer.write_record(&record)?;
    }
    writer.flush()?;
    Ok(())
}

/// Writes `samples.csv`: point, number of the sample from 0, nanoseconds of one iteration.
///
/// # Errors
/// Those of the stream.
pub fn write_samples(rows: &[Row], out: impl Write) -> csv::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(["point", "sample", "time_ns"])?;
    for row in rows {
        let point = row.point.0.hex();
        let samples = row
            .outcome
            .measurement
            .iter()
            .flat_map(|found| &found.samples_ns);
        for (number, time_ns) in samples.enumerate() {
            writer.write_record([&point, &number.to_string(), &time_ns.to_string()])?;
        }
    }
    writer.flush()?;
    Ok(())
}

fn text(value: Option<&impl ToString>) -> String {
    value.map(ToString::to_string).unwrap_or_default()
}

fn identity(row: &Row) -> Vec<String> {
    vec![
        row.point.0.hex(),
        row.problem.0.hex(),
        row.case.clone(),
        row.workload.clone(),
        row.backend.clone(),
        row.phase.to_string(),
        row.dtype.to_string(),
    ]
}

fn result(row: &Row) -> Vec<String> {
    let canonical: Vec<String> = row
        .canonical
        .iter()
        .map(|(name, bound)| format!("{name}<={bound}"))
        .collect();
    let mut fields = vec![
        canonical.join(" "),
        row.device.name().to_owned(),
        row.device_name.clone(),
        row.l2.clone(),
        row.mode.clone(),
        row.threads.to_string(),
        row.outcome.status.to_string(),
        row.outcome.reason.clone().unwrap_or_default(),
    ];
    fields.extend(statistics(row));
    fields.extend(program(row));
    fields.extend(judgement(row));
    fields
}

fn statistics(row: &Row) -> Vec<String> {
    let Some(summary) = row.summary() else {
        return vec![String::new(); 14];
    };
    let numbers = [
        summary.median,
        summary.interval.low,
        summary.interval.high,
        summary.interval.coverage,
        summary.mean,
        summary.std,
        summary.min,
        summary.p5,
        summary.q1,
        summary.q3,
        summary.p95,
        summary.max,
        summary.mad,
    ];
    let mut fields = vec![summary.n.to_string()];
    fields.extend(numbers.map(|number| number.to_string()));
    fields
}

fn program(row: &Row) -> Vec<String> {
    let Some(found) = &row.outcome.measurement else {
        return vec![String::new(); 29];
    };
    let median_ns = row.summary().map(|summary| summary.median);
    let per_s = |amount: f64| text(median_ns.map(|median_ns| amount / median_ns * 1e9).as_ref());
    let efficiency = row.roofline_ns.zip(median_ns);
    let starting = found.fresh_starting();
    let ends = starting.and_then(|held| held.interval_ns);
    vec![
        found.iterations.to_string(),
        found.warmup_samples.to_string(),
        text(found.first_runs.map(|first| first.count).as_ref()),
        text(found.first_runs.map(|first| first.elapsed_ns).as_ref()),
        text(found.prepare_ns.as_ref()),
        text(starting.map(|held| held.processes).as_ref()),
        text(starting.map(|held| held.iterations).as_ref()),
        text(starting.map(|held| held.median_ns).as_ref()),
        text(ends.map(|(low, _)| low).as_ref()),
        text(ends.map(|(_, high)| high).as_ref()),
        found.totals.launches.to_string(),
        found.totals.calls.to_string(),
        found.totals.read_bytes.to_string(),
        found.totals.written_bytes.to_string(),
        found.flops.to_string(),
        found.compulsory_bytes.to_string(),
        per_s(found.flops),
        per_s(found.compulsory_bytes),
        text(row.roofline_ns.as_ref()),
        text(
            efficiency
                .map(|(roofline_ns, median_ns)| roofline_ns / median_ns)
                .as_ref(),
        ),
        found.device_memory.peak_allocated_bytes.to_string(),
        found.device_memory.peak_reserved_bytes.to_string(),
        row.compile.kernels.to_string(),
        row.compile.hits.to_string(),
        row.compile.compile_ns.to_string(),
        text(row.compile.wall_ns.as_ref()),
        text(row.compile.read_ns.as_ref()),
        kernel_keys(found),
        found.same_program_as.clone().unwrap_or_default(),
    ]
}

/// Keys of compiled kernels, each once.
fn kernel_keys(found: &Measurement) -> String {
    let keys = found
        .kernels
        .iter()
        .filter_map(|kernel| kernel.key.as_deref());
    let mut short: Vec<&str> = Vec::new();
    for key in keys.map(|key| key.get(..SHORT_KEY).unwrap_or(key)) {
        if !short.contains(&key) {
            short.push(key);
        }
    }
    short.join(" ")
}

fn judgement(row: &Row) -> Vec<String> {
    let Some(found) = &row.outcome.measurement else {
        return vec![String::new(); 10];
    };
    let clocks = found.clocks.as_ref();
    let worst = found.check.as_ref().and_then(|check| check.worst());
    let flags: Vec<&str> = found.flags.iter().map(|flag| flag.name()).collect();
    vec![
        found.checked.name().to_owned(),
        worst.map(|worst| worst.tensor.clone()).unwrap_or_default(),
        text(worst.map(|worst| &worst.error)),
        text(worst.map(|worst| &worst.tolerance)),
        found.output_digest.clone().unwrap_or_default(),
        text(clocks.map(|clocks| &clocks.sm_mhz)),
        text(clocks.map(|clocks| &clocks.temperature_c)),
        text(clocks.map(|clocks| &clocks.power_w)),
        clocks
            .map(|clocks| clocks.throttled_by.join(" "))
            .unwrap_or_default(),
        flags.join(" "),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execute::outcome::{Measurement, Outcome, Status};
    use crate::record::row::test_row;

    #[test]
    fn every_line_has_every_column() {
        let measurement = Measurement {
            samples_ns: vec![3.0, 1.0, 2.0],
            iterations: 7,
            ..Measurement::default()
        };
        let rows = [
            test_row(1, Outcome::measured(measurement)),
            test_row(2, Outcome::without_measurement(Status::Oom, "too, much")),
        ];
        let mut bytes = Vec::new();
        write_records(&rows, &mut bytes).unwrap();
        // The reader refuses lines of unequal lengths.
        let mut reader = csv::Reader::from_reader(bytes.as_slice());
        let header = reader.headers().unwrap().clone();
        let lines: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().unwrap();
        let field = |line: usize, name: &str| {
            let column = header.iter().position(|held| held == name).unwrap();
            lines[line][column].to_owned()
        };
        assert_eq!(field(0, "median_ns"), "2");
        assert_eq!(field(0, "iterations"), "7");
        assert_eq!(field(0, "KC"), "12");
        assert_eq!(field(0, "semiring"), "log");
        assert_eq!(field(1, "reason"), "too, much");
        assert_eq!(field(1, "median_ns"), "");
        let mut samples = Vec::new();
        write_samples(&rows, &mut samples).unwrap();
        assert_eq!(String::from_utf8(samples).unwrap().lines().count(), 4);
    }
}
