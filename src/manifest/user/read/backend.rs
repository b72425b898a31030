//! `[backend.Y]`: an implementation, and the values that it is tuned by.

use std::ops::RangeInclusive;

use sweeper_program::Value;

use super::command;
use super::kernelbench::{self, KERNELBENCH};
use super::kernels;
use super::names::{CONDITION, Names, expression};
use super::problem::tuned;
use super::python::{self, PythonSettings};
use crate::grammar::section::{Context, Section, Spanned};
use crate::text::diagnostics::Code;
use crate::text::suggest;
use crate::text::texts::At;
use crate::text::tree::{Entry, Node, Raw};
use crate::user::command_declaration::CommandTime;
use crate::user::declaration::{BackendDeclaration, Implementation, Requirement};
use crate::user::{backend_scope, configurations};
use sweeper_model::expression::{Expression, Scope};

/// A backend has no more configurations than this.
const MAX_CONFIGURATIONS: usize = 20_000;

/// Reads a backend; what is wrong is reported.
pub(super) fn backend(
    cx: &mut Context<'_>,
    entry: &Entry,
    section: &mut Section<'_>,
    names: &Names,
    settings: &PythonSettings,
) -> Option<BackendDeclaration> {
    let about = section.read(cx, "about", Context::text).unwrap_or_default();
    let tuned = section.take(cx, "tune");
    let tune = tuned.map_or_else(Vec::new, |node| tune(cx, node, names));
    let sample = section.read(cx, "sample", Context::count);
    let scope = backend_scope(&names.parameters, &tune);
    let race = race(cx, section, &tune);
    let untrusted = untrusted(cx, section);
    let may_call_libraries = may_call_libraries(cx, section);
    let mutates = section.words(cx, "mutates");
    let mutates = known_inputs(cx, mutates, names);
    let rules = section.take(cx, "require");
    let (require, rules) = rules.map_or_else(Default::default, |node| require(cx, node, &scope));
    let phases = section.words(cx, "phases");
    let phases = names.phases(cx, phases);
    let factor = section.take(cx, "tolerance_factor");
    let factor = factor.and_then(|node| tolerance_factor(cx, node, &entry.key, names));
    let is_whole = has_one_source(cx, section);
    cx.used.clear();
    let has = |key: &str| section.table.get(key).is_some();
    let implementation = if !is_whole {
        section.abandon();
        None
    } else if has("command") {
        command::command(cx, section, names, &scope).map(Implementation::Command)
    } else if has(KERNELBENCH) {
        let model = kernelbench::backend(cx, section, names, &tune, settings);
        model.map(Implementation::Python)
    } else if python::SOURCES.iter().any(|key| has(key)) {
        let function = python::python(cx, section, names, &scope, settings);
        function.map(Implementation::Python)
    } else {
        kernels::kernels(cx, section, names, &scope).map(Implementation::Kernels)
    };
    section.finish(cx);
    let implementation = implementation?;
    let is_untrusted = untrusted.is_some();
    refuse_untrusted(cx, untrusted, &implementation);
    // Functions in Python get those by name that no expression uses.
    if !matches!(implementation, Implementation::Python(_)) {
        unused(cx, section, &tune);
    }
    let found = configurations(names.parameters.len(), &tune, &rules, sample);
    are_measurable(cx, entry, found.as_ref().map(Vec::len))?;
    Some(BackendDeclaration {
        name: entry.key.clone(),
        about,
        implementation,
        phases,
        mutates,
        tune,
        sample,
        require,
        race,
        is_untrusted,
        may_call_libraries,
        tolerance_factor: factor,
    })
}

fn may_call_libraries(cx: &mut Context<'_>, section: &mut Section<'_>) -> bool {
    let node = section.take(cx, "libraries");
    node.and_then(|node| cx.boolean(node, "libraries")) == Some(true)
}

/// The keys of a source, with what they are for people.
const SOURCES: [(&str, &str); 6] = [
    ("cuda", "`cuda = \"FILE.cu\"`"),
    ("c", "`c = \"FILE.c\"`"),
    ("python", "`python = \"FILE.py\"`"),
    ("module", "`module = \"PACKAGE\"`"),
    (KERNELBENCH, "`kernelbench = \"FILE.py\"`"),
    ("command", "`command = [\"PROGRAM\"]`"),
];

