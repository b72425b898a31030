//! The configurations of tuned backends: how fast each is beside the best of its problem.

use super::fixed::FixedDimensions;
use super::{Drawn, Slice, describe};
use crate::report::chart::{Chart, Estimate, Forest, ForestGroup, ForestRow};
use crate::report::table::tuning::choices_of;
use sweeper_model::quantity;
use sweeper_model::tuning::{Choice, Ranked, Standing, family_of};

/// So many rows fit on a page: where there are more, the slowest of each problem are left out.
const MOST_ROWS: usize = 44;

/// All standings, with the style and the meaning of their marks, in the order of the legend.
const STYLES: [(Standing, usize, &str); 4] = [
    (Standing::Best, 2, "best"),
    (Standing::Alike, 0, "can't be told from the best"),
    (Standing::Slower, 1, "slower"),
    (Standing::Outraced, 4, "outraced: stopped early"),
];

/// Speed of each configuration relative to the best of its backend and problem; none where no
/// backend is tuned.
pub(super) fn tuning(slice: &Slice<'_>) -> Option<Drawn> {
    let frame = slice.frame();
    let problems = frame.problems(&slice.rows);
    if !problems.iter().any(|rows| is_tuned(slice, rows)) {
        return None;
    }
    let found = choices_of(frame, &problems);
    if found.is_empty() {
        let needed = "no configuration of a tuned backend has a time";
        return Some(Err(describe::reason(slice, &slice.rows, needed)));
    }
    Some(Ok(chart(slice, &found)))
}

/// True if a backend has several configurations among rows of one problem.
fn is_tuned(slice: &Slice<'_>, rows: &[usize]) -> bool {
    let names = rows.iter().map(|&row| &*slice.frame().entries[row].backend);
    let tuned = names.filter(|name| family_of(name) != *name);
    let mut families: Vec<&str> = tuned.map(family_of).collect();
    families.sort_unstable();
    families.windows(2).any(|pair| pair[0] == pair[1])
}

fn chart(slice: &Slice<'_>, found: &[(usize, Choice<'_>)]) -> Chart {
    let shown = found.len().min(MOST_ROWS / 2);
    let most = MOST_ROWS / shown;
    let groups: Vec<ForestGroup> = found[..shown]
        .iter()
        .map(|(row, choice)| ForestGroup {
            title: title(slice, *row, choice),
            rows: choice
                .ranked
                .iter()
                .take(most)
                .map(|one| line(choice, one))
                .collect(),
        })
        .collect();
    let is_there = |standing: Standing| {
        let shown = found[..shown].iter();
        let mut ranked = shown.flat_map(|(_, choice)| choice.ranked.iter().take(most));
        ranked.any(|one| one.standing == standing)
    };
    let legend = STYLES.iter().filter(|(standing, ..)| is_there(*standing));
    let held = FixedDimensions {
        rows: slice.rows.clone(),
        ..FixedDimensions::default()
    };
    let title = "Speed of configurations relative to the best";
    let mut caption = describe::caption(slice, title, &held, true);
    caption.notes = notes(slice, found, (shown, most));
    Chart::Forest(Forest {
        caption,
        x_label: "speed relative to the best".to_owned(),
        groups,
        rules: vec![(1.0, true)],
        legend: legend
            .map(|(_, style, said)| (*style, (*said).to_owned()))
            .collect(),
        beside: None,
    })
}

/// The backend and the problem.
fn title(slice: &Slice<'_>, row: usize, choice: &Choice<'_>) -> String {
    let frame = slice.frame();
    let names = frame.words(&["backend", "phase"]).into_iter();
    let names = names.chain(slice.request.layout.sizes.iter().map(String::as_str));
    let values = names.filter_map(|name| Some(format!("{name} = {}", frame.value(row, name)?)));
    let values: Vec<String> = std::iter::once(choice.family.to_owned())
        .chain(values)
        .collect();
    values.join(", ")
}

fn line(choice: &Choice<'_>, one: &Ranked<'_>) -> ForestRow {
    let style = STYLES.iter().find(|(held, ..)| *held == one.standing);
    let name = &*one.entry.backend;
    let values = name.strip_prefix(choice.family).unwrap_or(name);
    // The best over itself is one, without an error.
    let [low, value, high] = match one.standing {
        Standing::Best => [1.0; 3],
        _ => choice.best_time.over(one.time).numbers(),
    };
    ForestRow {
        label: values.trim_matches(['{', '}']).to_owned(),
        estimate: Some(Estimate {
            value,
            low,
            high,
            style: style.map_or(0, |(_, style, _)| *style),
        }),
        beside: None,
        said: quantity::significant(value),
    }
}

fn notes(
    slice: &Slice<'_>,
    found: &[(usize, Choice<'_>)],
    (shown, most): (usize, usize),
) -> Vec<String> {
    let again = found.iter().filter(|(_, choice)| choice.is_by_again);
    let mut notes = vec!["Bars: intervals of the ratio of two medians.".to_owned()];
    match again.count() {
        0 => notes.push(
            "Without a second measurement the best is the luckiest of all, and looks too fast."
                .to_owned(),
        ),
        count if count == found.len() => {
            notes
                .push("The best and its ties are compared by their second measurement.".to_owned());
        }
        count => notes.push(format!(
            "In {count} of {} problems the best and its ties are compared by a second measurement.",
            found.len()
        )),
    }
    let all: usize = found.iter().map(|(_, choice)| choice.ranked.len()).sum();
    let on_page = found[..shown].iter();
    let on_page: usize = on_page
        .map(|(_, choice)| choice.ranked.len().min(most))
        .sum();
    if on_page < all {
        notes.push(format!(
            "The fastest {on_page} of {all} configurations are shown, of {shown} of {} problems; \
             records.csv has all.",
            found.len()
        ));
    }
    if let Some(failed) = describe::failures(slice, &slice.rows) {
        notes.push(format!("No result: {failed}."));
    }
    notes
}

#[cfg(test)]
mod tests;
