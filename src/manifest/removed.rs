//! Keys that were removed from the format: each is an error with its replacement, which has the
//! user's own values.

use sweeper_kernels::Value;

use super::diagnostics::Code;
use super::section::{Context, Section};
use super::text::At;
use super::tree::{Entry, Node, Raw};

/// Removed lists of rules.
pub(super) const RULES: &[&str] = &["require", "restrict", "table"];

/// Removed forms of axes, with their options.
const OF_AXES: &[(&str, &[&str])] = &[
    ("geom", &["factor"]),
    ("through", &["step"]),
    ("mid", &["pow2"]),
];

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
        .find_map(|(key, options)| Some((key, options, section.table.get(key)?.key_at)));
    let Some((key, options, at)) = held else {
        return false;
    };
    for key in options.iter().chain([key]) {
        section.take_removed(key);
    }
    let help = match *key {
        "geom" => of_geom(section),
        "through" => of_through(section),
        _ => of_mid(section),
    };
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

/// Two numbers of a table, and a third one.
fn three(section: &Section<'_>, ends: &str, option: &str) -> Option<(Value, Value, Option<Value>)> {
    let number = |node: &Node| match node.raw {
        Raw::Int(value) => Some(Value::Int(value)),
        Raw::Float(value) => Some(Value::Float(value)),
        _ => None,
    };
    let Raw::Array(ends) = &section.table.get(ends)?.value.raw else {
        return None;
    };
    let [first, last] = ends.as_slice() else {
        return None;
    };
    let option = section.table.get(option).map(|entry| number(&entry.value));
    let option = match option {
        Some(option) => Some(option?),
        None => None,
    };
    Some((number(first)?, number(last)?, option))
}

fn float(value: &Value) -> f64 {
    match value {
        Value::Int(value) => *value as f64,
        Value::Float(value) => *value,
        _ => f64::NAN,
    }
}

fn of_geom(section: &Section<'_>) -> Option<String> {
    let (first, last, factor) = three(section, "geom", "factor")?;
    let (from, to, factor) = (float(&first), float(&last), float(&factor?));
    if factor <= 1.0 || from <= 0.0 || to < from {
        return None;
    }
    let count = ((to / from).ln() / factor.ln() + 1e-9).floor() as usize + 1;
    if count > MAX_SPELT {
        return None;
    }
    let is_whole = matches!(first, Value::Int(_)) && factor.fract() == 0.0;
    let values = (0..count).map(|power| {
        let value = from * factor.powi(power as i32);
        match is_whole {
            true => format!("{value:.0}"),
            false => format!("{value:?}"),
        }
    });
    Some(spelt(values))
}

fn of_through(section: &Section<'_>) -> Option<String> {
    let (first, last, step) = three(section, "through", "step")?;
    let step = step.unwrap_or(Value::Int(1));
    if let (Value::Int(first), Value::Int(last), Value::Int(step)) = (&first, &last, &step) {
        let count = last.checked_sub(*first)?.checked_div(*step)?;
        let end = count
            .checked_add(1)?
            .checked_mul(*step)?
            .checked_add(*first)?;
        let step = match step {
            1 => String::new(),
            step => format!(", step = {step}"),
        };
        return Some(format!(
            "write `{{ range = [{first}, {end}]{step} }}`, which leaves its end out"
        ));
    }
    let count = ((float(&last) - float(&first)) / float(&step) + 1e-9).floor();
    if !(1.0..1e6).contains(&count) {
        return None;
    }
    let end = match (float(&first) + float(&step) * count - float(&last)).abs() < 1e-9 {
        true => float(&last),
        false => float(&first) + float(&step) * count,
    };
    let num = count as usize + 1;
    Some(format!(
        "write `{{ linspace = [{first}, {end:?}], num = {num} }}`"
    ))
}

fn of_mid(section: &Section<'_>) -> Option<String> {
    let (first, last, mid) = three(section, "pow2", "mid")?;
    let (Value::Int(first), Value::Int(last), Some(Value::Int(mid))) = (first, last, mid) else {
        return None;
    };
    if first < 1 || !(0..MAX_SPELT as i64).contains(&mid) {
        return None;
    }
    let mut values = Vec::new();
    let mut power = first;
    while power < last && values.len() <= MAX_SPELT {
        values.extend((0..=mid).map(|between| power + power * between / (mid + 1)));
        power = power.checked_mul(2)?;
    }
    values.push(power);
    let is_short = values.len() <= MAX_SPELT;
    is_short.then(|| spelt(values.iter().map(i64::to_string)))
}

fn spelt(values: impl Iterator<Item = String>) -> String {
    let values: Vec<String> = values.collect();
    format!("write `[{}]`", values.join(", "))
}
