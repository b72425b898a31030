//! The method held against runs of one program: how often it finds a difference where there is
//! none, and how small a difference it would find.

use std::collections::HashMap;
use std::fmt;

use serde::Serialize;

use super::estimate::{Design, Estimate};
use super::median::Centre;
use super::spread::Spread;
use super::verdict::{Correction, Rule, Verdict};
use crate::report::source::Source;
use sweeper_model::identity::PointId;

/// Pairs of runs that are tried.
const PAIRS: [usize; 4] = [3, 6, 10, 20];
/// Runs a side that are tried where sides are made one after the other.
const APART: usize = 4;
/// A resolution is found in this share of comparisons.
const FOUND: f64 = 0.9;

/// How the runs of a comparison were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Made {
    /// So many pairs of runs, in turns.
    Pairs(usize),
    /// So many runs of one side, then as many of the other.
    Apart(usize),
    /// One run a side.
    Single,
}

impl fmt::Display for Made {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Made::Pairs(pairs) => write!(out, "{pairs} pairs in turns"),
            Made::Apart(runs) => write!(out, "{runs} runs, then {runs}"),
            Made::Single => out.write_str("one run a side"),
        }
    }
}

/// Results of comparisons of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trials {
    /// How their runs were made.
    pub made: Made,
    /// Comparisons of one point each.
    pub comparisons: usize,
    /// Comparisons of one point that said SLOWER or FASTER.
    pub false_positives: usize,
    /// Comparisons of all points at once.
    pub families: usize,
    /// Comparisons of all points in which any point was SLOWER or FASTER after Holm's correction.
    pub false_families: usize,
    /// The smallest slowdown of one point that 90 % of the comparisons find, as a share; none where
    /// it is more than a thousandfold.
    pub resolution: Option<f64>,
    /// The slowdown that was asked about.
    pub injected: f64,
    /// The share of comparisons of one point that find the injected slowdown.
    pub found: f64,
}

impl Trials {
    /// False positives by comparisons.
    pub fn false_rate(&self) -> f64 {
        self.false_positives as f64 / self.comparisons.max(1) as f64
    }

    /// Comparisons with any false positive by comparisons of all points.
    pub fn false_family_rate(&self) -> f64 {
        self.false_families as f64 / self.families.max(1) as f64
    }
}

/// Findings about runs of one program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Assessment {
    /// Points that all runs have.
    pub points: usize,
    /// Runs.
    pub runs: usize,
    /// How far apart the runs lie.
    pub spread: Spread,
    /// Comparisons by kind, for kinds with enough runs.
    pub trials: Vec<Trials>,
}

/// Compares runs of one program with each other, `runs` in the order made. A slowdown of
/// `injected`, a share, is laid on one side to see how often it is found.
///
/// # Errors
/// If there are too few runs, or no point that all of them measured.
pub fn assess(runs: &[Source], margin: f64, injected: f64) -> Result<Assessment, String> {
    let points = series(runs);
    if points.is_empty() {
        return Err("no point was measured by all runs".to_owned());
    }
    let logs = |range: std::ops::Range<usize>| -> Vec<Vec<f64>> {
        let of = |point: &Vec<Centre>| point[range.clone()].iter().map(|run| run.log).collect();
        points.iter().map(of).collect()
    };
    let few = || format!("{} runs are too few; 24 are the least", runs.len());
    let spread = Spread::measured(&logs(0..runs.len())).ok_or_else(few)?;
    // The estimate of the machine's spread must not come from the runs that it judges.
    let middle = runs.len() / 2;
    let early = Spread::measured(&logs(0..middle)).ok_or_else(few)?;
    let late = Spread::measured(&logs(middle..runs.len())).ok_or_else(few)?;
    let rule = Rule {
        margin,
        correction: Correction::Holm,
    };
    let pairs = PAIRS.into_iter().map(Made::Pairs);
    let kinds = [Made::Single, Made::Apart(APART)].into_iter().chain(pairs);
    let trials = kinds.filter_map(|made| {
        let mut tally = Tally::new(rule);
        for (range, spread) in [(0..middle, &late), (middle..runs.len(), &early)] {
            tally.add_all(made, &points, range, spread);
        }
        tally.end(made, injected)
    });
    Ok(Assessment {
        points: points.len(),
        runs: runs.len(),
        trials: trials.collect(),
        spread,
    })
}

