//! Kinds of values that one or two settings have.

use std::sync::Arc;

use serde_json::{Value as Json, json};

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

/// `name`: folders are named by it.
pub(super) struct Name;

impl Kind for Name {
    fn read(&self, cx: &mut Context<'_>, node: &Node, key: &str, manifest: &mut Manifest) {
        let Some(name) = cx.text(node, key) else {
            return;
        };
        if !name.is_empty() && !name.starts_with('.') && name.chars().all(is_name_character) {
            manifest.name = name;
            return;
        }
        let message = format!("`{name}` can't be the name of a sweep");
        cx.report(Code::Name, node.at, message)
            .label("letters, digits, `_`, `-` and `.`")
            .help("folders are named by it");
    }

    fn get(&self, manifest: &Manifest) -> Option<Data> {
        Some(Data::text(&manifest.name))
    }

    fn schema(&self) -> Json {
        json::string()
    }
}

/// Whether a sweep's name can have the character.
pub(crate) fn is_name_character(c: char) -> bool {
    matches!(c, '_' | '-' | '.') || c.is_alphanumeric()
}

/// `plan.buckets`: ascending integers by name.
pub(super) struct Buckets;

impl Kind for Buckets {
    fn read(&self, cx: &mut Context<'_>, node: &Node, _: &str, manifest: &mut Manifest) {
        let Some(section) = cx.section(node, "plan.buckets") else {
            return;
        };
        let buckets = &mut manifest.plan.buckets;
        for entry in &section.table.entries {
            let path = section.path_of(&entry.key);
            cx.provenance.note(&cx.texts, path, entry.value.at);
            if let Some(list) = bucket_list(cx, &entry.value, &entry.key) {
                buckets.push((Arc::from(entry.key.as_str()), list));
            }
        }
        // Sorted, because their order means nothing.
        buckets.sort();
    }

    fn get(&self, manifest: &Manifest) -> Option<Data> {
        Some(Data::Named(manifest.plan.buckets.clone()))
    }

    fn schema(&self) -> Json {
        json::named(json::list(json::whole(1)))
    }
}

