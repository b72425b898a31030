//! Kinds of values that one or two settings have.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::kinds::{Get, Set, plain};
use super::{Data, Kind};
use crate::grammar::expression::expression;
use crate::grammar::json;
use crate::grammar::section::Context;
use crate::grammar::wire;
use crate::model::manifest::Manifest;
use crate::model::plots::PLOTS;
use crate::model::settings::{DeviceUse, EXPORTS, Plots, Prune, Threads, Warmup};
use crate::text::diagnostics::Code;
use crate::text::tree::{Node, Raw};
use sweeper_model::hardware::DeviceKind;
use sweeper_model::status::Status;
use sweeper_model::word::Word;

/// A key that is read elsewhere: by the stage that assembles files, or when the cases are known.
pub(super) struct Elsewhere {
    pub(super) get: fn(&Manifest) -> Option<Data>,
    pub(super) schema: fn() -> Json,
}

impl Kind for Elsewhere {
    fn read(&self, _: &mut Context<'_>, _: &Node, _: &str, _: &mut Manifest) {}

    fn get(&self, manifest: &Manifest) -> Option<Data> {
        (self.get)(manifest)
    }

    fn schema(&self) -> Json {
        (self.schema)()
    }
}

plain! {
    /// `name`: folders are named by it.
    Name(String): name, Data::text, json::string();

    /// `plan.buckets`: ascending integers by name.
    Buckets(Vec<(Arc<str>, Vec<u64>)>): buckets, Data::Named,
        json::named(json::list(json::whole(1)));

    /// `device.use`: one device, or a list of CUDA devices.
    Devices(DeviceUse): devices, device_names, json::list(json!({
        "type": "string", "pattern": "^(auto|cpu|null|cuda|cuda:all|cuda:[0-9]+)$",
    }));

    /// `device.threads`: a number, or a string with environment variables that gives one.
    DeviceThreads(u32): device_threads, |count| Data::Integer(count.into()),
        json!({ "anyOf": [json::whole(1), json::string()] });

    /// `cache.compile_threads`: a number or `all`, or a string that contains one of these.
    CompileThreads(Threads): threads,
        |threads| match threads {
            Threads::All => Data::text("all"),
            Threads::Count(count) => Data::Integer(count.into()),
        },
        json!({ "anyOf": [json::whole(1), json::string()] });

    /// `measure.warmup`: `auto` or a number of runs.
    WarmupRuns(Warmup): warmup,
        |warmup| match warmup {
            Warmup::Auto => Data::text("auto"),
            Warmup::Runs(runs) => Data::Integer(runs.into()),
        },
        json::word_or("auto", json::whole(0));

    /// `limits.prune`: statuses, and axes whose names are checked when the cases are known.
    PruneRule(Prune): prune,
        |Prune { on, along }| {
            let on = Data::texts(on.iter().map(|status| status.word()));
            Data::Inline(vec![("on", on), ("along", Data::texts(along))])
        },
        json::object(
            json!({ "on": json::list(json::words::<Status>()), "along": json::list(json::string()) }),
            &["on", "along"],
        );

    /// `output.exports`: names of file formats, possibly none.
    Exports(Vec<&'static str>): |cx, node, key| Some(names(cx, node, key, EXPORTS)), Data::texts,
        json::list(json::one_of(EXPORTS));

    /// `report.plots`: `all`, or names of plots, possibly none.
    PlotNames(Plots):
        |cx, node, key| Some(match node.text() {
            Some("all") => Plots::All,
            _ => Plots::Names(names(cx, node, key, &PLOTS)),
        }),
        |plots| match plots {
            Plots::All => Data::text("all"),
            Plots::Names(names) => Data::texts(names),
        },
        json::word_or("all", json::list(json::one_of(&PLOTS)));

    /// An expression of `[null]`, which each case compiles for its own axes.
    Expression(Arc<str>): |cx, node, key| Some(expression(cx, node, key)?.text.into()), Data::Text,
        json::expression();

    /// `null.outcomes`: conditions with the statuses they lead to.
    Outcomes(Vec<(Arc<str>, Status)>):
        |cx, node, _| {
            let outcomes = wire::outcomes(cx, node).into_iter();
            Some(outcomes.map(|(when, status)| (when.text.into(), status)).collect())
        },
        |outcomes| Data::List(outcomes.iter().map(outcome).collect()),
        json!({ "type": "array", "items": json::object(
            json!({ "when": json::expression(), "status": json::words::<Status>() }),
            &["when", "status"],
        ) });
}

fn name(cx: &mut Context<'_>, node: &Node, key: &str) -> Option<String> {
    let name = cx.text(node, key)?;
    if !name.is_empty() && !name.starts_with('.') && name.chars().all(is_name_character) {
        return Some(name);
    }
    let message = format!("`{name}` can't be the name of a sweep");
    cx.report(Code::Name, node.at, message)
        .label("letters, digits, `_`, `-` and `.`")
        .help("folders are named by it");
    None
}

/// Whether a sweep's name can have the character.
pub(crate) fn is_name_character(c: char) -> bool {
    matches!(c, '_' | '-' | '.') || c.is_alphanumeric()
}

fn buckets(cx: &mut Context<'_>, node: &Node, _: &str) -> Option<Vec<(Arc<str>, Vec<u64>)>> {
    let section = cx.section(node, "plan.buckets")?;
    let mut buckets = Vec::new();
    for entry in &section.table.entries {
        let path = section.path_of(&entry.key);
        cx.provenance.note(&cx.texts, path, entry.value.at);
        if let Some(list) = bucket_list(cx, &entry.value, &entry.key) {
            buckets.push((Arc::from(entry.key.as_str()), list));
        }
    }
    // Sorted, because their order means nothing.
    buckets.sort();
    Some(buckets)
}

fn bucket_list(cx: &mut Context<'_>, node: &Node, key: &str) -> Option<Vec<u64>> {
    let mut list = Vec::new();
    for item in node.items() {
        let wrong = match item.raw {
            Raw::Int(value) if value < 1 => "must be at least 1",
            Raw::Int(value) if list.last().is_some_and(|last| *last >= value as u64) => {
                "not more than the one before"
            }
            Raw::Int(value) => {
                list.push(value as u64);
                continue;
            }
            _ => "not an integer",
        };
        let message = format!("the buckets of `{key}` don't ascend");
        cx.report(Code::Buckets, item.at, message).label(wrong);
        return None;
    }
    if list.is_empty() {
        cx.report(Code::Buckets, node.at, format!("`{key}` has no buckets"))
            .label("needs at least one")
            .help("leave the key out: then its values are taken as they are");
        return None;
    }
    Some(list)
}

const DEVICES: &[&str] = &["auto", "cpu", "cuda", "cuda:0", "cuda:all", "null"];

/// Devices that stand alone.
const ALONE: &[(&str, DeviceUse)] = &[
    ("auto", DeviceUse::Auto),
    ("cpu", DeviceUse::All(DeviceKind::Cpu)),
    ("null", DeviceUse::All(DeviceKind::Null)),
    ("cuda:all", DeviceUse::All(DeviceKind::Cuda)),
];

fn device_names(devices: DeviceUse) -> Data {
    if let DeviceUse::Listed(kind, indices) = &devices {
        let names = indices
            .iter()
            .map(|index| format!("{}:{index}", kind.name()));
        return Data::texts(names);
    }
    let alone = ALONE.iter().find(|(_, alone)| *alone == devices);
    Data::text(alone.map_or("", |(word, _)| *word))
}

fn devices(cx: &mut Context<'_>, node: &Node, key: &str) -> Option<DeviceUse> {
    let words = cx.words(node, key)?;
    let mut cuda = Vec::new();
    for word in &words {
        if let Some((_, alone)) = ALONE.iter().find(|(alone, _)| *alone == word.value) {
            if words.len() == 1 {
                return Some(alone.clone());
            }
            let message = format!("`{}` can't be listed with other devices", word.value);
            cx.report(Code::Conflict, word.at, message)
                .help("a list is of CUDA devices: [\"cuda:0\", \"cuda:1\"]");
            return None;
        }
        let index = match word.value.as_str() {
            "cuda" => Some(0),
            other => other
                .strip_prefix("cuda:")
                .and_then(|index| index.parse::<u32>().ok()),
        };
        match index {
            Some(index) if cuda.contains(&index) => cx.twice(word.at, key, &word.value),
            Some(index) => cuda.push(index),
            None => {
                cx.unknown_word(word.at, key, &word.value, DEVICES.iter().copied());
                return None;
            }
        }
    }
    Some(DeviceUse::Listed(DeviceKind::Cuda, cuda))
}

fn device_threads(cx: &mut Context<'_>, node: &Node, key: &str) -> Option<u32> {
    match threads(cx, node, key)? {
        Threads::Count(count) => Some(count),
        Threads::All => {
            let message = format!("`{key}` can't be `all`");
            cx.report(Code::OutOfBounds, node.at, message)
                .label("a number")
                .help("results of different thread counts can't be compared: say how many");
            None
        }
    }
}

fn threads(cx: &mut Context<'_>, node: &Node, key: &str) -> Option<Threads> {
    if let Raw::Int(_) = node.raw {
        return cx.count(node, key).map(Threads::Count);
    }
    let text = cx.expanded(node, key)?;
    match (text.trim(), text.trim().parse::<u32>()) {
        ("all", _) => Some(Threads::All),
        (_, Ok(count)) if count > 0 => Some(Threads::Count(count)),
        _ => {
            let message = format!("`{key}` can't be `{text}`");
            cx.report(Code::OutOfBounds, node.at, message)
                .label("a number over 0, or `all`");
            None
        }
    }
}

fn warmup(cx: &mut Context<'_>, node: &Node, key: &str) -> Option<Warmup> {
    match &node.raw {
        Raw::Text(text) if text == "auto" => Some(Warmup::Auto),
        Raw::Text(text) => {
            cx.unknown_word(node.at, key, text, ["auto"]);
            None
        }
        _ => {
            let runs = cx.integer(node, key, 0, i64::from(u32::MAX))?;
            u32::try_from(runs).ok().map(Warmup::Runs)
        }
    }
}

fn prune(cx: &mut Context<'_>, node: &Node, _: &str) -> Option<Prune> {
    let mut section = cx.section(node, "limits.prune")?;
    let on = section.need(cx, "on");
    let on = on.and_then(|node| cx.word_list::<Status>(node, "on"));
    let along = section.need(cx, "along");
    let along = along.and_then(|node| cx.words(node, "along"));
    section.finish(cx);
    let (on, along) = (on?, along?.into_iter());
    let along = along.map(|name| name.value.into()).collect();
    Some(Prune { on, along })
}

/// Names of a list, each known and each once. An empty list is fine.
fn names(
    cx: &mut Context<'_>,
    node: &Node,
    key: &str,
    known: &'static [&'static str],
) -> Vec<&'static str> {
    let mut found = Vec::new();
    if matches!(&node.raw, Raw::Array(items) if items.is_empty()) {
        return found;
    }
    for word in cx.words(node, key).unwrap_or_default() {
        match known.iter().find(|name| **name == word.value) {
            Some(name) if found.contains(name) => cx.twice(word.at, key, name),
            Some(name) => found.push(*name),
            None => cx.unknown_word(word.at, key, &word.value, known.iter().copied()),
        }
    }
    found
}

fn outcome((when, status): &(Arc<str>, Status)) -> Data {
    let status = Data::text(status.word());
    Data::Inline(vec![("when", Data::text(when)), ("status", status)])
}
