//! `compiled_transformer_benchmark.csv` of the attention guide: a line for each model and context,
//! with the times of the baseline and of `compiled` in three phases. docs/records.md explains its
//! columns.
//!
//! A failure in one backend or phase keeps the numbers of all others.

use std::io::{self, Write};

use sweeper_program::{Parameters, Phase};
use sweeper_workloads::transformer::model_size;

use super::lines::{COMPILED, complaints, lines, status, summary};
use super::number;
use sweeper_model::row::Row;
use sweeper_model::stats::Summary;

/// The workload whose rows the file is made of.
pub const WORKLOAD: &str = "transformer";

/// Parameters that have a column, backends and phases of a line.
pub const COLUMNS: [&str; 7] = [
    "size", "context", "batch", "d_model", "layers", "phase", "backend",
];

/// The phases by the guide's names.
const PHASES: [(Phase, &str); 3] = [
    (Phase::Forward, "forward"),
    (Phase::Both, "fwd_bwd"),
    (Phase::Step, "full_step"),
];

/// Writes the file.
///
/// # Errors
/// Those of the stream.
pub fn write(rows: &[&Row], baseline: &str, out: impl Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(header())?;
    for line in lines(rows) {
        if let Some(record) = record(&line, baseline) {
            writer.write_record(record)?;
        }
    }
    writer.flush()
}

fn header() -> Vec<String> {
    let mut names: Vec<String> = [
        "model_size",
        "context_length",
        "batch_size",
        "d_model",
        "num_layers",
        "num_params",
        "num_params_millions",
    ]
    .map(str::to_owned)
    .into();
    for (_, phase) in PHASES {
        for number in [
            "vanilla_ms",
            "vanilla_std_ms",
            "compiled_ms",
            "compiled_std_ms",
            "speedup",
        ] {
            names.push(format!("{phase}_{number}"));
        }
    }
    names.extend(["status", "error"].map(str::to_owned));
    names
}

fn record(line: &[&Row], baseline: &str) -> Option<Vec<String>> {
    let row = line[0];
    let parameters: Parameters = row
        .parameters
        .iter()
        .map(|(name, value)| (name.as_str(), value.clone()))
        .collect();
    let size = model_size(&parameters).ok()?;
    let mut record = vec![
        row.text("size")?.to_owned(),
        row.int("context")?.to_string(),
        row.int("batch")?.to_string(),
        size.d_model.to_string(),
        size.layers.to_string(),
        size.parameters.to_string(),
        (size.parameters as f64 / 1e6).to_string(),
    ];
    for (phase, _) in PHASES {
        let times = [baseline, COMPILED].map(|backend| {
            let mut rows = line.iter();
            let row = rows.find(|row| row.backend == backend && row.phase == phase);
            row.and_then(|row| summary(row))
        });
        let means = times.map(|times| times.map_or(f64::NAN, |it| it.mean));
        for times in times {
            let of = |of: fn(&Summary) -> f64| times.as_ref().map_or(f64::NAN, of) / 1e6;
            record.extend([of(|it| it.mean), of(|it| it.std)].map(number));
        }
        record.push(number(means[0] / means[1]));
    }
    let shown = line
        .iter()
        .filter(|row| [baseline, COMPILED].contains(&&*row.backend));
    let shown: Vec<&Row> = shown.copied().collect();
    record.extend([status(&shown).to_owned(), complaints(&shown)]);
    Some(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::assert_golden;
    use crate::guides::about;
    use crate::record::exports::write as write_files;
    use sweeper_manifest::settings::Hardware;
    use sweeper_model::identity::{Digest, ProblemId};
    use sweeper_model::row::outcome::{Checked, Measurement, Outcome, Status};
    use sweeper_model::row::test_row;
    use sweeper_program::Value;

    fn row(context: u8, backend: &str, phase: Phase, times_ns: &[f64]) -> Row {
        let outcome = match times_ns.is_empty() {
            true => Outcome::without_measurement(Status::Oom, "5 GB of 4"),
            false => Outcome::measured(Measurement {
                samples_ns: times_ns.to_vec(),
                checked: Checked::Full,
                ..Measurement::default()
            }),
        };
        let mut row = test_row(1, outcome);
        row.problem = ProblemId(Digest::from_bytes([context; 32]));
        WORKLOAD.clone_into(&mut row.workload);
        backend.clone_into(&mut row.backend);
        row.phase = phase;
        let sizes = [("batch", 4), ("context", i64::from(context))];
        row.parameters = sizes
            .map(|(name, size)| (name.to_owned(), Value::Int(size)))
            .into();
        let size = ("size".to_owned(), Value::from("small"));
        row.parameters.extend([size]);
        row
    }

    /// An OOM of one variant leaves the numbers of the other.
    #[test]
    fn lines_have_the_guides_columns() {
        let mut rows = [
            row(128, "eager", Phase::Forward, &[2e6, 4e6]),
            row(128, "compiled", Phase::Forward, &[1.5e6, 1.5e6]),
            row(128, "primitive", Phase::Forward, &[]),
            row(128, "eager", Phase::Both, &[8e6]),
            row(128, "compiled", Phase::Both, &[4e6]),
            row(128, "eager", Phase::Step, &[]),
            row(128, "compiled", Phase::Step, &[5e6]),
            row(64, "compiled", Phase::Forward, &[1e6]),
        ];
        let found = rows[7].outcome.measurement.as_mut().unwrap();
        found.checked = Checked::None;
        let rows: Vec<&Row> = rows.iter().collect();
        let mut bytes = Vec::new();
        write(&rows, "eager", &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert_golden("compiled_transformer_benchmark.csv", &text);
    }

    #[test]
    fn precisions_have_files_of_their_own() {
        let rows = ["f32", "bf16"].map(|precision| {
            let mut row = row(128, "eager", Phase::Forward, &[1e6]);
            let precision = ("precision".to_owned(), Value::from(precision));
            row.parameters.extend([precision]);
            row
        });
        let folder = tempfile::tempdir().unwrap();
        let hardware = Hardware::default();
        let names = ["compiled_transformer_benchmark"];
        write_files(&names, &rows, &about(&hardware), folder.path()).unwrap();
        for precision in ["f32", "bf16"] {
            let path = format!("precision={precision}/compiled_transformer_benchmark.csv");
            assert!(folder.path().join(path).exists(), "{precision}");
        }
    }
}
