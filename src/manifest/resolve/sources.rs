//! The edge of the manifest stage: what a manifest refers to is read here, and nothing of it later.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::like;
use super::overrides::Overrides;
use crate::files::expected;
use crate::files::includes::SourceClosure;
use crate::files::python::{PythonFiles, places_of_module};
use crate::files::sources::{CodeKey, InputFile, NamedFile, Sources, ValueTable, options};
use crate::text::diagnostics::{Code, Diagnostic, Diagnostics};
use crate::text::suggest;
use crate::text::texts::{At, Text};
use crate::text::tree::{self, Node, Raw, Table};
use crate::text::variables;
use crate::user::read::{COMMAND_SOURCES, INPUTS_FROM, parts, scripts};
use sweeper_model::files;
use sweeper_model::identity::Digest;

/// A manifest is text that people write: nothing over this size is read.
const MAX_BYTES: u64 = 100_000_000;

impl Sources {
    /// Reads the manifest at `path` and everything it refers to.
    ///
    /// # Errors
    /// If the manifest, or one that it extends, can't be read. Any other missing file is reported
    /// by `Manifest::resolve`, with its place.
    pub fn read(path: &Path) -> Result<Self, Diagnostics> {
        let mut sources = Sources::default();
        let mut seen = Vec::new();
        let mut next = path.to_owned();
        let mut asked_by = None;
        loop {
            let text = match read_text(&next) {
                Ok(text) => text,
                Err(diagnostic) => return Err(sources.with_place(*diagnostic, asked_by).into()),
            };
            let identity = fs::canonicalize(&next).unwrap_or_else(|_| next.clone());
            if seen.contains(&identity) {
                let message = format!("`{}` extends itself", next.display());
                let diagnostic = Diagnostic::new(Code::ExtendsCycle, message);
                return Err(sources.with_place(diagnostic, asked_by).into());
            }
            seen.push(identity);
            let Some((base, at)) = sources.add(&next, text) else {
                break;
            };
            asked_by = Some(at);
            next = base;
        }
        if sources.texts.0.len() > 1 {
            // Keys of one table may stand in several texts.
            sources.note_merged(&Overrides::new());
        }
        Ok(sources)
    }

    /// Sources of a text that is not a file; paths in it are relative to the current folder.
    pub fn from_text(name: &str, text: &str) -> Self {
        let mut sources = Sources::default();
        sources.add(Path::new(name), text.to_owned());
        sources
    }

    /// Reads the files and variables that the manifest refers to once it has settings from outside.
    /// Their relative paths are those of the current folder.
    pub fn read_for(&mut self, overrides: &Overrides) {
        if overrides.iter().len() > 0 {
            self.note_merged(overrides);
        }
    }

    fn note_merged(&mut self, overrides: &Overrides) {
        // The mistakes of one that can't be read are reported when it is resolved.
        if let Some(root) = super::merged(self, overrides) {
            self.note_all(&root);
        }
    }

    /// The path that a text is, with variables; none where it is not text.
    fn expanded(&mut self, node: &Node) -> Option<PathBuf> {
        let text = node.text()?;
        self.note_variables(text);
        let text = variables::expand(text, &self.environment);
        Some(self.folder(node.at).join(text.unwrap_or_default()))
    }

    /// The paths that a text or the texts of a list are, with variables.
    fn all_expanded(&mut self, node: &Node) -> Vec<PathBuf> {
        let items = node.items().iter();
        items.filter_map(|item| self.expanded(item)).collect()
    }

    /// Reads the sources in Python that `[backend.Y]` tables and checks of `[workload.X]` tables
    /// name.
    fn note_python(&mut self, node: &Node) {
        let Some(root) = node.table() else { return };
        let python = root.value("python").and_then(Node::table);
        let folders = python.and_then(|table| table.get("path"));
        let folders = folders.map(|entry| self.all_expanded(&entry.value));
        let folders = folders.unwrap_or_default();
        let functions = ["reference", "judge"].into_iter();
        let functions = functions.flat_map(|key| tables_of_checks(node, key));
        let tables = ["backend", "workload"].into_iter();
        let tables = tables.flat_map(|key| tables_below(node, key));
        for table in tables.chain(functions) {
            let module = table.value("module").and_then(Node::text);
            let file = table.get("python").or_else(|| table.get("kernelbench"));
            match (file, module) {
                (file, Some(name)) => {
                    let main = file.and_then(|file| self.expanded(&file.value));
                    self.note_module(name, main.as_deref(), &folders);
                }
                (Some(file), None) => self.note_python_file(&file.value, &folders),
                (None, None) => {}
            }
        }
        let makers = tables_below(node, "workload");
        for maker in makers.filter_map(|table| table.get(INPUTS_FROM)) {
            let maker = &maker.value;
            let file = match maker.table() {
                Some(table) => table.get("python").map(|entry| entry.value.clone()),
                None => maker.text().and_then(parts).map(|(file, _)| Node {
                    at: maker.at,
                    raw: Raw::Text(file.to_owned()),
                }),
            };
            if let Some(file) = file {
                self.note_python_file(&file, &folders);
            }
        }
    }