fn bucket_list(cx: &mut Context<'_>, node: &Node, key: &str) -> Option<Vec<u64>> {
    let items = node.items();
    let mut list = Vec::new();
    for item in items {
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

/// `device.use`: one device, or a list of CUDA devices.
pub(super) struct Devices;

const DEVICES: &[&str] = &["auto", "cpu", "cuda", "cuda:0", "cuda:all", "null"];

/// Devices that stand alone.
const ALONE: &[(&str, DeviceUse)] = &[
    ("auto", DeviceUse::Auto),
    ("cpu", DeviceUse::Cpu),
    ("null", DeviceUse::Null),
    ("cuda:all", DeviceUse::AllCuda),
];

impl Kind for Devices {
    fn read(&self, cx: &mut Context<'_>, node: &Node, key: &str, manifest: &mut Manifest) {
        if let Some(devices) = devices(cx, node, key) {
            manifest.device.use_ = devices;
        }
    }

    fn get(&self, manifest: &Manifest) -> Option<Data> {
        let devices = &manifest.device.use_;
        if let DeviceUse::Cuda(indices) = devices {
            let names = indices.iter().map(|index| format!("cuda:{index}"));
            return Some(Data::texts(names));
        }
        let alone = ALONE.iter().find(|(_, alone)| alone == devices);
        alone.map(|(word, _)| Data::text(word))
    }

    fn schema(&self) -> Json {
        let pattern = "^(auto|cpu|null|cuda|cuda:all|cuda:[0-9]+)$";
        json::list(json!({ "type": "string", "pattern": pattern }))
    }
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
    Some(DeviceUse::Cuda(cuda))
}

/// `device.threads`: a number, or a string with environment variables that gives one.
pub(super) struct DeviceThreads;

impl Kind for DeviceThreads {
    fn read(&self, cx: &mut Context<'_>, node: &Node, key: &str, manifest: &mut Manifest) {
        match threads(cx, node, key) {
            Some(Threads::Count(count)) => manifest.device.threads = count,
            Some(Threads::All) => {
                let message = format!("`{key}` can't be `all`");
                cx.report(Code::OutOfBounds, node.at, message)
                    .label("a number")
                    .help("results of different thread counts can't be compared: say how many");
            }
            None => {}
        }
    }

    fn get(&self, manifest: &Manifest) -> Option<Data> {
        Some(Data::Integer(manifest.device.threads.into()))
    }

    fn schema(&self) -> Json {
        json!({ "anyOf": [json::whole(1), json::string()] })
    }
}

/// `cache.compile_threads`: a number or `all`, or a string that contains one of these.
pub(super) struct CompileThreads;

impl Kind for CompileThreads {
    fn read(&self, cx: &mut Context<'_>, node: &Node, key: &str, manifest: &mut Manifest) {
        if let Some(threads) = threads(cx, node, key) {
            manifest.cache.compile_threads = threads;
        }
    }

    fn get(&self, manifest: &Manifest) -> Option<Data> {
        Some(match manifest.cache.compile_threads {
            Threads::All => Data::text("all"),
            Threads::Count(count) => Data::Integer(count.into()),
        })
    }

    fn schema(&self) -> Json {
        json!({ "anyOf": [json::whole(1), json::string()] })
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

/// `measure.warmup`: `auto` or a number of runs.
pub(super) struct WarmupRuns;

impl Kind for WarmupRuns {
    fn read(&self, cx: &mut Context<'_>, node: &Node, key: &str, manifest: &mut Manifest) {
        let warmup = match &node.raw {
            Raw::Text(text) if text == "auto" => Some(Warmup::Auto),
            Raw::Text(text) => {
                cx.unknown_word(node.at, key, text, ["auto"]);
                None
            }
            _ => {
                let runs = cx.integer(node, key, 0, i64::from(u32::MAX));
                runs.and_then(|runs| u32::try_from(runs).ok().map(Warmup::Runs))
            }
        };
        if let Some(warmup) = warmup {
            manifest.measure.warmup = warmup;
        }
    }

    fn get(&self, manifest: &Manifest) -> Option<Data> {
        Some(match manifest.measure.warmup {
            Warmup::Auto => Data::text("auto"),
            Warmup::Runs(runs) => Data::Integer(runs.into()),
        })
    }

    fn schema(&self) -> Json {
        json::word_or("auto", json::whole(0))
    }
}

/// `limits.prune`: statuses, and axes whose names are checked when the cases are known.
pub(super) struct PruneRule;

impl Kind for PruneRule {
    fn read(&self, cx: &mut Context<'_>, node: &Node, _: &str, manifest: &mut Manifest) {
        let Some(mut section) = cx.section(node, "limits.prune") else {
            return;
        };
        let on = section.need(cx, "on");
        let on = on.and_then(|node| cx.word_list::<Status>(node, "on"));
        let along = section.need(cx, "along");
        let along = along.and_then(|node| cx.words(node, "along"));
        section.finish(cx);
        if let (Some(on), Some(along)) = (on, along) {
            let along = along.iter().map(|name| name.value.as_str().into());
            let along = along.collect();
            manifest.limits.prune = Some(Prune { on, along });
        }
    }

    fn get(&self, manifest: &Manifest) -> Option<Data> {
        let Prune { on, along } = manifest.limits.prune.as_ref()?;
        let on = Data::texts(on.iter().map(|status| status.word()));
        Some(Data::Inline(vec![
            ("on", on),
            ("along", Data::texts(along)),
        ]))
    }

    fn schema(&self) -> Json {
        let statuses = json::list(json::words::<Status>());
        let axes = json::list(json::string());
        json::object(json!({ "on": statuses, "along": axes }), &["on", "along"])
    }
}

/// `output.exports`: names of file formats, possibly none.
pub(super) struct Exports;

impl Kind for Exports {
    fn read(&self, cx: &mut Context<'_>, node: &Node, key: &str, manifest: &mut Manifest) {
        manifest.output.exports = names(cx, node, key, EXPORTS);
    }

    fn get(&self, manifest: &Manifest) -> Option<Data> {
        Some(Data::texts(&manifest.output.exports))
    }

    fn schema(&self) -> Json {
        json::list(json::one_of(EXPORTS))
    }
}

/// `report.plots`: `all`, or names of plots, possibly none.
pub(super) struct PlotNames;

impl Kind for PlotNames {
    fn read(&self, cx: &mut Context<'_>, node: &Node, key: &str, manifest: &mut Manifest) {
        manifest.report.plots = match node.text() {
            Some("all") => Plots::All,
            _ => Plots::Names(names(cx, node, key, &PLOTS)),
        };
    }

    fn get(&self, manifest: &Manifest) -> Option<Data> {
        Some(match &manifest.report.plots {
            Plots::All => Data::text("all"),
            Plots::Names(names) => Data::texts(names),
        })
    }

    fn schema(&self) -> Json {
        json::word_or("all", json::list(json::one_of(&PLOTS)))
    }
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

/// An expression of `[null]`, which each case compiles for its own axes.
pub(super) struct Expression {
    pub(super) get: fn(&Manifest) -> Option<Arc<str>>,
    pub(super) set: fn(&mut Manifest, Arc<str>),
}

impl Kind for Expression {
    fn read(&self, cx: &mut Context<'_>, node: &Node, key: &str, manifest: &mut Manifest) {
        if let Some(text) = expression(cx, node, key) {
            (self.set)(manifest, text.text.into());
        }
    }

    fn get(&self, manifest: &Manifest) -> Option<Data> {
        (self.get)(manifest).map(Data::Text)
    }

    fn schema(&self) -> Json {
        json::expression()
    }
}

/// `null.outcomes`: conditions with the statuses they lead to.
pub(super) struct Outcomes;

impl Kind for Outcomes {
    fn read(&self, cx: &mut Context<'_>, node: &Node, _: &str, manifest: &mut Manifest) {
        let outcomes = wire::outcomes(cx, node);
        let outcomes = outcomes
            .into_iter()
            .map(|(when, status)| (when.text.into(), status));
        manifest.null_mut().outcomes = outcomes.collect();
    }

    fn get(&self, manifest: &Manifest) -> Option<Data> {
        let outcomes = manifest.null.as_ref()?.outcomes.iter();
        let outcomes = outcomes.map(|(when, status)| {
            let status = Data::text(status.word());
            Data::Inline(vec![("when", Data::text(when)), ("status", status)])
        });
        Some(Data::List(outcomes.collect()))
    }

    fn schema(&self) -> Json {
        let properties = json!({
            "when": json::expression(),
            "status": json::words::<Status>(),
        });
        let outcome = json::object(properties, &["when", "status"]);
        json!({ "type": "array", "items": outcome })
    }
}
