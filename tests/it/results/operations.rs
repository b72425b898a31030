//! Single operations: on a GPU beside PyTorch, and on a CPU.

use super::record::{Row, Rows, json};
use super::table::{Table, geometric_mean, median, ratio, three};

const GPU: &str = "2026-11-23-h200-operations";
const CPU: &str = "2026-11-22-cpu-operations";

const OPERATIONS: [&str; 6] = [
    "layernorm",
    "softmax",
    "gelu",
    "swish",
    "mse",
    "cross_entropy",
];

/// Batch, sequence, dimension.
const SHAPES: [[&str; 3]; 3] = [
    ["32", "512", "768"],
    ["64", "1024", "256"],
    ["128", "1024", "512"],
];

/// The row of a backend; GELU is the variant by erf.
fn row<'a>(
    rows: &'a Rows,
    operation: &str,
    phase: &str,
    shape: [&str; 3],
    backend: &str,
) -> &'a Row {
    rows.one(&[
        ("workload", operation),
        ("phase", phase),
        ("batch", shape[0]),
        ("sequence", shape[1]),
        ("dimension", shape[2]),
        ("backend", backend),
        ("form", if operation == "gelu" { "erf" } else { "" }),
    ])
}

/// PyTorch's milliseconds, by sweeper's way of timing or by `do_bench`.
fn torch(rows: &Rows, operation: &str, phase: &str, shape: [&str; 3], what: [&str; 2]) -> f64 {
    let row = rows.one(&[
        ("operation", operation),
        ("phase", phase),
        ("batch", shape[0]),
        ("sequence", shape[1]),
        ("dimension", shape[2]),
        ("implementation", what[0]),
    ]);
    row.number(what[1])
}

const EAGER: [&str; 2] = ["eager", "gated_ms"];
const COMPILED: [&str; 2] = ["torch.compile", "gated_ms"];
const BENCHED: [&str; 2] = ["torch.compile", "do_bench_ms"];

fn ms(row: &Row) -> String {
    format!("{:.4}{}", row.median() / 1e6, row.marks())
}

/// The three files.
fn files() -> (Rows, Rows, Rows) {
    let read = |file| Rows::read(GPU, file);
    (read("records.csv"), read("clean.csv"), read("torch.csv"))
}

/// Bytes a second of the best copy of the run's probe.
fn ceiling(record: &str) -> f64 {
    let usage = json(record, "usage.json");
    let ceiling = usage.pointer("/devices/0/ceilings/copy_bytes_per_s");
    ceiling.unwrap().as_f64().unwrap()
}

/// Percent of the ceiling's bandwidth.
fn share(row: &Row, ceiling: f64) -> f64 {
    100.0 * row.number("compulsory_bytes") / row.median() * 1e9 / ceiling
}

pub(super) fn beside_pytorch() -> String {
    let (rows, clean, peers) = files();
    let ceiling = ceiling(GPU);
    let mut table = Table::new(&[
        "operation",
        "phase",
        "shape",
        "`primitive`",
        "`eager`",
        "`compiled`",
        "of roofline",
        "clean",
        "PyTorch eager",
        "torch.compile",
        "by `do_bench`",
    ]);
    for operation in OPERATIONS {
        for phase in ["forward", "backward"] {
            for shape in SHAPES {
                let of = |backend| row(&rows, operation, phase, shape, backend);
                let clean = row(&clean, operation, phase, shape, "compiled");
                let peer = |what| format!("{:.4}", torch(&peers, operation, phase, shape, what));
                table.line([
                    operation.to_owned(),
                    phase.to_owned(),
                    shape.join("x"),
                    ms(of("primitive")),
                    ms(of("eager")),
                    ms(of("compiled")),
                    format!("{:.0} %", share(of("compiled"), ceiling)),
                    format!("{:.0} %", share(clean, ceiling)),
                    peer(EAGER),
                    peer(COMPILED),
                    peer(BENCHED),
                ]);
            }
        }
    }
    table.text()
}

