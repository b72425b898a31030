//! Programs launched as one CUDA graph, beside launches that follow each other.

use super::record::{self, Row, Rows};
use super::table::{Table, three};

const RECORD: &str = "2026-11-26-h100-graphs";

/// Steps of the small model alone, by later kernels of gradients in f32.
pub(super) const ON_AN_H200: &str = "2026-11-26-h200-steps";

/// Steps of the small model by PyTorch, with CUDA graphs, on another GPU of that kind.
const PYTORCH: &str = "2026-11-26-h100-transformer-bf16";

/// The surroundings of each run.
pub(super) fn runs() -> String {
    let runs = [
        ("step", "steps of the small model"),
        ("medium", "of the medium one"),
        ("attention", "attention"),
        ("torch", "attention in f32 beside PyTorch"),
    ];
    let runs = runs.map(|(name, of)| {
        let run = record::run(RECORD, &format!("{name}-"));
        format!("{of}:\n\n{run}")
    });
    runs.join("\n")
}

/// A step by `compiled`, its launches one after the other and as one graph.
fn in_both_modes<'r>(rows: &'r Rows, precision: &str, context: &str) -> [&'r Row; 2] {
    ["launch", "graph"].map(|mode| {
        rows.one(&[
            ("backend", "compiled"),
            ("precision", precision),
            ("context", context),
            ("mode", mode),
        ])
    })
}

/// Training steps in both modes.
pub(super) fn steps() -> String {
    let mut table = Table::new(&[
        "model",
        "precision",
        "context",
        "launches",
        "one after the other ms",
        "by data ms",
        "less",
        "PyTorch ms",
    ]);
    let pytorch = Rows::read(PYTORCH, "pytorch-records.csv");
    let small = [("bf16", "256"), ("bf16", "1024"), ("tf32", "256")];
    let others = [("tf32", "1024"), ("f32", "256"), ("f32", "1024")];
    let small = small.into_iter().chain(others).map(|it| ("step", it));
    for (run, (precision, context)) in small.chain([("medium", ("bf16", "1024"))]) {
        let rows = Rows::read(RECORD, &format!("{run}-records.csv"));
        let [launch, graph] = in_both_modes(&rows, precision, context);
        let peer = match (launch.text("size"), precision) {
            ("small", "bf16") => {
                let row = pytorch.one(&[("backend", "torch_graph"), ("context", context)]);
                // Nobody checks what the program computes.
                three(row.number("median_ns") / 1e6)
            }
            _ => "–".to_owned(),
        };
        table.line([
            launch.text("size").to_owned(),
            precision.to_owned(),
            context.to_owned(),
            launch.text("launches").to_owned(),
            launch.milliseconds(),
            graph.milliseconds(),
            format!("{:.1} %", 100.0 * (1.0 - graph.median() / launch.median())),
            peer,
        ]);
    }
    table.text()
}

/// Training steps of the small model on an H200, with their memory.
pub(super) fn steps_on_an_h200() -> String {
    let mut table = Table::new(&[
        "precision",
        "context",
        "launches",
        "one after the other ms",
        "by data ms",
        "of the ceiling",
        "peak GB",
    ]);
    let rows = Rows::read(ON_AN_H200, "records.csv");
    for precision in ["bf16", "tf32", "f32"] {
        for context in ["256", "1024"] {
            let [launch, graph] = in_both_modes(&rows, precision, context);
            table.line([
                precision.to_owned(),
                context.to_owned(),
                launch.text("launches").to_owned(),
                launch.milliseconds(),
                graph.milliseconds(),
                format!("{:.0} %", 100.0 * graph.number("flops_utilization")),
                three(graph.number("peak_allocated_bytes") / 1e9),
            ]);
        }
    }
    table.text()
}

/// Attention with its gradients, in microseconds.
pub(super) fn attention() -> String {
    let mut table = Table::new(&[
        "precision",
        "d",
        "S",
        "`eager` forward us",
        "`compiled`",
        "`eager` with gradients us",
        "`compiled`, launches",
        "`compiled`",
        "`eager` / `compiled`",
    ]);
    let rows = Rows::read(RECORD, "attention-records.csv");
    for precision in ["tf32", "bf16"] {
        for dimension in ["64", "128"] {
            for sequence in ["256", "512", "1024", "2048"] {
                let ns = |backend, phase, mode| {
                    let row = rows.one(&[
                        ("precision", precision),
                        ("dimension", dimension),
                        ("sequence", sequence),
                        ("backend", backend),
                        ("phase", phase),
                        ("mode", mode),
                    ]);
                    row.median()
                };
                let eager = ns("eager", "both", "graph");
                let compiled = ns("compiled", "both", "graph");
                let us = |ns: f64| three(ns / 1e3);
                table.line([
                    precision.to_owned(),
                    dimension.to_owned(),
                    sequence.to_owned(),
                    us(ns("eager", "forward", "graph")),
                    us(ns("compiled", "forward", "graph")),
                    us(eager),
                    us(ns("compiled", "both", "launch")),
                    us(compiled),
                    format!("{:.2}", eager / compiled),
                ]);
            }
        }
    }
    table.text()
}

/// Attention in f32 with its gradients by functions of PyTorch, in both modes.
pub(super) fn functions() -> String {
    let mut table = Table::new(&[
        "S",
        "mask",
        "backend",
        "forward us",
        "as a graph",
        "with gradients us",
        "as a graph",
    ]);
    let rows = Rows::read(RECORD, "torch-records.csv");
    for sequence in ["512", "2048"] {
        for mask in ["none", "causal"] {
            for backend in ["compiled", "torch_sdpa", "torch_compile_plain"] {
                let us = |phase, mode| {
                    let row = rows.one(&[
                        ("sequence", sequence),
                        ("mask", mask),
                        ("backend", backend),
                        ("phase", phase),
                        ("mode", mode),
                    ]);
                    format!("{}{}", three(row.median() / 1e3), row.marks())
                };
                table.line([
                    sequence.to_owned(),
                    mask.to_owned(),
                    format!("`{backend}`"),
                    us("forward", "launch"),
                    us("forward", "graph"),
                    us("both", "launch"),
                    us("both", "graph"),
                ]);
            }
        }
    }
    table.text()
}
