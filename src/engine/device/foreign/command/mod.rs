//! Programs of the user that are started for each run.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::thread::transparent_huge_pages_are_disabled;
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Runner, Tensors};

use super::ForeignRunner;
use crate::device::{DeviceError, DeviceMemory, Job, Prepared, RunsPrograms, Sample};
use sweeper_manifest::user::command_declaration::{CommandTime, MetricSource, OutputText};
use sweeper_manifest::user::{CommandRequest, SCRATCH_MARK};
use sweeper_model::expression::{Expression, Operand};
use sweeper_model::files;
use sweeper_model::row::metric::{Better, Metric, OF_SYSTEM};
use sweeper_model::row::outcome::{Checked, Status};
use sweeper_model::scratch::Scratch;

pub mod launcher;
pub mod metrics;
mod unedited;

use launcher::{Enclosure, Ended, Launcher, Start};
use metrics::Written;
use unedited::Unedited;

/// The last bytes of standard error that a reason is taken from.
const LAST_WORDS_BYTES: u64 = 4096;

/// The most letters of standard error's last line that a reason shows.
const LAST_WORDS_SHOWN: usize = 400;

/// A longer run is none, in seconds: no time over thirty years was measured.
const MOST_SECONDS: f64 = 1e9;

/// Signals by which people and schedulers end programs: no fault of the program.
const FROM_OUTSIDE: [i32; 5] = [
    signal_hook::consts::SIGHUP,
    signal_hook::consts::SIGINT,
    signal_hook::consts::SIGTERM,
    signal_hook::consts::SIGUSR1,
    signal_hook::consts::SIGXCPU,
];

/// Runs programs of the user.
#[derive(Default)]
pub struct Commands {
    /// Folders that programs that nobody trusts don't see.
    hidden: Vec<PathBuf>,
    launcher: Option<Launcher>,
    scratch: Option<Scratch>,
    programs: Vec<Loaded>,
    unedited: Unedited,
}

/// A program that can be started.
struct Loaded {
    request: CommandRequest,
    /// Seconds of a run, where the program measures them.
    seconds: Option<Expression>,
    /// Empty before each run.
    scratch: PathBuf,
    /// Folder of its output.
    outputs: PathBuf,
    peak_bytes: u64,
}

/// A failure with a status of its own.
fn failed(status: Status, reason: impl Into<String>) -> DeviceError {
    DeviceError::Foreign {
        status,
        reason: reason.into(),
    }
}

/// A failure of a command of `prepare`.
fn in_preparation(error: DeviceError) -> DeviceError {
    match error {
        DeviceError::Foreign { status, reason } => failed(status, format!("`prepare`: {reason}")),
        other => other,
    }
}

/// A failure around a program: files and processes.
fn trouble(error: &io::Error) -> DeviceError {
    DeviceError::Interrupted(error.to_string())
}

impl Loaded {
    fn stdout(&self) -> PathBuf {
        self.outputs.join("stdout")
    }

    fn stderr(&self) -> PathBuf {
        self.outputs.join("stderr")
    }

    /// The request to the launcher for one of the program's commands.
    fn start(&self, command: &[String], stdin: Option<&str>, stdout: Option<PathBuf>) -> Start {
        let start = Start {
            command: command.to_vec(),
            directory: self.request.directory.clone(),
            environment: self.request.environment.clone(),
            stdin: stdin.map(str::to_owned),
            stdout,
            stderr: self.stderr(),
            has_huge_pages: !transparent_huge_pages_are_disabled().unwrap_or(false),
            enclosure: None,
        };
        start.in_scratch(&self.scratch)
    }

