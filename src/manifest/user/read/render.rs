//! Declared tables as TOML again, with paths that hold wherever the text is read.

use std::path::Path;

use super::inputs_from::{INPUTS_FROM, parts};
use super::kernelbench::{KERNELBENCH, MODEL};
use super::keys::{BACKENDS, FILE, JUDGE, PYTHON, REFERENCE, WORKLOAD};
use super::python::PythonSettings;
use super::source::DIGESTS;
use crate::files::includes::DeclaredFile;
use crate::files::python::places_of_module;
use crate::grammar::keys::{Key, is_path};
use crate::grammar::section::Context;
use crate::text::tree::{Entry, Node, Raw, Table};
use crate::text::variables;
use sweeper_model::toml_text;

/// Keys with their values as TOML.
type Keys = Vec<(&'static str, String)>;

/// Copies of files, and the keys that name them.
type Copies = (Keys, Vec<DeclaredFile>);

/// A table of a declaration, as it is printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeclaredTable {
    /// Its header without brackets, such as `backend.add`.
    pub(crate) path: String,
    /// Keys with their values as TOML.
    pub(crate) keys: Vec<(String, String)>,
    /// The values of some of these keys in a run's folder, which holds copies of sources.
    pub(crate) in_run: Keys,
    /// The copies, by their paths below a run's folder.
    pub(crate) copies: Vec<DeclaredFile>,
}

/// The folder of a run's folder that holds copies of sources.
const COPIES: &str = "sources";

/// The table of a backend.
pub(super) fn backend(
    cx: &mut Context<'_>,
    entry: &Entry,
    settings: &PythonSettings,
) -> DeclaredTable {
    let copies = match python_copies(cx, entry, settings) {
        Some(copies) => copies,
        None => copies(cx, entry).unwrap_or_default(),
    };
    rendered(
        cx,
        &format!("backend.{}", entry.key),
        &BACKENDS,
        entry,
        copies,
    )
}

/// The table of a workload.
pub(super) fn workload(
    cx: &mut Context<'_>,
    entry: &Entry,
    settings: &PythonSettings,
) -> DeclaredTable {
    let path = format!("workload.{}", entry.key);
    let parts = PARTS.map(|key| (key, part_of_check(cx, entry, key, settings)));
    let mut copies = Vec::new();
    let mut in_run: Vec<(&str, Keys)> = Vec::new();
    for (key, (keys, files)) in parts {
        in_run.push((key, keys));
        copies.extend(files);
    }
    let own = python_copies(cx, entry, settings);
    let (mut of_run, own) = own.unwrap_or_default();
    copies.extend(own);
    let maker = maker(cx, entry, settings);
    if let Some((_, keys, files)) = &maker {
        of_run.push((INPUTS_FROM, keys.clone()));
        copies.extend(files.iter().cloned());
    }
    let check_at = check_of(entry);
    of_run.extend(check_at.map(|node| ("check", check(cx, node, &in_run))));
    let mut table = rendered(cx, &path, &[WORKLOAD], entry, (of_run, copies));
    if let Some(node) = check_at {
        set(&mut table.keys, "check", check(cx, node, &[]));
    }
    if let Some((keys, ..)) = maker {
        set(&mut table.keys, INPUTS_FROM, keys);
    }
    table
}

/// The function that makes a workload's inputs, as it is printed and as a run has it, and the
/// copies of its source.
fn maker(
    cx: &mut Context<'_>,
    entry: &Entry,
    settings: &PythonSettings,
) -> Option<(String, String, Vec<DeclaredFile>)> {
    let node = entry.value.get(INPUTS_FROM)?;
    let function = match node.table() {
        Some(table) => table.value("entry")?.text()?,
        None => parts(node.text()?)?.1,
    };
    let main = super::inputs_from::main_file(cx, node)?;
    let shown = |keys: Keys| {
        let function = ("entry", toml_text::string(function));
        toml_text::inline(keys.into_iter().chain([function]))
    };
    let path = ("python", toml_text::string(&super::python::text_of(&main)));
    let folder = format!("{}.{INPUTS_FROM}", entry.key);
    let (keys, files) = copies_of_file(cx, ("python", &main), &folder, settings)?;
    Some((shown(vec![path]), shown(keys), files))
}

/// The table `check` of a workload.
fn check_of(entry: &Entry) -> Option<&Node> {
    entry
        .value
        .get("check")
        .filter(|node| node.table().is_some())
}

