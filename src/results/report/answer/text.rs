//! An answer as lines of a terminal.

use std::collections::{BTreeMap, BTreeSet};

use super::{Answer, Block, Line, MOST_BLOCKS, Outcome, sentence};
use sweeper_model::interval::LogInterval;
use sweeper_model::quantity;
use sweeper_model::row::outcome::{Checked, Status};

/// Lines of sizes, all questions together.
const MOST_LINES: usize = 20;

/// The lines of an answer, of at most `width` characters. `bold` makes words stand out.
pub fn text(answer: &Answer, width: usize, bold: impl Fn(&str) -> String) -> String {
    let mut found = String::new();
    let most = MOST_LINES / answer.blocks.len().max(1);
    let is_many = answer.blocks.len() > MOST_BLOCKS;
    if is_many {
        found += &overview(&answer.blocks, width, &bold);
    }
    for block in answer.blocks.iter().filter(|_| !is_many) {
        found += &format!("\n{}\n", bold(&block.title));
        found += &table(block, width, most.max(3), &bold);
        if let Some(sentence) = sentence::verdict(block) {
            found += &format!("{}\n", folded(&sentence, width));
        }
    }
    if !answer.tuned.is_empty() {
        found.push('\n');
        let shown = answer.tuned.iter().take(MOST_LINES);
        shown.for_each(|line| found += &format!("{line}\n"));
    }
    if let Some(checks) = &answer.checks {
        found += &format!("{}\n", folded(checks, width));
    }
    found
}

/// A time with the longer side of its interval: `1.23 ms ±2%`.
pub(super) fn time(time: LogInterval) -> String {
    let [low, value, high] = time.numbers();
    let half = (high - value).max(value - low) / value * 100.0;
    let half = match half {
        half if half.is_nan() => String::new(),
        half if half < 9.5 => format!("  ±{half:.0}%"),
        half if half < 99.5 => format!(" ±{half:.0}%"),
        _ => " >±99%".to_owned(),
    };
    format!("{}{half}", quantity::time_ns(value))
}

/// A ratio: `1.23`.
pub(super) fn ratio(ratio: LogInterval) -> String {
    quantity::significant(ratio.number())
}

/// Many questions, a line each: how many sizes each has, by how much other backends are faster than
/// its baseline in the geometric mean, and at how many sizes they clearly are.
fn overview(blocks: &[Block], width: usize, bold: &impl Fn(&str) -> String) -> String {
    let baselines = distinct(blocks.iter().filter_map(|block| block.backends.first()));
    let all = blocks
        .iter()
        .flat_map(|block| block.backends.iter().skip(1));
    let mut backends = distinct(all.filter(|name| !baselines.contains(&name.as_str())));
    let line = |block: &Block, backends: &[&str]| {
        let baseline = block.backends.first().map_or("", String::as_str);
        let mut cells = vec![block.title.clone(), block.lines.len().to_string()];
        cells.extend(backends.iter().map(|name| faster(block, baseline, name)));
        cells
    };
    loop {
        let mut head = vec![String::new(), "sizes".to_owned()];
        head.extend(backends.iter().map(|name| (*name).to_owned()));
        let lines = blocks.iter().take(MOST_LINES);
        let lines = lines.map(|block| line(block, &backends));
        let lines: Vec<Vec<String>> = std::iter::once(head).chain(lines).collect();
        let widths = widths(&lines);
        if widths.iter().sum::<usize>() + 2 * widths.len() > width && backends.len() > 1 {
            backends.pop();
            continue;
        }
        let title = format!(
            "speed over `{}` in the geometric mean, and at how many sizes it is clearly faster",
            baselines.join("`, `")
        );
        let mut found = format!("\n{}\n", folded(&title, width));
        for (number, line) in lines.iter().enumerate() {
            let cells = line.iter().zip(&widths).enumerate();
            let cells = cells.map(|(column, (cell, &width))| match column {
                0 => format!("  {cell:<width$}"),
                _ => format!("  {cell:>width$}"),
            });
            let text = cells.collect::<String>();
            let text = text.trim_end();
            found += &match number {
                0 => format!("{}\n", bold(text)),
                _ => format!("{text}\n"),
            };
        }
        let more = blocks.len().saturating_sub(MOST_LINES);
        if more > 0 {
            found += &format!("  … {more} more: sweeper report\n");
        }
        return found;
    }
}

