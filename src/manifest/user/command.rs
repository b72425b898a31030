//! A command of the user with its expressions compiled, and the request that its runner reads.

use serde::{Deserialize, Serialize};
use sweeper_program::Value;

use super::command_declaration::{
    CommandCheck, CommandDeclaration, CommandSource, CommandTime, MetricDeclaration, MetricSource,
    OutputText, SCRATCH_MARK,
};
use super::declaration::FileDeclaration;
use super::scope::{compile, number};
use super::template::Template;
use sweeper_model::expression::{Expression, Kind, Known, Operand, Scope};

/// The name of the folder that is empty before each run.
const SCRATCH: &str = "scratch";

/// All that a runner has to know of a command. [`SCRATCH_MARK`] stands for its folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommandRequest {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Where it runs.
    pub directory: String,
    /// Variables of its environment, beside those of this process.
    pub environment: Vec<(String, String)>,
    /// The file that it reads as standard input.
    pub stdin: Option<String>,
    /// Whether its standard output is a file; it is `/dev/null` otherwise.
    #[serde(default)]
    pub keeps_stdout: bool,
    /// Nobody trusts it: it runs in a sandbox, and each run is checked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_untrusted: bool,
    /// Commands that run before each run, untimed.
    pub prepare: Vec<Vec<String>>,
    /// Exit statuses of success.
    pub exit: Vec<i32>,
    /// Values that are read after each run.
    pub metrics: Vec<MetricDeclaration>,
    /// The time of a run.
    pub time: CommandTime,
    /// Names that the expression of [`CommandTime::Metric`] uses beside metrics.
    pub names: Vec<(String, Value)>,
    /// Condition of a run that counts as right.
    pub check: Option<CommandCheck>,
    /// Files that its identity has the digests of: its program, those that it is made of, and those
    /// of the workload.
    pub files: Vec<CommandSource>,
}

impl CommandRequest {
    /// The seconds of a run by its own measurement, as an expression of [`CommandRequest::names`]
    /// and then of the metrics.
    ///
    /// # Errors
    /// A sentence: the text is from another version of the program.
    pub fn seconds(&self) -> Result<Option<Expression>, String> {
        let CommandTime::Metric { name, seconds } = &self.time else {
            return Ok(None);
        };
        let metrics = self.metrics.iter().map(|metric| metric.name.as_str());
        let names = self.names.iter();
        let names = names.map(|(name, value)| (name.as_str(), Kind::of(value)));
        let scope = seconds_scope(names, metrics);
        compile(seconds.as_ref().unwrap_or(name), &scope).map(Some)
    }
}

/// The names that an expression of seconds uses: `names` with their kinds, then metrics.
pub(crate) fn seconds_scope<'a>(
    names: impl IntoIterator<Item = (&'a str, Kind)>,
    metrics: impl IntoIterator<Item = &'a str>,
) -> Scope {
    let names = names.into_iter();
    let metrics = metrics.into_iter().map(|name| number(name, Kind::Float));
    Scope {
        names: names
            .map(|(name, kind)| number(name, kind))
            .chain(metrics)
            .collect(),
    }
}

/// The names that texts of a command use beside those of every backend.
pub(crate) fn command_scope(backend: &Scope, files: &[FileDeclaration]) -> Scope {
    let text = |name: String| Known {
        name: name.into(),
        kind: Kind::Text,
        words: None,
    };
    let mut names = backend.names.clone();
    names.push(text(SCRATCH.to_owned()));
    for file in files {
        names.push(text(path_name(file)));
        names.push(number(&size_name(file), Kind::Int));
    }
    Scope { names }
}

/// The name of a file's path in texts.
fn path_name(file: &FileDeclaration) -> String {
    format!("files.{}", file.name)
}

/// The name of a file's size in expressions.
pub(crate) fn size_name(file: &FileDeclaration) -> String {
    format!("files.{}.bytes", file.name)
}

/// A command with its expressions compiled.
#[derive(Debug)]
pub(super) struct Command {
    declaration: CommandDeclaration,
    files: Vec<FileDeclaration>,
    /// The names of its texts, in the order of their values.
    scope: Scope,
}

impl Command {
    /// # Errors
    /// A sentence: a text is from another version of the program.
    pub(super) fn new(
        declaration: &CommandDeclaration,
        files: &[FileDeclaration],
        backend: &Scope,
    ) -> Result<Self, String> {
        let command = Command {
            declaration: declaration.clone(),
            files: files.to_vec(),
            scope: command_scope(backend, files),
        };
        for text in declaration.texts() {
            Template::new(text, &command.scope)?;
        }
        Ok(command)
    }

    /// The name under which it is shown.
    pub(super) fn name(&self) -> &str {
        self.declaration.command.first().map_or("", String::as_str)
    }

