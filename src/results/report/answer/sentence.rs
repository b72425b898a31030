//! Sentences that intervals support.

use super::text::ratio;
use super::{Block, Line};
use sweeper_model::interval::LogInterval;
use sweeper_model::row::entry::Entry;
use sweeper_model::row::outcome::Checked;
use sweeper_model::status::Status;

/// Which backend is the fastest and by how much, as far as intervals decide it. None where
/// there is nothing to compare.
pub(super) fn verdict(block: &Block) -> Option<String> {
    let baseline = block.backends.first()?;
    let mut others = block.backends.iter().skip(1).filter_map(|name| {
        let ratios: Vec<LogInterval> = block.ratios(baseline, name).map(|it| it.1).collect();
        Some((name, LogInterval::mean(&ratios)?))
    });
    let first = others.next()?;
    let (best, mean) = others.fold(first, |best, other| match other.1.value > best.1.value {
        true => other,
        false => best,
    });
    // The faster one is the subject.
    let (winner, loser) = match mean.value >= 0.0 {
        true => (best, baseline),
        false => (baseline, best),
    };
    Some(compared(block, winner, loser))
}

fn compared(block: &Block, winner: &str, loser: &str) -> String {
    let ratios: Vec<(&Line, LogInterval)> = block.ratios(loser, winner).collect();
    let all = ratios.len();
    let is_faster = |(_, ratio): &&(&Line, LogInterval)| ratio.value - ratio.below > 0.0;
    let is_slower = |(_, ratio): &&(&Line, LogInterval)| ratio.value + ratio.above < 0.0;
    let faster = ratios.iter().filter(is_faster).count();
    let slower = ratios.iter().filter(is_slower).count();
    let undecided = all - faster - slower;
    if faster == 0 && slower == 0 {
        let at = match all {
            1 => String::new(),
            _ => format!(" at any of {all} sizes"),
        };
        return format!(
            "`{winner}` and `{loser}` can't be told apart{at}: more samples may decide (`--repeats 50`)."
        );
    }
    if 2 * undecided > all {
        let ahead = [(winner, faster), (loser, slower)];
        let ahead = ahead.into_iter().filter(|(_, times)| *times > 0);
        let ahead = ahead.map(|(name, times)| format!("`{name}` is faster at {times}"));
        let ahead: Vec<String> = ahead.collect();
        let ahead = ahead.join(", ");
        return format!(
            "`{winner}` and `{loser}` can't be told apart at {undecided} of {all} sizes; {ahead}."
        );
    }
    if faster == all {
        let values = || ratios.iter().map(|(_, ratio)| ratio.value);
        let least = values().fold(f64::INFINITY, f64::min).exp();
        let most = values().fold(f64::NEG_INFINITY, f64::max).exp();
        let by = range(least, most);
        let at = match all {
            1 => String::new(),
            2 => " at both sizes".to_owned(),
            _ => format!(" at all {all} sizes"),
        };
        return format!("`{winner}` is {by} times as fast as `{loser}`{at}.");
    }
    let values: Vec<LogInterval> = ratios.iter().map(|it| it.1).collect();
    let mean = LogInterval::mean(&values).map_or_else(String::new, ratio);
    let mean = match mean.as_str() {
        "1.00" => format!("as fast as `{loser}`"),
        mean => format!("{mean} times as fast as `{loser}`"),
    };
    let mut parts = vec![format!("faster at {faster} of {all} sizes")];
    if slower > 0 {
        parts.push(format!("slower at {slower}"));
    }
    if undecided > 0 {
        parts.push(format!("undecided at {undecided}"));
    }
    let crossover = crossover(block, &ratios, is_faster).or_else(|| {
        let at = crossover(block, &ratios, is_slower)?;
        Some(format!("`{loser}` is faster {at}"))
    });
    let crossover = crossover.map_or_else(String::new, |at| format!("; {at}"));
    format!(
        "`{winner}` is {mean} in the geometric mean: {}{crossover}.",
        parts.join(", ")
    )
}

/// From which value of the first size on all ratios are `decided`, where below it they are not.
fn crossover(
    block: &Block,
    ratios: &[(&Line, LogInterval)],
    decided: impl Fn(&&(&Line, LogInterval)) -> bool,
) -> Option<String> {
    let mut values: Vec<f64> = ratios.iter().filter_map(|(line, _)| line.leading).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let is_ahead = |value: &f64| {
        let mut there = ratios
            .iter()
            .filter(|(line, _)| line.leading == Some(*value));
        there.all(|ratio| decided(&ratio))
    };
    let ahead = values
        .iter()
        .rev()
        .take_while(|value| is_ahead(value))
        .count();
    let name = block.sizes.first()?;
    // One size alone is not a trend.
    (ahead > 1 && ahead < values.len()).then(|| {
        let from = values[values.len() - ahead];
        format!("at each size from {name} = {from} on")
    })
}

/// Two ratios, as one where they round to the same.
fn range(least: f64, most: f64) -> String {
    let [least, most] = [least, most].map(sweeper_model::quantity::significant);
    match least == most {
        true => least,
        false => format!("{least} to {most}"),
    }
}

/// How many results were checked and how, how far out the furthest was, and how many are wrong.
pub(super) fn checks(entries: &[&Entry]) -> Option<String> {
    let measured: Vec<&&Entry> = entries.iter().filter(|entry| entry.is_ok()).collect();
    let is_wrong = |entry: &&&Entry| entry.status == Status::Wrong;
    let wrong = entries.iter().filter(is_wrong).count();
    let all = measured.len() + wrong;
    let how = |entry: &Entry| {
        let measured = entry.measurement.as_ref();
        measured.map_or(Checked::None, |measured| measured.checked)
    };
    let count = |wanted| measured.iter().filter(|entry| how(entry) == wanted).count();
    // Others are held against a backend that is right by definition.
    let is_reference = |entry: &&&&Entry| {
        let mut others = measured
            .iter()
            .filter(|other| other.workload == entry.workload);
        how(entry) == Checked::None && others.any(|other| how(other) == Checked::Peer)
    };
    let references = measured.iter().filter(is_reference).count();
    if count(Checked::None) == all && all > 0 {
        return Some("No result was checked: `check` in a manifest says what is right.".to_owned());
    }
    let spreads = |entry: &Entry| entry.worst.as_ref()?.spreads;
    let by_text = |entry: &&&&Entry| how(entry) == Checked::Peer && spreads(entry).is_some();
    let by_text = measured.iter().filter(by_text).count();
    let furthest = measured.iter().filter_map(|entry| spreads(entry));
    let furthest = furthest.fold(f64::NAN, f64::max);
    let furthest = match furthest > 0.0 && count(Checked::Full) + by_text > 0 {
        true => format!(
            ", the furthest {} roundings of an honest program out",
            sweeper_model::quantity::significant(furthest)
        ),
        false => String::new(),
    };
    let by_outputs = count(Checked::Peer) - by_text;
    let ways = [
        (count(Checked::Full), "checked in full", &*furthest),
        (count(Checked::Reduced), "checked on smaller problems", ""),
        (by_text, "checked against a text in f64", &*furthest),
        (by_outputs, "checked against another backend", ""),
        (references, "of that backend", ""),
        (count(Checked::None) - references, "not checked", ""),
        (wrong, "wrong", ""),
    ];
    let mut ways = ways.into_iter().filter(|(count, ..)| *count > 0);
    let (first, how, more) = ways.next()?;
    let others: String = ways
        .map(|(count, how, _)| format!("; {count} {how}"))
        .collect();
    Some(format!("{first} of {all} results {how}{more}{others}."))
}
