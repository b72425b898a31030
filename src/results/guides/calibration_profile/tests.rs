//! The profile of rows whose times are known, word by word, and the values that it does not know.

use std::collections::BTreeSet;

use serde_json::Value;
use sweeper_program::Totals;

use super::*;
use crate::golden::assert_golden;
use crate::guides::about;
use sweeper_manifest::settings::Hardware;
use sweeper_model::hardware::{DeviceIdentity, DeviceKind};
use sweeper_model::identity::{Digest, PointId, ProblemId};
use sweeper_model::row::outcome::{Checked, KernelUse, Outcome};
use sweeper_model::row::test_row;

/// A row of 8 samples about `time_ns`; rows of equal `problem` differ in their backends alone.
fn row(
    problem: u8,
    workload: &str,
    backend: &str,
    parameters: &[(&str, sweeper_program::Value)],
    time_ns: f64,
) -> Row {
    let samples = (0..8).map(|round| time_ns * (1.0 + 0.01 * f64::from(round % 3)));
    let mut measurement = Measurement {
        samples_ns: samples.collect(),
        flops: if workload == "copy" { 0.0 } else { 4e6 },
        compulsory_bytes: 1e6,
        checked: Checked::Full,
        kernels: vec![
            KernelUse {
                name: "erf_mul_add_d904aa6d".into(),
                key: None,
            },
            KernelUse {
                name: "library.matmul".into(),
                key: None,
            },
        ],
        ..Measurement::default()
    };
    let fused = backend == FUSED;
    measurement.totals = Some(Totals {
        read_bytes: if fused { 1_000_000 } else { 3_000_000 },
        written_bytes: 1_000_000,
        ..Totals::default()
    });
    measurement.device_memory.peak_allocated_bytes = if fused { 1 << 20 } else { 1 << 21 };
    let mut row = test_row(problem, Outcome::measured(measurement));
    row.point = PointId(Digest::from_bytes([problem; 32]));
    row.problem = ProblemId(Digest::from_bytes([problem; 32]));
    row.workload = workload.to_owned();
    row.backend = backend.to_owned();
    row.unix_time_s = 1_795_297_455.0;
    row.parameters = parameters
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect();
    row
}

fn linear(problem: u8, backend: &str, pattern: &str, m: i64, time_ns: f64) -> Row {
    let parameters = [
        ("m", m.into()),
        ("k", 64.into()),
        ("n", 32.into()),
        ("pattern", pattern.into()),
    ];
    row(problem, "linear", backend, &parameters, time_ns)
}

fn rows() -> Vec<Row> {
    let elements = [("elements", 125_000.into())];
    let sizes = [
        ("m", 8.into()),
        ("k", 8.into()),
        ("n", 8.into()),
        ("precision", "f32".into()),
    ];
    let mut rows = vec![
        row(1, "copy", "builtin", &elements, 2e4),
        row(1, "copy", "compiled", &elements, 1e4),
        row(2, "matmul", "library", &sizes, 1e4),
        linear(3, "eager", "bias_gelu", 128, 3e4),
        linear(3, "compiled", "bias_gelu", 128, 1e4),
        linear(3, "control", "bias_gelu", 128, 3e4),
        linear(4, "eager", "bias_gelu", 256, 6e4),
        linear(4, "compiled", "bias_gelu", 256, 6e4),
        linear(5, "eager", "bias_relu", 256, 6e4),
        linear(5, "compiled", "bias_relu", 256, 6e4),
    ];
    if let Some(found) = &mut rows[7].outcome.measurement {
        found.same_program_as = Some("eager".to_owned());
    }
    rows[9].outcome = Outcome::without_measurement(Status::Oom, "no room");
    rows
}

fn written(rows: &[Row], name: &str, hardware: &Hardware) -> (String, Value) {
    let devices = [DeviceIdentity {
        kind: DeviceKind::Cuda,
        name: name.to_owned(),
        unit: String::new(),
        details: BTreeMap::new(),
    }];
    let about = About {
        name: "calibration",
        devices: &devices,
        ..about(hardware)
    };
    let mut bytes = Vec::new();
    write(rows, &about, &mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let value = serde_json::from_str(&text).unwrap();
    (text, value)
}

#[test]
fn the_profile_is_as_promised() {
    let hardware = Hardware {
        name: Some("a ruler".to_owned()),
        peak_gflops: Some(500.0),
        peak_bandwidth_gbps: None,
    };
    let (text, _) = written(&rows(), "NVIDIA H200", &hardware);
    assert_golden("calibration_profile.json", &text);
}

#[test]
fn sizes_of_one_pattern_do_not_overwrite_each_other() {
    let (_, profile) = written(&rows(), "a processor", &Hardware::default());
    let keys = |name: &str| -> BTreeSet<String> {
        profile[name].as_object().unwrap().keys().cloned().collect()
    };
    let expected = ["Linear_Bias_GELU_128x64x32", "Linear_Bias_GELU_256x64x32"];
    assert_eq!(keys("fusion_profiles"), expected.map(str::to_owned).into());
    let expected = ["copy_125000", "matmul_f32_8x8x8"];
    assert_eq!(
        keys("operation_profiles"),
        expected.map(str::to_owned).into()
    );
    let gelu = &profile["fusion_profiles"]["Linear_Bias_GELU_128x64x32"];
    assert_eq!(gelu["verdict"], "strong");
    assert_eq!(gelu["memory_reduction"], 0.5);
    assert_eq!(gelu["unfused_bytes"], gelu["unfused_memory_bytes"]);
    let same = &profile["fusion_profiles"]["Linear_Bias_GELU_256x64x32"];
    assert_eq!(
        (&same["verdict"], &same["speedup"]),
        (&"same program".into(), &Value::Null)
    );
    assert_eq!(
        profile["not_measured"][0]["profile"],
        "Linear_Bias_ReLU_256x64x32"
    );
    assert_eq!(profile["not_measured"][0]["status"], "oom");
}

#[test]
fn what_is_not_known_is_null() {
    let (_, profile) = written(&rows(), "a processor", &Hardware::default());
    for name in [
        "theoretical_peak_gflops",
        "theoretical_bandwidth_gbps",
        "best_efficiency",
        "bandwidth_efficiency",
    ] {
        assert_eq!(profile[name], Value::Null, "{name}");
    }
    assert!(profile["best_measured_gflops"].as_f64().unwrap() > 390.0);
    let (_, nothing) = written(&[], "a processor", &Hardware::default());
    assert_eq!(nothing["best_measured_gflops"], Value::Null);
    assert_eq!(nothing["measured_bandwidth_gbps"], Value::Null);
    assert_eq!(nothing["metadata"]["calibration_date"], Value::Null);
}
