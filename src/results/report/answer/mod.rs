//! The answer of a run, for the screen: its backends side by side, and what their intervals decide.

mod sentence;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value as Json, json};
use sweeper_workloads::registry;

use super::frame::{Frame, MACHINE};
use super::source::Source;
use super::table::tuning::choices_of;
use super::table::{Layout, render};
use sweeper_model::interval::LogInterval;
use sweeper_model::row::entry::Entry;
use sweeper_model::row::outcome::{Checked, Status};
use sweeper_model::tuning::{Choice, Standing, family_of};

pub use text::{folded, text};

#[cfg(test)]
mod tests;

/// So many questions are answered one by one; more are a line each.
const MOST_BLOCKS: usize = 3;

/// Backends that stand side by side.
const MOST_BACKENDS: usize = 4;

/// What a run found out.
pub struct Answer {
    /// For each question (a workload, its words, a phase) the backends at each size.
    blocks: Vec<Block>,
    /// The best configurations of tuned backends, a line each.
    tuned: Vec<String>,
    /// How thoroughly results were checked.
    checks: Option<String>,
}

/// Backends at the sizes of one question.
pub(super) struct Block {
    /// The question.
    title: String,
    /// Names of the sizes that differ.
    sizes: Vec<String>,
    /// The backends, the baseline first.
    backends: Vec<String>,
    lines: Vec<Line>,
}

/// One size.
pub(super) struct Line {
    /// Its values, as people read them.
    sizes: Vec<String>,
    /// The value of the first size, if it is a number.
    leading: Option<f64>,
    /// What each backend did there.
    cells: BTreeMap<String, Outcome>,
}

/// What a backend did at a size.
pub(super) struct Outcome {
    status: Status,
    time: Option<LogInterval>,
    checked: Checked,
}

impl Outcome {
    fn of(entry: &Entry) -> Self {
        let measured = entry.measurement.as_ref();
        Outcome {
            status: entry.status,
            time: LogInterval::of(entry).filter(|_| entry.is_ok()),
            checked: measured.map_or(Checked::None, |measured| measured.checked),
        }
    }
}

impl Answer {
    /// That of the rows of some sources; none where nothing was measured. Ratios are relative to
    /// the baseline, if it was measured.
    pub fn of(sources: &[Source], baseline: Option<&str>) -> Option<Self> {
        let frame = Frame::new(sources);
        let all = frame.all();
        let choices = choices_of(&frame, &frame.problems(&all));
        let best: BTreeSet<(usize, &str)> = choices
            .iter()
            .map(|(_, choice)| (std::ptr::from_ref(choice.best) as usize, choice.family))
            .collect();
        // Of a tuned backend, the best configuration stands beside others.
        let name_of = |row: usize| {
            let entry = frame.entries[row];
            let family = family_of(&entry.backend);
            let is_best = best.contains(&(std::ptr::from_ref(entry) as usize, family));
            (family == &*entry.backend || is_best).then_some(family)
        };
        let mut questions: Vec<&str> = frame.words(&["backend", "phase", MACHINE]);
        // Words of a problem of the user's, such as names of files, are sizes in other words.
        let is_declared = |entry: &&Entry| registry::workload(&entry.workload).is_none();
        if frame.entries.iter().all(is_declared) {
            let has = |entry: &&Entry, name: &str| entry.parameters.keys().any(|it| **it == *name);
            questions.retain(|name| !frame.entries.iter().any(|entry| has(entry, name)));
        }
        questions.push("phase");
        let groups = frame.groups(&all, &questions);
        let measured = groups.into_values().filter(|rows| {
            let mut rows = rows.iter();
            rows.any(|&row| frame.entries[row].is_ok())
        });
        let measured: Vec<Vec<usize>> = measured.collect();
        if measured.is_empty() {
            return None;
        }
        let blocks = measured
            .iter()
            .map(|rows| Block::of(&frame, rows, &questions, &name_of, baseline));
        Some(Answer {
            blocks: blocks.collect(),
            tuned: choices
                .iter()
                .flat_map(|(_, choice)| tuned(choice))
                .collect(),
            checks: sentence::checks(&frame.entries),
        })
    }

    /// For programs: the sentences, and all times.
    pub fn json(&self) -> Json {
        let blocks = self.blocks.iter().map(|block| {
            let lines = block.lines.iter().map(|line| {
                let cells = line.cells.iter().map(|(backend, found)| {
                    let [low, median, high] =
                        found.time.map_or([f64::NAN; 3], LogInterval::numbers);
                    let found = json!({
                        "status": found.status, "median_ns": median, "low_ns": low, "high_ns": high,
                        "checked": found.checked.name(),
                    });
                    (backend.clone(), found)
                });
                let sizes: BTreeMap<_, _> = block.sizes.iter().zip(&line.sizes).collect();
                json!({ "sizes": sizes, "backends": cells.collect::<BTreeMap<_, _>>() })
            });
            json!({
                "question": block.title, "baseline": block.backends.first(),
                "sentence": sentence::verdict(block), "sizes": lines.collect::<Vec<_>>(),
            })
        });
        json!({
            "questions": blocks.collect::<Vec<_>>(), "tuned": self.tuned, "checks": self.checks,
        })
    }
}

