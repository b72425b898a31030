//! Loops that become compiled while they run.

use super::record::{self, Row, Rows};
use super::table::{Table, three};

const RECORD: &str = "2026-11-25-h100-hot-paths";

/// Runs of the record: names of their files, and their loops.
const RUNS: [(&str, &str); 10] = [
    ("loops", "the compilation guide's workloads"),
    ("million", "a million iterations"),
    ("again", "a million iterations of `mixed`, three times"),
    ("mlp", "a million training steps"),
    (
        "attention",
        "ten thousand iterations of `attention_block`, twelve times",
    ),
    ("untried", "that, where nothing is compiled"),
    ("guide", "ten thousand iterations, a day later"),
    ("transformer", "a Transformer's training"),
    ("never", "that, without parts"),
    ("first", "that, with parts first"),
];

/// A later record, by a program that records less of loops that are not compiled yet.
const LATER_RECORD: &str = "2026-11-26-h100-hot-paths";

/// Loops of that record, with words for what they are.
const LATER: [(&str, Loops); 5] = [
    ("a hundred loops", ("short", &GUIDE, &[1, 10, 100])),
    ("ten thousand iterations", ("loops", &GUIDE, &[10_000])),
    (
        "ten thousand iterations of `attention_block`, twelve times",
        ("attention", &[("attention_block", "forward")], &[10_000]),
    ),
    (
        "that, where nothing is compiled",
        ("untried", &[("attention_block", "forward")], &[10_000]),
    ),
    (
        "a million iterations of `mixed`, three times",
        ("mixed", &[("mixed", "forward")], &[1_000_000]),
    ),
];

/// The surroundings of each run of the later record.
pub(super) fn runs_again() -> String {
    let runs = LATER.map(|(loops, (name, ..))| {
        let run = record::run(LATER_RECORD, &format!("{name}-"));
        format!("{loops}:\n\n{run}")
    });
    runs.join("\n")
}

/// As [`totals`], of the later record.
pub(super) fn totals_again() -> String {
    table(LATER_RECORD, &LATER.map(|(_, loops)| loops))
}

/// Loops of two processors.
const CPU_RECORD: &str = "2026-11-25-cpu-hot-paths";

/// All loops of two processors, one run after the other.
const CPU_LOOPS: [Loops; 3] = [
    ("short", &GUIDE, &[1, 10, 100]),
    ("loops", &GUIDE, &[1000, 10_000]),
    ("million", &GUIDE, &[1_000_000]),
];

/// The surroundings of the loops of two processors.
pub(super) fn runs_of_cpu() -> String {
    let runs = CPU_LOOPS.iter().map(|(name, _, lengths)| {
        let run = record::run(CPU_RECORD, &format!("{name}-"));
        let lengths: Vec<String> = lengths.iter().map(u32::to_string).collect();
        format!("{} iterations:\n\n{run}", lengths.join(", "))
    });
    runs.collect::<Vec<String>>().join("\n")
}

/// As [`totals`], of two processors.
pub(super) fn totals_of_cpu() -> String {
    table(CPU_RECORD, &CPU_LOOPS)
}

/// The surroundings of each run.
pub(super) fn runs() -> String {
    let runs = RUNS.iter().map(|(name, loops)| {
        let run = record::run(RECORD, &format!("{name}-"));
        format!("{loops}:\n\n{run}")
    });
    runs.collect::<Vec<String>>().join("\n")
}

/// Loops of one run: workloads with their phases, and iterations.
type Loops = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static [u32],
);

/// The compilation guide's workloads.
const GUIDE: [(&str, &str); 4] = [
    ("matmul_chain", "forward"),
    ("mlp", "both"),
    ("attention_block", "forward"),
    ("mixed", "forward"),
];

