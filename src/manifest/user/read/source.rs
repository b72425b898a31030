//! The source of a declared kernel, with the files that it includes.

use std::path::{Path, PathBuf};

use crate::files::includes::{DeclaredFile, SourceClosure};
use crate::files::sources::NamedFile;
use crate::grammar::section::{Context, Section};
use crate::text::diagnostics::Code;
use crate::text::texts::At;
use crate::text::tree::{Node, Raw, Table};
use crate::text::variables;
use crate::user::declaration::DeclaredLanguage;

/// The `directory` of a command that runs in its scratch folder.
pub(super) const IN_SCRATCH: &str = "{scratch}";

/// The key that runs write: the digest of each file of a source, by its path.
pub(super) const DIGESTS: &str = "digests";

/// A source that was read.
pub(super) struct Source {
    pub(super) language: DeclaredLanguage,
    pub(super) files: Vec<DeclaredFile>,
    /// Options of the compiler, for folders of includes.
    pub(super) options: Vec<String>,
}

/// The language that a backend's keys are those of: that of its source.
pub(super) fn language(section: &Section<'_>) -> DeclaredLanguage {
    let has = |key| section.table.get(key).is_some();
    match has("cuda") && !has("c") {
        true => DeclaredLanguage::Cuda,
        false => DeclaredLanguage::C,
    }
}

/// Reads a backend's source, and reports mistakes.
pub(super) fn source(cx: &mut Context<'_>, section: &mut Section<'_>) -> Option<Source> {
    let cuda = section.take(cx, "cuda");
    let c = section.take(cx, "c");
    let include = section.take(cx, "include");
    // A run's folder has copies of the files that are included, and not each folder.
    let is_copy = section.table.get(DIGESTS).is_some();
    let folders = include.map_or_else(Vec::new, |node| folders(cx, node, "include", !is_copy));
    let (node, key) = match (cuda, c) {
        (Some(node), None) => (node, "cuda"),
        (None, Some(node)) => (node, "c"),
        // Reported where sources were counted.
        (None, None) | (Some(_), Some(_)) => return None,
    };
    let path = cx.path(node, key)?;
    let path = cx.in_folder(node.at, &path);
    let closure = closure(cx, node, &path, &folders, section.table)?;
    if let Some(node) = section.take(cx, DIGESTS) {
        verify(cx, node, &closure.by_path().0)?;
    }
    let language = language(section);
    let (files, options) = match language {
        DeclaredLanguage::C => {
            let (files, folders) = closure.by_path();
            let folders = folders.iter().map(|folder| format!("-I{folder}"));
            (files, folders.collect())
        }
        DeclaredLanguage::Cuda => match closure.by_directive() {
            Ok(files) => (files, Vec::new()),
            Err(reason) => {
                cx.report(Code::Source, node.at, reason);
                return None;
            }
        },
    };
    Some(Source {
        language,
        files,
        options,
    })
}

/// Compares files with the digests that a run's manifest has: those of the compiled sources.
pub(super) fn verify(cx: &mut Context<'_>, node: &Node, files: &[DeclaredFile]) -> Option<()> {
    let digests = cx.section(node, DIGESTS)?.table;
    for file in files {
        let Some(entry) = digests.get(&file.name) else {
            continue;
        };
        let digest = file.digest().hex();
        if entry.value.text() != Some(&digest) {
            let message = format!("`{}` is not what was compiled for this run", file.name);
            cx.report(Code::Source, entry.value.at, message)
                .label(format!("its digest is {digest:.12} now"));
            return None;
        }
    }
    Some(())
}

/// The files of a source, all of which are there.
fn closure(
    cx: &mut Context<'_>,
    node: &Node,
    path: &Path,
    folders: &[PathBuf],
    backend: &Table,
) -> Option<SourceClosure> {
    let closure = match cx.sources.code(path, folders, backend) {
        Some(Ok(closure)) => closure.clone(),
        Some(Err(reason)) => {
            let message = format!("can't use the source: {reason}");
            cx.report(Code::Source, node.at, message)
                .help(PATHS_OF_MANIFEST);
            return None;
        }
        None => {
            let message = format!("the source `{}` was not read", path.display());
            cx.report(Code::Source, node.at, message);
            return None;
        }
    };
    let trust = backend.get("trust").map(|entry| &entry.value.raw);
    if matches!(trust, Some(Raw::Bool(false)))
        && let Some(name) = closure.stray()
    {
        let message = format!("the source includes \"{name}\", which lies outside of its folder");
        cx.report(Code::Source, node.at, message).help(
            "a source that nobody trusts includes files beside it, and those of `include`, alone",
        );
        return None;
    }
    if let Some((name, from)) = closure.missing() {
        let message = format!("`{from}` includes \"{name}\", which is not there");
        cx.report(Code::Source, node.at, message)
            .help(
                "it is looked for beside the file that includes it, then in the folders of `include`",
            )
            .help("a header of the compiler or the system stands in `<>`");
        return None;
    }
    Some(closure)
}

/// What helps where a path leads nowhere.
pub(super) const PATHS_OF_MANIFEST: &str = "paths are relative to the manifest";

/// A file that a manifest names; one that can't be used is reported.
pub(super) fn named_file(
    cx: &mut Context<'_>,
    at: At,
    path: &Path,
    help: &str,
) -> Option<NamedFile> {
    let reason = match cx.sources.file(path) {
        Some(Ok(file)) => return Some(file.clone()),
        Some(Err(reason)) => reason.clone(),
        None => "it was not read".to_owned(),
    };
    let message = format!("can't use the file `{}`: {reason}", path.display());
    cx.report(Code::Source, at, message).help(help);
    None
}

/// True for a folder that is there; any other is reported at its place.
pub(super) fn is_folder(cx: &mut Context<'_>, at: At, folder: &Path) -> bool {
    // The folder of a manifest in the current one has an empty path.
    let is_there = folder.as_os_str().is_empty() || folder.is_dir();
    if !is_there {
        let message = format!("there is no folder `{}`", folder.display());
        cx.report(Code::Source, at, message).help(PATHS_OF_MANIFEST);
    }
    is_there
}

/// The folders of a key, relative to the manifest; those that are not there are reported where they
/// must be.
pub(super) fn folders(
    cx: &mut Context<'_>,
    node: &Node,
    key: &'static str,
    must_be_there: bool,
) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for word in cx.words(node, key).unwrap_or_default() {
        match variables::expand(&word.value, &cx.sources.environment) {
            Ok(text) => {
                let folder = cx.in_folder(word.at, text.as_ref());
                if must_be_there {
                    is_folder(cx, word.at, &folder);
                }
                found.push(folder);
            }
            Err(unset) => {
                let at = cx.texts.inside(word.at, &word.value, unset.span);
                cx.report(Code::Variable, at, unset.message)
                    .help("give a default: `${NAME:-default}`");
            }
        }
    }
    found
}

/// A folder that a manifest names, absolute.
pub(super) fn folder(cx: &Context<'_>, at: At, path: &Path) -> Option<String> {
    let folder = cx.in_folder(at, path);
    let folder = std::path::absolute(match folder.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => folder,
    });
    let folder = folder.ok()?;
    Some(folder.to_string_lossy().into_owned())
}