    /// Where the program is shut in, if nobody trusts it. It reads files of its identity, and what
    /// lies beside the folder of its program, as libraries do.
    fn enclosure(&self, hidden: &[PathBuf]) -> Option<Enclosure> {
        let program = self.request.command.first();
        let program = program.and_then(|name| files::program(Path::new(name), Path::new("")));
        let real = program.as_ref().and_then(|path| path.canonicalize().ok());
        let prefix = |path: &PathBuf| Some(path.parent()?.parent()?.to_owned());
        let prefixes = program.iter().chain(&real).filter_map(prefix);
        let files = self.request.files.iter();
        let files = files.map(|file| PathBuf::from(&file.path));
        let enclosure = || Enclosure {
            scratch: self.scratch.clone(),
            reads: prefixes.chain(files).chain(program.clone()).collect(),
            hidden: hidden.to_vec(),
        };
        self.request.is_untrusted.then(enclosure)
    }

    /// Refuses links in the scratch folder: what reads the results of a program would follow them
    /// to files that the program does not see.
    fn refuse_links(&self) -> Result<(), DeviceError> {
        let mut folders = vec![self.scratch.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).map_err(|error| trouble(&error))? {
                let entry = entry.map_err(|error| trouble(&error))?;
                let kind = entry.file_type().map_err(|error| trouble(&error))?;
                if kind.is_dir() {
                    folders.push(entry.path());
                } else if !kind.is_file() {
                    let name = entry.file_name().to_string_lossy().into_owned();
                    let reason = format!("it leaves `{name}`, which is not a file");
                    return Err(failed(Status::Wrong, reason));
                }
            }
        }
        Ok(())
    }

    /// Makes the scratch folder empty: files of a run before are none of this one's.
    fn clear(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.scratch) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::create_dir(&self.scratch)
    }

    fn directory(&self) -> PathBuf {
        PathBuf::from(self.fill(&self.request.directory))
    }

    fn fill(&self, text: &str) -> String {
        in_scratch(text, &self.scratch)
    }

    /// The last line that it wrote to standard error, behind a colon.
    fn last_words(&self) -> String {
        let mut text = Vec::new();
        if let Ok(mut file) = fs::File::open(self.stderr()) {
            use std::io::{Seek, SeekFrom};
            let length = file.metadata().map_or(0, |found| found.len());
            let from = length.saturating_sub(LAST_WORDS_BYTES);
            // A reason without last words is one, too.
            let _ = file.seek(SeekFrom::Start(from));
            let _ = file.read_to_end(&mut text);
        }
        let text = String::from_utf8_lossy(&text);
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        last.map_or(String::new(), |line| {
            let line = line.trim();
            match line.char_indices().nth_back(LAST_WORDS_SHOWN) {
                None => format!(": {line}"),
                Some((at, letter)) => format!(": ...{}", &line[at + letter.len_utf8()..]),
            }
        })
    }

    /// Why a run is not a success, if it is none.
    fn refusal(&self, command: &[String], ended: &Ended, exit: &[i32]) -> Option<DeviceError> {
        let name = command.first().map_or("", String::as_str);
        match (ended.status, ended.signal) {
            (Some(status), _) if exit.contains(&status) => None,
            (Some(status), _) => {
                let words = self.last_words();
                let reason = format!("`{name}` ended with status {status}{words}");
                Some(failed(Status::Error, reason))
            }
            (None, Some(signal)) if FROM_OUTSIDE.contains(&signal) => {
                let reason = format!("`{name}` was ended from outside, by signal {signal}");
                Some(DeviceError::Interrupted(reason))
            }
            (None, signal) => {
                let signal = signal.unwrap_or_default();
                let words = self.last_words();
                let reason = format!("`{name}` was ended by signal {signal}{words}");
                Some(failed(Status::Crashed, reason))
            }
        }
    }

    /// The values of all metrics after a run.
    fn metrics(&self, ended: &Ended) -> Result<BTreeMap<String, Metric>, DeviceError> {
        let (stdout, stderr) = (self.stdout(), self.stderr());
        let directory = self.directory();
        let written = Written {
            stdout: &stdout,
            stderr: &stderr,
            directory: &directory,
        };
        let of_system = [
            (seconds(ended.user_ns), "s"),
            (seconds(ended.system_ns), "s"),
            (ended.peak_bytes as f64, "B"),
        ];
        let of_system = OF_SYSTEM
            .into_iter()
            .zip(of_system)
            .map(|(name, (value, unit))| {
                let metric = Metric {
                    value,
                    unit: unit.to_owned(),
                    better: Some(Better::Lower),
                };
                (name.to_owned(), metric)
            });
        let mut values: BTreeMap<String, Metric> = of_system.collect();
        for declared in &self.request.metrics {
            let name = &declared.name;
            let value = metrics::read(&self.filled(&declared.source), &written);
            let value = value.map_err(|reason| {
                failed(Status::Error, format!("the metric `{name}`: {reason}"))
            })?;
            let metric = Metric {
                value,
                unit: declared.unit.clone(),
                better: declared.better,
            };
            values.insert(name.clone(), metric);
        }
        Ok(values)
    }

    fn filled(&self, source: &MetricSource) -> MetricSource {
        let output = |from: &OutputText| match from {
            OutputText::File(file) => OutputText::File(self.fill(file)),
            other => other.clone(),
        };
        match source {
            MetricSource::Bytes { file } => MetricSource::Bytes {
                file: self.fill(file),
            },
            MetricSource::Regex { pattern, from } => MetricSource::Regex {
                pattern: pattern.clone(),
                from: output(from),
            },
            MetricSource::Json { pointer, from } => MetricSource::Json {
                pointer: pointer.clone(),
                from: output(from),
            },
        }
    }

    /// The time of a run in nanoseconds.
    fn time_ns(
        &self,
        ended: &Ended,
        metrics: &BTreeMap<String, Metric>,
    ) -> Result<f64, DeviceError> {
        let processor_ns = match &self.request.time {
            CommandTime::Wall => ended.wall_ns,
            CommandTime::User => ended.user_ns,
            CommandTime::System => ended.system_ns,
            CommandTime::Cpu => ended.user_ns + ended.system_ns,
            CommandTime::Metric { .. } => return self.measured_ns(metrics),
        };
        Ok(processor_ns as f64)
    }

    fn measured_ns(&self, metrics: &BTreeMap<String, Metric>) -> Result<f64, DeviceError> {
        let Some(expression) = &self.seconds else {
            return Err(failed(Status::Error, "the time of a run has no expression"));
        };
        let names = self.request.names.iter();
        let mut slots: Vec<Operand<'_>> = names.map(|(_, value)| Operand::from(value)).collect();
        let values = self.request.metrics.iter();
        let values = values.map(|it| metrics.get(&it.name).map_or(f64::NAN, |found| found.value));
        slots.extend(values.map(Operand::Float));
        let seconds = match expression.evaluate(&slots) {
            Ok(Operand::Int(seconds)) => seconds as f64,
            Ok(Operand::Float(seconds)) => seconds,
            Ok(_) => f64::NAN,
            Err(error) => {
                let reason = format!("`{}`: {error}", expression.text());
                return Err(failed(Status::Error, reason));
            }
        };
        if seconds > 0.0 && seconds <= MOST_SECONDS {
            return Ok(seconds * 1e9);
        }
        let shown = expression.text();
        let reason = format!("`{shown}` is {seconds}, and no time of a run in seconds");
        Err(failed(Status::Error, reason))
    }
}