    /// Reads a module, which may be that of a file.
    fn note_module(&mut self, name: &str, main: Option<&Path>, folders: &[PathBuf]) {
        let folders = places_of_module(name, main, folders);
        let read = || PythonFiles::read_module(name, &folders);
        let key = (name.to_owned(), folders.clone());
        self.modules.entry(key).or_insert_with(read);
    }

    /// Reads a source in Python.
    fn note_python_file(&mut self, file: &Node, folders: &[PathBuf]) {
        if let Some(main) = self.expanded(file) {
            let read = || PythonFiles::read(&main, folders);
            let key = (main.clone(), folders.to_vec());
            self.python.entry(key).or_insert_with(read);
        }
    }

    /// Reads the files that `[workload.X.files]` tables name.
    fn note_files(&mut self, root: &Node) {
        for workload in tables_below(root, "workload") {
            for entry in workload.value("files").map_or(&[][..], Node::entries) {
                let file = self.expanded(&entry.value);
                file.into_iter().for_each(|file| self.note_file(file));
            }
        }
    }

    /// Reads the files of right outputs that `[workload.X]` tables name.
    fn note_expected(&mut self, root: &Node) {
        let references = tables_of_checks(root, "reference");
        for file in references.filter_map(|reference| reference.get("file")) {
            if let Some(path) = self.expanded(&file.value) {
                let read = || expected::read(&path);
                self.expected.entry(path.clone()).or_insert_with(read);
            }
        }
    }

    fn note_file(&mut self, path: PathBuf) {
        let file = || read_file(&path);
        self.files.entry(path.clone()).or_insert_with(file);
    }

    /// Reads the sources that `[backend.Y]` tables name, and the programs of commands.
    fn note_code(&mut self, root: &Node) {
        for backend in tables_below(root, "backend") {
            self.note_command(backend);
            let folders = backend.get("include");
            let folders = folders.map(|entry| self.all_expanded(&entry.value));
            let folders = folders.unwrap_or_default();
            for source in ["cuda", "c"].iter().filter_map(|key| backend.get(key)) {
                if let Some(main) = self.expanded(&source.value) {
                    let key = (main, folders.clone(), options(backend));
                    let read = |key: &CodeKey| SourceClosure::read(&key.0, &key.1, &key.2);
                    self.code.entry(key).or_insert_with_key(read);
                }
            }
        }
    }

    /// Reads the files that a command is made of, if a backend is one.
    fn note_command(&mut self, backend: &Table) {
        let Some(Raw::Array(items)) = backend.value("command").map(|node| &node.raw) else {
            return;
        };
        let Some((node, name)) = items.first().and_then(|node| Some((node, node.text()?))) else {
            return;
        };
        self.note_variables(name);
        let name = variables::expand(name, &self.environment).unwrap_or_default();
        if let Some(program) = files::program(Path::new(&name), self.folder(node.at)) {
            self.note_file(program);
        }
        let paths = match backend.get(COMMAND_SOURCES) {
            Some(named) => self.all_expanded(&named.value),
            None => scripts(backend, |node| {
                let text = node.text()?;
                self.note_variables(text);
                let text = variables::expand(text, &self.environment).ok()?;
                Some((text, self.folder(node.at).to_owned()))
            }),
        };
        for path in paths {
            self.note_file(path);
        }
    }

    /// Adds a text and the files that it names; returns the manifest that it extends, with its
    /// place.
    fn add(&mut self, path: &Path, text: String) -> Option<(PathBuf, At)> {
        let source = self.texts.0.len();
        let name = path.display().to_string();
        self.texts.0.push(Text::new(name, text, true));
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        self.folders.push(folder);
        let mut root = tree::parse(&self.texts, source, &mut Diagnostics::default());
        // Its mistakes are reported when the manifest is resolved.
        let _ = like::expand(&mut root);
        self.note_all(&root);
        let base = root.get("extends")?;
        Some((self.folder(base.at).join(base.text()?), base.at))
    }

    /// Reads the files and variables that a manifest refers to.
    fn note_all(&mut self, root: &Node) {
        root.walk("", &mut |key, node| self.note(key, node));
        self.note_code(root);
        self.note_files(root);
        self.note_expected(root);
        self.note_python(root);
    }

    /// Reads the files and variables that a value refers to, if any.
    fn note(&mut self, key: &str, node: &Node) {
        let Some(text) = node.text() else { return };
        self.note_variables(text);
        let Ok(text) = variables::expand(text, &self.environment) else {
            return;
        };
        let path = self.folder(node.at).join(text);
        match key {
            "csv" => {
                let table = || read_table(&path);
                self.tables.entry(path.clone()).or_insert_with(table);
            }
            "inputs" => self.note_input(path),
            _ => {}
        }
    }

    fn note_input(&mut self, path: PathBuf) {
        let file = || read_input(&path);
        self.inputs.entry(path.clone()).or_insert_with(file);
    }

