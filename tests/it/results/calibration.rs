//! The ceilings of a device, the speedup by fusing on it, and when compiling pays.

use serde_json::Value;

use super::record::{Rows, json};
use super::table::{Table, three};

const CALIBRATION: &str = "2026-11-24-h200-calibration";
const ECONOMICS: &str = "2026-11-24-h200-economics";
const ECONOMICS_TORCH: &str = "2026-11-26-h100-economics-torch";

fn number(value: &Value, pointer: &str) -> f64 {
    let found = value.pointer(pointer).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("no number {pointer} in {value}"))
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_else(|| panic!("no text {pointer} in {value}"))
}

fn profile() -> Value {
    json(CALIBRATION, "calibration_profile.json")
}

pub(super) fn copy_rate() -> String {
    let profile = profile();
    format!(
        "Copies: {:.2} TB/s, {:.0} % of the data sheet's.\n",
        number(&profile, "/measured_bandwidth_gbps") / 1e3,
        100.0 * number(&profile, "/bandwidth_efficiency")
    )
}

pub(super) fn products() -> String {
    let rows = Rows::read(CALIBRATION, "records.csv");
    let profile = profile();
    let mut table = Table::new(&[
        "asked for",
        "computed in",
        "m x k x n",
        "us",
        "Tflop/s",
        "of the sheet's",
        "error, relative L2",
    ]);
    for precision in ["f32", "tf32", "bf16"] {
        for size in ["512", "1024", "2048", "4096"] {
            let row = rows.one(&[
                ("workload", "matmul"),
                ("precision", precision),
                ("m", size),
                ("backend", "library"),
            ]);
            let rate = row.number("flops") / row.median() * 1e9;
            // A product of operands that were rounded to bf16 is off by 2.4e-3: these were not.
            let computed = match (precision, row.number("worst_error")) {
                ("bf16", error) if error < 1e-3 => "tf32",
                (precision, _) => precision,
            };
            let peak = number(
                &profile,
                &format!("/by_precision/{computed}/theoretical_peak_gflops"),
            );
            table.line([
                precision.to_owned(),
                computed.to_owned(),
                format!("{size}x{size}x{size}"),
                format!("{:.1}{}", row.median() / 1e3, row.marks()),
                format!("{:.1}", rate / 1e12),
                format!("{:.0} %", rate / peak / 1e7),
                format!("{:.1e}", row.number("worst_error")),
            ]);
        }
    }
    table.text()
}

pub(super) fn fusion() -> String {
    let profile = profile();
    let mut table = Table::new(&[
        "pattern",
        "shape",
        "unfused us",
        "fused us",
        "speedup",
        "verdict",
        "control",
    ]);
    let with_ends = |value: &Value, key: &str| {
        let of = |end: &str| number(value, &format!("/{key}/{end}"));
        format!("{:.3} ({:.3} to {:.3})", of("value"), of("low"), of("high"))
    };
    for (name, held) in profile["fusion_profiles"].as_object().unwrap() {
        let pattern = text(held, "/fusion_pattern");
        assert_eq!(text(held, "/checked/fused"), "full");
        table.line([
            pattern.to_owned(),
            name[pattern.len() + 1..].to_owned(),
            format!("{:.1}", 1e3 * number(held, "/unfused_latency_ms")),
            format!("{:.1}", 1e3 * number(held, "/fused_latency_ms")),
            match held["speedup"].is_null() {
                true => String::new(),
                false => with_ends(held, "speedup"),
            },
            text(held, "/verdict").to_owned(),
            with_ends(held, "control"),
        ]);
    }
    table.text()
}

const LOOPS: [&str; 4] = ["matmul_chain", "mlp", "attention_block", "mixed"];

