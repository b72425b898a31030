//! A Transformer language model, operation by operation and compiled.

use super::record::{self, Row, Rows};
use super::table::{Table, ratio, three};

const RECORD: &str = "2026-11-24-h200-transformer";

/// Columns of both variants of a model.
const SHARED: [&str; 6] = [
    "`eager` ms",
    "`compiled` ms",
    "speedup",
    "utilization",
    "GB",
    "launches",
];

/// The values of [`SHARED`].
fn shared(eager: &Row, compiled: &Row) -> [String; 6] {
    let gigabytes = |row: &Row| three(row.number("peak_allocated_bytes") / 1e9);
    [
        format!("{}{}", three(eager.median() / 1e6), eager.marks()),
        format!("{}{}", three(compiled.median() / 1e6), compiled.marks()),
        ratio(eager.median() / compiled.median()),
        format!("{:.0} %", 100.0 * compiled.number("flops_utilization")),
        format!("{} / {}", gigabytes(eager), gigabytes(compiled)),
        format!("{} / {}", eager.text("launches"), compiled.text("launches")),
    ]
}

/// Times, memory and launches of both variants by precision, context and phase.
pub(super) fn eager_and_compiled() -> String {
    let rows = Rows::read(RECORD, "records.csv");
    let head = [
        &["products", "context", "phase"],
        &SHARED[..],
        &["compiling s"],
    ];
    let mut table = Table::new(&head.concat());
    for precision in ["f32", "tf32", "bf16"] {
        for context in ["256", "1024"] {
            for phase in ["forward", "both", "step"] {
                let of = |backend| {
                    rows.one(&[
                        ("precision", precision),
                        ("context", context),
                        ("phase", phase),
                        ("backend", backend),
                    ])
                };
                let (eager, compiled) = (of("eager"), of("compiled"));
                let point = [precision, context, phase].map(str::to_owned);
                let compiling_s = compiled.number("compile_wall_ns") / 1e9;
                let line = point.into_iter().chain(shared(eager, compiled));
                table.line(line.chain([format!("{compiling_s:.1}")]));
            }
        }
    }
    table.text()
}

/// Steps in bf16 before products that share a factor were one, and since then.
const TOGETHER: &str = "2026-11-25-h100-transformer-bf16";

/// Steps of the small model in bf16 by both programs, one after the other on one GPU.
pub(super) fn products_together() -> String {
    let mut table = Table::new(&[
        "context",
        "apart ms",
        "together ms",
        "launches",
        "compiling s",
    ]);
    for context in ["256", "1024"] {
        let of = |run: &str| Rows::read(TOGETHER, &format!("{run}-{context}-records.csv"));
        let (before, now) = (of("before"), of("now"));
        let [before, now] = [&before, &now].map(|rows| rows.one(&[("backend", "compiled")]));
        let compiling = |row: &Row| format!("{:.1}", row.number("compile_wall_ns") / 1e9);
        table.line([
            context.to_owned(),
            before.milliseconds(),
            now.milliseconds(),
            format!("{} / {}", before.text("launches"), now.text("launches")),
            format!("{} / {}", compiling(before), compiling(now)),
        ]);
    }
    table.text()
}

/// Steps in bf16 with operands of attention packed, and read as they lie, beside PyTorch's.
const AS_THEY_LIE: &str = "2026-11-26-h100-transformer-bf16";

