//! Reading the sections of settings: `[plan]`, `[device]`, `[cache]`, ...

use std::sync::Arc;
use std::time::Duration;

use super::diagnostics::Code;
use super::section::{Context, Section};
use super::settings::{
    CacheSettings, Canonical, DEFAULT_CACHE_GB, DeviceSettings, DeviceUse, EXPORTS, GB, Hardware,
    L2, Launching, Limits, Measure, NOT_EXPORTED, Order, Output, PLOTS, PlanSettings, PlotFormat,
    Plots, Stopping, Threads, Warmup, Word,
};
use super::tree::{Node, Raw};

pub(super) const DEFAULT_MAX_CANONICAL_SHAPES: u32 = 8;
pub(super) const DEFAULT_SAMPLES_PER_SHAPE: u32 = 2;
const DEFAULT_COMPILE_TIMEOUT_S: f64 = 120.0;
const DEFAULT_POINT_TIMEOUT_S: f64 = 300.0;
const DEFAULT_ORACLE_S: f64 = 30.0;
const DEFAULT_ANCHOR_S: f64 = 60.0;
/// Longest time that a setting can ask for: a hundred years.
const MAX_SECONDS: f64 = 3.2e9;

/// Opens the section `key` of the manifest, or an empty one.
pub(super) fn open<'n>(
    cx: &mut Context<'_>,
    root: &mut Section<'n>,
    key: &'static str,
    empty: &'n super::tree::Table,
) -> Section<'n> {
    let node = root.take(cx, key);
    let section = node.and_then(|node| cx.section(node, key));
    section.unwrap_or_else(|| Section::new(empty, root.at, key))
}

/// Reads the section `key`, which is empty if it is not there.
pub(super) fn read<'c, T>(
    cx: &mut Context<'c>,
    root: &mut Section<'_>,
    key: &'static str,
    read: impl FnOnce(&mut Context<'c>, &mut Section<'_>) -> T,
) -> T {
    let empty = super::tree::Table::default();
    let node = root.take(cx, key);
    let section = node.and_then(|node| cx.section(node, key));
    let mut section = section.unwrap_or_else(|| Section::new(&empty, root.at, key));
    read(cx, &mut section)
}

pub(super) fn plan(cx: &mut Context<'_>, section: &mut Section<'_>) -> PlanSettings {
    let buckets = match section.take(cx, "buckets") {
        Some(node) => buckets(cx, node),
        None => Vec::new(),
    };
    let order = section.or(cx, "order", Order::Interleaved, Context::word);
    let published = match section.take(cx, "canonical") {
        Some(node) => match cx.text(node, "canonical").as_deref() {
            Some("published") => true,
            None | Some("dominating") => false,
            Some(other) => {
                cx.unknown_word(node.at, "canonical", other, ["dominating", "published"]);
                false
            }
        },
        None => false,
    };
    let mut number = |key, default| match section.take(cx, key) {
        Some(node) if !published => {
            let message = format!("`{key}` belongs to the published sampling");
            cx.report(Code::PublishedOnly, node.at, message)
                .label("nothing is sampled here")
                .help("set `canonical = \"published\"`, or `--compile-friendly`");
            default
        }
        Some(node) => cx.count(node, key).unwrap_or(default),
        None => default,
    };
    let max_canonical_shapes = number("max_canonical_shapes", DEFAULT_MAX_CANONICAL_SHAPES);
    let samples_per_shape = number("samples_per_shape", DEFAULT_SAMPLES_PER_SHAPE);
    let canonical = if published {
        Canonical::Published {
            max_canonical_shapes,
            samples_per_shape,
        }
    } else {
        Canonical::Dominating
    };
    section.finish(cx, &[]);
    PlanSettings {
        buckets,
        canonical,
        order,
    }
}

fn buckets(cx: &mut Context<'_>, node: &Node) -> Vec<(Arc<str>, Vec<u64>)> {
    let Some(section) = cx.section(node, "plan.buckets") else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in &section.table.entries {
        cx.provenance
            .note(&cx.texts, section.path_of(&entry.key), entry.value.at);
        if let Some(list) = bucket_list(cx, &entry.value, &entry.key) {
            found.push((Arc::from(entry.key.as_str()), list));
        }
    }
    // Sorted, because their order means nothing.
    found.sort();
    found
}

