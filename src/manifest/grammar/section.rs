//! Typed access to tables: every reader checks, reports at the place, and goes on.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::files::sources::Sources;
use crate::text::diagnostics::{Code, Diagnostic, Diagnostics, Report};
use crate::text::provenance::Provenance;
use crate::text::suggest;
use crate::text::texts::{At, Texts};
use crate::text::tree::{Entry, Node, Raw, Table};
use crate::text::variables;
use sweeper_model::tuning::family_of;
use sweeper_model::word::Word;

/// The key of a backend that has the keys of another one.
pub(crate) const LIKE: &str = "like";

/// The table of backends.
pub(crate) const BACKENDS: &str = "backend";

/// The context of all readers: the sources that they read, and the diagnostics that they add to.
pub(crate) struct Context<'a> {
    pub(crate) sources: &'a Sources,
    /// Texts of the sources, and of settings from outside.
    pub(crate) texts: Texts,
    pub(crate) diagnostics: Diagnostics,
    pub(crate) provenance: Provenance,
    /// Names of axes, parameters and tensors, and paths of tables such as `workload.axpy`, that
    /// could not be read: that they are missing is not a second mistake.
    pub(crate) broken: BTreeSet<String>,
    /// Names that expressions of the backend that is read have used so far.
    pub(crate) used: BTreeSet<String>,
}

/// A value and its place.
#[derive(Clone, Debug)]
pub(crate) struct Spanned<T> {
    pub(crate) value: T,
    pub(crate) at: At,
}

impl Spanned<String> {
    /// The key of an entry.
    pub(crate) fn key(entry: &Entry) -> Self {
        let value = entry.key.clone();
        let at = entry.key_at;
        Spanned { value, at }
    }
}

