//! The error rates of comparisons on real runs: a program against itself, and against a program
//! that does 3 % more work. `cargo bench --bench aa [TRIALS] [PAIRS]`.
//!
//! A round is three runs: the program, the program again, and the slower one, in an order that
//! changes from round to round. Each trial compares as many rounds as there are pairs, and shares
//! none with another trial. The slower program is the first program at sizes with 3 % more work, so
//! that the difference in time is real.

#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use sweeper::compare::pairing::Pairs;
use sweeper::compare::spread::Spread;
use sweeper::compare::verdict::{Correction, Rule, Verdict};
use sweeper::compare::{Comparison, Settings, compare};
use sweeper::execute::supervisor::WorkerCommand;
use sweeper::manifest::Sources;
use sweeper::report::source::{self, Source};
use sweeper::row::entry::Entry;
use sweeper::run::repeats::{AA, Repeats};
use sweeper_program::Value;

/// 3 % more elements; 2.9 % more positions that are computed (T - 1), of the same canonical shape.
const MORE_WORK: [(&str, &str); 2] = [
    ("[65536, 1048576]", "[67502, 1080033]"),
    ("T = 240", "T = 247"),
];

fn main() {
    let mut numbers = std::env::args()
        .skip(1)
        .filter_map(|word| word.parse::<usize>().ok());
    let trials = numbers.next().unwrap_or(20);
    let pairs = numbers.next().unwrap_or(20);
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let slower = MORE_WORK.iter().fold(AA.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from} is not in the manifest");
        text.replace(from, to)
    });
    let cache = folder.path().join("cache");
    let repeats = |text: &str| Repeats {
        sources: Sources::from_text("aa.toml", text),
        worker: WorkerCommand {
            program: PathBuf::from(env!("CARGO_BIN_EXE_sweeper")),
            args: vec!["worker".to_owned()],
            idle: None,
        },
        cache_dir: Some(cache.clone()),
        compile_threads: 1,
    };
    let programs = [repeats(AA), repeats(AA), repeats(&slower)];
    let start = Instant::now();
    let mut number = 0;
    let mut run = |repeats: &Repeats| {
        number += 1;
        let path = folder.path().join(number.to_string());
        let manifest = repeats
            .manifest(&path)
            .unwrap_or_else(|wrong| panic!("{wrong}"));
        let ended = repeats.once(&manifest, &sweeper::compile::NEVER);
        let ended = ended.unwrap_or_else(|error| panic!("{error}"));
        let source = source::open(&ended.folder.to_string_lossy(), folder.path());
        source.unwrap_or_else(|error| panic!("{error}"))
    };
    // The first runs compile.
    programs.iter().for_each(|program| {
        run(program);
    });
    let mut same = Tally::default();
    let mut more = Tally::default();
    for _ in 0..trials {
        let mut arms: [Vec<Source>; 3] = Default::default();
        for round in 0..pairs {
            for place in 0..3 {
                let arm = (place + round) % 3;
                arms[arm].push(run(&programs[arm]));
            }
        }
        let [base, again, slower] = arms;
        let slower: Vec<Source> = slower
            .into_iter()
            .map(|run| named_as(run, &base[0]))
            .collect();
        same.add(&compared(&base, &again));
        more.add(&compared(&base, &slower));
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{trials} trials of {pairs} pairs, {number} runs in {seconds:.0} s");
    same.show("the program against itself");
    more.show("against 3 % more work");
}

/// The slower program's rows under the names of the other program's rows. Rows stand in the order
/// in which points were done, which differs from run to run: each row is found by its point.
fn named_as(mut run: Source, other: &Source) -> Source {
    let mut named: Vec<&Entry> = other.entries.iter().collect();
    named.sort_by_key(|entry| place(entry));
    run.entries.sort_by_key(place);
    assert_eq!(run.entries.len(), named.len(), "runs of other points");
    for (entry, other) in run.entries.iter_mut().zip(named) {
        assert_eq!(
            (&entry.workload, &entry.backend),
            (&other.workload, &other.backend)
        );
        entry.point = other.point;
        entry.parameters.clone_from(&other.parameters);
    }
    run
}

/// The point of a row, without the size in which the two programs differ; sizes in their order.
fn place(entry: &Entry) -> (Arc<str>, Arc<str>, i64) {
    let elements = match entry.parameters.get("elements") {
        Some(Value::Int(elements)) => *elements,
        _ => 0,
    };
    let [workload, backend] = [&entry.workload, &entry.backend].map(Arc::clone);
    (workload, backend, elements)
}

fn compared(a: &[Source], b: &[Source]) -> Comparison {
    let settings = Settings {
        rule: Rule {
            margin: 0.01,
            correction: Correction::Holm,
        },
        pairs: Pairs::Yes,
        spread: Spread::assumed(None),
        by: Vec::new(),
    };
    compare([a, b], &settings).unwrap_or_else(|error| panic!("{error}"))
}

/// Verdicts of many comparisons.
#[derive(Default)]
struct Tally {
    trials: usize,
    points: usize,
    /// Counts by [`Verdict::ALL`]: after Holm's correction for all points, and without it.
    corrected: [usize; 4],
    alone: [usize; 4],
    /// Trials with any SLOWER or FASTER point.
    any: usize,
    /// Counts of the geometric mean of all points.
    together: [usize; 4],
    ratios: Vec<f64>,
}

impl Tally {
    fn add(&mut self, comparison: &Comparison) {
        let place = |verdict: Verdict| Verdict::ALL.iter().position(|held| *held == verdict);
        let mut count = |tally: fn(&mut Self) -> &mut [usize; 4], verdict: Verdict| {
            if let Some(place) = place(verdict) {
                tally(self)[place] += 1;
            }
        };
        for point in &comparison.points {
            if let (Some(estimate), Some(verdict)) = (&point.estimate, point.verdict) {
                count(|tally| &mut tally.corrected, verdict);
                let alone = comparison.rule.verdict(estimate, estimate.p);
                count(|tally| &mut tally.alone, alone);
            }
        }
        for group in &comparison.groups {
            count(|tally| &mut tally.together, group.verdict);
        }
        let differs = |verdict| comparison.count(verdict) > 0;
        self.any += usize::from(differs(Verdict::Slower) || differs(Verdict::Faster));
        self.trials += 1;
        self.points += comparison.points.len();
        let estimates = comparison.points.iter().filter_map(|point| point.estimate);
        self.ratios
            .extend(estimates.map(|estimate| estimate.log_ratio.exp()));
    }

    fn show(&mut self, title: &str) {
        self.ratios.sort_by(f64::total_cmp);
        let quantile = |share: f64| {
            let place = (share * (self.ratios.len() - 1) as f64).round() as usize;
            self.ratios[place]
        };
        println!("{title}");
        println!(
            "  ratios: {:.4} to {:.4} in the middle half, {:.4} to {:.4} in all",
            quantile(0.25),
            quantile(0.75),
            quantile(0.0),
            quantile(1.0)
        );
        for (name, verdicts) in [
            ("each point by itself", self.alone),
            ("each point, by Holm's correction", self.corrected),
            ("geometric mean of the points", self.together),
        ] {
            let all: usize = verdicts.iter().sum();
            let words: Vec<String> = Verdict::ALL
                .iter()
                .zip(verdicts)
                .map(|(verdict, count)| {
                    format!(
                        "{count} {verdict} ({:.1} %)",
                        100.0 * count as f64 / all as f64
                    )
                })
                .collect();
            println!("  {name:32} {}", words.join(", "));
        }
        println!(
            "  trials with any SLOWER or FASTER point: {} of {}",
            self.any, self.trials
        );
    }
}
