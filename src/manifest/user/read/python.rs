//! A backend that is a function in Python, and `[python]`, which says where such are executed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sweeper_program::Value;

use super::names::Names;
use super::python_arguments::{Reader, literal};
use super::source::{DIGESTS, folders};
use crate::files::python::{ArrayLibrary, PythonFiles, library_of, places_of_module};
use crate::grammar::section::{Context, Section, Spanned};
use crate::text::diagnostics::Code;
use crate::text::tree::{Node, Raw};
use crate::user::python::declaration::{InterpreterPlace, Load, PythonDeclaration, PythonSource};
use sweeper_model::expression::Scope;

/// The interpreter where none is said.
const INTERPRETER: &str = "python3";

/// Keys that only a function in Python has, beside that of its source.
pub(super) const SOURCES: [&str; 2] = ["python", "module"];

/// `[python]`.
#[derive(Clone, Debug)]
pub(super) struct PythonSettings {
    exe: String,
    /// Folders of modules.
    pub(super) folders: Vec<PathBuf>,
}

impl PythonSettings {
    pub(super) fn place(&self) -> InterpreterPlace {
        let folders = self.folders.iter();
        InterpreterPlace {
            exe: self.exe.clone(),
            folders: folders.map(|folder| text_of(folder)).collect(),
            folder: String::new(),
        }
    }
}

/// Reads `[python]`, if it is there.
pub(super) fn settings(cx: &mut Context<'_>, root: &mut Section<'_>) -> PythonSettings {
    let mut settings = PythonSettings {
        exe: INTERPRETER.to_owned(),
        folders: Vec::new(),
    };
    let Some(node) = root.take(cx, "python") else {
        return settings;
    };
    let Some(mut section) = cx.section(node, "python") else {
        return settings;
    };
    let exe = section.take(cx, "exe");
    if let Some(path) = exe.and_then(|node| Some((node.at, cx.path(node, "exe")?))) {
        settings.exe = exe_in(cx, path).to_string_lossy().into_owned();
    }
    if let Some(node) = section.take(cx, "path") {
        // A run's folder has copies of the modules; their own folders may be gone.
        settings.folders = folders(cx, node, "path", !has_copies(root));
    }
    section.finish(cx);
    settings
}

/// Whether sources are copies that a run has kept, which have digests.
fn has_copies(root: &Section<'_>) -> bool {
    let mut is_copy = false;
    for tables in ["backend", "workload"] {
        if let Some(entry) = root.table.get(tables) {
            let visit = &mut |key: &str, _: &Node| is_copy |= key == DIGESTS;
            entry.value.walk(tables, visit);
        }
    }
    is_copy
}

/// A name is looked for where programs are; a path is relative to the manifest.
fn exe_in(cx: &Context<'_>, (at, path): (crate::text::texts::At, PathBuf)) -> PathBuf {
    match path.components().count() {
        1 => path,
        _ => cx.in_folder(at, &path),
    }
}

/// Reads the keys of a function, and reports mistakes.
pub(super) fn python(
    cx: &mut Context<'_>,
    section: &mut Section<'_>,
    names: &Names,
    scope: &Scope,
    settings: &PythonSettings,
) -> Option<PythonDeclaration> {
    let source = source(cx, section, settings);
    let entry = section.need(cx, "entry");
    let entry = entry.and_then(|node| entry_of(cx, node));
    let reader = Reader { names, scope };
    let args = section.optional(cx, "args", |cx, node, key| reader.list(cx, node, key));
    let kwargs = section.optional(cx, "kwargs", |cx, node, _| reader.named(cx, node));
    let returns = section.words(cx, "returns");
    let returns = results(cx, returns, names);
    let arrays = section.read(cx, "arrays", Context::word);
    let torch_compile = section.optional(cx, "torch_compile", |cx, node, _| options(cx, node));
    let autograd = section.optional(cx, "autograd", |cx, node, _| reader.autograd(cx, node));
    let deterministic = section.read(cx, "deterministic", Context::boolean);
    let (source, place, library) = source?;
    let declaration = PythonDeclaration {
        place,
        source,
        entry: entry?,
        arrays: arrays.unwrap_or(library),
        args: args?.unwrap_or_default(),
        kwargs: kwargs?.unwrap_or_default(),
        returns: returns?,
        torch_compile: torch_compile?,
        autograd: autograd?,
        is_fickle: deterministic == Some(false),
        model: None,
    };
    is_sound(cx, section, names, &declaration).then_some(declaration)
}