/// Reports a backend that has no source, or several: of which of them its other keys are is not
/// known then.
fn has_one_source(cx: &mut Context<'_>, section: &Section<'_>) -> bool {
    let entries = SOURCES.map(|(key, _)| section.table.get(key));
    let entries: Vec<&Entry> = entries.into_iter().flatten().collect();
    let keys = entries.iter().map(|entry| entry.key.as_str());
    // A file that is imported as a module.
    if keys.eq(python::SOURCES) {
        return true;
    }
    match entries.as_slice() {
        [_] => return true,
        [] => {
            let keys = SOURCES.map(|(key, _)| key);
            let rest = section.rest();
            let close = rest.filter_map(|entry| {
                let meant = suggest::closest(&entry.key, keys)?;
                Some(format!("`{}`: did you mean `{meant}`?", entry.key))
            });
            let close: Vec<String> = close.collect();
            let forms: Vec<&str> = SOURCES.iter().map(|(_, form)| *form).collect();
            let message = format!("`{}` has no source", section.path);
            cx.report(Code::MissingKey, section.at, message)
                .label("one of these is needed")
                .help(forms.join("  "))
                .help(close.join("   "));
        }
        [first, second, ..] => {
            let message = format!(
                "a backend has one source: `{}` or `{}`",
                first.key, second.key
            );
            cx.report(Code::Conflict, second.key_at, message);
        }
    }
    false
}

/// Warns of tuned values that nothing uses: all configurations would be the same.
fn unused(cx: &mut Context<'_>, section: &Section<'_>, tune: &[(String, Vec<Value>)]) {
    let table = section
        .table
        .get("tune")
        .and_then(|entry| entry.value.table());
    for (name, _) in tune {
        let Some(entry) = table.and_then(|table| table.get(name)) else {
            continue;
        };
        if cx.used.contains(name) {
            continue;
        }
        let message = format!("nothing uses the tuned value `{name}`");
        let report = cx.report(Code::UnusedAxis, entry.key_at, message);
        let report = report.label("its configurations do not differ");
        if section.table.get("command").is_none() {
            report.help(format!(
                "a macro has it: `defines = {{ NAME = \"{name}\" }}`"
            ));
        }
    }
}

/// Factors by which tolerances may be raised.
const TOLERANCE_FACTORS: RangeInclusive<f64> = 1.0..=1000.0;

/// By how much less exact than the workload's tolerances outputs may be.
fn tolerance_factor(
    cx: &mut Context<'_>,
    node: &Node,
    backend: &str,
    names: &Names,
) -> Option<f64> {
    let factor = cx.number(node, "tolerance_factor")?;
    if !TOLERANCE_FACTORS.contains(&factor) {
        let message = "`tolerance_factor` is out of bounds";
        cx.report(Code::OutOfBounds, node.at, message)
            .label("must be from 1 to 1000: tolerances are multiplied by it");
        return None;
    }
    if let Some((reason, help)) = names.without_factor {
        // Several may have the key by `like`.
        let message = format!("`backend.{backend}` has no tolerance to multiply");
        cx.report(Code::Conflict, node.at, message)
            .label(reason)
            .help(help);
        return None;
    }
    Some(factor)
}

/// Where it is said that nobody trusts the backend, if it is.
fn untrusted(cx: &mut Context<'_>, section: &mut Section<'_>) -> Option<At> {
    let node = section.take(cx, "trust")?;
    (cx.boolean(node, "trust") == Some(false)).then_some(node.at)
}

/// Reports a backend that is not trusted and can't be refereed.
fn refuse_untrusted(cx: &mut Context<'_>, at: Option<At>, implementation: &Implementation) {
    let Some(at) = at else { return };
    let reason = match implementation {
        Implementation::Command(command) if command.check.is_none() => {
            "without a `check` nothing says that it does its work"
        }
        Implementation::Command(command) if matches!(command.time, CommandTime::Metric { .. }) => {
            "it says itself how long it took: `time = \"wall\"` does not ask it"
        }
        _ => return,
    };
    let message = "this backend can't have `trust = false`";
    cx.report(Code::Conflict, at, message).label(reason);
}