/// Names, each once.
fn distinct<'n>(names: impl Iterator<Item = &'n String>) -> Vec<&'n str> {
    let mut found: Vec<&str> = Vec::new();
    for name in names {
        if !found.contains(&name.as_str()) {
            found.push(name);
        }
    }
    found
}

/// By how much a backend is faster than the baseline in the geometric mean, and at how many sizes.
fn faster(block: &Block, baseline: &str, name: &str) -> String {
    let ratios: Vec<LogInterval> = block.ratios(baseline, name).map(|it| it.1).collect();
    let is_clear = |ratio: &&LogInterval| ratio.value - ratio.below > 0.0;
    let clear = ratios.iter().filter(is_clear).count();
    match LogInterval::mean(&ratios) {
        Some(mean) => format!("{}× {clear:>3}/{}", ratio(mean), ratios.len()),
        None => "–".to_owned(),
    }
}

/// The characters of the widest cell of each column.
fn widths(lines: &[Vec<String>]) -> Vec<usize> {
    let columns = 0..lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    columns.map(width).collect()
}

/// The table of a question: as many backends as fit.
fn table(block: &Block, width: usize, most: usize, bold: &impl Fn(&str) -> String) -> String {
    let mut backends: Vec<&str> = block.backends.iter().map(String::as_str).collect();
    loop {
        let lines = lines(block, &backends, most);
        let widths = widths(&lines);
        let all = widths.iter().sum::<usize>() + 2 * widths.len();
        if all > width && backends.len() > 2 {
            // The slowest goes.
            backends.pop();
            continue;
        }
        let left_out = block.backends.len() - backends.len();
        let mut found = String::new();
        for (number, line) in lines.iter().enumerate() {
            let cells = line
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (cell, &width))| {
                    match column + 1 == line.len() && line.len() == widths.len() {
                        true => format!("  {cell}"),
                        false => format!("  {cell:>width$}"),
                    }
                });
            let text = cells.collect::<String>();
            let text = text.trim_end();
            found += &match number {
                0 => format!("{}\n", bold(text)),
                _ => format!("{text}\n"),
            };
        }
        if left_out > 0 {
            let word = if left_out == 1 { "backend" } else { "backends" };
            let hidden = block.backends[backends.len()..].iter();
            let failures: BTreeSet<&str> = hidden.filter_map(|name| failure(block, name)).collect();
            let failures: String = failures.iter().map(|it| format!(", {it}")).collect();
            found += &format!("  {left_out} more {word}{failures}: sweeper report\n");
        }
        return found;
    }
}

/// What became of a backend that has no time at any size.
fn failure(block: &Block, backend: &str) -> Option<&'static str> {
    let found = || block.lines.iter().filter_map(|it| it.cells.get(backend));
    let has_time = found().any(|it| it.time.is_some());
    let first = found().next().filter(|_| !has_time)?;
    Some(first.status.name())
}

/// The cells of each line: the heads, the sizes that tell most, and the geometric mean.
fn lines(block: &Block, backends: &[&str], most: usize) -> Vec<Vec<String>> {
    let baseline = backends.first().copied().unwrap_or_default();
    let has_ratio = backends.len() > 1;
    let mut head: Vec<String> = block.sizes.clone();
    head.extend(backends.iter().map(|name| (*name).to_owned()));
    if has_ratio {
        head.push(match backends.len() {
            2 => String::new(),
            _ => "fastest".to_owned(),
        });
    }
    head.push(String::new());
    let mut found = vec![head];
    let kept = telling(block, most);
    let mut last = None;
    for (number, line) in block.lines.iter().enumerate() {
        if !kept.contains(&number) {
            continue;
        }
        let skipped = number - last.map_or(0, |last: usize| last + 1);
        if skipped > 0 {
            found.push(vec![format!("… {skipped} more")]);
        }
        last = Some(number);
        let mut cells = line.sizes.clone();
        cells.extend(backends.iter().map(|name| cell(line.cells.get(*name))));
        if has_ratio {
            cells.push(advantage(line, backends, baseline));
        }
        cells.push(mark(line, backends));
        found.push(cells);
    }
    if has_ratio && block.lines.len() > 1 {
        let means: Vec<String> = backends
            .iter()
            .skip(1)
            .map(|name| mean(block, baseline, name))
            .collect();
        if means.iter().all(String::is_empty) {
            return found;
        }
        let mut cells = vec![String::new(); block.sizes.len()];
        cells.push("mean".to_owned());
        match backends.len() {
            2 => cells.extend([String::new(), means.concat()]),
            _ => cells.extend(means.into_iter().chain([String::new()])),
        }
        cells.push(String::new());
        found.push(cells);
    }
    found
}