pub(super) fn loops() -> String {
    let rows = Rows::read(ECONOMICS, "records.csv");
    let mut table = Table::new(&[
        "loop",
        "backend",
        "launches",
        "of a library",
        "launched us",
        "as a graph us",
        "kernels",
        "compiling s",
    ]);
    for name in LOOPS {
        for backend in ["primitive", "eager", "compiled"] {
            let [launched, graph] = ["launch", "graph"]
                .map(|mode| rows.one(&[("workload", name), ("backend", backend), ("mode", mode)]));
            table.line([
                name.to_owned(),
                format!("`{backend}`"),
                launched.text("launches").to_owned(),
                launched.text("library_launches").to_owned(),
                format!("{:.1}{}", launched.median() / 1e3, launched.marks()),
                format!("{:.1}{}", graph.median() / 1e3, graph.marks()),
                launched.text("kernels").to_owned(),
                format!("{:.2}", launched.number("compile_ns") / 1e9),
            ]);
        }
    }
    table.text()
}

pub(super) fn break_even() -> String {
    let pairs = json(ECONOMICS, "compilation_economics.json");
    let mut table = Table::new(&[
        "loop",
        "start",
        "eager's warm-up s",
        "compiled's s",
        "an iteration",
        "100 iterations",
        "pays from",
        "verdict",
    ]);
    for name in LOOPS {
        for start in ["baseline_cached", "warm"] {
            let is_meant = |pair: &&Value| {
                text(pair, "/workload") == name
                    && text(pair, "/start") == start
                    && text(pair, "/mode") == "graph"
                    && text(pair, "/compile/implementation") == "compiled"
            };
            let found: Vec<&Value> = pairs.as_array().unwrap().iter().filter(is_meant).collect();
            assert_eq!(found.len(), 1, "{name} {start}");
            let pair = found[0];
            assert_eq!(number(pair, "/iterations") as i64, 100);
            let pays = match text(pair, "/break_even") {
                "reached" => format!(
                    "{} ({} to {})",
                    pair["break_even_point"],
                    pair["break_even_point_low"],
                    pair["break_even_point_high"]
                ),
                word => word.to_owned(),
            };
            // Equal programs have no ratio.
            let ratio = |pointer: &str| match pair.pointer(pointer).and_then(Value::as_f64) {
                Some(ratio) => format!("{ratio:.2}"),
                None => "-".to_owned(),
            };
            table.line([
                name.to_owned(),
                start.to_owned(),
                three(number(pair, "/no_compile/warmup_s")),
                three(number(pair, "/compile/warmup_s")),
                ratio("/steady_state_speedup"),
                ratio("/total_speedup"),
                pays,
                text(pair, "/verdict").to_owned(),
            ]);
        }
    }
    table.text()
}

/// Loops by programs of this build and by PyTorch, in the rounds of one run, with what starts take.
pub(super) fn loops_beside_pytorch() -> String {
    let rows = Rows::read(ECONOMICS_TORCH, "records.csv");
    let mut table = Table::new(&[
        "loop",
        "backend",
        "an iteration us",
        "libraries s",
        "start with full caches s",
        "with empty ones s",
    ]);
    let seconds = |ns: f64| three(ns / 1e9);
    for name in LOOPS {
        for (backend, shown) in [
            ("eager", "`eager`"),
            ("compiled", "`compiled`"),
            (&format!("torch_{name}"), "PyTorch eager"),
            (&format!("torch_compile_{name}"), "torch.compile"),
        ] {
            let row = rows.one(&[("workload", name), ("backend", backend)]);
            let start = row.number("start_ns");
            let import = match row.text("import_ns") {
                "" => String::new(),
                _ => seconds(row.number("import_ns")),
            };
            // Kernels are compiled before a start that is measured.
            let cold = match row.text("cold_start_ns") {
                "" => start + row.number("compile_ns"),
                _ => row.number("cold_start_ns"),
            };
            table.line([
                name.to_owned(),
                shown.to_owned(),
                format!("{:.1}{}", row.median() / 1e3, row.marks()),
                import,
                seconds(start),
                seconds(cold),
            ]);
        }
    }
    table.text()
}
