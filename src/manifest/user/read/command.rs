//! A backend that is a program: how it is started, measured and checked.

use std::path::Path;

use regex_lite::Regex;

use super::command_files::{COMMAND_SOURCES, CommandFiles, checked_files};
use super::names::{NUMBER, Names, expression, template};
use super::source::{DIGESTS, IN_SCRATCH, folder, is_folder};
use crate::grammar::expression::check_name;
use crate::grammar::section::{Context, Section};
use crate::text::diagnostics::Code;
use crate::text::texts::At;
use crate::text::tree::{Entry, Node, Raw};
use crate::user::command_declaration::{
    CommandCheck, CommandDeclaration, CommandTime, MetricDeclaration, MetricSource, OutputText,
    StandardOutput,
};
use crate::user::declaration::{Declaration, Implementation};
use crate::user::{SCRATCH_MARK, command_scope, seconds_scope, size_name};
use sweeper_model::expression::{Kind, Scope};
use sweeper_model::row::metric::OF_SYSTEM;

/// Reads the keys of a command, and reports mistakes.
pub(super) fn command(
    cx: &mut Context<'_>,
    section: &mut Section<'_>,
    names: &Names,
    backend: &Scope,
) -> Option<CommandDeclaration> {
    let at = section.at;
    if !names.inputs.is_empty() || !names.outputs.is_empty() {
        let message = format!(
            "`{}` is a command, and its workload has tensors",
            section.path
        );
        cx.report(Code::Declaration, at, message)
            .help("a command reads the workload's `files`, and has a `check` of its own");
        section.abandon();
        return None;
    }
    let scope = command_scope(backend, &names.files);
    let prepare = section.optional(cx, "prepare", |cx, node, _| commands(cx, node, &scope));
    let environment = section.optional(cx, "env", |cx, node, _| environment_of(cx, node, &scope));
    let stdin = section.optional(cx, "stdin", |cx, node, key| template(cx, node, key, &scope));
    let stdout = section.optional(cx, "stdout", Context::word);
    let exit = section.optional(cx, "exit", |cx, node, _| statuses(cx, node));
    let check = section.optional(cx, "check", |cx, node, _| check_of(cx, node, names, &scope));
    // All keys are asked for before the first that is wrong ends the reading.
    let mut take = |key| section.take(cx, key);
    let (metrics, time, directory) = (take("metrics"), take("time"), take("directory"));
    // These are read with the command.
    let _ = (take(COMMAND_SOURCES), take(DIGESTS));
    let node = section.need(cx, "command")?;
    let command = texts(cx, node, "command", &scope);
    let files = checked_files(cx, section.table);
    let directory = match directory {
        Some(node) => directory_of(cx, node),
        None => folder(cx, node.at, Path::new("")),
    };
    let metrics = metrics.map_or(Some(Vec::new()), |node| metrics_of(cx, node, &scope))?;
    let time = time.map_or(Some(CommandTime::Wall), |node| {
        time_of(cx, node, names, backend, &metrics)
    });
    let CommandFiles {
        program,
        program_sha256,
        sources,
    } = files?;
    let declaration = CommandDeclaration {
        command: command?,
        program,
        program_sha256,
        sources,
        directory: directory?,
        environment: environment?.unwrap_or_default(),
        stdin: stdin?,
        stdout: stdout?,
        prepare: prepare?.unwrap_or_default(),
        exit: exit?.unwrap_or_default(),
        metrics,
        time: time?,
        check: check?,
    };
    match section.table.value("stdout") {
        Some(node) if !is_stdout_there(cx, node.at, &declaration) => None,
        _ => Some(declaration),
    }
}

/// Whether standard output goes to a file where it is read; a mistake is reported.
fn is_stdout_there(cx: &mut Context<'_>, at: At, declaration: &CommandDeclaration) -> bool {
    let is_there = declaration.keeps_stdout() || !declaration.reads_stdout();
    if !is_there {
        let message = "a metric or the check reads standard output, which goes nowhere";
        cx.report(Code::Conflict, at, message)
            .help("`stdout = \"file\"`");
    }
    is_there
}

/// Lets standard output of all commands of a problem go to one kind of place, unless they say
/// where: a program may do less where nobody reads, and their times are held against each other.
pub(super) fn unify_stdout(declaration: &mut Declaration) {
    let commands = declaration.backends.iter_mut();
    let mut commands: Vec<&mut CommandDeclaration> = commands
        .filter_map(|backend| match &mut backend.implementation {
            Implementation::Command(command) => Some(command),
            _ => None,
        })
        .collect();
    if commands.iter().any(|command| command.keeps_stdout()) {
        for command in commands
            .iter_mut()
            .filter(|command| !command.reads_stdout())
        {
            command.stdout.get_or_insert(StandardOutput::File);
        }
    }
}

