//! `sweeper referee`: candidates of strangers or of models, each measured and judged by itself.
//!
//! A candidate is a backend that is laid over the problem's manifest, and its verdict is that of a
//! run of both: with rows, a journal and a hash as any other.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use clap::Args;
use serde::{Deserialize, Serialize};
use sweeper_program::{Phase, Value};

use super::exit::Exit;
use super::screen::Screen;
use super::settings::ManifestArgs;
use crate::declared::SourceKey;
use crate::identity::ProblemId;
use crate::interval::LogInterval;
use crate::manifest::Manifest;
use crate::manifest::case::Case;
use crate::record::{contents::Contents, parts};
use crate::row::Row;
use crate::row::outcome::Status;
use crate::scratch::Scratch;
use crate::stats::Summary;
use crate::stats::student::critical;
use crate::toml_text::{key, string};
use crate::tuning::family_of;

/// The longest line that is taken, in bytes.
const MOST_LINE_BYTES: u64 = 16 << 20;

/// The longest name of a candidate.
const MOST_NAME: usize = 60;

/// The name of a candidate in its run.
const NAME: &str = "candidate";

/// So often the baseline is measured beside itself.
const PAIRS: u32 = 5;

/// Arguments of `referee`.
#[derive(Args)]
pub struct RefereeArgs {
    #[command(flatten)]
    manifest: ManifestArgs,
    /// A folder of candidates, one to a file of Python, in place of lines of JSON on standard input
    #[arg(long, value_name = "DIR", conflicts_with = "socket")]
    candidates: Option<PathBuf>,
    /// Take lines of JSON from whoever connects to this Unix socket
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The backend whose arguments a candidate takes, and that it is compared with: the manifest's
    /// first function in Python by default
    #[arg(long, value_name = "BACKEND")]
    like: Option<String>,
    /// Take the baseline's times, and verdicts of equal candidates, from earlier runs: both are not
    /// measured in turns then
    #[arg(long)]
    reuse: bool,
    /// The name of candidates' function or class: that of the other backend by default
    #[arg(long, value_name = "NAME")]
    entry: Option<String>,
}

/// A line of input.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Candidate {
    /// Its name, of letters, digits, `-` and `_`.
    id: String,
    /// The text of its file.
    code: String,
    entry: Option<String>,
    like: Option<String>,
}

/// A line of output.
#[derive(Serialize)]
struct Verdict {
    id: String,
    /// `ok`, or the status of the first point that is not.
    verdict: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// How many times as fast as the baseline, in the geometric mean over the points: with the ends
    /// of its interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    speedup: Option<[f64; 3]>,
    baseline: String,
    points: Vec<Point>,
    /// Where its rows are.
    #[serde(skip_serializing_if = "Option::is_none")]
    folder: Option<PathBuf>,
    seconds: f64,
}

#[derive(Serialize)]
struct Point {
    parameters: BTreeMap<String, Value>,
    phase: Phase,
    status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    median_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline_median_ns: Option<f64>,
}

/// Measures and judges candidates.
pub fn referee(args: &RefereeArgs, screen: &Screen) -> Exit {
    let manifest = match args.manifest.load(screen) {
        Ok(manifest) => manifest,
        Err(exit) => return exit,
    };
    let session = Session {
        args,
        manifest: &manifest,
        screen,
        pairs: RefCell::default(),
    };
    let ended = match (&args.candidates, &args.socket) {
        (Some(folder), _) => session.folder(folder),
        (None, Some(socket)) => session.socket(socket),
        (None, None) => session.stream(io::stdin().lock(), &mut io::stdout()),
    };
    match ended {
        Ok(()) => Exit::Fine,
        Err(error) => {
            screen.error(&error.to_string());
            Exit::Files
        }
    }
}

/// The candidates of one problem.
struct Session<'a> {
    args: &'a RefereeArgs,
    manifest: &'a Manifest,
    screen: &'a Screen,
    /// Logarithms of ratios of two processes of one baseline, by its name and point.
    pairs: RefCell<BTreeMap<String, BTreeMap<PointKey, Vec<f64>>>>,
}