impl Start {
    /// With the scratch folder in place of its mark.
    fn in_scratch(mut self, scratch: &Path) -> Self {
        let fill = |text: &mut String| *text = in_scratch(text, scratch);
        self.command.iter_mut().for_each(fill);
        fill(&mut self.directory);
        self.environment
            .iter_mut()
            .for_each(|(_, value)| fill(value));
        self.stdin.iter_mut().for_each(fill);
        self
    }
}

fn in_scratch(text: &str, scratch: &Path) -> String {
    text.replace(SCRATCH_MARK, &scratch.to_string_lossy())
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

impl Commands {
    /// A runner of programs, of which those that nobody trusts see nothing below `hidden`.
    pub fn hiding(hidden: Vec<PathBuf>) -> Self {
        Commands {
            hidden,
            ..Commands::default()
        }
    }

    /// Runs a command of a program to its end. What it did tells nothing where the program's files
    /// were edited meanwhile.
    fn launch(&mut self, program: usize, start: &Start) -> Result<Ended, DeviceError> {
        let launcher = match &mut self.launcher {
            Some(launcher) => launcher,
            none => none.insert(Launcher::start().map_err(|error| trouble(&error))?),
        };
        let ended = launcher.run(start);
        if ended.is_err() {
            self.launcher = None;
        }
        self.unedited.check(&self.programs[program].request.files)?;
        let ended = ended.map_err(|error| trouble(&error))?;
        ended.map_err(|reason| failed(Status::LaunchError, reason))
    }

    /// Runs a program once: its scratch folder is emptied and its preparations run before.
    fn run(&mut self, program: usize) -> Result<(Ended, BTreeMap<String, Metric>), DeviceError> {
        let loaded = &self.programs[program];
        loaded.clear().map_err(|error| trouble(&error))?;
        for command in loaded.request.prepare.clone() {
            let start = self.programs[program].start(&command, None, None);
            let ended = self.launch(program, &start).map_err(in_preparation)?;
            if let Some(error) = self.programs[program].refusal(&command, &ended, &[0]) {
                return Err(in_preparation(error));
            }
        }
        let loaded = &self.programs[program];
        let stdout = loaded.request.keeps_stdout.then(|| loaded.stdout());
        let request = &loaded.request;
        let mut start = loaded.start(&request.command, request.stdin.as_deref(), stdout);
        start.enclosure = loaded.enclosure(&self.hidden);
        let ended = self.launch(program, &start)?;
        let loaded = &mut self.programs[program];
        loaded.peak_bytes = loaded.peak_bytes.max(ended.peak_bytes);
        let request = &loaded.request;
        match loaded.refusal(&request.command, &ended, &request.exit) {
            Some(error) => return Err(error),
            None if request.is_untrusted => loaded.refuse_links()?,
            None => {}
        }
        let metrics = loaded.metrics(&ended)?;
        Ok((ended, metrics))
    }

    /// Checks the last run of a program.
    fn check(&mut self, program: usize) -> Result<(), DeviceError> {
        let loaded = &self.programs[program];
        let Some(check) = loaded.request.check.clone() else {
            return Ok(());
        };
        let mut judged = match &check.file {
            Some(file) => loaded.directory().join(loaded.fill(file)),
            None => loaded.stdout(),
        };
        if !check.command.is_empty() {
            let stdout = loaded.outputs.join("check");
            if check.file.is_none() {
                judged.clone_from(&stdout);
            }
            let start = loaded.start(&check.command, None, Some(stdout));
            let ended = self.launch(program, &start)?;
            match self.programs[program].refusal(&check.command, &ended, &[0]) {
                None => {}
                Some(DeviceError::Foreign { reason, .. }) => {
                    return Err(failed(Status::Wrong, format!("the check: {reason}")));
                }
                Some(error) => return Err(error),
            }
        }
        let Some(wanted) = &check.sha256 else {
            return Ok(());
        };
        let found = files::digest(&judged).map_err(|error| {
            let name = judged.file_name().unwrap_or_default().to_string_lossy();
            failed(Status::Wrong, format!("the check: `{name}`: {error}"))
        })?;
        let found = found.hex();
        match found == *wanted {
            true => Ok(()),
            false => {
                let name = judged.file_name().unwrap_or_default().to_string_lossy();
                let reason = format!("the digest of `{name}` is {found:.12}, and not {wanted:.12}");
                Err(failed(Status::Wrong, reason))
            }
        }
    }
}

/// Why a program can't be started here, if it can't.
fn missing(name: &str) -> Option<String> {
    match files::program(Path::new(name), Path::new("")) {
        Some(path) if path.is_file() => None,
        Some(_) => Some(format!("there is no program `{name}`")),
        None => Some(format!(
            "there is no program `{name}` in the folders of PATH"
        )),
    }
}

impl ForeignRunner for Commands {
    fn forget(&mut self) {
        self.programs.clear();
    }

    fn prepare(&mut self, job: Job<'_>, _inputs: &Tensors) -> Result<Prepared, DeviceError> {
        let foreign = job.program.foreign();
        let request = foreign.map_or("", |foreign| &foreign.request);
        let request: CommandRequest = serde_json::from_str(request)
            .map_err(|error| failed(Status::Error, error.to_string()))?;
        let mut needed: Vec<&String> = request.command.first().into_iter().collect();
        needed.extend(request.prepare.iter().filter_map(|command| command.first()));
        let check = request.check.iter();
        needed.extend(check.filter_map(|check| check.command.first()));
        if let Some(reason) = needed.iter().find_map(|name| missing(name)) {
            return Err(failed(Status::Unavailable, reason));
        }
        let folder = match &self.scratch {
            Some(scratch) => scratch,
            None => &*self
                .scratch
                .insert(Scratch::new().map_err(|error| trouble(&error))?),
        };
        let outputs = folder.path().join(self.programs.len().to_string());
        fs::create_dir_all(&outputs).map_err(|error| trouble(&error))?;
        let seconds = request.seconds();
        self.programs.push(Loaded {
            seconds: seconds.map_err(|reason| failed(Status::Error, reason))?,
            scratch: outputs.join("scratch"),
            outputs,
            request,
            peak_bytes: 0,
        });
        Ok(Prepared(self.programs.len() - 1, Some(Runner::Command)))
    }
}

impl RunsPrograms for Commands {
    fn poison(&mut self, _program: Prepared) -> Result<(), DeviceError> {
        // Its scratch folder is empty before each run.
        Ok(())
    }

    fn sample(&mut self, program: Prepared, iterations: u32) -> Result<Sample, DeviceError> {
        let mut elapsed_ns = 0.0;
        let mut means: BTreeMap<String, Metric> = BTreeMap::new();
        let share = 1.0 / f64::from(iterations);
        for _ in 0..iterations {
            let (ended, metrics) = self.run(program.0)?;
            elapsed_ns += self.programs[program.0].time_ns(&ended, &metrics)?;
            if self.programs[program.0].request.is_untrusted {
                self.check(program.0)?;
            }
            for (name, metric) in metrics {
                let part = metric.value * share;
                let mean = means.entry(name).or_insert(Metric {
                    value: 0.0,
                    ..metric
                });
                mean.value += part;
            }
        }
        Ok(Sample {
            metrics: means,
            ..Sample::new(elapsed_ns, iterations)
        })
    }

    fn results(
        &mut self,
        program: Prepared,
        _specs: &[TensorSpec],
    ) -> Result<Tensors, DeviceError> {
        self.check(program.0)?;
        Ok(Tensors::new())
    }

    fn judged(&self, program: Prepared) -> Option<Checked> {
        Some(match self.programs[program.0].request.check {
            Some(_) => Checked::Full,
            None => Checked::None,
        })
    }

    fn restore_inputs(&mut self, _given: &Tensors) -> Result<Vec<String>, DeviceError> {
        Ok(Vec::new())
    }

    fn memory(&mut self, program: Prepared) -> Result<DeviceMemory, DeviceError> {
        let peak_bytes = self.programs[program.0].peak_bytes;
        Ok(DeviceMemory {
            peak_allocated_bytes: peak_bytes,
            peak_reserved_bytes: peak_bytes,
        })
    }
}