/// All loops of the record.
const LOOPS: [Loops; 8] = [
    ("loops", &GUIDE, &[1, 10, 100, 10_000]),
    (
        "million",
        &[
            ("matmul_chain", "forward"),
            ("attention_block", "forward"),
            ("mixed", "forward"),
        ],
        &[1_000_000],
    ),
    ("again", &[("mixed", "forward")], &[1_000_000]),
    ("mlp", &[("mlp", "both")], &[1_000_000]),
    ("attention", &[("attention_block", "forward")], &[10_000]),
    ("untried", &[("attention_block", "forward")], &[10_000]),
    (
        "guide",
        &[("mlp", "both"), ("attention_block", "forward")],
        &[10_000],
    ),
    (
        "transformer",
        &[("transformer", "step")],
        &[1, 10, 100, 1000],
    ),
];

/// A Transformer's loops by whether its layers are compiled by themselves, and when.
pub(super) fn parts() -> String {
    let mut table = Table::new(&[
        "`measure.hot_parts`",
        "iterations",
        "`auto` ms",
        "in the background ms",
        "parts from",
        "switch",
        "outcome",
    ]);
    for (run, shown) in [
        ("never", "never"),
        ("transformer", "paid"),
        ("first", "first"),
    ] {
        let rows = Rows::read(RECORD, &format!("{run}-records.csv"));
        for length in [100, 1000] {
            let mode = format!("loop:{length}");
            let row = rows.one(&[("mode", &mode), ("backend", "auto"), ("status", "ok")]);
            let at = |column: &str| match row.text(column) {
                "" => "–".to_owned(),
                at => at.to_owned(),
            };
            table.line([
                format!("`{shown}`"),
                length.to_string(),
                three(row.median() * f64::from(length) / 1e6),
                three(row.number("hot_background_ns") / 1e6),
                at("hot_parts_at"),
                at("hot_switched_at"),
                row.text("hot_outcome").to_owned(),
            ]);
        }
    }
    table.text()
}

/// Whole loops by all three, and what became of them.
pub(super) fn totals() -> String {
    table(RECORD, &LOOPS)
}

/// Whether the intervals of both medians overlap, of rows with more than one sample.
fn overlap(a: &Row, b: &Row) -> bool {
    let end = |row: &Row, column: &str| row.text(column).parse::<f64>().ok();
    let [a, b] = [a, b].map(|row| end(row, "median_low_ns").zip(end(row, "median_high_ns")));
    a.zip(b)
        .is_some_and(|((low, high), (other_low, other_high))| {
            low <= other_high && other_low <= high
        })
}

fn table(record: &str, loops: &[Loops]) -> String {
    let mut table = Table::new(&[
        "loop",
        "iterations",
        "`eager` ms",
        "`compiled` ms",
        "`auto` ms",
        "over `eager`",
        "over the better",
        "in the background ms",
        "allowed ms",
        "switch",
        "outcome",
    ]);
    for (run, workloads, lengths) in loops {
        let rows = Rows::read(record, &format!("{run}-records.csv"));
        for (workload, phase) in *workloads {
            for &length in *lengths {
                let mode = format!("loop:{length}");
                let of = |backend| {
                    rows.one(&[
                        ("workload", workload),
                        ("phase", phase),
                        ("mode", &mode),
                        ("backend", backend),
                        ("status", "ok"),
                    ])
                };
                let total = |backend| of(backend).median() * f64::from(length) / 1e6;
                let [eager, compiled, auto] = ["eager", "compiled", "auto"].map(total);
                let better = eager.min(compiled);
                let found = of("auto");
                let background = found.number("hot_background_ns") / 1e6;
                let switch = found.text("hot_switched_at");
                let mark = if overlap(of("eager"), found) {
                    " ≈"
                } else {
                    ""
                };
                table.line([
                    (*workload).to_owned(),
                    length.to_string(),
                    three(eager),
                    three(compiled),
                    three(auto),
                    format!("{:.2}{mark}", auto / eager),
                    format!("{:.2}", auto / better),
                    three(background),
                    three(1.05 * better + background),
                    if switch.is_empty() { "–" } else { switch }.to_owned(),
                    found.text("hot_outcome").to_owned(),
                ]);
            }
        }
    }
    table.text()
}