/// The outputs that a function returns, each once, and `_` for others.
fn results(
    cx: &mut Context<'_>,
    words: Vec<Spanned<String>>,
    names: &Names,
) -> Option<Vec<String>> {
    let mut found: Vec<String> = Vec::new();
    let mut is_sound = true;
    for word in words {
        if word.value != "_" && !names.outputs.contains(&word.value) {
            let known = names.outputs.iter().map(String::as_str);
            cx.unknown_word(word.at, "returns", &word.value, known);
            is_sound = false;
        } else if word.value != "_" && found.contains(&word.value) {
            cx.twice(word.at, "returns", &word.value);
            is_sound = false;
        } else {
            found.push(word.value);
        }
    }
    is_sound.then_some(found)
}

/// Reads the source and the name of a function over NumPy arrays on the host, which has no
/// arguments yet; and the library whose arrays it takes if it need not take NumPy's.
pub(super) fn host_function(
    cx: &mut Context<'_>,
    section: &mut Section<'_>,
    settings: &PythonSettings,
) -> Option<(PythonDeclaration, ArrayLibrary)> {
    let found = section.need(cx, "python");
    let found = found.and_then(|node| verified(cx, section, node, settings));
    let entry = section.need(cx, "entry");
    let entry = entry.and_then(|node| entry_of(cx, node));
    let found = found?;
    let library = found.reference_library();
    Some((on_host(found, entry?, settings), library))
}

/// A function over NumPy arrays on the host, which has no arguments yet.
pub(super) fn on_host(
    found: PythonFiles,
    entry: String,
    settings: &PythonSettings,
) -> PythonDeclaration {
    let mut place = settings.place();
    place.folder = text_of(&found.folder);
    PythonDeclaration {
        place,
        source: PythonSource::Files {
            files: found.files,
            load: Load::All,
            module: None,
        },
        entry,
        arrays: ArrayLibrary::Numpy,
        args: Vec::new(),
        kwargs: Vec::new(),
        returns: Vec::new(),
        torch_compile: None,
        autograd: None,
        is_fickle: false,
        model: None,
    }
}

/// What the function of a table is sent of its source.
fn sent(section: &Section<'_>, found: PythonFiles) -> PythonFiles {
    let trust = section.table.value("trust").map(|node| &node.raw);
    match trust {
        Some(Raw::Bool(false)) => found.without_named(),
        _ => found,
    }
}

/// The files of the source that `node` names, which are those of the run if this is a run's.
pub(super) fn verified(
    cx: &mut Context<'_>,
    section: &mut Section<'_>,
    node: &Node,
    settings: &PythonSettings,
) -> Option<PythonFiles> {
    let main = main_file(cx, node)?;
    let found = files(cx, node, &main, &settings.folders)?;
    if let Some(node) = section.take(cx, DIGESTS) {
        super::source::verify(cx, node, &found.by_path())?;
    }
    Some(sent(section, found))
}

/// Reports keys that do not fit together.
fn is_sound(
    cx: &mut Context<'_>,
    section: &Section<'_>,
    names: &Names,
    declaration: &PythonDeclaration,
) -> bool {
    let mut results = names.outputs.iter();
    let is_result = |name: &String| {
        declaration.returns.contains(name) || declaration.arguments().any(|held| held.is_of(name))
    };
    let has_outputs = !names.outputs.is_empty() && !names.is_broken;
    if !results.any(is_result) && declaration.autograd.is_none() && has_outputs {
        let message = format!("`{}` yields no output", section.path);
        cx.report(Code::Declaration, section.at, message)
            .label("`returns = [...]` names what it returns, `args` what it gets to write into")
            .help(format!("outputs: {}", names.outputs.join(" ")));
        return false;
    }
    let is_torch = declaration.arrays == ArrayLibrary::Torch;
    for (key, is_there) in [
        ("torch_compile", declaration.torch_compile.is_some()),
        ("autograd", declaration.autograd.is_some()),
    ] {
        if is_there && !is_torch {
            let at = section
                .table
                .get(key)
                .map_or(section.at, |entry| entry.key_at);
            let message = format!("`{key}` is of PyTorch");
            cx.report(Code::Conflict, at, message)
                .help("`arrays = \"torch\"` says that the function takes its tensors");
            return false;
        }
    }
    true
}

pub(super) fn entry_of(cx: &mut Context<'_>, node: &Node) -> Option<String> {
    let text = cx.text(node, "entry")?;
    entry_named(cx, node, text)
}

/// A name of a function, with dots, that `node` has.
pub(super) fn entry_named(cx: &mut Context<'_>, node: &Node, text: String) -> Option<String> {
    let is_name = |part: &str| {
        let mut letters = part.chars();
        let first = letters
            .next()
            .is_some_and(|c| c == '_' || c.is_alphabetic());
        first && letters.all(|c| c == '_' || c.is_alphanumeric())
    };
    if text.split('.').all(is_name) {
        return Some(text);
    }
    let message = format!("`{text}` is not a name of a function");
    cx.report(Code::Name, node.at, message);
    None
}