/// For each point that all runs measured, its centres run by run.
fn series(runs: &[Source]) -> Vec<Vec<Centre>> {
    let mut points: Vec<Vec<Centre>> = Vec::new();
    let mut places: HashMap<PointId, usize> = HashMap::new();
    for (number, run) in runs.iter().enumerate() {
        for entry in run.entries.iter().filter(|entry| entry.is_ok()) {
            let times = entry.times.as_ref();
            let centre = times.and_then(|times| Centre::of(times, &entry.samples_ns));
            let (Some(point), Some(centre)) = (entry.point, centre) else {
                continue;
            };
            if number == 0 {
                places.insert(point, points.len());
                points.push(vec![centre]);
            } else if let Some(&place) = places.get(&point) {
                points[place].push(centre);
            }
        }
    }
    points.retain(|point| point.len() == runs.len());
    points
}

/// Comparisons of one kind.
struct Tally {
    rule: Rule,
    false_positives: usize,
    families: usize,
    false_families: usize,
    /// For each comparison of a point, the smallest logarithm of a slowdown that it would find.
    needed: Vec<f64>,
}

impl Tally {
    fn new(rule: Rule) -> Self {
        Tally {
            rule,
            false_positives: 0,
            families: 0,
            false_families: 0,
            needed: Vec::new(),
        }
    }

    /// Makes all comparisons of a kind that a stretch of runs has room for.
    fn add_all(
        &mut self,
        made: Made,
        points: &[Vec<Centre>],
        range: std::ops::Range<usize>,
        spread: &Spread,
    ) {
        for sides in sides(made, range) {
            let design = match made {
                Made::Pairs(pairs) => Design::Pairs((0..pairs).map(|pair| [pair, pair]).collect()),
                Made::Apart(_) => Design::Apart,
                Made::Single => Design::Single,
            };
            let estimate = |point: &Vec<Centre>| {
                let side = |side: usize| -> Vec<Option<Centre>> {
                    sides[side].iter().map(|&run| Some(point[run])).collect()
                };
                Estimate::of(&design, [&side(0), &side(1)], spread)
            };
            let estimates: Vec<Estimate> = points.iter().filter_map(estimate).collect();
            self.add(&estimates);
        }
    }

    fn add(&mut self, estimates: &[Estimate]) {
        let p: Vec<f64> = estimates.iter().map(|estimate| estimate.p).collect();
        let is_wrong = |estimate: &Estimate, p: f64| {
            matches!(
                self.rule.verdict(estimate, p),
                Verdict::Slower | Verdict::Faster
            )
        };
        let alone = estimates
            .iter()
            .filter(|estimate| is_wrong(estimate, estimate.p));
        let alone = alone.count();
        let corrected = self.rule.correction.adjust(&p);
        let mut together = estimates.iter().zip(corrected);
        let any = together.any(|(estimate, p)| is_wrong(estimate, p));
        self.false_positives += alone;
        self.families += 1;
        self.false_families += usize::from(any);
        let margin = self.rule.margin.ln_1p();
        // Slower by this much, the interval lies beyond one and the estimate beyond the margin.
        let needed = |estimate: &Estimate| (margin - estimate.log_ratio).max(-estimate.low);
        self.needed.extend(estimates.iter().map(needed));
    }

    fn end(mut self, made: Made, injected: f64) -> Option<Trials> {
        self.needed.sort_by(f64::total_cmp);
        let count = self.needed.len();
        let rank = (FOUND * count as f64).ceil() as usize;
        let resolution = *self.needed.get(rank.max(1) - 1)?;
        let limit = injected.ln_1p();
        let found = self.needed.iter().filter(|needed| **needed < limit).count();
        Some(Trials {
            made,
            comparisons: count,
            false_positives: self.false_positives,
            families: self.families,
            false_families: self.false_families,
            resolution: (resolution < 1000f64.ln()).then(|| resolution.max(0.0).exp_m1()),
            injected,
            found: found as f64 / count as f64,
        })
    }
}