fn bucket_list(cx: &mut Context<'_>, node: &Node, key: &str) -> Option<Vec<u64>> {
    let items = match &node.raw {
        Raw::Array(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
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
        cx.report(
            Code::Buckets,
            item.at,
            format!("the buckets of `{key}` don't ascend"),
        )
        .label(wrong);
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

pub(super) fn device(cx: &mut Context<'_>, section: &mut Section<'_>) -> DeviceSettings {
    let use_ = section.or(cx, "use", DeviceUse::Auto, device_use);
    let threads = section.or(cx, "threads", 1, |cx, node, key| {
        match threads(cx, node, key)? {
            Threads::Count(count) => Some(count),
            Threads::All => {
                cx.report(Code::OutOfBounds, node.at, "`threads` can't be `all`")
                    .label("a number")
                    .help("results of different thread counts can't be compared: say how many");
                None
            }
        }
    });
    let hardware = Hardware {
        name: section
            .take(cx, "hardware")
            .and_then(|node| cx.text(node, "hardware")),
        peak_gflops: peak(cx, section, "peak_gflops"),
        peak_bandwidth_gbps: peak(cx, section, "peak_bandwidth"),
    };
    section.finish(cx, &[]);
    DeviceSettings {
        use_,
        threads,
        hardware,
    }
}

/// A rate on paper, in 10^9 a second.
fn peak(cx: &mut Context<'_>, section: &mut Section<'_>, key: &'static str) -> Option<f64> {
    let node = section.take(cx, key)?;
    cx.positive(node, key)
}

const DEVICES: &[&str] = &["auto", "cpu", "cuda", "cuda:0", "cuda:all", "null"];

fn device_use(cx: &mut Context<'_>, node: &Node, key: &str) -> Option<DeviceUse> {
    let words = cx.words(node, key)?;
    let mut cuda = Vec::new();
    for word in &words {
        let alone = match word.value.as_str() {
            "auto" => Some(DeviceUse::Auto),
            "cpu" => Some(DeviceUse::Cpu),
            "null" => Some(DeviceUse::Null),
            "cuda:all" => Some(DeviceUse::AllCuda),
            _ => None,
        };
        if let Some(alone) = alone {
            if words.len() == 1 {
                return Some(alone);
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

/// A number of threads, `all`, or a string with environment variables that gives one of these.
fn threads(cx: &mut Context<'_>, node: &Node, key: &str) -> Option<Threads> {
    if let Raw::Int(_) = node.raw {
        return cx.count(node, key).map(Threads::Count);
    }
    let text = cx.expanded(node, key)?;
    match (text.trim(), text.trim().parse::<u32>()) {
        ("all", _) => Some(Threads::All),
        (_, Ok(count)) if count > 0 => Some(Threads::Count(count)),
        _ => {
            cx.report(
                Code::OutOfBounds,
                node.at,
                format!("`{key}` can't be `{text}`"),
            )
            .label("a number over 0, or `all`");
            None
        }
    }
}

pub(super) fn cache(cx: &mut Context<'_>, section: &mut Section<'_>) -> CacheSettings {
    let dir = section
        .take(cx, "dir")
        .and_then(|node| cx.path(node, "dir"));
    let size = section.or(cx, "size_gb", DEFAULT_CACHE_GB, Context::positive);
    let upstream = match section.take(cx, "upstream") {
        Some(Node {
            raw: Raw::Array(items),
            ..
        }) => items
            .iter()
            .filter_map(|item| cx.path(item, "upstream"))
            .collect(),
        Some(node) => cx.path(node, "upstream").into_iter().collect(),
        None => Vec::new(),
    };
    let compile_threads = section.or(cx, "compile_threads", Threads::All, threads);
    section.finish(cx, &[]);
    CacheSettings {
        dir,
        size_bytes: (size * GB) as u64,
        upstream,
        compile_threads,
    }
}

/// One word, or a list of different ones.
fn modes(cx: &mut Context<'_>, node: &Node, key: &str) -> Option<Vec<Launching>> {
    let items = match &node.raw {
        Raw::Array(items) if !items.is_empty() => items.iter().collect(),
        _ => vec![node],
    };
    let mut found = Vec::new();
    for item in items {
        let mode: Launching = cx.word(item, key)?;
        match found.contains(&mode) {
            true => cx.twice(item.at, key, mode.word()),
            false => found.push(mode),
        }
    }
    Some(found)
}

/// More processes a point than anybody waits for.
const MOST_FRESH_STARTS: u32 = 1000;

pub(super) fn measure(cx: &mut Context<'_>, section: &mut Section<'_>) -> Measure {
    let stopping = stopping(cx, section);
    let warmup = section.or(cx, "warmup", Warmup::Auto, |cx, node, key| {
        match &node.raw {
            Raw::Text(text) if text == "auto" => Some(Warmup::Auto),
            Raw::Text(text) => {
                cx.unknown_word(node.at, key, text, ["auto"]);
                None
            }
            _ => {
                let runs = cx.integer(node, key, 0, i64::from(u32::MAX))?;
                Some(Warmup::Runs(u32::try_from(runs).ok()?))
            }
        }
    });
    let fresh_starts = section.or(cx, "fresh_starts", 0, |cx, node, key| {
        let count = cx.integer(node, key, 0, i64::from(MOST_FRESH_STARTS))?;
        u32::try_from(count).ok()
    });
    let l2 = section.or(cx, "l2", L2::Auto, Context::word);
    let modes = section.or(cx, "mode", vec![Launching::Launch], modes);
    let verify = section.or(cx, "verify", true, Context::boolean);
    section.finish(cx, &[]);
    Measure {
        stopping,
        warmup,
        fresh_starts,
        l2,
        modes,
        verify,
    }
}

fn stopping(cx: &mut Context<'_>, section: &mut Section<'_>) -> Stopping {
    let repeats = section.take(cx, "repeats");
    let min_node = section.take(cx, "min_samples");
    let max_node = section.take(cx, "max_samples");
    let ci_node = section.take(cx, "max_rel_ci");
    let seconds_node = section.take(cx, "max_seconds");
    let given = [min_node, max_node, ci_node, seconds_node];
    if let Some(repeats) = repeats {
        for node in given.into_iter().flatten() {
            let before = cx.name_of(repeats.at);
            cx.report(
                Code::Conflict,
                node.at,
                "`repeats` excludes the adaptive rule",
            )
            .label(format!("`repeats` is set at {before}"))
            .help("keep `repeats`, or min_samples, max_samples, max_rel_ci and max_seconds");
        }
        let count = cx.count(repeats, "repeats").unwrap_or(1);
        return Stopping::Repeats(count);
    }
    let mut count = |node: Option<&Node>, key, default| {
        node.and_then(|node| cx.count(node, key)).unwrap_or(default)
    };
    let min_samples = count(min_node, "min_samples", 10);
    let max_samples = count(max_node, "max_samples", 1000.max(min_samples));
    let mut number = |node: Option<&Node>, key, default| {
        node.and_then(|node| cx.positive(node, key))
            .unwrap_or(default)
    };
    let max_rel_ci = number(ci_node, "max_rel_ci", 0.01);
    let seconds = number(seconds_node, "max_seconds", 10.0);
    if let (Some(node), true) = (max_node.or(min_node), max_samples < min_samples) {
        cx.report(
            Code::OutOfBounds,
            node.at,
            "`max_samples` is less than `min_samples`",
        )
        .label(format!("{max_samples} is less than {min_samples}"));
    }
    Stopping::Adaptive {
        min_samples,
        max_samples,
        max_rel_ci,
        max_time: Duration::from_secs_f64(seconds.min(MAX_SECONDS)),
    }
}

/// Reads `[limits]`, less what prunes: that needs to know the axes.
pub(super) fn limits(cx: &mut Context<'_>, section: &mut Section<'_>) -> Limits {
    let memory = section.take(cx, "max_memory_gb");
    let memory = memory.and_then(|node| cx.positive(node, "max_memory_gb"));
    let mut seconds = |key, default: f64| {
        let seconds = section.or(cx, key, default, Context::positive);
        Duration::from_secs_f64(seconds.min(MAX_SECONDS))
    };
    let compile_timeout = seconds("compile_timeout_s", DEFAULT_COMPILE_TIMEOUT_S);
    let point_timeout = seconds("point_timeout_s", DEFAULT_POINT_TIMEOUT_S);
    let oracle_time = seconds("oracle_s", DEFAULT_ORACLE_S);
    let anchor_interval = seconds("anchor_s", DEFAULT_ANCHOR_S);
    let max_points = section.take(cx, "max_points");
    let max_points = max_points.and_then(|node| cx.integer(node, "max_points", 1, i64::MAX));
    Limits {
        max_memory_bytes: memory.map(|gb| (gb * GB) as u64),
        prune: None,
        compile_timeout,
        point_timeout,
        oracle_time,
        anchor_interval,
        max_points: max_points.map(|points| points as u64),
    }
}

pub(super) fn output(cx: &mut Context<'_>, section: &mut Section<'_>) -> Output {
    let dir = section.or(cx, "dir", "results".into(), Context::path);
    let exports = section.or(cx, "exports", Vec::new(), |cx, node, key| {
        Some(exports(cx, node, key))
    });
    section.finish(cx, &[]);
    Output { dir, exports }
}

/// Names of exports. One that nothing feeds would leave no file: better said before anything is measured.
fn exports(cx: &mut Context<'_>, node: &Node, key: &str) -> Vec<&'static str> {
    let items = match &node.raw {
        Raw::Array(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    let mut are_unfed = false;
    for item in items {
        let Some(name) = item.text().filter(|name| NOT_EXPORTED.contains(name)) else {
            continue;
        };
        are_unfed = true;
        let message = format!("no workload of this version feeds the export `{name}`");
        cx.report(Code::NotExported, item.at, message)
            .label("no row would be written")
            .help("guide 002's attention and Transformers are not among `sweeper workloads` yet; `json` has all rows");
    }
    match are_unfed {
        true => Vec::new(),
        false => names(cx, node, key, EXPORTS),
    }
}

/// Reads the plots and formats of `[report]`; the baseline needs to know the backends.
pub(super) fn report(cx: &mut Context<'_>, section: &mut Section<'_>) -> (Plots, Vec<PlotFormat>) {
    let plots = section.or(cx, "plots", Plots::All, |cx, node, key| match node.text() {
        Some("all") => Some(Plots::All),
        _ => Some(Plots::Names(names(cx, node, key, PLOTS))),
    });
    let formats = section.or(cx, "format", vec![PlotFormat::Pdf], Context::word_list);
    (plots, formats)
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