/// Geometric means over the rows of the table.
pub(super) fn means() -> String {
    let (rows, _, peers) = files();
    let over = |phase: &str, slow: &dyn Fn(&str, [&str; 3]) -> f64| {
        let ratios = OPERATIONS.iter().flat_map(|operation| {
            SHAPES.map(|shape| {
                slow(operation, shape) / row(&rows, operation, phase, shape, "compiled").median()
            })
        });
        format!("{:.2}", geometric_mean(ratios))
    };
    let mut table = Table::new(&["over `compiled`", "forward", "backward", "both"]);
    for backend in ["primitive", "eager"] {
        table.line([
            format!("`{backend}`"),
            over("forward", &|o, s| {
                row(&rows, o, "forward", s, backend).median()
            }),
            over("backward", &|o, s| {
                row(&rows, o, "backward", s, backend).median()
            }),
            over("both", &|o, s| row(&rows, o, "both", s, backend).median()),
        ]);
    }
    for (name, what) in [("PyTorch eager", EAGER), ("torch.compile", COMPILED)] {
        let both = match name {
            "torch.compile" => over("both", &|o, s| 1e6 * torch(&peers, o, "both", s, what)),
            _ => "not measured".to_owned(),
        };
        table.line([
            name.to_owned(),
            over("forward", &|o, s| {
                1e6 * torch(&peers, o, "forward", s, what)
            }),
            over("backward", &|o, s| {
                1e6 * torch(&peers, o, "backward", s, what)
            }),
            both,
        ]);
    }
    table.text()
}

pub(super) fn copies() -> String {
    let rows = Rows::read(GPU, "records.csv");
    let mut table = Table::new(&["a copy of", "us", "of roofline"]);
    for (shape, elements) in SHAPES.iter().zip(["12582912", "16777216", "67108864"]) {
        let row = rows.one(&[
            ("workload", "copy"),
            ("elements", elements),
            ("backend", "compiled"),
        ]);
        table.line([
            shape.join("x"),
            format!("{:.1}{}", row.median() / 1e3, row.marks()),
            format!("{:.0} %", share(row, ceiling(GPU))),
        ]);
    }
    table.text()
}

/// The least and the greatest percentage by which our times exceed the library's, over some lines.
fn spread(lines: impl IntoIterator<Item = (f64, f64)>) -> String {
    let percents: Vec<f64> = lines
        .into_iter()
        .map(|(ours, theirs)| 100.0 * (ours / theirs - 1.0))
        .collect();
    let least = percents.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = percents.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{least:+.1} to {greatest:+.1} %")
}

fn differences(phase: &str, whats: &[(&str, [&str; 2])]) -> String {
    let (rows, _, peers) = files();
    let mut lines = Vec::new();
    for (name, what) in whats {
        let mut texts = Vec::new();
        for operation in OPERATIONS {
            let pairs = SHAPES.map(|shape| {
                let ours = row(&rows, operation, phase, shape, "compiled").median();
                (ours, 1e6 * torch(&peers, operation, phase, shape, *what))
            });
            texts.push(format!("{operation} {}", spread(pairs)));
        }
        lines.push(format!("* {phase}, {name}: {}", texts.join("; ")));
    }
    lines.join("\n") + "\n"
}

pub(super) fn forward() -> String {
    let gated = ("as sweeper times", COMPILED);
    differences("forward", &[gated, ("by `do_bench`", BENCHED)])
}

pub(super) fn backward() -> String {
    let name = [("as sweeper times", COMPILED)];
    differences("backward", &name) + &differences("both", &name)
}