/// Texts of a list, with expressions in braces.
fn texts(cx: &mut Context<'_>, node: &Node, key: &str, scope: &Scope) -> Option<Vec<String>> {
    let Raw::Array(items) = &node.raw else {
        cx.wrong_type(
            node,
            key,
            "a list: a program and its arguments; there is no shell",
        );
        return None;
    };
    if items.is_empty() {
        let message = format!("`{key}` names no program");
        cx.report(Code::EmptyAxis, node.at, message);
        return None;
    }
    let texts = items.iter().map(|item| expanded(cx, item, key, scope));
    texts.collect()
}

/// A text with environment variables and expressions in braces.
fn expanded(cx: &mut Context<'_>, node: &Node, key: &str, scope: &Scope) -> Option<String> {
    let text = cx.expanded(node, key)?;
    let checked = Node {
        raw: Raw::Text(text),
        ..node.clone()
    };
    template(cx, &checked, key, scope)
}

/// A command, or a list of them.
fn commands(cx: &mut Context<'_>, node: &Node, scope: &Scope) -> Option<Vec<Vec<String>>> {
    match &node.raw {
        Raw::Array(items) if items.iter().all(|item| matches!(item.raw, Raw::Array(_))) => {
            let commands = items.iter().map(|item| texts(cx, item, "prepare", scope));
            commands.collect()
        }
        _ => Some(vec![texts(cx, node, "prepare", scope)?]),
    }
}

/// Where it runs.
fn directory_of(cx: &mut Context<'_>, node: &Node) -> Option<String> {
    if node.text() == Some(IN_SCRATCH) {
        return Some(SCRATCH_MARK.to_owned());
    }
    let path = cx.path(node, "directory")?;
    let shown = cx.in_folder(node.at, &path);
    is_folder(cx, node.at, &shown)
        .then(|| folder(cx, node.at, &path))
        .flatten()
}

fn environment_of(
    cx: &mut Context<'_>,
    node: &Node,
    scope: &Scope,
) -> Option<Vec<(String, String)>> {
    let section = cx.section(node, "env")?;
    let entries = section.table.entries.iter();
    let pairs = entries.map(|entry| {
        let text = expanded(cx, &entry.value, &entry.key, scope)?;
        Some((entry.key.clone(), text))
    });
    pairs.collect()
}

fn statuses(cx: &mut Context<'_>, node: &Node) -> Option<Vec<i32>> {
    let items = node.items();
    let status = |item: &Node| {
        let status = cx.integer(item, "exit", 0, 255)?;
        i32::try_from(status).ok()
    };
    items.iter().map(status).collect()
}

fn metrics_of(cx: &mut Context<'_>, node: &Node, scope: &Scope) -> Option<Vec<MetricDeclaration>> {
    let section = cx.section(node, "metrics")?;
    let entries = section.table.entries.iter();
    let metrics: Vec<Option<MetricDeclaration>> =
        entries.map(|entry| metric(cx, entry, scope)).collect();
    metrics.into_iter().collect()
}

fn metric(cx: &mut Context<'_>, entry: &Entry, scope: &Scope) -> Option<MetricDeclaration> {
    if !check_name(cx, entry) {
        return None;
    }
    if OF_SYSTEM.contains(&entry.key.as_str()) {
        let message = format!("every command has the metric `{}`", entry.key);
        cx.report(Code::Duplicate, entry.key_at, message)
            .label("choose another name");
        return None;
    }
    let mut section = cx.section(&entry.value, &entry.key)?;
    let unit = section.read(cx, "unit", Context::text);
    let better = section.read(cx, "better", Context::word);
    let regex = section.take(cx, "regex");
    let json = section.take(cx, "json");
    let bytes = section.take(cx, "bytes");
    let from = section.take(cx, "from");
    let file = section.take(cx, "file");
    section.finish(cx);
    let source = match (regex, json, bytes) {
        (Some(node), None, None) => MetricSource::Regex {
            pattern: pattern(cx, node)?,
            from: output(cx, from, file, scope)?,
        },
        (None, Some(node), None) => MetricSource::Json {
            pointer: pointer(cx, node)?,
            from: output(cx, from, file, scope)?,
        },
        (None, None, Some(node)) if from.is_none() && file.is_some() => {
            cx.boolean(node, "bytes").filter(|&is_wanted| is_wanted)?;
            MetricSource::Bytes {
                file: template(cx, file?, "file", scope)?,
            }
        }
        _ => {
            let message = format!("the metric `{}` is read nowhere, or twice", entry.key);
            cx.report(Code::Declaration, entry.value.at, message)
                .help(SOURCES);
            return None;
        }
    };
    Some(MetricDeclaration {
        name: entry.key.clone(),
        source,
        unit: unit.unwrap_or_default(),
        better,
    })
}

/// The forms of a metric, for people.
const SOURCES: &str = "{ regex = 'took ([0-9.]+) s' }  { json = \"/runs/0/time\", file = \"r.json\" }  \
     { file = \"out\", bytes = true }; from = \"stdout\" or \"stderr\", or a file";