/// Options of `torch.compile`.
pub(super) fn options(cx: &mut Context<'_>, node: &Node) -> Option<BTreeMap<String, Value>> {
    let table = cx.section(node, "torch_compile")?.table;
    let option = |entry: &crate::text::tree::Entry| {
        let Some(value) = literal(&entry.value) else {
            cx.wrong_type(
                &entry.value,
                &entry.key,
                "a number, a string, true or false",
            );
            return None;
        };
        Some((entry.key.clone(), value))
    };
    table.entries.iter().map(option).collect()
}

/// The main file that a backend's table names.
pub(super) fn main_file(cx: &mut Context<'_>, node: &Node) -> Option<PathBuf> {
    let path = cx.path(node, "python")?;
    Some(cx.in_folder(node.at, &path))
}

/// The source, where it is executed, and the library whose arrays it probably takes.
fn source(
    cx: &mut Context<'_>,
    section: &mut Section<'_>,
    settings: &PythonSettings,
) -> Option<(PythonSource, InterpreterPlace, ArrayLibrary)> {
    let file = section.take(cx, "python");
    let module = section.take(cx, "module");
    let optional = section.read(cx, "optional", Context::boolean);
    let load = section.take(cx, "load");
    let mut place = settings.place();
    let load = match load {
        None => Some(Load::All),
        Some(node) => cx.word(node, "load"),
    };
    match (file, module) {
        (Some(node), None) => {
            let main = main_file(cx, node)?;
            if optional == Some(true)
                && let Some(Err(reason)) = cx.sources.python(&main, &settings.folders)
            {
                let source = PythonSource::Missing(reason.clone());
                return Some((source, place, ArrayLibrary::Torch));
            }
            let found = verified(cx, section, node, settings)?;
            place.folder = text_of(&found.folder);
            let library = found.array_library();
            let source = PythonSource::Files {
                files: found.files,
                load: load?,
                module: None,
            };
            Some((source, place, library))
        }
        (file, Some(node)) => {
            let (source, library) = match module_of_user(cx, section, (node, file), settings)? {
                Ok(found) => {
                    place.folder = text_of(&found.folder);
                    let library = found.array_library();
                    let source = PythonSource::Files {
                        files: found.files,
                        load: load?,
                        module: found.module,
                    };
                    (source, library)
                }
                Err(installed) => {
                    let library = library_of([installed.as_str()].into_iter());
                    (PythonSource::Module(installed), library)
                }
            };
            Some((source, place, library))
        }
        // Reported where sources were counted.
        (None, None) => None,
    }
}

/// The module that `node` names, which `file` may be the file of; as an error its name where it is
/// of an installed package. None where a mistake was reported.
fn module_of_user(
    cx: &mut Context<'_>,
    section: &mut Section<'_>,
    (node, file): (&Node, Option<&Node>),
    settings: &PythonSettings,
) -> Option<Result<PythonFiles, String>> {
    let name = cx.text(node, "module")?;
    let main = match file {
        Some(file) => Some((file, main_file(cx, file)?)),
        None => None,
    };
    let path = main.as_ref().map(|(_, path)| path.as_path());
    let folders = places_of_module(&name, path, &settings.folders);
    let found = match (cx.sources.module(&name, &folders), main) {
        (Some(Ok(found)), _) => found.clone(),
        (Some(Err(reason)), _) => {
            let reason = format!("can't use the module: {reason}");
            cx.report(Code::Source, node.at, reason);
            return None;
        }
        (None, Some((file, path))) => {
            let message = format!("`{}` is not the file of `{name}`", path.display());
            cx.report(Code::Source, file.at, message)
                .help("the module `a.b` is the file `a/b.py` or `a/b/__init__.py`");
            return None;
        }
        (None, None) => return Some(Err(name)),
    };
    if let Some(node) = section.take(cx, DIGESTS) {
        super::source::verify(cx, node, &found.by_path())?;
    }
    Some(Ok(sent(section, found)))
}

pub(super) fn text_of(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.to_string_lossy().into_owned()
}

/// The files of a source, all of which were read.
pub(super) fn files(
    cx: &mut Context<'_>,
    node: &Node,
    main: &Path,
    folders: &[PathBuf],
) -> Option<PythonFiles> {
    let reason = match cx.sources.python(main, folders) {
        Some(Ok(found)) => return Some(found.clone()),
        Some(Err(reason)) => format!("can't use the source: {reason}"),
        None => format!("the source `{}` was not read", main.display()),
    };
    cx.report(Code::Source, node.at, reason)
        .help("paths are relative to the manifest");
    None
}