    fn note_variables(&mut self, text: &str) {
        for name in variables::names(text) {
            if let Ok(value) = std::env::var(name) {
                self.environment.entry(name.to_owned()).or_insert(value);
            }
        }
    }

    fn with_place(&self, diagnostic: Diagnostic, at: Option<At>) -> Diagnostic {
        match at {
            Some(at) => diagnostic.at(self.texts.place(at)).label("extended here"),
            None => diagnostic,
        }
    }
}

fn read_text(path: &Path) -> Result<String, Box<Diagnostic>> {
    let shown = path.display();
    let failed = |error: io::Error| {
        Box::new(match error.kind() {
            io::ErrorKind::NotFound => not_found(path),
            _ => Diagnostic::new(Code::Unreadable, format!("can't read `{shown}`: {error}")),
        })
    };
    let metadata = fs::metadata(path).map_err(failed)?;
    if metadata.is_dir() {
        let message = format!("`{shown}` is a directory, not a manifest");
        let diagnostic = Diagnostic::new(Code::Directory, message);
        return Err(Box::new(diagnostic.help(manifests_in(path))));
    }
    let file = files::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        let message = format!("`{shown}` is over 100 MB, which no manifest is");
        return Err(Box::new(Diagnostic::new(Code::TooLarge, message)));
    }
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        let message = format!("`{shown}` is not UTF-8 text (byte {offset})");
        let diagnostic = Diagnostic::new(Code::NotText, message);
        Box::new(diagnostic.help("a manifest is TOML text; is this another kind of file?"))
    })
}

fn not_found(path: &Path) -> Diagnostic {
    let message = format!("there is no manifest `{}`", path.display());
    let wanted = path.file_stem().unwrap_or_default().to_string_lossy();
    let folders = [
        path.parent().unwrap_or(Path::new("")),
        Path::new("manifests"),
    ];
    let mut found: Vec<String> = Vec::new();
    for folder in folders {
        for file in toml_files(folder) {
            let stem = Path::new(&file)
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy();
            if suggest::similar(&wanted, &stem) && !found.contains(&file) {
                found.push(file);
            }
        }
    }
    let diagnostic = Diagnostic::new(Code::NotFound, message);
    if !found.is_empty() {
        return diagnostic.help(format!("did you mean `{}`?", found.join("` or `")));
    }
    let known = manifests_in(Path::new("manifests"));
    if known.is_empty() {
        return diagnostic.help("`sweeper init` writes a manifest to start from");
    }
    diagnostic.help(known)
}

/// Manifests of a folder that are named where another is missing.
const MOST_NAMED: usize = 6;

fn manifests_in(folder: &Path) -> String {
    match toml_files(folder).as_slice() {
        [] => String::new(),
        files if files.len() <= MOST_NAMED => format!("manifests there: {}", files.join(" ")),
        files => format!(
            "there are {} in `{}`, such as {}; `sweeper run` alone offers some by the question that each answers",
            files.len(),
            folder.display(),
            files[..MOST_NAMED].join(" ")
        ),
    }
}

/// Paths of the TOML files in a folder, sorted; none if it can't be read.
fn toml_files(folder: &Path) -> Vec<String> {
    let place = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .map(|entry| folder.join(entry.file_name()))
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .map(|path| path.display().to_string())
        .collect();
    files.sort();
    files
}

fn read_table(path: &Path) -> Result<ValueTable, String> {
    let bytes = files::read(path).map_err(|error| error.to_string())?;
    let digest = Digest::from_bytes(Sha256::digest(&bytes).into());
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_reader(&*bytes);
    let cells = |record: &csv::StringRecord| record.iter().map(str::to_owned).collect::<Vec<_>>();
    let header = cells(reader.headers().map_err(|error| error.to_string())?);
    let rows = reader
        .records()
        .map(|record| record.map(|record| cells(&record)))
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    Ok(ValueTable {
        digest,
        header,
        rows,
    })
}

fn read_file(path: &Path) -> Result<NamedFile, String> {
    let InputFile { path, digest } = read_input(path)?;
    let metadata = fs::metadata(&path).map_err(|error| error.to_string())?;
    Ok(NamedFile {
        path,
        digest,
        bytes: metadata.len(),
    })
}

/// The tables below a key of the manifest, whatever their names.
fn tables_below<'n>(root: &'n Node, key: &str) -> impl Iterator<Item = &'n Table> {
    let entries = root.get(key).map_or(&[][..], Node::entries).iter();
    entries.filter_map(|entry| entry.value.table())
}

/// The tables under a key of the checks of workloads.
fn tables_of_checks<'n>(root: &'n Node, key: &'static str) -> impl Iterator<Item = &'n Table> {
    let below = |table: &'n Table, key| table.value(key)?.table();
    let workloads = tables_below(root, "workload");
    workloads.filter_map(move |workload| below(below(workload, "check")?, key))
}

fn read_input(path: &Path) -> Result<InputFile, String> {
    let digest = files::digest(path).map_err(|error| error.to_string())?;
    let path = std::path::absolute(path).map_err(|error| error.to_string())?;
    Ok(InputFile { path, digest })
}
