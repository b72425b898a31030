//! The semi-Markov CRF, and the first copies.

use super::record::{Row, Rows};
use super::table::{Table, geometric_mean, ratio, three};

const PAPER: &str = "2026-11-22-h200-paper";
const WHOLE: &str = "2026-11-21-h200-paper";
const SIZES: &str = "2026-11-24-h200-published-sizes";
const TRITON: &str = "2026-11-23-h200-torch-semimarkov";
const SWEEP: &str = "2026-11-25-h100-semicrf-torch";

fn ms(row: &Row) -> String {
    three(row.median() / 1e6) + &row.marks()
}

pub(super) fn copies() -> String {
    let rows = Rows::read("2026-11-20-h200-copy", "records.csv");
    let mut table = Table::new(&["elements", "us", "read and written, TB/s"]);
    for row in rows.all(&[("status", "ok")]) {
        let moved = row.number("read_bytes") + row.number("written_bytes");
        table.line([
            row.text("elements").to_owned(),
            three(row.median() / 1e3) + &row.marks(),
            format!("{:.2}", moved / row.median() / 1e3),
        ]);
    }
    table.text()
}

const WORDS: [(&str, &str); 6] = [
    ("decomposed", "log"),
    ("decomposed", "max"),
    ("decomposed", "entropy"),
    ("materialized", "log"),
    ("materialized", "max"),
    ("materialized", "entropy"),
];

/// The row of the largest shape of the main job.
fn largest<'a>(rows: &'a Rows, words: (&str, &str), phase: &str, backend: &str) -> &'a Row {
    let (potentials, semiring) = words;
    rows.one(&[
        ("T", "1024"),
        ("K", "24"),
        ("C", "12"),
        ("potentials", potentials),
        ("semiring", semiring),
        ("phase", phase),
        ("backend", backend),
    ])
}

pub(super) fn largest_fused() -> String {
    let rows = Rows::read(PAPER, "records.csv");
    let mut table = Table::new(&[
        "potentials",
        "semiring",
        "phase",
        "`fused` ms",
        "`fused_checkpointing` ms",
    ]);
    for words in WORDS {
        for phase in ["forward", "backward", "both"] {
            table.line([
                words.0.to_owned(),
                words.1.to_owned(),
                phase.to_owned(),
                ms(largest(&rows, words, phase, "fused")),
                ms(largest(&rows, words, phase, "fused_checkpointing")),
            ]);
        }
    }
    table.text()
}

pub(super) fn streaming_over_fused() -> String {
    let rows = Rows::read(WHOLE, "whole-records.csv");
    let mut table = Table::new(&[
        "potentials",
        "semiring",
        "shapes",
        "forward: `fused`",
        "both: `fused`",
        "both: `fused_checkpointing`",
    ]);
    for (potentials, semiring) in WORDS {
        let mean = |phase: &str, backend: &str| {
            let words = |backend| {
                rows.all(&[
                    ("potentials", potentials),
                    ("semiring", semiring),
                    ("phase", phase),
                    ("backend", backend),
                ])
            };
            let (slow, fast) = (words("streaming"), words(backend));
            assert_eq!(slow.len(), fast.len());
            let ratios = slow.iter().map(|slow| {
                let is_same = |fast: &&&Row| fast.text("problem") == slow.text("problem");
                let fast = fast.iter().find(is_same).unwrap();
                slow.median() / fast.median()
            });
            (geometric_mean(ratios), slow.len())
        };
        let (forward, shapes) = mean("forward", "fused");
        table.line([
            potentials.to_owned(),
            semiring.to_owned(),
            shapes.to_string(),
            ratio(forward),
            ratio(mean("both", "fused").0),
            ratio(mean("both", "fused_checkpointing").0),
        ]);
    }
    table.text()
}

pub(super) fn largest_with_streaming() -> String {
    let rows = Rows::read(WHOLE, "largest-records.csv");
    let mut table = Table::new(&[
        "potentials",
        "semiring",
        "phase",
        "`streaming` ms",
        "`fused_checkpointing` ms",
        "`fused` ms",
        "streaming / fused",
    ]);
    for words in WORDS {
        for phase in ["forward", "backward", "both"] {
            let [slow, between, fast] = ["streaming", "fused_checkpointing", "fused"]
                .map(|backend| largest(&rows, words, phase, backend));
            table.line([
                words.0.to_owned(),
                words.1.to_owned(),
                phase.to_owned(),
                ms(slow),
                ms(between),
                ms(fast),
                ratio(slow.median() / fast.median()),
            ]);
        }
    }
    table.text()
}

/// Our row and torch-semimarkov's milliseconds, where they were measured.
fn pair<'a>(
    ours: &'a Rows,
    theirs: &Rows,
    size: [&str; 4],
    words: [&str; 2],
) -> (&'a Row, Option<f64>) {
    let [t, k, c, b] = size;
    let [potentials, phase] = words;
    let key = [
        ("T", t),
        ("K", k),
        ("C", c),
        ("B", b),
        ("potentials", potentials),
        ("phase", phase),
    ];
    let row = ours.one(&[&key[..], &[("backend", "fused")]].concat());
    let found = theirs.all(&key);
    assert!(found.len() < 2, "{key:?} was measured twice");
    (row, found.first().map(|row| row.number("ms")))
}

