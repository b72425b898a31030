//! `benchmark_results.json` of the operations guide: one object for each operation, backend and
//! shape that was measured and is right. docs/records.md explains its fields.

use serde::Serialize;

use sweeper_model::row::Row;
use sweeper_model::row::outcome::{Checked, Status};

/// Columns that have a field in the file; the form of GELU is part of the operation's name.
pub const COLUMNS: [&str; 4] = ["batch", "sequence", "dimension", "form"];

/// A megabyte of the guide.
const MB: f64 = (1u64 << 20) as f64;

/// Our workloads by the guide's names; two losses with one name there have two names here.
const OPERATIONS: [(&str, &str); 7] = [
    ("layernorm", "LayerNorm"),
    ("gelu", "GELU"),
    ("swish", "Swish"),
    ("mse", "MSE"),
    ("cross_entropy", "CrossEntropy"),
    ("rmsnorm", "RMSNorm"),
    ("softmax", "Softmax"),
];

/// One object, with the guide's keys in its order.
#[derive(Debug, PartialEq, Serialize)]
pub struct Measured {
    operation: String,
    implementation: String,
    batch_size: i64,
    sequence_length: i64,
    tensor_dimension: i64,
    time_ms: f64,
    memory_mb: f64,
    inference_speed: f64,
    gpu_efficiency: Option<f64>,
    throughput_gbps: f64,
}

/// True for a workload that is an operation of the guide.
pub fn is_operation(workload: &str) -> bool {
    OPERATIONS.iter().any(|(held, _)| *held == workload)
}

/// True for rows of an operation of the guide.
pub fn is_its_row(row: &Row) -> bool {
    name(row).is_some()
}

fn name(row: &Row) -> Option<String> {
    let (_, name) = OPERATIONS
        .iter()
        .find(|(workload, _)| *workload == row.workload)?;
    Some(match row.text("form") {
        Some("tanh") => format!("{name} tanh"),
        _ => (*name).to_owned(),
    })
}

/// The object of a row that was measured, checked, and is right.
pub fn result(row: &Row) -> Option<Measured> {
    let found = row.outcome.measurement.as_ref()?;
    let is_right = row.outcome.status == Status::Ok && found.checked != Checked::None;
    let median_ns = row.summary().filter(|_| is_right)?.median;
    let time_ms = median_ns / 1e6;
    Some(Measured {
        operation: name(row)?,
        implementation: row.backend.clone(),
        batch_size: row.int("batch")?,
        sequence_length: row.int("sequence")?,
        tensor_dimension: row.int("dimension")?,
        time_ms,
        memory_mb: found.device_memory.peak_allocated_bytes as f64 / MB,
        inference_speed: 1e3 / time_ms,
        gpu_efficiency: row.roofline_ns.map(|least_ns| least_ns / median_ns * 100.0),
        // Bytes in a nanosecond are gigabytes in a second.
        throughput_gbps: found.compulsory_bytes / median_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guides::{about, write_objects};
    use crate::record::exports::write;
    use sweeper_manifest::settings::Hardware;
    use sweeper_model::row::outcome::{Measurement, Outcome};
    use sweeper_model::row::test_row;
    use sweeper_program::{Phase, Value};

    fn row(workload: &str, phase: Phase, checked: Checked) -> Row {
        let mut measurement = Measurement {
            samples_ns: vec![500_000.0; 5],
            compulsory_bytes: 1e6,
            checked,
            ..Measurement::default()
        };
        measurement.device_memory.peak_allocated_bytes = 3 << 20;
        let mut row = test_row(1, Outcome::measured(measurement));
        workload.clone_into(&mut row.workload);
        let sizes = [("batch", 32), ("sequence", 512), ("dimension", 768)];
        row.parameters = sizes
            .map(|(name, size)| (name.to_owned(), Value::Int(size)))
            .into();
        row.phase = phase;
        row.roofline_ns = Some(400_000.0);
        row
    }

    #[test]
    fn objects_have_the_guides_keys() {
        let row = row("layernorm", Phase::Forward, Checked::Full);
        let mut bytes = Vec::new();
        write_objects(&[result(&row).unwrap()], &mut bytes).unwrap();
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "[\n{\"operation\":\"LayerNorm\",\"implementation\":\"fused\",\"batch_size\":32,\
             \"sequence_length\":512,\"tensor_dimension\":768,\"time_ms\":0.5,\"memory_mb\":3.0,\
             \"inference_speed\":2000.0,\"gpu_efficiency\":80.0,\"throughput_gbps\":2.0}\n]\n"
        );
    }

    #[test]
    fn only_what_is_right_is_a_result() {
        assert_eq!(result(&row("gelu", Phase::Forward, Checked::None)), None);
        let mut wrong = row("gelu", Phase::Forward, Checked::Full);
        wrong.outcome.status = Status::Wrong;
        assert_eq!(result(&wrong), None);
        assert!(!is_its_row(&row("matmul", Phase::Forward, Checked::Full)));
        let mut tanh = row("gelu", Phase::Forward, Checked::Reduced);
        let form = ("form".to_owned(), Value::from("tanh"));
        tanh.parameters.extend([form]);
        assert_eq!(result(&tanh).unwrap().operation, "GELU tanh");
    }

    #[test]
    fn each_phase_has_its_file() {
        let phases = [Phase::Forward, Phase::Backward];
        let rows = phases.map(|phase| row("mse", phase, Checked::Full));
        let hardware = Hardware::default();
        let folder = tempfile::tempdir().unwrap();
        write(
            &["benchmark_results"],
            &rows,
            &about(&hardware),
            folder.path(),
        )
        .unwrap();
        for phase in phases {
            let path = format!("phase={phase}/benchmark_results.json");
            assert!(folder.path().join(path).exists());
        }
        let folder = tempfile::tempdir().unwrap();
        write(
            &["benchmark_results"],
            &rows[..1],
            &about(&hardware),
            folder.path(),
        )
        .unwrap();
        assert!(folder.path().join("benchmark_results.json").exists());
    }
}