impl<'s> Context<'s> {
    /// Adds a diagnostic at a place.
    pub(crate) fn report(&mut self, code: Code, at: At, message: impl Into<String>) -> Report<'_> {
        let diagnostic = Diagnostic::new(code, message).at(self.texts.place(at));
        self.diagnostics.report(diagnostic)
    }

    /// A fresh context over `sources`.
    pub(crate) fn new(sources: &'s Sources, texts: Texts) -> Self {
        Context {
            sources,
            texts,
            diagnostics: Diagnostics::default(),
            provenance: Provenance::default(),
            broken: BTreeSet::new(),
            used: BTreeSet::new(),
        }
    }

    /// Whether a backend of the manifest, or the one of a configuration, could not be read.
    pub(crate) fn is_broken_backend(&self, name: &str) -> bool {
        let path = format!("{BACKENDS}.{}", family_of(name));
        self.broken.contains(&path)
    }

    /// `path:line`, for notes that refer to another place.
    pub(crate) fn name_of(&self, at: At) -> String {
        let place = self.texts.place(at);
        if place.is_file {
            format!("{}:{}", place.name, place.line)
        } else {
            place.name
        }
    }

    /// Reports a value of the wrong type.
    pub(crate) fn wrong_type(&mut self, node: &Node, key: &str, wanted: &str) {
        let message = format!("`{key}` takes {wanted}");
        let label = format!("this is {}", node.kind());
        let hint = node.text().and_then(suggest::number_in);
        let report = self.report(Code::WrongType, node.at, message).label(label);
        report.help(hint.unwrap_or_default());
    }

    /// A string. Settings from outside need no quotes, even if they look like another type.
    pub(crate) fn text(&mut self, node: &Node, key: &str) -> Option<String> {
        match &node.raw {
            Raw::Text(text) => Some(text.clone()),
            _ if !self.is_file(node.at) => Some(self.texts.slice(node.at).to_owned()),
            _ => {
                self.wrong_type(node, key, "a string");
                None
            }
        }
    }

    /// `path` relative to the folder of the manifest that `at` is in.
    pub(crate) fn in_folder(&self, at: At, path: &std::path::Path) -> PathBuf {
        self.sources.folder(at).join(path)
    }

    pub(crate) fn is_file(&self, at: At) -> bool {
        self.texts.0[at.source as usize].is_file
    }

    /// A string with environment variables in it.
    pub(crate) fn expanded(&mut self, node: &Node, key: &str) -> Option<String> {
        let text = self.text(node, key)?;
        match variables::expand(&text, &self.sources.environment) {
            Ok(text) => Some(text),
            Err(unset) => {
                let at = self.texts.inside(node.at, &text, unset.span);
                self.report(Code::Variable, at, unset.message)
                    .help("give a default: `${NAME:-default}`");
                None
            }
        }
    }

    /// A path with environment variables in it; relative paths stay as they are.
    pub(crate) fn path(&mut self, node: &Node, key: &str) -> Option<PathBuf> {
        let text = self.expanded(node, key)?;
        if text.is_empty() {
            self.report(
                Code::OutOfBounds,
                node.at,
                format!("`{key}` is an empty path"),
            );
            return None;
        }
        Some(PathBuf::from(text))
    }

    pub(crate) fn boolean(&mut self, node: &Node, key: &str) -> Option<bool> {
        match node.raw {
            Raw::Bool(value) => Some(value),
            _ => {
                self.wrong_type(node, key, "true or false");
                None
            }
        }
    }

    /// An integer from `least` to `most`.
    pub(crate) fn integer(&mut self, node: &Node, key: &str, least: i64, most: i64) -> Option<i64> {
        match node.raw {
            Raw::Int(value) if (least..=most).contains(&value) => Some(value),
            Raw::Int(_) => {
                let message = format!("`{key}` is out of bounds");
                let label = if most == i64::MAX {
                    format!("must be at least {least}")
                } else {
                    format!("must be from {least} to {most}")
                };
                self.report(Code::OutOfBounds, node.at, message)
                    .label(label);
                None
            }
            _ => {
                self.wrong_type(node, key, "an integer");
                None
            }
        }
    }

    /// A count, at least one.
    pub(crate) fn count(&mut self, node: &Node, key: &str) -> Option<u32> {
        let value = self.integer(node, key, 1, i64::from(u32::MAX))?;
        u32::try_from(value).ok()
    }

    /// A number over zero, integer or float.
    pub(crate) fn positive(&mut self, node: &Node, key: &str) -> Option<f64> {
        let value = self.number(node, key)?;
        if value > 0.0 {
            return Some(value);
        }
        let message = format!("`{key}` is out of bounds");
        self.report(Code::OutOfBounds, node.at, message)
            .label("must be more than zero");
        None
    }

    pub(crate) fn number(&mut self, node: &Node, key: &str) -> Option<f64> {
        match node.raw {
            Raw::Int(value) => Some(value as f64),
            Raw::Float(value) => Some(value),
            _ => {
                self.wrong_type(node, key, "a number");
                None
            }
        }
    }

    /// One of the words of `W`.
    pub(crate) fn word<W: Word>(&mut self, node: &Node, key: &str) -> Option<W> {
        let text = self.text(node, key)?;
        let found = W::parse(&text);
        if found.is_none() {
            self.unknown_word(node.at, key, &text, W::WORDS.iter().map(|(word, _)| *word));
        }
        found
    }

    pub(crate) fn unknown_word<'a>(
        &mut self,
        at: At,
        key: &str,
        word: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) {
        if self.broken.contains(word) {
            return;
        }
        let known: Vec<&str> = known.into_iter().collect();
        let message = format!("`{key}` can't be `{word}`");
        let label = match known.is_empty() {
            true => "there are none here".to_owned(),
            false => format!("not one of: {}", known.join(" ")),
        };
        self.report(Code::UnknownWord, at, message)
            .label(label)
            .help(suggest::did_you_mean(word, known.iter().copied()));
    }

    /// Strings of a list, at least one; a single string is a list of one.
    pub(crate) fn words(&mut self, node: &Node, key: &str) -> Option<Vec<Spanned<String>>> {
        let items = self.items(node, key)?;
        let words: Vec<_> = items
            .iter()
            .filter_map(|item| {
                let value = self.text(item, key)?;
                Some(Spanned { value, at: item.at })
            })
            .collect();
        (words.len() == items.len()).then_some(words)
    }

    /// Items of a list; anything else is a list of one.
    pub(crate) fn items<'n>(&mut self, node: &'n Node, key: &str) -> Option<&'n [Node]> {
        match &node.raw {
            Raw::Array(items) if items.is_empty() => {
                let message = format!("`{key}` is an empty list");
                self.report(Code::EmptyAxis, node.at, message)
                    .label("needs at least one");
                None
            }
            Raw::Array(items) => Some(items),
            Raw::Table(_) => {
                self.wrong_type(node, key, "a list");
                None
            }
            _ => Some(std::slice::from_ref(node)),
        }
    }

    /// Words of `W` in a list, each once.
    pub(crate) fn word_list<W: Word>(&mut self, node: &Node, key: &str) -> Option<Vec<W>> {
        let mut found: Vec<W> = Vec::new();
        for item in self.items(node, key)? {
            let Some(word) = self.word::<W>(item, key) else {
                continue;
            };
            if found.contains(&word) {
                self.twice(item.at, key, word.word());
            } else {
                found.push(word);
            }
        }
        Some(found)
    }

    pub(crate) fn twice(&mut self, at: At, key: &str, word: &str) {
        let message = format!("`{word}` is listed twice in `{key}`");
        self.report(Code::Duplicate, at, message)
            .label("listed before");
    }

    /// Opens a table for reading.
    pub(crate) fn section<'n>(&mut self, node: &'n Node, path: &str) -> Option<Section<'n>> {
        match node.table() {
            Some(table) => Some(Section::new(table, node.at, path)),
            None => {
                self.wrong_type(node, path, "a table");
                None
            }
        }
    }
}