/// A problem and a phase.
type PointKey = (ProblemId, Phase);

impl Session<'_> {
    /// A verdict for each file of a folder.
    fn folder(&self, folder: &Path) -> io::Result<()> {
        let named = |error: io::Error| io::Error::other(format!("{}: {error}", folder.display()));
        let entries = fs::read_dir(folder).map_err(named)?;
        let paths = entries.map(|entry| Ok(entry?.path()));
        let mut paths: Vec<PathBuf> = paths.collect::<io::Result<_>>().map_err(named)?;
        paths.retain(|path| path.extension().is_some_and(|kind| kind == "py"));
        paths.sort();
        for path in paths {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let code = crate::scratch::read(&path, MOST_LINE_BYTES).map_err(io::Error::other)?;
            let verdict = self.verdict(&Candidate {
                id: stem.into_owned(),
                code: String::from_utf8_lossy(&code).into_owned(),
                entry: None,
                like: None,
            });
            match self.screen.json {
                true => self.screen.line(&serde_json::to_string(&verdict)?),
                false => self.screen.line(&verdict.line()),
            }
        }
        Ok(())
    }

    /// Serves one connection after another, for ever.
    fn socket(&self, path: &Path) -> io::Result<()> {
        let listener = UnixListener::bind(path)
            .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
        self.screen
            .note(&format!("listening on {}", path.display()));
        for connection in listener.incoming() {
            let mut connection = connection?;
            let reader = BufReader::new(connection.try_clone()?);
            // Who hangs up gets no more verdicts; others do.
            if let Err(error) = self.stream(reader, &mut connection) {
                self.screen.warning(&format!("a connection ended: {error}"));
            }
        }
        Ok(())
    }

    /// A line with a verdict for each line with a candidate.
    fn stream(&self, mut lines: impl BufRead, out: &mut impl Write) -> io::Result<()> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut bounded = io::Read::take(&mut lines, MOST_LINE_BYTES);
            if bounded.read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            let verdict = match serde_json::from_slice::<Candidate>(&line) {
                _ if line.iter().all(u8::is_ascii_whitespace) => continue,
                Ok(candidate) => self.verdict(&candidate),
                Err(error) => self.refusal(
                    "",
                    format!("the line is no candidate (`{{\"id\": ..., \"code\": ...}}`): {error}"),
                ),
            };
            writeln!(out, "{}", serde_json::to_string(&verdict)?)?;
            out.flush()?;
        }
    }

    fn verdict(&self, candidate: &Candidate) -> Verdict {
        let start = Instant::now();
        let mut verdict = match self.run(candidate) {
            Ok(verdict) => verdict,
            Err(reason) => self.refusal(&candidate.id, reason),
        };
        verdict.seconds = start.elapsed().as_secs_f64();
        verdict
    }

    fn refusal(&self, id: &str, reason: String) -> Verdict {
        Verdict {
            id: id.to_owned(),
            verdict: Status::Error,
            reason: Some(reason),
            speedup: None,
            baseline: String::new(),
            points: Vec::new(),
            folder: None,
            seconds: 0.0,
        }
    }

    /// Runs the problem with a candidate.
    fn run(&self, candidate: &Candidate) -> Result<Verdict, String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let id = &candidate.id;
        if id.is_empty() || id.len() > MOST_NAME || !id.chars().all(is_plain) {
            return Err(format!(
                "an id has 1 to {MOST_NAME} letters, digits, `-` and `_`"
            ));
        }
        let (like, source) = self.model(candidate)?;
        if !self.args.reuse {
            self.calibrate(&like)?;
        }
        let scratch = Scratch::new().map_err(|error| error.to_string())?;
        let path = scratch.path().join(format!("{id}.toml"));
        let text = self.text(&like, Some((candidate, source)));
        let written = fs::write(&path, text);
        written
            .and_then(|()| fs::write(scratch.path().join("candidate.py"), &candidate.code))
            .map_err(|error| error.to_string())?;
        let (folder, rows) = self.measured(&path)?;
        Ok(self.verdict_of(id, &like, &rows, folder))
    }

    /// Measures the baseline beside itself some times, once for all candidates: equal code takes a
    /// few per cent more or less in another process, where its memory lies elsewhere.
    fn calibrate(&self, like: &str) -> Result<(), String> {
        if self.pairs.borrow().contains_key(like) {
            return Ok(());
        }
        let scratch = Scratch::new().map_err(|error| error.to_string())?;
        let path = scratch.path().join("baseline.toml");
        fs::write(&path, self.text(like, None)).map_err(|error| error.to_string())?;
        let mut ratios: BTreeMap<PointKey, Vec<f64>> = BTreeMap::new();
        for _ in 0..PAIRS {
            let (_, rows) = self.measured(&path)?;
            if rows.iter().all(|row| row.outcome.status != Status::Ok) {
                let reasons = rows.iter().find_map(|row| row.outcome.reason.clone());
                let reason = reasons.unwrap_or_default();
                return Err(format!("the baseline `{like}` can't be measured: {reason}"));
            }
            for (row, base) in pairs(&rows, like) {
                if let (Some(own), Some(base)) = (summary(row), base.and_then(summary)) {
                    let ratio = logarithm(&base).over(logarithm(&own));
                    ratios.entry(key_of(row)).or_default().push(ratio.value);
                }
            }
        }
        self.pairs.borrow_mut().insert(like.to_owned(), ratios);
        Ok(())
    }

    /// How far the ratio of two processes of equal code is from 1, with a probability of 95 %, as a
    /// logarithm.
    fn between_processes(&self, like: &str, row: &Row) -> f64 {
        let pairs = self.pairs.borrow();
        let ratios = pairs.get(like).and_then(|known| known.get(&key_of(row)));
        let Some(ratios) = ratios else {
            return 0.0;
        };
        let count = ratios.len() as f64;
        let squares: f64 = ratios.iter().map(|ratio| ratio * ratio).sum();
        critical(0.95, count) * (squares / count).sqrt()
    }

    /// The backend whose arguments a candidate takes, and the key of its source.
    fn model(&self, candidate: &Candidate) -> Result<(String, SourceKey), String> {
        let wanted = candidate.like.as_ref().or(self.args.like.as_ref());
        let cases = self.manifest.cases.iter();
        let mut functions = cases.flat_map(|case| {
            let backends = case.backends.iter();
            backends.filter_map(|backend| {
                let name = family_of(backend.0.name);
                let declared = case.workload.declared?;
                Some((name.to_owned(), declared.source_key(name)?))
            })
        });
        let found = functions.find(|(name, _)| wanted.is_none_or(|wanted| wanted == name));
        found.ok_or_else(|| match wanted {
            Some(wanted) => format!("no case has a function in Python called `{wanted}`"),
            None => {
                "no case has a function in Python whose arguments a candidate could take".to_owned()
            }
        })
    }

    /// The manifest of a candidate, or of the baseline beside itself.
    fn text(&self, like: &str, candidate: Option<(&Candidate, SourceKey)>) -> String {
        let base = self.args.manifest.again();
        let mut text = format!("schema = 1\nextends = {}\n", string(&base[0]));
        let _ = write!(text, "\n[backend.{NAME}]\nlike  = {}\n", string(like));
        if let Some((candidate, source)) = candidate {
            let _ = writeln!(text, "{} = \"candidate.py\"", source.name());
            let entry = candidate.entry.as_ref().or(self.args.entry.as_ref());
            if let (Some(entry), SourceKey::Python) = (entry, source) {
                let _ = writeln!(text, "entry = {}", string(entry));
            }
        }
        // Others need not be measured again for each candidate.
        let cases = self.manifest.cases.iter();
        let has_baseline = |case: &&Case| {
            let mut names = case.backends.iter();
            names.any(|backend| family_of(backend.0.name) == like)
        };
        for case in cases.filter(has_baseline) {
            let _ = write!(
                text,
                "\n[case.{}]\nbackends = [{}, \"{NAME}\"]\n",
                key(&case.name),
                string(like)
            );
        }
        text
    }

    /// Runs a manifest in a process of its own; the folder of the run, and its rows.
    fn measured(&self, path: &Path) -> Result<(PathBuf, Vec<Row>), String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let settings = &self.args.manifest.again()[1..];
        let output = Command::new(program)
            .arg("run")
            .arg(path)
            .args(settings)
            .args(["--json", "--untrusted"])
            .args((!self.args.reuse).then_some("--fresh"))
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        let events = stdout.lines().rev();
        let mut events = events.filter_map(|line| serde_json::from_str(line).ok());
        let ended = events.find(|event: &serde_json::Value| event["event"] == "ended");
        let folder = ended.and_then(|event| Some(PathBuf::from(event["folder"].as_str()?)));
        let folder = folder.ok_or_else(|| {
            let words = String::from_utf8_lossy(&output.stderr);
            format!("it can't be measured: {}", words.trim())
        })?;
        let journals = parts::journals(&folder).map_err(|error| error.to_string())?;
        let contents = Contents::read_all(&journals).map_err(|error| error.to_string())?;
        Ok((folder, contents.rows()?))
    }

    /// The verdict of the rows of a run.
    fn verdict_of(&self, id: &str, baseline: &str, rows: &[Row], folder: PathBuf) -> Verdict {
        let mut ratios = Vec::new();
        let points = pairs(rows, baseline).map(|(row, base)| {
            let own = summary(row);
            let base = base.and_then(summary);
            if let (Some(own), Some(base)) = (&own, &base) {
                let mut ratio = logarithm(base).over(logarithm(own));
                let between = self.between_processes(baseline, row);
                ratio.below = ratio.below.hypot(between);
                ratio.above = ratio.above.hypot(between);
                ratios.push(ratio);
            }
            Point {
                parameters: row.parameters.clone(),
                phase: row.phase,
                status: row.outcome.status,
                reason: row.outcome.reason.clone(),
                median_ns: own.map(|own| own.median),
                baseline_median_ns: base.map(|base| base.median),
            }
        });
        let points: Vec<Point> = points.collect();
        let failed = points.iter().find(|point| point.status != Status::Ok);
        let (verdict, reason) = match failed {
            Some(point) => (point.status, point.reason.clone()),
            None if points.is_empty() => (Status::Error, Some("it has no point".to_owned())),
            None => (Status::Ok, None),
        };
        Verdict {
            id: id.to_owned(),
            verdict,
            reason,
            speedup: LogInterval::mean(&ratios).map(LogInterval::numbers),
            baseline: baseline.to_owned(),
            points,
            folder: Some(folder),
            seconds: 0.0,
        }
    }
}