fn cell(found: Option<&Outcome>) -> String {
    match found {
        None => "–".to_owned(),
        Some(found) => match found.time {
            Some(held) => time(held),
            None => found.status.name().to_owned(),
        },
    }
}

/// The time of the baseline over that of the fastest backend, where intervals decide who that is.
fn advantage(line: &Line, backends: &[&str], baseline: &str) -> String {
    let time = |name: &str| line.cells.get(name)?.time;
    let others = backends
        .iter()
        .skip(1)
        .filter_map(|name| Some((*name, time(name)?)));
    let best = others.min_by(|one, other| one.1.value.total_cmp(&other.1.value));
    let Some((best, (held, own))) = best.map(|(name, own)| (name, (time(baseline), own))) else {
        return String::new();
    };
    let Some(ratio) = held.map(|held| held.over(own)) else {
        return String::new();
    };
    let name = match backends.len() {
        2 => String::new(),
        _ => format!("{best} "),
    };
    match () {
        () if ratio.value - ratio.below > 0.0 => format!("{name}{}×", self::ratio(ratio)),
        () if ratio.value + ratio.above < 0.0 && backends.len() > 2 => baseline.to_owned(),
        () if ratio.value + ratio.above < 0.0 => format!("{}×", self::ratio(ratio)),
        () => "=".to_owned(),
    }
}

/// The geometric mean of the baseline's times over a backend's.
fn mean(block: &Block, baseline: &str, name: &str) -> String {
    let ratios: Vec<LogInterval> = block.ratios(baseline, name).map(|it| it.1).collect();
    LogInterval::mean(&ratios).map_or_else(String::new, |mean| format!("{}×", ratio(mean)))
}

/// Whether all results of a line are right, and how they were checked.
fn mark(line: &Line, backends: &[&str]) -> String {
    let found = || backends.iter().filter_map(|name| line.cells.get(*name));
    if let Some(failed) = found().find(|it| it.status != Status::Ok) {
        return failed.status.name().to_owned();
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for it in found() {
        let word = match it.checked {
            Checked::Full => "ok",
            other => other.name(),
        };
        *counts.entry(word).or_default() += 1;
    }
    // The backend that others are checked against is itself not checked.
    let unchecked = Checked::None.name();
    let weakest = counts
        .keys()
        .find(|word| **word != "ok" && **word != unchecked);
    match weakest {
        Some(word) => (*word).to_owned(),
        None if counts.contains_key(unchecked) => "unchecked".to_owned(),
        None => "ok".to_owned(),
    }
}

/// Numbers of the lines that are shown: all, or the first, the last, and those around which the
/// fastest backend changes.
fn telling(block: &Block, most: usize) -> Vec<usize> {
    let count = block.lines.len();
    if count <= most {
        return (0..count).collect();
    }
    let ends = most / 4;
    let mut kept: Vec<usize> = (0..ends).chain(count - ends..count).collect();
    let best: Vec<Option<&str>> = block.lines.iter().map(Line::best).collect();
    for (number, pair) in best.windows(2).enumerate() {
        // With a line that says how many are left out.
        if pair[0] != pair[1] && kept.len() + 4 <= most {
            kept.extend([number, number + 1]);
        }
    }
    kept.sort_unstable();
    kept.dedup();
    kept
}

/// A sentence in lines of at most `width` characters.
pub fn folded(sentence: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in sentence.split(' ') {
        let last = lines.last().map_or(0, |line| line.chars().count());
        if last > 0 && last + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}
