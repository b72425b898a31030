//! The declaration of a command: a program that is started for each run.

use serde::{Deserialize, Serialize};

use sweeper_model::row::metric::Better;
use sweeper_model::word::Word;

/// Stands for the folder that is empty before each run: no argument of a program has such a
/// character.
pub const SCRATCH_MARK: &str = "\0";

/// A program that is started for each run. Texts have expressions of parameters and tuned values in
/// braces, and `{scratch}`, a folder that is empty before each run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommandDeclaration {
    /// The program and its arguments, as they are written.
    pub command: Vec<String>,
    /// The program as it is started: a name or an absolute path, which is part of no identity.
    pub program: String,
    /// SHA-256 of the program's file, where it was found when the manifest was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program_sha256: Option<String>,
    /// Other files that it is made of, such as the script of an interpreter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<CommandSource>,
    /// Where it runs; part of no identity, unless it is [`SCRATCH_MARK`].
    pub directory: String,
    /// Variables of its environment, beside those of this process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<(String, String)>,
    /// The file that it reads as standard input; none where it has an empty one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// Where its standard output goes; none where that follows from who reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<StandardOutput>,
    /// Commands that run before each run, untimed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prepare: Vec<Vec<String>>,
    /// Exit statuses of success; 0 alone where none are said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exit: Vec<i32>,
    /// Values that are read after each run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<MetricDeclaration>,
    /// The time of a run.
    #[serde(default)]
    pub time: CommandTime,
    /// Condition of a run that counts as right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<CommandCheck>,
}

impl CommandDeclaration {
    /// Whether a metric or the check reads its standard output.
    pub fn reads_stdout(&self) -> bool {
        let is_stdout = |from: &OutputText| matches!(from, OutputText::Stdout);
        let mut metrics = self.metrics.iter();
        let is_measured = metrics.any(|metric| match &metric.source {
            MetricSource::Regex { from, .. } | MetricSource::Json { from, .. } => is_stdout(from),
            MetricSource::Bytes { .. } => false,
        });
        let check = self.check.as_ref();
        is_measured || check.is_some_and(|it| it.command.is_empty() && it.file.is_none())
    }

    /// Whether its standard output is a file.
    pub fn keeps_stdout(&self) -> bool {
        self.stdout
            .map_or(self.reads_stdout(), |to| to == StandardOutput::File)
    }

    /// It without the folders that it names, which are part of no identity.
    pub(super) fn without_place(&self) -> Self {
        let mut portable = self.clone();
        if portable.directory != SCRATCH_MARK {
            portable.directory.clear();
        }
        portable.program.clear();
        // Its digest tells a file from others of its name.
        let sources = portable.sources.iter_mut().map(|source| &mut source.path);
        for path in portable.command.first_mut().into_iter().chain(sources) {
            if let Some((_, name)) = path.rsplit_once('/') {
                *path = name.to_owned();
            }
        }
        portable
    }
}

/// Where a command's standard output goes. Programs can tell: some stop early where nobody reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StandardOutput {
    /// To `/dev/null`.
    Null,
    /// To a file.
    File,
}

impl Word for StandardOutput {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("null", StandardOutput::Null),
        ("file", StandardOutput::File),
    ];
}

/// A file that a command is made of beside its program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandSource {
    /// Absolute path; its last part alone is part of an identity.
    pub path: String,
    /// SHA-256 of its contents when the manifest was read.
    pub sha256: String,
}

/// A value that is read after each run of a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricDeclaration {
    /// Its name.
    pub name: String,
    /// Where it is read.
    pub source: MetricSource,
    /// Its unit, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// Whether more is better; none where neither is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub better: Option<Better>,
}

/// Where the value of a metric is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricSource {
    /// The last match of an expression in a text; its first group, or the whole match.
    Regex {
        /// The expression.
        pattern: String,
        /// The text.
        from: OutputText,
    },
    /// A number in a JSON document, by RFC 6901 pointer; a step `*[key=value]` takes the first
    /// element of a list whose `key` is `value`.
    Json {
        /// The pointer.
        pointer: String,
        /// The document.
        from: OutputText,
    },
    /// The size of a file in bytes.
    Bytes {
        /// The file.
        file: String,
    },
}

/// An output of a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputText {
    /// Its standard output.
    Stdout,
    /// Its standard error.
    Stderr,
    /// A file.
    File(String),
}

/// The time of a run of a command.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandTime {
    /// From its start to its end.
    #[default]
    Wall,
    /// Of processors in the program.
    User,
    /// Of processors in the system for it.
    System,
    /// Of processors, both.
    Cpu,
    /// Seconds that the program measured itself.
    Metric {
        /// A metric.
        name: String,
        /// Seconds as an expression of metrics, parameters and sizes of files; the metric itself
        /// where it is not said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seconds: Option<String>,
    },
}

/// Condition of a run of a command that counts as right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommandCheck {
    /// A command that must succeed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The file that has the digest; where it is not said, standard output of the check's command,
    /// or of the run without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// SHA-256 of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}