impl Verdict {
    /// For people.
    fn line(&self) -> String {
        let mut line = format!("{:20} {:12}", self.id, self.verdict.name());
        if let Some([low, middle, high]) = self.speedup {
            let _ = write!(
                line,
                " {middle:.2}x as fast as {} ({low:.2} to {high:.2})",
                self.baseline
            );
        }
        if let Some(reason) = &self.reason {
            let _ = write!(line, " {reason}");
        }
        line.trim_end().to_owned()
    }
}

/// The rows of candidates, each with that of the baseline for the same problem and phase.
fn pairs<'r>(rows: &'r [Row], baseline: &str) -> impl Iterator<Item = (&'r Row, Option<&'r Row>)> {
    let of = |name: &str| -> Vec<&'r Row> {
        let rows = rows.iter().filter(|row| row.backend == name);
        rows.collect()
    };
    let others = of(baseline);
    of(NAME).into_iter().map(move |row| {
        let mut others = others.iter();
        let other = others.find(|other| key_of(other) == key_of(row));
        (row, other.copied())
    })
}

fn key_of(row: &Row) -> PointKey {
    (row.problem, row.phase)
}

/// The times of a row that is right.
fn summary(row: &Row) -> Option<Summary> {
    let measured = row.outcome.measurement.as_ref();
    let measured = measured.filter(|_| row.outcome.status == Status::Ok)?;
    Summary::of(&measured.samples_ns)
}

fn logarithm(summary: &Summary) -> LogInterval {
    let interval = (summary.interval.low, summary.interval.high);
    LogInterval::new(summary.median, Some(interval))
}