pub(super) fn turns() -> String {
    let rows = Rows::read(GPU, "turns.csv");
    let mut table = Table::new(&[
        "operation",
        "shape",
        "`compiled` us",
        "torch.compile us",
        "ours takes more by",
    ]);
    // Rounded without a zero that has a sign.
    let percent = |value: f64| format!("{:+.1}", (10.0 * value).round() / 10.0 + 0.0);
    for operation in OPERATIONS {
        for shape in SHAPES.map(|shape| shape.join("x")) {
            let pairs = rows.all(&[("operation", operation), ("shape", &shape)]);
            assert_eq!(pairs.len(), 7);
            let list = |column: &str| -> Vec<f64> {
                pairs.iter().map(|row| 1e3 * row.number(column)).collect()
            };
            let (ours, theirs) = (list("sweeper_ms"), list("torch_compile_gated_ms"));
            let more: Vec<f64> = ours
                .iter()
                .zip(&theirs)
                .map(|(ours, theirs)| 100.0 * (ours / theirs - 1.0))
                .collect();
            let with_ends = |values: &[f64], show: &dyn Fn(f64) -> String, unit: &str| {
                let least = values.iter().copied().fold(f64::INFINITY, f64::min);
                let greatest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                format!(
                    "{}{unit} ({} to {})",
                    show(median(values)),
                    show(least),
                    show(greatest)
                )
            };
            let plain = |value: f64| format!("{value:.1}");
            table.line([
                operation.to_owned(),
                shape,
                with_ends(&ours, &plain, ""),
                with_ends(&theirs, &plain, ""),
                with_ends(&more, &percent, " %"),
            ]);
        }
    }
    table.text()
}

const UNTUNED: &str = "2026-11-24-h200-operations-untuned";

/// Forward passes at sizes that no constant was tuned for, beside torch.compile in two modes.
pub(super) fn untuned() -> String {
    let (rows, peers) = (
        Rows::read(UNTUNED, "records.csv"),
        Rows::read(UNTUNED, "torch.csv"),
    );
    let mut table = Table::new(&[
        "operation",
        "shape",
        "`eager`",
        "`compiled`",
        "PyTorch eager",
        "torch.compile",
        "max-autotune",
        "`compiled` over the best of them",
    ]);
    for operation in OPERATIONS {
        for batch in ["1", "128"] {
            for dimension in ["1000", "2048", "5120"] {
                let shape = [batch, "384", dimension];
                let of = |backend| row(&rows, operation, "forward", shape, backend);
                let peer = |implementation: &str| {
                    torch(
                        &peers,
                        operation,
                        "forward",
                        shape,
                        [implementation, "gated_ms"],
                    )
                };
                let peers = [
                    "eager",
                    "torch.compile default",
                    "torch.compile max-autotune-no-cudagraphs",
                ]
                .map(peer);
                let best = peers.iter().copied().fold(f64::INFINITY, f64::min);
                let over = of("compiled").median() / 1e6 / best;
                let [eager, default, autotuned] = peers.map(|ms| format!("{ms:.4}"));
                table.line([
                    operation.to_owned(),
                    shape.join("x"),
                    ms(of("eager")),
                    ms(of("compiled")),
                    eager,
                    default,
                    autotuned,
                    format!("{over:.2}"),
                ]);
            }
        }
    }
    table.text()
}

pub(super) fn on_a_cpu() -> String {
    let rows = Rows::read(CPU, "records.csv");
    let ceiling = ceiling(CPU);
    let mut table = Table::new(&[
        "operation",
        "phase",
        "`primitive` ms",
        "`eager` ms",
        "`compiled` ms",
        "primitive / compiled",
        "eager / compiled",
        "of roofline",
    ]);
    for operation in OPERATIONS {
        for phase in ["forward", "backward"] {
            let [primitive, eager, compiled] = ["primitive", "eager", "compiled"]
                .map(|backend| row(&rows, operation, phase, SHAPES[2], backend));
            let ms = |row: &Row| format!("{:.1}{}", row.median() / 1e6, row.marks());
            table.line([
                operation.to_owned(),
                phase.to_owned(),
                ms(primitive),
                ms(eager),
                ms(compiled),
                ratio(primitive.median() / compiled.median()),
                format!("{:.2}", eager.median() / compiled.median()),
                format!("{:.0} %", share(compiled, ceiling)),
            ]);
        }
    }
    format!(
        "{}\nA copy past the caches moves {} GB/s here.\n",
        table.text(),
        three(ceiling / 1e9)
    )
}