/// Whether configurations race each other: then there must be several.
fn race(cx: &mut Context<'_>, section: &mut Section<'_>, tune: &[(String, Vec<Value>)]) -> bool {
    let Some(node) = section.take(cx, "race") else {
        return false;
    };
    let race = cx.boolean(node, "race").unwrap_or_default();
    if race && tune.iter().all(|(_, values)| values.len() < 2) {
        cx.report(Code::Declaration, node.at, "`race` has no configurations")
            .label("one alone can't be slower than another")
            .help("`tune = { threads = [128, 256] }` has two");
    }
    race
}

/// Reports a number of configurations that can't be measured; none where it was.
fn are_measurable(cx: &mut Context<'_>, entry: &Entry, count: Option<usize>) -> Option<()> {
    let reason = match count {
        Some(1..=MAX_CONFIGURATIONS) => return Some(()),
        Some(0) => "`require` leaves none of those that `tune` has".to_owned(),
        Some(count) => {
            format!("{count} of them, over {MAX_CONFIGURATIONS}: `sample = 200` measures so many")
        }
        None => "over a million have to be looked at: `sample = 200` draws so many of them; \
                 conditions over the first names of `tune` leave out more"
            .to_owned(),
    };
    let name = &entry.key;
    let message = format!("the configurations of `backend.{name}` can't be measured");
    cx.report(Code::GridTooLarge, entry.key_at, message)
        .label(reason);
    None
}

fn tune(cx: &mut Context<'_>, node: &Node, names: &Names) -> Vec<(String, Vec<Value>)> {
    let Some(section) = cx.section(node, "tune") else {
        return Vec::new();
    };
    let mut found: Vec<(String, Vec<Value>)> = Vec::new();
    for entry in &section.table.entries {
        if names.parameters.iter().any(|info| info.name == entry.key) {
            let message = format!("`{}` is a parameter of the problem", entry.key);
            cx.report(Code::Duplicate, entry.key_at, message)
                .help("a tuned value changes the implementation and not the problem");
        } else if entry.key == "race" && matches!(entry.value.raw, Raw::Bool(_)) {
            cx.report(
                Code::Declaration,
                entry.key_at,
                "`race` is not a tuned value",
            )
            .help("write `race = true` beside `tune`, not in it");
        } else if let Some(values) = tuned(cx, entry) {
            found.push((entry.key.clone(), values));
        } else {
            cx.broken.insert(entry.key.clone());
        }
    }
    found
}

fn known_inputs(cx: &mut Context<'_>, words: Vec<Spanned<String>>, names: &Names) -> Vec<String> {
    let mut found = Vec::new();
    for word in words {
        if names.inputs.contains(&word.value) {
            found.push(word.value);
        } else {
            let known = names.inputs.iter().map(String::as_str);
            cx.unknown_word(word.at, "mutates", &word.value, known);
        }
    }
    found
}

fn require(
    cx: &mut Context<'_>,
    node: &Node,
    scope: &Scope,
) -> (Vec<Requirement>, Vec<Expression>) {
    let items = node.items();
    let (mut found, mut rules) = (Vec::new(), Vec::new());
    for item in items {
        let (that, reason) = match item.table() {
            Some(_) => {
                let Some(mut section) = cx.section(item, "require") else {
                    continue;
                };
                let that = section.need(cx, "that");
                let reason = section.take(cx, "reason");
                section.finish(cx);
                (that, reason.and_then(|node| cx.text(node, "reason")))
            }
            None => (Some(item), None),
        };
        let Some(rule) = that.and_then(|node| expression(cx, node, "require", scope, CONDITION))
        else {
            continue;
        };
        let that = rule.text().to_string();
        found.push(Requirement {
            reason: reason.unwrap_or_else(|| format!("`{that}` does not hold")),
            that,
        });
        rules.push(rule);
    }
    (found, rules)
}