/// A table that is being read: keys that no reader asks for are unknown.
pub(crate) struct Section<'n> {
    pub(crate) table: &'n Table,
    pub(crate) at: At,
    pub(crate) path: String,
    asked: BTreeSet<&'static str>,
    /// Keys that no reader asked for are not further mistakes.
    is_abandoned: bool,
}

impl<'n> Section<'n> {
    pub(crate) fn new(table: &'n Table, at: At, path: &str) -> Self {
        Section {
            table,
            at,
            path: path.to_owned(),
            asked: BTreeSet::new(),
            is_abandoned: false,
        }
    }

    /// The key path of `key`.
    pub(crate) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// The value of `key`, if it is there; its origin is kept.
    pub(crate) fn take(&mut self, cx: &mut Context<'_>, key: &'static str) -> Option<&'n Node> {
        self.asked.insert(key);
        let entry = self.table.get(key)?;
        cx.provenance
            .note(&cx.texts, self.path_of(key), entry.value.at);
        Some(&entry.value)
    }

    /// The value of `key`, which must be there.
    pub(crate) fn need(&mut self, cx: &mut Context<'_>, key: &'static str) -> Option<&'n Node> {
        let found = self.take(cx, key);
        if found.is_none() {
            let message = match self.path.as_str() {
                "" => format!("the manifest has no `{key}`"),
                path => format!("`{path}` has no `{key}`"),
            };
            cx.report(Code::MissingKey, self.at, message)
                .label(format!("`{key}` is needed"));
        }
        found
    }

    /// What `reader` makes of the value of `key`, if it is there.
    pub(crate) fn read<'c, T>(
        &mut self,
        cx: &mut Context<'c>,
        key: &'static str,
        reader: impl FnOnce(&mut Context<'c>, &'n Node, &str) -> Option<T>,
    ) -> Option<T> {
        self.take(cx, key).and_then(|node| reader(cx, node, key))
    }

    /// What `reader` makes of the value of `key`, which may be missing; `None` if it is wrong.
    pub(crate) fn optional<'c, T>(
        &mut self,
        cx: &mut Context<'c>,
        key: &'static str,
        reader: impl FnOnce(&mut Context<'c>, &'n Node, &str) -> Option<T>,
    ) -> Option<Option<T>> {
        match self.take(cx, key) {
            Some(node) => reader(cx, node, key).map(Some),
            None => Some(None),
        }
    }

    /// The words of a key; none where it is not there.
    pub(crate) fn words(
        &mut self,
        cx: &mut Context<'_>,
        key: &'static str,
    ) -> Vec<Spanned<String>> {
        self.read(cx, key, Context::words).unwrap_or_default()
    }

    /// Entries that were not asked for.
    pub(crate) fn rest(&self) -> impl Iterator<Item = &'n Entry> {
        let entries = self.table.entries.iter();
        entries.filter(|entry| !self.asked.contains(entry.key.as_str()))
    }

    /// Leaves a table that is wrong as a whole: keys of it that are not read are not a second
    /// mistake.
    pub(crate) fn abandon(&mut self) {
        self.is_abandoned = true;
    }

    /// Reports keys that no reader asked for.
    pub(crate) fn finish(&self, cx: &mut Context<'_>) {
        let known: Vec<&str> = self.asked.iter().copied().collect();
        for entry in self.rest().filter(|_| !self.is_abandoned) {
            unknown_key(cx, &self.path, entry, &known);
        }
    }
}

/// Reports a key that the format does not have.
pub(crate) fn unknown_key(cx: &mut Context<'_>, path: &str, entry: &Entry, known: &[&str]) {
    let place = match path {
        "" => "at the top of the manifest".to_owned(),
        path => format!("in `{path}`"),
    };
    let message = format!("unknown key `{}` {place}", entry.key);
    let mut sorted = known.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let help = suggest::among(&entry.key, "keys here", &sorted);
    cx.report(Code::UnknownKey, entry.key_at, message)
        .label("not a key of the format")
        .help(help);
}
