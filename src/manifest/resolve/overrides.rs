//! Settings from outside the manifest: flags, `--set`, environment variables.
//!
//! Each setting is a key path with raw text. Texts are TOML values or shorter forms that are easier
//! to type in a shell: `256,512` and `[f32,bf16]` are lists, and a bare word is a string.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::LazyLock;

use sweeper_program::workload::{FlagTarget, ShorthandFlag, WorkloadInfo};

use super::merge;
use crate::setting::SETTINGS;
use crate::text::diagnostics::{Code, Diagnostic, Diagnostics};
use crate::text::texts::{At, Text, Texts};
use crate::text::tree::{self, Entry, Node, Raw, Table};

/// Settings from outside the manifest, and how strictly it is judged.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    settings: Vec<Override>,
    /// Warnings are errors.
    pub deny_lints: bool,
}

/// One setting from outside the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// Key path such as `grid.T`; `*` stands for every key, as in `case.*.phases`.
    pub path: String,
    /// The value as it was typed.
    pub text: String,
    /// The place where the setting was typed.
    pub origin: OverrideOrigin,
}

/// Origin of a setting; later origins win over earlier ones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OverrideOrigin {
    /// An environment variable, by name.
    Environment(String),
    /// `--set`.
    Set,
    /// A dedicated flag, such as `--T`.
    Flag(String),
}

impl Overrides {
    /// No settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a setting. Among settings of one origin the last wins.
    pub fn push(
        &mut self,
        path: impl Into<String>,
        text: impl Into<String>,
        origin: OverrideOrigin,
    ) {
        self.settings.push(Override {
            path: path.into(),
            text: text.into(),
            origin,
        });
    }

    /// Adds `key=value`, as `--set` takes it.
    ///
    /// # Errors
    /// Text without `=` or without a key.
    pub fn set(&mut self, assignment: &str) -> Result<(), Diagnostics> {
        match assignment.split_once('=') {
            Some((path, text)) if !path.trim().is_empty() => {
                self.push(path.trim(), text.trim(), OverrideOrigin::Set);
                Ok(())
            }
            _ => {
                let message = format!("`--set {assignment}` is not an assignment");
                let diagnostic = Diagnostic::new(Code::Override, message)
                    .help("write `--set KEY=VALUE`, such as `--set grid.T=256,512`");
                Err(diagnostic.into())
            }
        }
    }

    /// Adds a flag of [`FLAGS`] with its value, if it is one: `--backends`, ...
    pub fn flag(&mut self, flag: &str, value: Option<&str>) -> bool {
        let Some(known) = FLAGS.iter().find(|known| known.flags.contains(&flag)) else {
            return false;
        };
        let text = known.value.as_deref().or(value).unwrap_or_default();
        self.push(&known.path, text, OverrideOrigin::Flag(flag.to_owned()));
        true
    }

    /// All settings in the order in which they were added.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Override> {
        self.settings.iter()
    }
}

/// A flag that stands for a key.
#[derive(Clone, Debug)]
pub struct FlagInfo {
    /// The flag and its other spellings.
    pub flags: &'static [&'static str],
    /// The key path it sets.
    pub path: String,
    /// The text it sets, if it takes no value.
    pub value: Option<String>,
    /// Meaning, one line.
    pub about: &'static str,
}

/// The backends of every case.
const BACKENDS: &str = "case.*.backends";

impl FlagInfo {
    fn of_workload(flag: &ShorthandFlag) -> Self {
        let (path, value) = match flag.sets {
            FlagTarget::Axis(parameter) => (format!("grid.{parameter}"), None),
            FlagTarget::Backend { from, to } => {
                (BACKENDS.to_owned(), Some(format!("{from}->{to}")))
            }
        };
        FlagInfo {
            flags: flag.names,
            path,
            value,
            about: flag.about,
        }
    }

    /// True if the other flag replaces by what this one replaces: both can't hold.
    pub fn is_undone_by(&self, other: &FlagInfo) -> bool {
        let replaced = |flag: &FlagInfo| {
            let (from, to) = flag.value.as_deref()?.split_once("->")?;
            Some((from.to_owned(), to.to_owned()))
        };
        let undone = replaced(other).map(|(from, to)| (to, from));
        self.path == other.path && replaced(self).is_some() && replaced(self) == undone
    }

    fn of_cases(flags: &'static [&'static str], path: &str, about: &'static str) -> Self {
        FlagInfo {
            flags,
            path: path.to_owned(),
            value: None,
            about,
        }
    }
}