/// Steps of the small model in bf16 by PyTorch and by two programs, one after the other on one GPU.
pub(super) fn operands_as_they_lie() -> String {
    let mut table = Table::new(&[
        "context",
        "PyTorch ms",
        "packed ms",
        "as they lie ms",
        "PyTorch / that",
        "launches",
        "GB",
    ]);
    let pytorch = Rows::read(AS_THEY_LIE, "pytorch-records.csv");
    for context in ["256", "1024"] {
        let of = |run: &str| Rows::read(AS_THEY_LIE, &format!("{run}-{context}-records.csv"));
        let (before, now) = (of("before"), of("now"));
        let [before, now] = [&before, &now].map(|rows| rows.one(&[("backend", "compiled")]));
        let peer = pytorch.one(&[("backend", "torch_graph"), ("context", context)]);
        // Nobody checks what the program computes.
        let peer_ns = peer.number("median_ns");
        let gigabytes = |row: &Row| three(row.number("peak_allocated_bytes") / 1e9);
        table.line([
            context.to_owned(),
            format!("{}{}", three(peer_ns / 1e6), peer.marks()),
            before.milliseconds(),
            now.milliseconds(),
            format!("{:.2}", peer_ns / now.median()),
            format!("{} / {}", before.text("launches"), now.text("launches")),
            format!("{} / {}", gigabytes(before), gigabytes(now)),
        ]);
    }
    table.text()
}

/// A record of larger models: a run for each size and context.
struct Larger {
    record: &'static str,
    size: &'static str,
    context: &'static str,
    /// The names of the run's files begin so.
    run: &'static str,
    /// Those of the run that has `eager`.
    run_of_eager: &'static str,
}

const SIZES: &str = "2026-11-25-h200-transformer-sizes";
const LARGEST: &str = "2026-11-25-h100-transformer-largest";

const MODELS: [Larger; 4] = [
    larger(SIZES, "medium", "512", ["medium-512-"; 2]),
    larger(SIZES, "large", "1024", ["large-1024-"; 2]),
    larger(LARGEST, "xl", "512", ["xl-512-"; 2]),
    larger(LARGEST, "2.7B", "256", ["2.7B-256-", "2.7B-256-eager-"]),
];

const fn larger(
    record: &'static str,
    size: &'static str,
    context: &'static str,
    [run, run_of_eager]: [&'static str; 2],
) -> Larger {
    Larger {
        record,
        size,
        context,
        run,
        run_of_eager,
    }
}

/// The surroundings of each run of larger models.
pub(super) fn runs_of_larger_models() -> String {
    let mut runs = Vec::new();
    for model in MODELS {
        let Larger { size, context, .. } = model;
        let run = record::run(model.record, model.run);
        runs.push(format!("{size}, {context}:\n\n{run}"));
        if model.run != model.run_of_eager {
            let run = record::run(model.record, model.run_of_eager);
            runs.push(format!("{size}, {context}, `eager`:\n\n{run}"));
        }
    }
    runs.join("\n")
}

/// Training steps of larger models in bf16.
pub(super) fn larger_models() -> String {
    let mut table = Table::new(&[&["model", "context"], &SHARED[..]].concat());
    for model in MODELS {
        let read = |run: &str| Rows::read(model.record, &format!("{run}records.csv"));
        let (rows, rows_of_eager) = (read(model.run), read(model.run_of_eager));
        let of = |backend| [("backend", backend), ("status", "ok")];
        let eager = rows_of_eager.one(&of("eager"));
        let compiled = rows.one(&of("compiled"));
        let words = [model.size, model.context].map(str::to_owned);
        table.line(words.into_iter().chain(shared(eager, compiled)));
    }
    table.text()
}

/// Every row is right, as a whole, and the numerics that ran are those that were asked for.
#[test]
fn coarser_products_are_less_exact() {
    let rows = Rows::read(RECORD, "records.csv");
    let all = rows.all(&[("status", "ok"), ("checked", "full")]);
    assert_eq!(all.len(), 36);
    for row in rows.all(&[("precision", "bf16"), ("phase", "forward")]) {
        let words = ["context", "phase", "backend"];
        let error_in = |precision| {
            let mut wanted: Vec<(&str, &str)> = vec![("precision", precision)];
            wanted.extend(words.map(|word| (word, row.text(word))));
            rows.one(&wanted).number("worst_error")
        };
        let [exact, coarse, coarsest] = ["f32", "tf32", "bf16"].map(error_in);
        assert!(10.0 * exact < coarse && 2.0 * coarse < coarsest);
    }
}