/// The runs of both sides of every comparison of a kind in a stretch of runs.
fn sides(made: Made, range: std::ops::Range<usize>) -> Vec<[Vec<usize>; 2]> {
    let (start, count) = (range.start, range.len());
    match made {
        Made::Pairs(pairs) => {
            // Half of a comparison's runs are also in the next one. Sides take turns at going
            // first.
            let step = pairs.next_multiple_of(2);
            let starts = (0..=count.saturating_sub(2 * pairs)).step_by(step);
            let window = |at: usize| {
                let run = |pair: usize, side: usize| start + at + 2 * pair + (pair + side) % 2;
                [0, 1].map(|side| (0..pairs).map(|pair| run(pair, side)).collect())
            };
            match count >= 2 * pairs {
                true => starts.map(window).collect(),
                false => Vec::new(),
            }
        }
        Made::Apart(_) | Made::Single => {
            let runs = match made {
                Made::Apart(runs) => runs,
                _ => 1,
            };
            // Sides are half of the stretch apart.
            let sides = count / runs / 2;
            let block = |number: usize| {
                let first = start + number * runs;
                (first..first + runs).collect::<Vec<usize>>()
            };
            (0..sides)
                .map(|number| [block(number), block(number + sides)])
                .collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Random, source};
    use super::*;
    use sweeper_model::identity::Digest;

    fn runs(count: usize, mut log: impl FnMut() -> f64) -> Vec<Source> {
        let run = |_| {
            let mut source = source(&[
                ("fused", 8, 1000.0 * log().exp()),
                ("eager", 8, 2000.0 * log().exp()),
            ]);
            for (number, entry) in source.entries.iter_mut().enumerate() {
                entry.point = Some(PointId(Digest::from_bytes([number as u8; 32])));
            }
            source
        };
        (0..count).map(run).collect()
    }

    #[test]
    fn a_machine_of_one_percent() {
        let mut random = Random::new(11);
        let found = assess(&runs(400, || 0.01 * random.normal()), 0.01, 0.03).unwrap();
        assert_eq!((found.points, found.runs, found.trials.len()), (2, 400, 6));
        let mut resolutions = Vec::new();
        for trials in &found.trials {
            assert!(trials.false_rate() <= 0.08, "{trials:?}");
            assert!(trials.false_family_rate() <= 0.12, "{trials:?}");
            resolutions.push(trials.resolution.unwrap());
        }
        // More pairs resolve more: of twenty the estimate's standard error is 0.3 %.
        assert!(
            resolutions[2..].is_sorted_by(|one, other| one > other),
            "{resolutions:?}"
        );
        let twenty = found.trials.last().unwrap();
        assert!(
            (0.01..0.02).contains(&twenty.resolution.unwrap()),
            "{twenty:?}"
        );
        assert_eq!(twenty.found, 1.0);
    }

    #[test]
    fn every_run_is_used_once_a_comparison() {
        for made in [
            Made::Single,
            Made::Apart(4),
            Made::Pairs(3),
            Made::Pairs(20),
        ] {
            let all = sides(made, 10..60);
            assert!(!all.is_empty());
            for sides in all {
                assert_eq!(sides[0].len(), sides[1].len());
                let mut both: Vec<usize> = sides.concat();
                both.sort_unstable();
                both.dedup();
                assert_eq!(both.len(), 2 * sides[0].len(), "{made:?}");
                assert!(both[0] >= 10 && both[both.len() - 1] < 60);
            }
        }
        assert!(sides(Made::Pairs(20), 0..39).is_empty());
        // A B, B A, A B.
        assert_eq!(
            sides(Made::Pairs(3), 0..6),
            [[vec![0, 3, 4], vec![1, 2, 5]]]
        );
    }

    #[test]
    fn too_little_is_said() {
        assert!(
            assess(&runs(23, || 0.0), 0.01, 0.03)
                .unwrap_err()
                .contains("too few")
        );
        assert!(assess(&[], 0.01, 0.03).unwrap_err().contains("no point"));
        assert!(assess(&runs(24, || 0.0), 0.01, 0.03).is_ok());
    }
}