/// The flags that stand for keys: of workloads, of every case, of settings.
pub static FLAGS: LazyLock<Vec<FlagInfo>> = LazyLock::new(|| {
    let registry = crate::model::case::registry();
    let of_workloads = registry.iter().flat_map(|info| info.flags);
    let mut all: Vec<FlagInfo> = of_workloads.map(FlagInfo::of_workload).collect();
    // Workloads that are alike have their flags in common.
    let mut seen = BTreeSet::new();
    all.retain(|flag| seen.insert(flag.flags));
    let phases = "phases: forward, backward, both";
    all.extend([
        FlagInfo::of_cases(&["--phases"], "case.*.phases", phases),
        FlagInfo::of_cases(&["--backends"], BACKENDS, "backends"),
        FlagInfo {
            flags: &["--untrusted"],
            path: "backend.*.trust".to_owned(),
            value: Some("false".to_owned()),
            about: "measure functions as those of strangers, by the referee",
        },
    ]);
    all.extend(SETTINGS.iter().filter_map(|setting| {
        let flag = setting.flag.as_ref()?;
        Some(FlagInfo {
            flags: flag.names,
            path: setting.path.to_owned(),
            value: flag.preset.map(|(value, _)| value.to_owned()),
            about: flag.preset.map_or(setting.about, |(_, about)| about),
        })
    }));
    all
});

impl fmt::Display for Override {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            OverrideOrigin::Environment(name) => write!(out, "environment variable {name}"),
            OverrideOrigin::Set => write!(out, "--set {}", self.path),
            OverrideOrigin::Flag(flag) => out.write_str(flag),
        }
    }
}

/// Applies all settings to the manifest `root`, adding each as a text of its own to `texts`.
pub(crate) fn apply(
    root: &mut Node,
    overrides: &Overrides,
    texts: &mut Texts,
    diagnostics: &mut Diagnostics,
) {
    let mut ordered: Vec<&Override> = overrides.iter().collect();
    let rank = |origin: &OverrideOrigin| match origin {
        OverrideOrigin::Environment(_) => 1,
        OverrideOrigin::Set => 2,
        OverrideOrigin::Flag(_) => 3,
    };
    ordered.sort_by_key(|setting| rank(&setting.origin));
    let mut first = texts.0.len();
    let mut last_rank = 0;
    for setting in ordered {
        let source = texts.0.len();
        if rank(&setting.origin) != last_rank {
            last_rank = rank(&setting.origin);
            first = source;
        }
        let text = Text::new(setting.to_string(), setting.text.clone(), false);
        texts.0.push(text);
        let whole = At::new(source, 0..setting.text.len());
        let applied = match value(&setting.text, source) {
            Ok(value) => Target {
                setting,
                value,
                first,
            }
            .apply(root),
            Err(message) => Err(message),
        };
        if let Err(message) = applied {
            let message = format!("`{setting}` can't be applied: {message}");
            diagnostics.push(Diagnostic::new(Code::Override, message).at(texts.place(whole)));
        }
    }
}

/// A setting that is being applied; settings from `first` on have the same rank.
struct Target<'a> {
    setting: &'a Override,
    value: Node,
    first: usize,
}

impl Target<'_> {
    fn apply(&self, root: &mut Node) -> Result<(), String> {
        let segments: Vec<&str> = self.setting.path.split('.').collect();
        if segments.iter().any(|segment| segment.is_empty()) {
            return Err(format!("`{}` is not a key path", self.setting.path));
        }
        if let ["grid", axis] = *segments {
            self.replace_in_cases(root, axis);
        }
        self.descend(root, &segments)
    }

    /// A shared axis that is set from outside wins over a case's own.
    fn replace_in_cases(&self, root: &mut Node, axis: &str) {
        let cases = root.table_mut().and_then(|table| table.get_mut("case"));
        let Some(cases) = cases.and_then(|entry| entry.value.table_mut()) else {
            return;
        };
        for case in &mut cases.entries {
            let Some(table) = case.value.table_mut() else {
                continue;
            };
            if let Some(entry) = table.get_mut(axis) {
                entry.value = self.value.clone();
            }
            let grid = table
                .get_mut("grid")
                .and_then(|entry| entry.value.table_mut());
            if let Some(entry) = grid.and_then(|grid| grid.get_mut(axis)) {
                entry.value = self.value.clone();
            }
        }
    }

    fn descend(&self, node: &mut Node, segments: &[&str]) -> Result<(), String> {
        let [segment, rest @ ..] = segments else {
            return Ok(());
        };
        let path = &self.setting.path;
        let Some(table) = node.table_mut() else {
            return Err(format!(
                "`{path}` goes through something that is not a table"
            ));
        };
        if *segment == "*" {
            for entry in &mut table.entries {
                self.descend(&mut entry.value, rest)?;
            }
            return Ok(());
        }
        if rest.is_empty() {
            self.assign(table, segment);
            return Ok(());
        }
        if table.get(segment).is_none() {
            let raw = Raw::Table(Table::default());
            let at = self.value.at;
            table.set(self.entry(segment, Node { at, raw }));
        }
        match table.get_mut(segment) {
            Some(entry) => self.descend(&mut entry.value, rest),
            None => Ok(()),
        }
    }

    fn assign(&self, table: &mut Table, key: &str) {
        if let Some((from, to)) = self.setting.text.split_once("->") {
            if let Some(entry) = table.get_mut(key) {
                rename(&mut entry.value, from, to);
            }
            return;
        }
        let first = self.first;
        let earlier = |at: At| (at.source as usize) < first;
        merge::displace(table, key, self.value.text(), earlier);
        table.set(self.entry(key, self.value.clone()));
    }

    fn entry(&self, key: &str, value: Node) -> Entry {
        Entry {
            key: key.to_owned(),
            key_at: self.value.at,
            value,
        }
    }
}

