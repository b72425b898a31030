//! The files that a command is made of: its program, and its scripts or the files of `sources`.

use std::path::{Path, PathBuf};

use super::source::{DIGESTS, IN_SCRATCH, PATHS_OF_MANIFEST, folder, named_file};
use crate::grammar::section::Context;
use crate::text::diagnostics::Code;
use crate::text::texts::At;
use crate::text::tree::{Node, Raw, Table};
use crate::text::variables;
use crate::user::command_declaration::CommandSource;
use sweeper_model::files;

/// The key of the files that a command is made of beside its program.
pub(crate) const COMMAND_SOURCES: &str = "sources";

/// The files of a command.
pub(super) struct CommandFiles {
    /// The program as it is started anywhere: a name that is looked for on `PATH`, or an absolute
    /// path.
    pub(super) program: String,
    /// SHA-256 of the program's file, where it is found.
    pub(super) program_sha256: Option<String>,
    /// The other files, in the manifest's order.
    pub(super) sources: Vec<CommandSource>,
}

impl CommandFiles {
    /// Each file's name or absolute path with its digest.
    pub(super) fn digests(&self) -> impl Iterator<Item = (&str, &str)> {
        let program = self.program_sha256.iter();
        let program = program.map(|digest| (self.program.as_str(), digest.as_str()));
        let sources = self.sources.iter();
        program.chain(sources.map(|source| (source.path.as_str(), source.sha256.as_str())))
    }

    fn digest(&self, name: &str) -> Option<&str> {
        let mut digests = self.digests();
        digests.find_map(|(held, digest)| (held == name).then_some(digest))
    }
}

/// The files of the command that a table has; mistakes are reported. Where the table is of a run's
/// manifest, files that it has no digest of were not part of that run's identity, and are left out.
pub(super) fn command_files(cx: &mut Context<'_>, table: &Table) -> Option<CommandFiles> {
    let command = table.value("command")?;
    let Raw::Array(items) = &command.raw else {
        return None;
    };
    let name = cx.expanded(items.first()?, "command")?;
    let place = cx.in_folder(command.at, Path::new(""));
    let path = files::program(Path::new(&name), &place);
    let file = path
        .as_ref()
        .and_then(|path| cx.sources.file(path)?.clone().ok());
    let program = match name.contains('/') {
        true => folder(cx, command.at, Path::new(&name))?,
        false => name,
    };
    let mut sources = sources(cx, table)?;
    if let Some(recorded) = table.get(DIGESTS) {
        let recorded = recorded.value.table();
        sources.retain(|source| recorded.is_some_and(|held| held.get(&source.path).is_some()));
    }
    Some(CommandFiles {
        program,
        program_sha256: file.map(|file| file.digest.hex()),
        sources,
    })
}

/// The files of a command, compared with the digests that a run's manifest has.
pub(super) fn checked_files(cx: &mut Context<'_>, table: &Table) -> Option<CommandFiles> {
    let found = command_files(cx, table)?;
    let Some(recorded) = table.get(DIGESTS) else {
        return Some(found);
    };
    let recorded = cx.section(&recorded.value, DIGESTS)?.table;
    for entry in &recorded.entries {
        let digest = found.digest(&entry.key);
        if entry.value.text() == digest {
            continue;
        }
        let kind = match entry.key == found.program {
            true => "program",
            false => "source",
        };
        let label = match digest {
            Some(digest) => format!("its digest is {digest:.12} now"),
            None => format!("there is no such {kind} now"),
        };
        let message = format!("`{}` is not the {kind} of this run", entry.key);
        cx.report(Code::Source, entry.value.at, message)
            .label(label);
        return None;
    }
    Some(found)
}

/// The files of `sources`, or else the scripts.
fn sources(cx: &mut Context<'_>, table: &Table) -> Option<Vec<CommandSource>> {
    let Some(named) = table.get(COMMAND_SOURCES) else {
        let environment = &cx.sources.environment;
        let scripts = scripts(table, |node| {
            let text = variables::expand(node.text()?, environment).ok()?;
            Some((text, cx.in_folder(node.at, Path::new(""))))
        });
        let at = table.get("directory").or(table.get("command"))?.value.at;
        let help = "`sources` names the files that a command is made of; `sources = []` none";
        let scripts = scripts.iter().map(|path| source(cx, at, path, help));
        return scripts.collect();
    };
    let Raw::Array(items) = &named.value.raw else {
        cx.wrong_type(&named.value, COMMAND_SOURCES, "a list of files");
        return None;
    };
    let read = items.iter().map(|node| {
        let path = cx.path(node, COMMAND_SOURCES)?;
        let path = cx.in_folder(node.at, &path);
        source(cx, node.at, &path, PATHS_OF_MANIFEST)
    });
    // All that can't be used are reported.
    let read: Vec<Option<CommandSource>> = read.collect();
    read.into_iter().collect()
}

fn source(cx: &mut Context<'_>, at: At, path: &Path, help: &str) -> Option<CommandSource> {
    let file = named_file(cx, at, path, help)?;
    Some(CommandSource {
        path: file.path.to_string_lossy().into_owned(),
        sha256: file.digest.hex(),
    })
}

/// The files that first arguments of a table's commands name, such as scripts of interpreters: of
/// the command itself, of those that prepare it, and of the one that checks it. Such an argument
/// has no expressions and is a file where the command runs; a word without `/` and `.` is one if
/// the file is a text. `expand` gives a text with its
/// variables replaced, and the folder that it is relative to.
pub(crate) fn scripts(
    table: &Table,
    mut expand: impl FnMut(&Node) -> Option<(String, PathBuf)>,
) -> Vec<PathBuf> {
    let place = table.get("directory").map(|entry| expand(&entry.value));
    let mut found = Vec::new();
    for argument in commands(table).filter_map(|command| command.get(1)) {
        let Some((text, folder)) = expand(argument) else {
            continue;
        };
        let folder = match &place {
            None => folder,
            Some(Some((place, _))) if place == IN_SCRATCH && !Path::new(&text).is_absolute() => {
                continue;
            }
            Some(Some((place, folder))) => folder.join(place),
            Some(None) => continue,
        };
        let path = folder.join(&text);
        // A target of `make` is the name of what was built, once that is there.
        let is_word = !text.contains(['/', '.']);
        let is_script = path.is_file() && !(is_word && files::is_binary(&path));
        if !text.contains(['{', '}']) && is_script && !found.contains(&path) {
            found.push(path);
        }
    }
    found
}

/// All commands of a table.
fn commands(table: &Table) -> impl Iterator<Item = &[Node]> {
    let prepare = value(table, "prepare").map_or(&[][..], |node| match items(node) {
        several if several.iter().all(|item| matches!(item.raw, Raw::Array(_))) => several,
        _ => std::slice::from_ref(node),
    });
    let check = value(table, "check").and_then(|check| value(check.table()?, "command"));
    let command = value(table, "command").into_iter();
    command.chain(prepare).chain(check).map(items)
}

fn value<'t>(table: &'t Table, key: &str) -> Option<&'t Node> {
    table.value(key)
}

fn items(node: &Node) -> &[Node] {
    match &node.raw {
        Raw::Array(items) => items,
        _ => &[],
    }
}
