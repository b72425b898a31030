//! Numbers in documents: each number is made from a record. `SWEEPER_BLESS=1 cargo test --test it
//! results` writes them anew, between the marks that name a part.

mod record;
mod table;
/// The semi-Markov CRF.
mod crf;
/// Single operations, beside PyTorch.
mod operations;
/// Products, fusion, and when compiling pays.
mod calibration;
/// Loops that become compiled.
mod hot_paths;
/// Attention.
mod attention;
/// A Transformer language model.
mod transformer;
/// Programs as CUDA graphs.
mod graphs;
/// Comparing runs.
mod comparisons;

use std::fs;
use std::path::{Path, PathBuf};

use super::place::{Place, code, text};
use crate::support::golden;

/// Documents with numbers in them: the first page, and the chapters of results.
fn documents() -> Vec<PathBuf> {
    let chapters = fs::read_dir(root().join("docs/results")).unwrap();
    let chapters = chapters.map(|entry| entry.unwrap().path());
    let pages = ["README.md", "docs/results.md"].map(|name| root().join(name));
    pages.into_iter().chain(chapters).collect()
}

/// The name of a part, and the function that makes it.
type Part = (&'static str, fn() -> String);

/// The parts between the marks `<!-- made: NAME -->` and `<!-- end -->`.
const PARTS: &[Part] = &[
    ("copy-run", || record::run("2026-11-20-h200-copy", "")),
    ("copy", crf::copies),
    ("highlights", crf::highlights),
    ("paper-run", || record::run("2026-11-22-h200-paper", "")),
    ("paper", crf::largest_fused),
    ("streaming-run", || {
        record::run("2026-11-21-h200-paper", "whole-")
    }),
    ("streaming", crf::streaming_over_fused),
    ("largest-run", || {
        record::run("2026-11-21-h200-paper", "largest-")
    }),
    ("largest", crf::largest_with_streaming),
    ("sizes-run", || {
        record::run("2026-11-24-h200-published-sizes", "")
    }),
    ("sizes", crf::beside_triton),
    ("published-run", || {
        record::run("2026-11-25-h100-semicrf-torch", "kernels-")
    }),
    ("published", crf::in_rounds_with_triton),
    ("published-all-run", || {
        record::run("2026-11-25-h100-semicrf-torch", "all-")
    }),
    ("published-all", crf::in_rounds_with_pytorch),
    ("operations-run", || {
        record::run("2026-11-23-h200-operations", "")
    }),
    ("operations", operations::beside_pytorch),
    ("operations-means", operations::means),
    ("operations-copies", operations::copies),
    ("operations-forward", operations::forward),
    ("operations-backward", operations::backward),
    ("turns", operations::turns),
    ("torch-run", || {
        record::run("2026-11-25-h200-operations-torch", "")
    }),
    ("torch", operations::in_rounds_with_pytorch),
    ("parity-run", || {
        record::run("2026-11-25-h100-parity", "cold-")
    }),
    ("parity", operations::parity),
    ("placements-run", || {
        record::run("2026-11-26-h100-parity", "cold-")
    }),
    ("placements", operations::placements),
    ("untuned-run", || {
        record::run("2026-11-24-h200-operations-untuned", "")
    }),
    ("untuned", operations::untuned),
    ("cpu-run", || record::run("2026-11-22-cpu-operations", "")),
    ("cpu", operations::on_a_cpu),
    ("calibration-run", || {
        record::run("2026-11-24-h200-calibration", "")
    }),
    ("copy-rate", calibration::copy_rate),
    ("products", calibration::products),
    ("fusion", calibration::fusion),
    ("attention-run", || {
        record::run("2026-11-24-h200-attention", "")
    }),
    ("attention-f32-run", || {
        record::run("2026-11-26-h200-attention-f32", "now-")
    }),
    ("attention", attention::eager_and_compiled),
    ("attention-torch-run", || {
        record::run("2026-11-25-h200-attention-torch", "")
    }),
    ("attention-torch", attention::in_rounds_with_pytorch),
    ("attention-cudnn-run", || {
        record::run("2026-11-26-h100-attention-cudnn", "")
    }),
    ("attention-cudnn", attention::beside_cudnn),
    ("attention-warps-run", || {
        record::run("2026-11-26-h100-attention-warps", "warps-")
    }),
    ("attention-warps", attention::by_warps_and_warpgroups),
    ("attention-short-run", || {
        record::run("2026-11-26-h100-attention-f32", "now-")
    }),
    ("attention-short", attention::of_short_sequences),
    ("attention-halves", attention::by_halves),
    ("transformer-run", || {
        record::run("2026-11-24-h200-transformer", "")
    }),
    ("transformer", transformer::eager_and_compiled),
    ("transformer-together-run", || {
        record::run("2026-11-25-h100-transformer-bf16", "now-1024-")
    }),
    ("transformer-together", transformer::products_together),
    ("transformer-as-they-lie-run", || {
        record::run("2026-11-26-h100-transformer-bf16", "now-1024-")
    }),
    ("transformer-as-they-lie", transformer::operands_as_they_lie),
    ("graphs-runs", graphs::runs),
    ("graphs-steps", graphs::steps),
    ("graphs-h200-run", || record::run(graphs::ON_AN_H200, "")),
    ("graphs-h200", graphs::steps_on_an_h200),
    ("graphs-attention", graphs::attention),
    ("graphs-functions", graphs::functions),
    ("transformer-sizes-run", transformer::runs_of_larger_models),
    ("transformer-sizes", transformer::larger_models),
    ("economics-run", || {
        record::run("2026-11-24-h200-economics", "")
    }),
    ("economics", calibration::loops),
    ("break-even", calibration::break_even),
    ("economics-torch-run", || {
        record::run("2026-11-26-h100-economics-torch", "")
    }),
    ("economics-torch", calibration::loops_beside_pytorch),
    ("hot-paths-runs", hot_paths::runs),
    ("hot-paths", hot_paths::totals),
    ("hot-paths-again-runs", hot_paths::runs_again),
    ("hot-paths-again", hot_paths::totals_again),
    ("hot-paths-parts", hot_paths::parts),
    ("hot-paths-cpu-runs", hot_paths::runs_of_cpu),
    ("hot-paths-cpu", hot_paths::totals_of_cpu),
    ("aa", comparisons::against_itself),
    ("aa-bench", comparisons::against_more_work),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

const OPENS: &str = "<!-- made: ";
const CLOSES: &str = "<!-- end -->";

/// A document with its parts made anew, the names of these, and the text that is not made.
fn remade(document: &str) -> (String, Vec<&str>, String) {
    let (mut whole, mut names, mut prose) = (String::new(), Vec::new(), String::new());
    let mut rest = document;
    while let Some(start) = rest.find(OPENS) {
        let (before, opened) = rest.split_at(start);
        let (name, after) = opened[OPENS.len()..].split_once(" -->\n").unwrap();
        let (_, after) = after
            .split_once(CLOSES)
            .unwrap_or_else(|| panic!("`{name}` has no end"));
        let (_, make) = PARTS
            .iter()
            .find(|(held, _)| *held == name)
            .unwrap_or_else(|| panic!("nobody makes `{name}`"));
        prose += before;
        whole += &format!("{before}{OPENS}{name} -->\n{}{CLOSES}", make());
        names.push(name);
        rest = after;
    }
    (whole + rest, names, prose + rest)
}

#[test]
fn numbers_are_those_of_the_records() {
    let mut made = Vec::new();
    for path in documents() {
        let document = fs::read_to_string(&path).unwrap();
        let (whole, names, _) = remade(&document);
        golden(&path, &whole).unwrap();
        made.extend(names.into_iter().map(str::to_owned));
    }
    for (name, _) in PARTS {
        let places = made.iter().filter(|held| *held == name).count();
        assert_eq!(places, 1, "`{name}` stands in {places} places");
    }
}

/// Between the marks numbers are made; outside of them no measured number is written by hand.
#[test]
fn no_result_is_written_by_hand() {
    const UNITS: [&str; 10] = [
        "%", "ms", "us", "ns", "s", "min", "times", "TB/s", "GB/s", "Tflop/s",
    ];
    for path in documents() {
        let (name, document) = (path.display(), fs::read_to_string(&path).unwrap());
        let (_, _, prose) = remade(&document);
        // What commands say is tested as a part of the guide.
        for line in outside_consoles(&prose) {
            let words: Vec<&str> = line
                .split(|letter: char| letter.is_whitespace() || "(),:;|".contains(letter))
                .filter(|word| !word.is_empty())
                .collect();
            for pair in words.windows(2) {
                let is_number = pair[0].parse::<f64>().is_ok();
                assert!(
                    !(is_number && UNITS.contains(&pair[1].trim_end_matches('.'))),
                    "{name}: `{} {}` has no source: {line}",
                    pair[0],
                    pair[1]
                );
            }
        }
    }
}

/// The lines that are in no block of commands and what they print.
fn outside_consoles(document: &str) -> impl Iterator<Item = &str> {
    let mut is_console = false;
    document.lines().filter(move |line| {
        if line.starts_with("```") {
            is_console = *line == "```console";
        }
        !is_console
    })
}

/// The picture in the README equals the output of the commands in `docs/report.md`.
#[test]
fn the_picture_is_that_of_the_record() {
    let place = Place::new("");
    let rows = record::unpacked("2026-11-21-h200-paper", "whole-records.csv");
    fs::write(place.path("whole-records.csv"), rows).unwrap();
    let words = [
        "report",
        "whole-records.csv",
        "--baseline",
        "streaming",
        "--format",
        "svg",
    ];
    let output = place.sweeper(&words);
    assert_eq!(code(&output), 0, "{}", text(&output));
    let name = "whole-records-report/potentials=decomposed/scalability_T_log_both.svg";
    let picture = fs::read_to_string(place.path(name)).unwrap();
    golden(&root().join("docs/time-over-T.svg"), &picture).unwrap();
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.contains("](docs/time-over-T.svg)"));
}

/// Each record is mentioned with its tables, and says where they are.
#[test]
fn every_record_is_shown() {
    let documents = documents().into_iter();
    let results: String = documents
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let folders = fs::read_dir(root().join("records")).unwrap();
    let mut names: Vec<PathBuf> = folders.map(|entry| entry.unwrap().path()).collect();
    names.sort();
    assert!(names.len() >= 9);
    for folder in names {
        let name = folder.file_name().unwrap().to_str().unwrap();
        assert!(
            results.contains(&format!("records/{name}")),
            "no chapter of docs/results mentions {name}"
        );
        let readme = fs::read_to_string(folder.join("README.md")).unwrap();
        assert!(
            readme.contains("docs/results/"),
            "{name} does not say where its tables are"
        );
    }
}