/// Such a table as TOML, in which keys of its parts have other values where these are given.
fn check(cx: &Context<'_>, node: &Node, others: &[(&str, Keys)]) -> String {
    let entries = node.entries().iter();
    toml_text::inline(entries.map(|entry| {
        let others = others.iter().find(|(key, _)| *key == entry.key);
        let others = others.map_or(&[][..], |(_, keys)| keys);
        let shown = match entry.value.table() {
            Some(table) if PARTS.contains(&&*entry.key) => part(cx, table, others),
            _ => value(cx, &entry.value, false),
        };
        (&*entry.key, shown)
    }))
}

/// Parts of a check that may name files.
const PARTS: [&str; 2] = ["reference", "judge"];

fn part(cx: &Context<'_>, table: &Table, others: &[(&'static str, String)]) -> String {
    let own = table.entries.iter().map(|entry| {
        let is_path = is_path(&[REFERENCE, FILE, JUDGE], &entry.key);
        (entry.key.as_str(), value(cx, &entry.value, is_path))
    });
    let own = own.filter(|(key, _)| others.iter().all(|(other, _)| key != other));
    let others = others.iter().map(|(key, text)| (*key, text.clone()));
    toml_text::inline(own.chain(others))
}

/// The copies of a part's source in Python, and the keys that name them; of files with right
/// outputs, which are not copied, the digests.
fn part_of_check(
    cx: &mut Context<'_>,
    entry: &Entry,
    key: &str,
    settings: &PythonSettings,
) -> Copies {
    let part = check_of(entry).and_then(|check| check.get(key)?.table());
    let Some(part) = part else {
        return Default::default();
    };
    if let Some(source) = part.value("python") {
        let folder = format!("{}.{key}", entry.key);
        let copies = copies_of_function(cx, ("python", source), &folder, settings);
        return copies.unwrap_or_default();
    }
    let digests = part.value("file").and_then(|file| {
        let path = cx.path(file, "file")?;
        let path = cx.in_folder(file.at, &path);
        let found = cx.sources.expected(&path)?.as_ref().ok()?;
        let files = found.files.iter();
        let files = files.map(|file| (&*file.name, file.sha256.clone()));
        Some((DIGESTS, digests(files)))
    });
    (digests.into_iter().collect(), Vec::new())
}

/// The table `[python]`.
pub(super) fn settings(cx: &mut Context<'_>, entry: &Entry) -> Option<DeclaredTable> {
    entry.value.table()?;
    Some(rendered(cx, "python", &[PYTHON], entry, Default::default()))
}

/// The table of an entry.
fn rendered(
    cx: &mut Context<'_>,
    path: &str,
    tables: &[&[Key]],
    entry: &Entry,
    (in_run, copies): Copies,
) -> DeclaredTable {
    let keys = entry.value.entries().iter().map(|entry| {
        let is_word = entry.key == KERNELBENCH && entry.value.text() == Some(MODEL);
        let is_path = is_path(tables, &entry.key) && !is_word;
        (entry.key.clone(), value(cx, &entry.value, is_path))
    });
    let mut keys: Vec<(String, String)> = keys.collect();
    if let Some(table) = entry.value.table() {
        place(cx, table, &mut keys);
    }
    DeclaredTable {
        path: path.to_owned(),
        keys,
        in_run,
        copies,
    }
}

/// Makes the keys of a command hold wherever they are read: its program's path, where it runs, and
/// the digests of its files, which are not copied to a run's folder.
fn place(cx: &mut Context<'_>, table: &Table, keys: &mut Vec<(String, String)>) {
    let Some(command) = table.value("command") else {
        return;
    };
    let Some(files) = super::command_files::command_files(cx, table) else {
        return;
    };
    if let Raw::Array(items) = &command.raw {
        let program = toml_text::string(&files.program);
        let arguments = items.iter().skip(1).map(|item| value(cx, item, false));
        let command = toml_text::list(std::iter::once(program).chain(arguments));
        set(keys, "command", command);
    }
    let has = |key| keys.iter().any(|(held, _)| held == key);
    if !has("directory")
        && let Some(folder) = super::source::folder(cx, command.at, Path::new(""))
    {
        set(keys, "directory", toml_text::string(&folder));
    }
    if files.digests().next().is_some() {
        let files = files
            .digests()
            .map(|(name, digest)| (name, digest.to_owned()));
        set(keys, DIGESTS, digests(files));
    }
}

fn set(keys: &mut Vec<(String, String)>, key: &str, value: String) {
    match keys.iter_mut().find(|(held, _)| held == key) {
        Some((_, held)) => *held = value,
        None => keys.push((key.to_owned(), value)),
    }
}

