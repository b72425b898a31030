//! `compiled_attention_benchmark.csv` of the attention guide: two lines for each shape, one of the
//! baseline and one of `compiled`. docs/records.md explains its columns.
//!
//! A failure in one backend or phase keeps the numbers of all others.

use std::io::{self, Write};

use sweeper_program::{Phase, Role};

use super::lines::{COMPILED, complaints, lines, status, summary};
use super::number;
use sweeper_model::row::Row;
use sweeper_model::row::outcome::{Measurement, Status};
use sweeper_model::stats::Summary;

/// The workload whose rows the file is made of.
pub const WORKLOAD: &str = "attention";

/// Parameters that have a column, backends and phases of a line.
pub const COLUMNS: [&str; 5] = ["batch", "sequence", "dimension", "phase", "backend"];

/// The columns. Memory is in units of 2^20 bytes.
const HEADER: [&str; 13] = [
    "batch_size",
    "seq_len",
    "d_model",
    "compiled",
    "forward_mean_ms",
    "forward_std_ms",
    "backward_mean_ms",
    "backward_std_ms",
    "total_mean_ms",
    "memory_before_backward_mb",
    "peak_memory_mb",
    "status",
    "error",
];

/// Roles of what lies in memory between a forward pass and its backward pass.
const KEPT: [Role; 3] = [Role::Input, Role::Output, Role::Saved];

/// Writes the file.
///
/// # Errors
/// Those of the stream.
pub fn write(rows: &[&Row], baseline: &str, out: impl Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(HEADER)?;
    for shape in lines(rows) {
        for (backend, is_compiled) in [(baseline, "False"), (COMPILED, "True")] {
            let of_backend = shape.iter().filter(|row| row.backend == backend);
            let rows: Vec<&Row> = of_backend.copied().collect();
            if let Some(record) = record(&rows, is_compiled) {
                writer.write_record(record)?;
            }
        }
    }
    writer.flush()
}

/// The line of one backend's rows, which differ in their phases.
fn record(rows: &[&Row], is_compiled: &str) -> Option<Vec<String>> {
    let row = rows.first()?;
    let d_model = row.int("dimension")? * row.int("heads")?;
    let sizes = [row.int("batch")?, row.int("sequence")?, d_model];
    let of = |phase: Phase| rows.iter().find(|row| row.phase == phase);
    let times = Phase::ALL.map(|phase| of(phase).and_then(|row| summary(row)));
    let [forward, backward, both] = times;
    let milliseconds = |times: &Option<Summary>, of: fn(&Summary) -> f64| {
        times.as_ref().map_or(f64::NAN, of) / 1e6
    };
    let mean = |times| milliseconds(times, |it| it.mean);
    let std = |times| milliseconds(times, |it| it.std);
    let total = match both {
        Some(_) => mean(&both),
        None => mean(&forward) + mean(&backward),
    };
    let with_backward = of(Phase::Both).or_else(|| of(Phase::Backward));
    let mut record: Vec<String> = sizes.map(|size| size.to_string()).into();
    record.push(is_compiled.to_owned());
    record.extend(
        [
            mean(&forward),
            std(&forward),
            mean(&backward),
            std(&backward),
            total,
            mebibytes(with_backward.and_then(|row| measured(row)).map(kept_bytes)),
            mebibytes(rows.iter().filter_map(|row| peak_bytes(row)).max()),
        ]
        .map(number),
    );
    record.extend([status(rows).to_owned(), complaints(rows)]);
    Some(record)
}

fn mebibytes(bytes: Option<u64>) -> f64 {
    bytes.map_or(f64::NAN, |bytes| bytes as f64 / f64::from(1 << 20))
}

/// The measurement of a row that is right.
fn measured(row: &Row) -> Option<&Measurement> {
    let found = row.outcome.measurement.as_deref();
    found.filter(|_| row.outcome.status == Status::Ok)
}

fn peak_bytes(row: &Row) -> Option<u64> {
    Some(measured(row)?.device_memory.peak_allocated_bytes)
}

fn kept_bytes(measurement: &Measurement) -> u64 {
    let kept = KEPT.iter();
    kept.filter_map(|role| measurement.memory_bytes.get(role))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::assert_golden;
    use sweeper_model::identity::{Digest, ProblemId};
    use sweeper_model::row::outcome::{Checked, Outcome};
    use sweeper_model::row::test_row;
    use sweeper_program::Value;

    fn row(sequence: u8, backend: &str, phase: Phase, times_ns: &[f64]) -> Row {
        let outcome = match times_ns.is_empty() {
            true => Outcome::without_measurement(Status::Oom, "5 GB of 4"),
            false => {
                let mut found = Measurement {
                    samples_ns: times_ns.to_vec(),
                    checked: Checked::Full,
                    memory_bytes: [
                        (Role::Input, 3 << 20),
                        (Role::Output, 1 << 20),
                        (Role::Workspace, 1 << 19),
                    ]
                    .into(),
                    ..Measurement::default()
                };
                if phase != Phase::Forward {
                    found.memory_bytes.insert(Role::Saved, 1 << 18);
                    found.memory_bytes.insert(Role::Gradient, 3 << 20);
                }
                found.device_memory.peak_allocated_bytes = found.memory_bytes.values().sum();
                Outcome::measured(found)
            }
        };
        let mut row = test_row(1, outcome);
        row.problem = ProblemId(Digest::from_bytes([sequence; 32]));
        WORKLOAD.clone_into(&mut row.workload);
        backend.clone_into(&mut row.backend);
        row.phase = phase;
        let sizes = [
            ("batch", 8),
            ("dimension", 16),
            ("heads", 2),
            ("sequence", i64::from(sequence)),
        ];
        row.parameters = sizes
            .map(|(name, size)| (name.to_owned(), Value::Int(size)))
            .into();
        row
    }

    /// An OOM of one variant or phase leaves all other numbers; a backend that the guide has no
    /// word for has no line.
    #[test]
    fn lines_have_the_guides_columns() {
        let mut rows = [
            row(128, "eager", Phase::Forward, &[2e6, 4e6]),
            row(128, "eager", Phase::Backward, &[5e6]),
            row(128, "compiled", Phase::Forward, &[1e6]),
            row(128, "compiled", Phase::Backward, &[2e6]),
            row(128, "compiled", Phase::Both, &[2.5e6]),
            row(128, "primitive", Phase::Forward, &[9e6]),
            row(255, "eager", Phase::Forward, &[3e6]),
            row(255, "eager", Phase::Both, &[]),
            row(255, "compiled", Phase::Both, &[6e6]),
        ];
        let found = rows[8].outcome.measurement.as_mut().unwrap();
        found.checked = Checked::None;
        let rows: Vec<&Row> = rows.iter().collect();
        let mut bytes = Vec::new();
        write(&rows, "eager", &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert_golden("compiled_attention_benchmark.csv", &text);
    }
}