impl Block {
    fn of<'f>(
        frame: &'f Frame<'_>,
        rows: &[usize],
        questions: &[&str],
        name_of: &impl Fn(usize) -> Option<&'f str>,
        baseline: Option<&str>,
    ) -> Self {
        let layout = Layout::of(frame, rows);
        let words = frame.words(&["backend", "phase", MACHINE]).into_iter();
        let words = words.filter(|name| !questions.contains(name));
        let names = layout.sizes_of_rows().into_iter().chain(words);
        let differs = |name: &&str| frame.groups(rows, &[name]).len() > 1;
        let sizes: Vec<&str> = names.filter(differs).collect();
        let mut names: Vec<&str> = Vec::new();
        for name in rows.iter().filter_map(|&row| name_of(row)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        // The baseline leads.
        names.sort_by_key(|name| Some(*name) != baseline);
        let lines = frame.groups(rows, &sizes).into_values().map(|rows| {
            let first = rows[0];
            let cells = rows.iter().filter_map(|&row| {
                let found = Outcome::of(frame.entries[row]);
                Some((name_of(row)?.to_owned(), found))
            });
            Line {
                sizes: sizes
                    .iter()
                    .map(|name| render::plain_text(&super::table::size(frame, first, name)))
                    .collect(),
                leading: sizes
                    .first()
                    .and_then(|name| super::frame::number_of(frame.entries[first], name)),
                cells: cells.collect(),
            }
        });
        let lines: Vec<Line> = lines.collect();
        let first = frame.entries[rows[0]];
        let words = questions.iter().filter(|name| **name != "workload");
        let words = words.filter_map(|name| frame.value(rows[0], name));
        let mut title = vec![first.workload.to_string()];
        title.extend(words.map(|word| word.to_string()));
        let mut block = Block {
            title: title.join(", "),
            sizes: sizes.into_iter().map(str::to_owned).collect(),
            backends: names.into_iter().map(str::to_owned).collect(),
            lines,
        };
        block.keep_telling();
        block
    }

    /// Of many backends the baseline, the best, and those that are ever the best, which stand
    /// before others.
    fn keep_telling(&mut self) {
        let baseline = self.backends.first().cloned().unwrap_or_default();
        let mean = |name: &String| {
            let ratios: Vec<LogInterval> = self.ratios(name, &baseline).map(|it| it.1).collect();
            LogInterval::mean(&ratios).map_or(f64::INFINITY, |mean| mean.value)
        };
        let mut means: Vec<(f64, String)> = self
            .backends
            .iter()
            .skip(1)
            .map(|name| (mean(name), name.clone()))
            .collect();
        means.sort_by(|one, other| one.0.total_cmp(&other.0));
        self.backends.truncate(1);
        self.backends
            .extend(means.into_iter().map(|(_, name)| name));
        if self.backends.len() <= MOST_BACKENDS {
            return;
        }
        let mut wins: BTreeMap<&str, usize> = BTreeMap::new();
        for line in &self.lines {
            if let Some(best) = line.best() {
                *wins.entry(best).or_default() += 1;
            }
        }
        let mut ranked: Vec<(usize, &String)> = Vec::new();
        for backend in self.backends.iter().skip(1) {
            ranked.push((wins.get(&**backend).copied().unwrap_or(0), backend));
        }
        ranked.sort_by_key(|(wins, _)| std::cmp::Reverse(*wins));
        let kept: BTreeSet<String> = ranked
            .into_iter()
            .take(MOST_BACKENDS - 1)
            .map(|(_, backend)| backend.clone())
            .chain(self.backends.first().cloned())
            .collect();
        self.backends.retain(|backend| kept.contains(backend));
    }

    /// The time of a backend over that of another, at each line where both are right.
    fn ratios<'b>(
        &'b self,
        of: &'b str,
        over: &'b str,
    ) -> impl Iterator<Item = (&'b Line, LogInterval)> {
        self.lines.iter().filter_map(move |line| {
            let time = |name: &str| line.cells.get(name)?.time;
            Some((line, time(of)?.over(time(over)?)))
        })
    }
}

impl Line {
    /// The backend with the least median.
    fn best(&self) -> Option<&str> {
        let timed = self
            .cells
            .iter()
            .filter_map(|(name, found)| Some((name, found.time?.value)));
        let best = timed.min_by(|one, other| one.1.total_cmp(&other.1));
        best.map(|(name, _)| name.as_str())
    }
}

/// The best configuration of a tuned backend for one problem, and how the others compare.
fn tuned(choice: &Choice<'_>) -> Vec<String> {
    let count = |standing| {
        let ranked = choice.ranked.iter();
        ranked.filter(|one| one.standing == standing).count()
    };
    let mut beside = Vec::new();
    let refused = match choice.failed {
        0 => String::new(),
        failed => format!(" ({failed} refused or without a result)"),
    };
    match choice.alike.len() {
        0 => {}
        1 => beside.push("1 more can't be told from it".to_owned()),
        alike => beside.push(format!("{alike} more can't be told from it")),
    }
    if let Some(first) = choice.first_over_best.filter(|ratio| ratio.value > 0.0) {
        let [low, ..] = first.numbers();
        if low > 1.0 {
            beside.push(format!("{} times as fast as the first", text::ratio(first)));
        }
    }
    match count(Standing::Outraced) {
        0 => {}
        outraced => beside.push(format!("{outraced} outraced")),
    }
    let configurations = choice.ranked.len() + choice.failed;
    vec![
        format!(
            "best of {configurations} configurations{refused} of `{}`:",
            choice.family
        ),
        format!(
            "  {}  {}",
            choice.best.backend,
            text::time(choice.best_time)
        ),
        format!("  {}", beside.join(", ")),
    ]
    .into_iter()
    .filter(|line| !line.trim().is_empty())
    .collect()
}