/// Operations by kernels of this build and by functions in Python, in the rounds of one run.
pub(super) fn in_rounds_with_pytorch() -> String {
    let rows = Rows::read("2026-11-25-h200-operations-torch", "records.csv");
    let mut table = Table::new(&[
        "operation",
        "phase",
        "`eager`",
        "`compiled`",
        "PyTorch eager",
        "torch.compile",
        "Triton's tutorial",
    ]);
    for operation in ["softmax", "layernorm", "gelu", "cross_entropy"] {
        for phase in ["forward", "both"] {
            let of = |backend: &str| {
                let found = rows.all(&[
                    ("workload", operation),
                    ("phase", phase),
                    ("backend", backend),
                    ("status", "ok"),
                ]);
                found.first().map_or(String::new(), |row| ms(row))
            };
            table.line([
                operation.to_owned(),
                phase.to_owned(),
                of("eager"),
                of("compiled"),
                of(&format!("torch_{operation}")),
                of(&format!("torch_compile_{operation}")),
                of(&format!("triton_{operation}")),
            ]);
        }
    }
    table.text()
}

/// The short kernel over places in memory, in each state of the cache.
pub(super) fn placements() -> String {
    let mut table = Table::new(&[
        "second-level cache",
        "places",
        "`native` us",
        "least to most",
        "`by_python` us",
        "least to most",
        "over `native`",
    ]);
    for (state, runs) in [("cold", &["cold", "again"][..]), ("clean", &["clean"])] {
        let [native, python] = ["native", "by_python"].map(|backend| {
            let of_run = |run: &&str| {
                let rows = Rows::read("2026-11-26-h100-parity", &format!("{run}-records.csv"));
                let rows = rows.all(&[("backend", backend)]);
                rows.into_iter().map(Row::of_peer).collect::<Vec<f64>>()
            };
            runs.iter().flat_map(of_run).collect::<Vec<f64>>()
        });
        let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
        let us = |ns: f64| format!("{:.3}", ns / 1e3);
        let range = |times: &[f64]| {
            let least = times.iter().copied().fold(f64::INFINITY, f64::min);
            let most = times.iter().copied().fold(0.0, f64::max);
            format!("{} to {}", us(least), us(most))
        };
        table.line([
            state.to_owned(),
            native.len().to_string(),
            us(mean(&native)),
            range(&native),
            us(mean(&python)),
            range(&python),
            format!("{:+.2} %", 100.0 * (mean(&python) / mean(&native) - 1.0)),
        ]);
    }
    table.text()
}

/// One kernel launched by this program, by a function in Python, and by this program again.
pub(super) fn parity() -> String {
    let mut table = Table::new(&[
        "second-level cache",
        "elements",
        "`native` us",
        "`by_python` us",
        "over `native`",
        "`again` us",
        "over `native`",
    ]);
    for state in ["cold", "clean"] {
        let rows = Rows::read("2026-11-25-h100-parity", &format!("{state}-records.csv"));
        for n in ["262144", "16777216"] {
            let of = |backend| rows.one(&[("backend", backend), ("axis_n", n)]).median();
            let native = of("native");
            let us = |ns: f64| format!("{:.3}", ns / 1e3);
            let over = |ns: f64| format!("{:+.2} %", 100.0 * (ns / native - 1.0));
            let [python, again] = ["by_python", "again"].map(of);
            let floats = 4 * n.parse::<u64>().unwrap();
            table.line([
                state.to_owned(),
                floats.to_string(),
                us(native),
                us(python),
                over(python),
                us(again),
                over(again),
            ]);
        }
    }
    table.text()
}
