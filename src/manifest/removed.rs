//! Keys that were removed from the format: each is an error with its replacement, which has the
//! user's own values.

use super::diagnostics::Code;
use super::section::{Context, Section};
use super::text::At;
use super::tree::{Entry, Node, Raw};

/// Removed lists of rules.
pub(super) const RULES: &[&str] = &["require", "restrict", "table"];

/// Removed keys of axes, each with the key that belongs to it.
const OF_AXES: &[(&str, &str)] = &[("geom", "factor"), ("through", "step"), ("mid", "pow2")];

/// The longest list of values that is spelt out.
const MAX_SPELT: usize = 16;

/// Reports a rule of `section` in one of the removed lists.
pub(super) fn rule(cx: &mut Context<'_>, key: &str, section: &Section<'_>, node: &Node) {
    let (list, instead) = match key {
        "require" => ("exclude", of_require(node)),
        "restrict" => ("exclude", of_restrict(cx, node)),
        _ => {
            let names = node.table().and_then(|table| table.get("cols"));
            let names = names.and_then(|entry| cx.words(&entry.value, "cols"));
            // That a case has no such axis is no second mistake.
            let names = names.into_iter().flatten().map(|name| name.value);
            cx.broken.extend(names);
            ("zip", of_table(cx, node))
        }
    };
    let path = section.path_of(list);
    report(
        cx,
        key,
        node.at,
        format!("write `[[{path}]]` with `{instead}`"),
    );
}

/// Reports the key `case` of an extra point: `cases` took its place.
pub(super) fn case_of_include(cx: &mut Context<'_>, entry: &Entry) {
    let name = cx.texts.slice(entry.value.at);
    let help = format!("write `cases = [{name}]`");
    report(cx, "case", entry.key_at, help);
}

/// Reports a removed form of an axis; false where there is none.
pub(super) fn form(cx: &mut Context<'_>, section: &mut Section<'_>) -> bool {
    let held = OF_AXES
        .iter()
        .find_map(|(key, option)| Some((key, option, section.table.get(key)?.key_at)));
    let Some((key, option, at)) = held else {
        return false;
    };
    section.take_removed(key);
    section.take_removed(option);
    let help = instead(section, key, option);
    let help = help.unwrap_or_else(|| "write the values as a list".to_owned());
    report(cx, key, at, help);
    true
}

/// Reports `"@NAME"`, which was the values of another axis.
pub(super) fn reference(cx: &mut Context<'_>, at: At, name: &str) {
    let message = "references to axes were removed from the format";
    cx.report(Code::Removed, at, message)
        .label("stood for the values of a shared axis")
        .help(format!("write the values of `{name}` here"));
}

fn report(cx: &mut Context<'_>, key: &str, at: At, help: String) {
    let message = format!("`{key}` was removed from the format");
    cx.report(Code::Removed, at, message)
        .label("not a key any more")
        .help(help);
}

fn of_require(node: &Node) -> String {
    let that = node.table().and_then(|table| table.get("that"));
    let that = that.and_then(|entry| entry.value.text());
    format!("when = \"not ({})\"", that.unwrap_or("CONDITION"))
}

fn of_restrict(cx: &Context<'_>, node: &Node) -> String {
    let keep = node.table().and_then(|table| table.get("keep"));
    let keep = keep.and_then(|entry| entry.value.table());
    let outside: Vec<String> = keep
        .into_iter()
        .flat_map(|keep| &keep.entries)
        .map(|entry| {
            let values = cx.texts.slice(entry.value.at).replace('"', "'");
            match entry.value.raw {
                Raw::Array(_) => format!("{} not in {values}", entry.key),
                _ => format!("{} != {values}", entry.key),
            }
        })
        .collect();
    if outside.is_empty() {
        return "when = \"AXIS not in [VALUES]\"".to_owned();
    }
    let outside = outside.join(" or ");
    let when = node.table().and_then(|table| table.get("when"));
    match when.and_then(|entry| entry.value.text()) {
        Some(when) => format!("when = \"({when}) and ({outside})\""),
        None => format!("when = \"{outside}\""),
    }
}