    /// The request for some values of the backend's names.
    ///
    /// # Errors
    /// An expression without a value.
    pub(super) fn request(&self, backend: &[Operand<'_>]) -> Result<CommandRequest, String> {
        let mut slots = backend.to_vec();
        slots.push(Operand::Text(SCRATCH_MARK));
        for file in &self.files {
            slots.push(Operand::Text(&file.path));
            slots.push(Operand::Int(file.bytes as i64));
        }
        let fill = |text: &String| Template::new(text, &self.scope)?.text(&slots);
        let fill_all = |texts: &[String]| texts.iter().map(fill).collect::<Result<Vec<_>, _>>();
        let declared = &self.declaration;
        let metrics = declared.metrics.iter();
        let metrics = metrics.map(|it| {
            Ok(MetricDeclaration {
                source: filled_source(&it.source, fill)?,
                ..it.clone()
            })
        });
        let environment = declared.environment.iter();
        let environment = environment.map(|(name, text)| Ok((name.clone(), fill(text)?)));
        let check = declared.check.as_ref().map(|check| {
            Ok::<_, String>(CommandCheck {
                command: fill_all(&check.command)?,
                file: check.file.as_ref().map(fill).transpose()?,
                sha256: check.sha256.clone(),
            })
        });
        let mut command = fill_all(&declared.command)?;
        if let Some(program) = command.first_mut()
            && declared.program.contains('/')
        {
            program.clone_from(&declared.program);
        }
        Ok(CommandRequest {
            command,
            directory: declared.directory.clone(),
            environment: environment.collect::<Result<_, String>>()?,
            stdin: declared.stdin.as_ref().map(fill).transpose()?,
            keeps_stdout: declared.keeps_stdout(),
            is_untrusted: false,
            prepare: (declared.prepare.iter())
                .map(|command| fill_all(command))
                .collect::<Result<_, _>>()?,
            exit: match declared.exit.as_slice() {
                [] => vec![0],
                exit => exit.to_vec(),
            },
            metrics: metrics.collect::<Result<_, String>>()?,
            time: declared.time.clone(),
            names: self.numbers(&slots),
            check: check.transpose()?,
            files: self.files_with_digests(),
        })
    }

    fn files_with_digests(&self) -> Vec<CommandSource> {
        let declared = &self.declaration;
        let program = declared.program_sha256.iter();
        let program = program.map(|sha256| (&declared.program, sha256));
        let sources = declared.sources.iter();
        let sources = sources.map(|source| (&source.path, &source.sha256));
        let data = self.files.iter().map(|file| (&file.path, &file.sha256));
        let all = program.chain(sources).chain(data);
        all.map(|(path, sha256)| CommandSource {
            path: path.clone(),
            sha256: sha256.clone(),
        })
        .collect()
    }

    /// The names that have numbers, with their values.
    fn numbers(&self, slots: &[Operand<'_>]) -> Vec<(String, Value)> {
        let pairs = self.scope.names.iter().zip(slots);
        let number = |(known, slot): (&Known, &Operand<'_>)| {
            let value = match slot {
                Operand::Int(value) => Value::Int(*value),
                Operand::Float(value) => Value::Float(*value),
                Operand::Bool(_) | Operand::Text(_) => return None,
            };
            Some((known.name.to_string(), value))
        };
        pairs.filter_map(number).collect()
    }
}

fn filled_source(
    source: &MetricSource,
    fill: impl Fn(&String) -> Result<String, String>,
) -> Result<MetricSource, String> {
    Ok(match source {
        MetricSource::Regex { pattern, from } => MetricSource::Regex {
            pattern: pattern.clone(),
            from: filled(from, fill)?,
        },
        MetricSource::Json { pointer, from } => MetricSource::Json {
            pointer: pointer.clone(),
            from: filled(from, fill)?,
        },
        MetricSource::Bytes { file } => MetricSource::Bytes { file: fill(file)? },
    })
}

fn filled(
    from: &OutputText,
    fill: impl Fn(&String) -> Result<String, String>,
) -> Result<OutputText, String> {
    Ok(match from {
        OutputText::File(file) => OutputText::File(fill(file)?),
        other => other.clone(),
    })
}

impl CommandDeclaration {
    /// All texts that have expressions in braces.
    fn texts(&self) -> impl Iterator<Item = &String> {
        let files = self
            .metrics
            .iter()
            .filter_map(|metric| match &metric.source {
                MetricSource::Bytes { file }
                | MetricSource::Regex {
                    from: OutputText::File(file),
                    ..
                }
                | MetricSource::Json {
                    from: OutputText::File(file),
                    ..
                } => Some(file),
                MetricSource::Regex { .. } | MetricSource::Json { .. } => None,
            });
        let check = self.check.iter();
        let check = check.flat_map(|check| check.command.iter().chain(&check.file));
        self.command
            .iter()
            .chain(self.prepare.iter().flatten())
            .chain(self.environment.iter().map(|(_, text)| text))
            .chain(&self.stdin)
            .chain(files)
            .chain(check)
    }
}
