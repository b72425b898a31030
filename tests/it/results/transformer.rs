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

const SIZES: &str = "2026-11-25-h200-transformer-sizes";

/// Runs of the record of larger models: one for each size and context.
const MODELS: [(&str, &str); 2] = [("medium", "512"), ("large", "1024")];

/// The surroundings of each run of larger models.
pub(super) fn runs_of_larger_models() -> String {
    let runs = MODELS.iter().map(|(size, context)| {
        let run = record::run(SIZES, &format!("{size}-{context}-"));
        format!("{size}, {context}:\n\n{run}")
    });
    runs.collect::<Vec<String>>().join("\n")
}

/// Training steps of larger models in bf16.
pub(super) fn larger_models() -> String {
    let mut table = Table::new(&[&["model", "context"], &SHARED[..]].concat());
    for (size, context) in MODELS {
        let rows = Rows::read(SIZES, &format!("{size}-{context}-records.csv"));
        let of = |backend| rows.one(&[("backend", backend), ("status", "ok")]);
        let (eager, compiled) = (of("eager"), of("compiled"));
        let model = [size, context].map(str::to_owned);
        table.line(model.into_iter().chain(shared(eager, compiled)));
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