pub(super) fn beside_triton() -> String {
    let (ours, theirs) = (
        Rows::read(SIZES, "records.csv"),
        Rows::read(TRITON, "times.csv"),
    );
    let mut table = Table::new(&[
        "T, K, C, B",
        "potentials",
        "phase",
        "`fused` ms",
        "torch-semimarkov ms",
        "theirs / ours",
    ]);
    let mut used = 0;
    for size in [
        ["1024", "24", "12", "4"],
        ["1024", "16", "12", "4"],
        ["512", "12", "9", "4"],
        ["256", "8", "6", "4"],
        ["128", "4", "3", "4"],
        ["10000", "100", "24", "4"],
        ["1000", "100", "24", "64"],
    ] {
        for words in [
            ["decomposed", "forward"],
            ["decomposed", "both"],
            ["materialized", "forward"],
        ] {
            if size[0] == "10000" && words[0] == "materialized" {
                continue;
            }
            let (row, peer) = pair(&ours, &theirs, size, words);
            used += usize::from(peer.is_some());
            table.line([
                size.join(", "),
                words[0].to_owned(),
                words[1].to_owned(),
                ms(row),
                peer.map_or("not measured".to_owned(), three),
                peer.map_or(String::new(), |peer| ratio(peer / (row.median() / 1e6))),
            ]);
        }
    }
    assert_eq!(used, theirs.all(&[]).len(), "a time is in no line");
    table.text()
}

/// Published kernels in the rounds of ours: the case of the manifest, the backend, and its package.
const PUBLISHED: [(&str, &str, &str); 4] = [
    ("materialized", "guide_triton", "torch-semimarkov"),
    ("materialized", "guide_checkpointing", "torch-semimarkov"),
    ("decomposed", "guide_streaming_triton", "torch-semimarkov"),
    ("successor", "flash_triton", "flash-semicrf"),
];

/// Our row and theirs, of one case; none of theirs where there is no such point.
fn published<'a>(
    rows: &'a Rows,
    (case, backend, _): (&str, &str, &str),
    [t, phase]: [&str; 2],
) -> Option<(&'a Row, &'a Row)> {
    let of = |backend: &str| {
        let found = rows.all(&[
            ("case", case),
            ("T", t),
            ("phase", phase),
            ("backend", backend),
        ]);
        found.first().copied()
    };
    let theirs = of(backend).filter(|row| row.text("status") != "skipped")?;
    Some((of("fused")?, theirs))
}

/// Milliseconds of a row, and those of another one over them, or what became of that.
fn beside(ours: &Row, theirs: &Row) -> [String; 2] {
    match theirs.text("status") {
        "ok" => [ms(theirs), ratio(theirs.median() / ours.median())],
        status => [format!("`{status}`"), String::new()],
    }
}

pub(super) fn in_rounds_with_triton() -> String {
    let rows = Rows::read(SWEEP, "kernels-records.csv");
    let mut table = Table::new(&[
        "package",
        "kernels",
        "T",
        "phase",
        "`fused` ms",
        "theirs ms",
        "theirs / ours",
    ]);
    for of in PUBLISHED {
        for t in ["128", "512", "1024"] {
            for phase in ["forward", "both"] {
                let Some((ours, theirs)) = published(&rows, of, [t, phase]) else {
                    continue;
                };
                let (_, backend, package) = of;
                let own = [package, &format!("`{backend}`"), t, phase].map(str::to_owned);
                let times = [ms(ours)].into_iter().chain(beside(ours, theirs));
                table.line(own.into_iter().chain(times));
            }
        }
    }
    table.text()
}

/// All backends of the sweep with PyTorch's operations, at both lengths.
pub(super) fn in_rounds_with_pytorch() -> String {
    let rows = Rows::read(SWEEP, "all-records.csv");
    let mut table = Table::new(&["case", "backend", "phase", "T = 128, ms", "T = 1024, ms"]);
    let at = |row: &Row, t: &str| {
        let [case, backend, phase] = ["case", "backend", "phase"].map(|word| row.text(word));
        let row = rows.one(&[
            ("case", case),
            ("backend", backend),
            ("phase", phase),
            ("T", t),
        ]);
        match row.text("status") {
            "ok" => ms(row),
            "skipped" => String::new(),
            status => format!("`{status}`"),
        }
    };
    for row in rows.all(&[("T", "128")]) {
        if row.text("status") == "skipped" {
            continue;
        }
        let [case, backend, phase] = ["case", "backend", "phase"].map(|word| row.text(word));
        table.line([
            case.to_owned(),
            format!("`{backend}`"),
            phase.to_owned(),
            at(row, "128"),
            at(row, "1024"),
        ]);
    }
    table.text()
}

/// The figures of the front page.
pub(super) fn highlights() -> String {
    let rows = Rows::read(SWEEP, "kernels-records.csv");
    let mut table = Table::new(&[
        "semi-Markov CRF, log semiring, decomposed, f32, K = 24, C = 12, B = 4",
        "`fused`",
        "their Triton kernels",
        "ratio",
    ]);
    let [_, _, guide, successor] = PUBLISHED;
    for (of, t, phase) in [
        (guide, "1024", "forward"),
        (guide, "512", "both"),
        (successor, "1024", "forward"),
        (successor, "1024", "both"),
    ] {
        let (ours, theirs) = published(&rows, of, [t, phase]).unwrap();
        let what = match phase {
            "both" => "forward and backward",
            forward => forward,
        };
        let ms = |row: &Row| format!("{} ms{}", three(row.median() / 1e6), row.marks());
        table.line([
            format!("{}, T = {t}, {what}", of.2),
            ms(ours),
            ms(theirs),
            ratio(theirs.median() / ours.median()),
        ]);
    }
    table.text()
}