/// The copies of a backend's source, and the keys that name them.
fn copies(cx: &mut Context<'_>, entry: &Entry) -> Option<Copies> {
    let table = entry.value.table()?;
    let (key, node) = ["cuda", "c"]
        .into_iter()
        .find_map(|key| Some((key, table.value(key)?)))?;
    let include = table.value("include");
    let folders = include.map_or_else(Vec::new, |node| {
        super::source::folders(cx, node, "include", false)
    });
    let path = cx.path(node, key)?;
    let path = cx.in_folder(node.at, &path);
    let closure = cx.sources.code(&path, &folders, table)?.as_ref().ok()?;
    let (files, folders) = closure.by_path();
    Some(copied(files, &folders, key, &entry.key))
}

/// The copies of a function's source, and the keys that name them. A copy lies where its module is
/// found from the folder of the main file.
fn python_copies(cx: &mut Context<'_>, entry: &Entry, settings: &PythonSettings) -> Option<Copies> {
    let table = entry.value.table()?;
    if let Some(module) = table.value("module") {
        let name = cx.text(module, "module")?;
        let main = match table.value("python") {
            Some(file) => Some(super::python::main_file(cx, file)?),
            None => None,
        };
        let folders = places_of_module(&name, main.as_deref(), &settings.folders);
        let found = cx.sources.module(&name, &folders)?.as_ref().ok()?;
        return Some(copied(found.by_path(), &[], "python", &entry.key));
    }
    let mut keys = ["python", KERNELBENCH].into_iter();
    let source = keys.find_map(|key| Some((key, table.value(key)?)))?;
    copies_of_function(cx, source, &entry.key, settings)
}

/// The copies of the source that `node` names in a folder of this name, and the keys that name
/// them.
fn copies_of_function(
    cx: &mut Context<'_>,
    (key, node): (&'static str, &Node),
    folder: &str,
    settings: &PythonSettings,
) -> Option<Copies> {
    let main = super::python::main_file(cx, node)?;
    copies_of_file(cx, (key, &main), folder, settings)
}

/// The copies of the source at a path.
fn copies_of_file(
    cx: &Context<'_>,
    (key, main): (&'static str, &Path),
    folder: &str,
    settings: &PythonSettings,
) -> Option<Copies> {
    let found = cx.sources.python(main, &settings.folders)?.as_ref().ok()?;
    Some(copied(found.by_path(), &[], key, folder))
}

/// The copies of files in a folder of this name, and the keys that name them: `key` the first, and
/// `include` folders.
fn copied(files: Vec<DeclaredFile>, folders: &[String], key: &'static str, folder: &str) -> Copies {
    let folder = sweeper_model::files::short_name(folder);
    let below = |name: &str| format!("{COPIES}/{folder}/{name}");
    let main = files.first().map_or("", |file| &file.name);
    let mut keys = vec![(key, toml_text::string(&below(main)))];
    if !folders.is_empty() {
        let folders = folders
            .iter()
            .map(|folder| toml_text::string(&below(folder)));
        keys.push(("include", toml_text::list(folders)));
    }
    keys.push((DIGESTS, digests_of(&files)));
    let copy = |file: DeclaredFile| DeclaredFile {
        name: below(&file.name),
        text: file.text,
    };
    (keys, files.into_iter().map(copy).collect())
}

/// The digest of each file, as an inline table.
fn digests<'f>(files: impl Iterator<Item = (&'f str, String)>) -> String {
    toml_text::inline(files.map(|(name, digest)| (name, toml_text::string(&digest))))
}

/// The digest of each file of a source.
fn digests_of(files: &[DeclaredFile]) -> String {
    digests(files.iter().map(|file| (&*file.name, file.digest().hex())))
}

fn value(cx: &Context<'_>, node: &Node, is_path: bool) -> String {
    match &node.raw {
        Raw::Bool(value) => value.to_string(),
        Raw::Int(value) => value.to_string(),
        Raw::Float(value) => toml_text::float(*value),
        Raw::Text(text) if is_path && text != super::source::IN_SCRATCH => {
            // A variable may hold an absolute path.
            let expanded = variables::expand(text, &cx.sources.environment);
            let expanded = expanded.ok().filter(|path| Path::new(path).is_absolute());
            let path = cx.in_folder(node.at, expanded.as_ref().unwrap_or(text).as_ref());
            let path = std::path::absolute(&path).unwrap_or(path);
            toml_text::string(&path.to_string_lossy())
        }
        Raw::Text(text) => toml_text::string(text),
        Raw::Date => cx.texts.slice(node.at).to_owned(),
        Raw::Array(items) => {
            let items = items.iter().map(|item| value(cx, item, is_path));
            toml_text::list(items)
        }
        Raw::Table(table) => {
            let entries = table.entries.iter();
            toml_text::inline(entries.map(|entry| (&*entry.key, value(cx, &entry.value, is_path))))
        }
    }
}