fn of_table(cx: &Context<'_>, node: &Node) -> String {
    let axes = columns(cx, node);
    let axes = axes.unwrap_or_else(|| "AXIS = [VALUES], AXIS = [VALUES]".to_owned());
    format!("axes = {{ {axes} }}")
}

/// The columns of a table as axes of a zip, where they are short and whole.
fn columns(cx: &Context<'_>, node: &Node) -> Option<String> {
    let get = |key| node.table().and_then(|table| table.get(key));
    let items = |node: &Node| match &node.raw {
        Raw::Array(items) => Some(items.clone()),
        _ => None,
    };
    let rows = items(&get("rows")?.value).filter(|rows| rows.len() <= MAX_SPELT)?;
    let rows: Vec<Vec<Node>> = rows.iter().map(items).collect::<Option<_>>()?;
    let names = items(&get("cols")?.value)?;
    let axes = names.iter().enumerate().map(|(column, name)| {
        let cells = rows.iter().map(|row| {
            let cell = row.get(column)?;
            Some(cx.texts.slice(cell.at).to_owned())
        });
        let cells: Vec<String> = cells.collect::<Option<_>>()?;
        Some(format!("{} = [{}]", name.text()?, cells.join(", ")))
    });
    Some(axes.collect::<Option<Vec<_>>>()?.join(", "))
}

/// The numbers of a key, and whether all are integers.
fn numbers(section: &Section<'_>, key: &str) -> Option<(Vec<f64>, bool)> {
    let node = &section.table.get(key)?.value;
    let items = match &node.raw {
        Raw::Array(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    let values = items.iter().map(|item| match item.raw {
        Raw::Int(value) => Some(value as f64),
        Raw::Float(value) => Some(value),
        _ => None,
    });
    let are_whole = items.iter().all(|item| matches!(item.raw, Raw::Int(_)));
    Some((values.collect::<Option<_>>()?, are_whole))
}

/// The new spelling of an axis with a removed form; none where the form itself is wrong.
fn instead(section: &Section<'_>, key: &str, option: &str) -> Option<String> {
    let (ends, option) = match key {
        "mid" => (option, key),
        _ => (key, option),
    };
    let (ends, are_whole) = numbers(section, ends)?;
    let [first, last] = <[f64; 2]>::try_from(ends).ok()?;
    let (by, is_whole) = match numbers(section, option) {
        Some((by, is_whole)) => (*by.first()?, is_whole),
        None => (1.0, true),
    };
    let number = |value: f64| match are_whole && is_whole {
        true => format!("{value:.0}"),
        false => format!("{value:?}"),
    };
    let most = last * (1.0 + 1e-9);
    let values: Vec<f64> = match key {
        "through" => {
            let beyond = if are_whole && is_whole {
                by.signum()
            } else {
                by / 2.0
            };
            let (first, end, by) = (number(first), number(last + beyond), number(by));
            return Some(format!(
                "write `{{ range = [{first}, {end}], step = {by} }}`"
            ));
        }
        "geom" if first > 0.0 && by > 1.0 => {
            let powers = std::iter::successors(Some(first), |value| Some(value * by));
            powers
                .take_while(|value| *value <= most)
                .take(MAX_SPELT + 1)
                .collect()
        }
        "mid" if first > 0.0 && (0.0..MAX_SPELT as f64).contains(&by) => {
            let powers = std::iter::successors(Some(first), |value| Some(value * 2.0));
            let parts = by as u32 + 1;
            let between = powers.take_while(|power| *power <= most).flat_map(|power| {
                (0..parts).map(move |part| power + power * f64::from(part) / f64::from(parts))
            });
            between
                .take_while(|value| *value <= most)
                .take(MAX_SPELT + 1)
                .collect()
        }
        _ => return None,
    };
    (values.len() <= MAX_SPELT).then(|| spelt(values.into_iter().map(number)))
}

fn spelt(values: impl Iterator<Item = String>) -> String {
    let values: Vec<String> = values.collect();
    format!("write `[{}]`", values.join(", "))
}