/// Replaces a backend in a list, under any of its names; `from` is removed if both are listed.
fn rename(node: &mut Node, from: &str, to: &str) {
    let registry = crate::model::case::registry();
    let is_from = |info: &&WorkloadInfo, word: &str| {
        let backend = info.backend(from);
        backend.is_some_and(|backend| backend.name == from && backend.aliases.contains(&word))
    };
    let spells = |node: &Node, word: &str| node.text() == Some(word);
    let change = |node: &mut Node| {
        let is_it = |word: &str| word == from || registry.iter().any(|info| is_from(info, word));
        if node.text().is_some_and(is_it) {
            node.raw = Raw::Text(to.to_owned());
        }
    };
    match &mut node.raw {
        Raw::Array(items) => {
            items.iter_mut().for_each(change);
            let mut seen = false;
            items.retain(|item| !spells(item, to) || !std::mem::replace(&mut seen, true));
        }
        _ => change(node),
    }
}

/// The value that `text` stands for.
fn value(text: &str, source: usize) -> Result<Node, String> {
    let (trimmed, span) = trim(text, 0..text.len());
    let at = At::new(source, span.clone());
    if trimmed.starts_with(['[', '{', '"', '\'']) {
        return match (tree::parse_value(text, source), in_brackets(trimmed)) {
            (Ok(node), _) => Ok(Node { at, ..node }),
            (Err(_), Some(words)) => {
                let span = span.start + 1..span.start + 1 + words.len();
                let raw = Raw::Array(list(text, span, source));
                Ok(Node { at, raw })
            }
            (Err(error), None) => Err(error.message().to_owned()),
        };
    }
    if !trimmed.contains(',') {
        return Ok(scalar(trimmed, at));
    }
    let raw = Raw::Array(list(text, span, source));
    Ok(Node { at, raw })
}

/// The words of a list such as `[launch,graph]`: a shell takes the quotes of `["launch","graph"]`.
fn in_brackets(text: &str) -> Option<&str> {
    let words = text.strip_prefix('[')?.strip_suffix(']')?;
    (!words.contains(['[', ']', '{', '}', '"', '\''])).then_some(words)
}

/// The values in a part of the text that has commas between them.
fn list(text: &str, span: Range<usize>, source: usize) -> Vec<Node> {
    let mut start = span.start;
    let mut items = Vec::new();
    for piece in text[span].split(',') {
        let (word, span) = trim(text, start..start + piece.len());
        if !word.is_empty() {
            items.push(scalar(word, At::new(source, span)));
        }
        start += piece.len() + 1;
    }
    items
}

fn trim(text: &str, range: Range<usize>) -> (&str, Range<usize>) {
    let piece = &text[range.clone()];
    let start = range.start + piece.len() - piece.trim_start().len();
    let piece = piece.trim();
    (piece, start..start + piece.len())
}

/// A number, a boolean or a string in quotes, as TOML reads it; else a bare word.
fn scalar(text: &str, at: At) -> Node {
    let raw = match tree::parse_value(text, 0) {
        Ok(Node {
            raw: raw @ (Raw::Bool(_) | Raw::Int(_) | Raw::Float(_) | Raw::Text(_)),
            ..
        }) => raw,
        _ => Raw::Text(text.to_owned()),
    };
    Node { at, raw }
}