fn output(
    cx: &mut Context<'_>,
    from: Option<&Node>,
    file: Option<&Node>,
    scope: &Scope,
) -> Option<OutputText> {
    match (from, file) {
        (None, None) => Some(OutputText::Stdout),
        (None, Some(node)) => Some(OutputText::File(template(cx, node, "file", scope)?)),
        (Some(node), None) => match cx.text(node, "from")?.as_str() {
            "stdout" => Some(OutputText::Stdout),
            "stderr" => Some(OutputText::Stderr),
            other => {
                cx.unknown_word(node.at, "from", other, ["stdout", "stderr"]);
                None
            }
        },
        (Some(_), Some(node)) => {
            cx.report(Code::Conflict, node.at, "`file` stands beside `from`");
            None
        }
    }
}

fn pattern(cx: &mut Context<'_>, node: &Node) -> Option<String> {
    let text = cx.text(node, "regex")?;
    if let Err(error) = Regex::new(&text) {
        cx.report(Code::Declaration, node.at, "`regex` is not an expression")
            .label(error.to_string());
        return None;
    }
    Some(text)
}

fn pointer(cx: &mut Context<'_>, node: &Node) -> Option<String> {
    let text = cx.text(node, "json")?;
    if !text.is_empty() && !text.starts_with('/') {
        cx.report(Code::Declaration, node.at, "`json` is not a pointer")
            .label("a pointer is empty or begins with `/`: /runs/0/time");
        return None;
    }
    Some(text)
}

fn time_of(
    cx: &mut Context<'_>,
    node: &Node,
    names: &Names,
    backend: &Scope,
    metrics: &[MetricDeclaration],
) -> Option<CommandTime> {
    const WORDS: [&str; 4] = ["wall", "user", "system", "cpu"];
    if let Raw::Text(word) = &node.raw {
        return match word.as_str() {
            "wall" => Some(CommandTime::Wall),
            "user" => Some(CommandTime::User),
            "system" => Some(CommandTime::System),
            "cpu" => Some(CommandTime::Cpu),
            other => {
                cx.unknown_word(node.at, "time", other, WORDS);
                None
            }
        };
    }
    let mut section = cx.section(node, "time")?;
    let metric = section.need(cx, "metric");
    let seconds = section.take(cx, "as");
    section.finish(cx);
    let name = cx.text(metric?, "metric")?;
    if !metrics.iter().any(|metric| metric.name == name) {
        let known = metrics.iter().map(|metric| metric.name.as_str());
        cx.unknown_word(metric?.at, "metric", &name, known);
        return None;
    }
    let Some(node) = seconds else {
        return Some(CommandTime::Metric {
            name,
            seconds: None,
        });
    };
    let sizes: Vec<String> = names.files.iter().map(size_name).collect();
    let sizes = sizes.iter().map(|name| (name.as_str(), Kind::Int));
    let numbers = backend.names.iter();
    let numbers = numbers.filter(|known| matches!(known.kind, Kind::Int | Kind::Float));
    let numbers = numbers.map(|known| (&*known.name, known.kind));
    let metrics = metrics.iter().map(|metric| metric.name.as_str());
    let scope = seconds_scope(numbers.chain(sizes), metrics);
    let seconds = expression(cx, node, "as", &scope, NUMBER)?;
    Some(CommandTime::Metric {
        name,
        seconds: Some(seconds.text().to_string()),
    })
}

fn check_of(
    cx: &mut Context<'_>,
    node: &Node,
    names: &Names,
    scope: &Scope,
) -> Option<CommandCheck> {
    let mut section = cx.section(node, "check")?;
    let command = section.optional(cx, "command", |cx, node, key| texts(cx, node, key, scope));
    let file = section.optional(cx, "file", |cx, node, key| template(cx, node, key, scope));
    let sha256 = section.optional(cx, "sha256", |cx, node, _| digest(cx, node, names));
    section.finish(cx);
    let check = CommandCheck {
        command: command?.unwrap_or_default(),
        file: file?,
        sha256: sha256?,
    };
    if check.command.is_empty() && check.sha256.is_none() {
        cx.report(Code::Declaration, node.at, "`check` checks nothing")
            .help(
                "`command` must succeed; `sha256` is the digest of `file`, or of what is written",
            );
        return None;
    }
    Some(check)
}

/// A digest, or that of a file of the workload: `files.corpus`.
fn digest(cx: &mut Context<'_>, node: &Node, names: &Names) -> Option<String> {
    let text = cx.text(node, "sha256")?;
    if let Some(name) = text.strip_prefix("files.") {
        let found = names.files.iter().find(|file| file.name == name);
        if found.is_none() {
            let known = names.files.iter().map(|file| file.name.as_str());
            cx.unknown_word(node.at, "sha256", name, known);
        }
        return found.map(|file| file.sha256.clone());
    }
    let is_digest = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_digest {
        cx.report(Code::Declaration, node.at, "`sha256` is not a digest")
            .label("64 hex digits, or `files.NAME`");
        return None;
    }
    Some(text.to_ascii_lowercase())
}
