//! `sweeper referee`: candidates of strangers or of models, each measured and judged by itself.
//!
//! A candidate is a backend that is laid over the problem's manifest, and its verdict is that of a
//! run of both: with rows, a journal and a hash as any other. Each GPU measures one at a time, in a
//! worker that stays.

mod session;
pub mod table;
mod verdict;

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use clap::Args;
use serde::Deserialize;

use super::exit::Exit;
use super::import::import_folder;
use super::screen::Screen;
use super::settings::ManifestArgs;
use super::signals;
use crate::run::device_requests;
use session::{Seat, Session};
use sweeper_engine::execute::supervisor::IdleWorkers;
use sweeper_manifest::Manifest;
use sweeper_model::scratch::Scratch;
use table::Journal;
use verdict::Verdict;

/// The longest line that is taken, in bytes.
const MOST_LINE_BYTES: u64 = 16 << 20;

/// The name of a candidate in its run.
const NAME: &str = "candidate";

/// Arguments of `referee`.
#[derive(Args)]
pub struct RefereeArgs {
    #[command(flatten)]
    manifest: ManifestArgs,
    /// A folder of candidates, one to a file of Python or C, in place of lines of JSON on standard
    /// input; a folder in it has those for the problem of its name
    #[arg(long, value_name = "DIR", conflicts_with = "socket")]
    candidates: Option<PathBuf>,
    /// Take lines of JSON from whoever connects to this Unix socket
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The backend whose arguments a candidate takes, and that it is compared with: the manifest's
    /// first function in Python or kernel in C by default
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
    /// The case that it is for, or the name of its problem in a benchmark.
    problem: Option<String>,
    /// What the name of its file would end with, `py` or `c`: that of the backend that it is like
    /// where this is not said.
    kind: Option<String>,
}

/// Endings of files with candidates.
const KINDS: [&str; 3] = ["py", "c", "cu"];

/// A line of input that was read: a candidate, or why it is none.
type Line = Result<Candidate, String>;

/// Measures and judges candidates.
pub fn referee(args: &RefereeArgs, screen: &Screen) -> Exit {
    // Its manifest stays as long as candidates come.
    let mut imported = None;
    let manifest = match args.manifest.folder() {
        Some(folder) => problems(folder, &mut imported, args, screen),
        None => args.manifest.load(screen),
    };
    let manifest = match manifest {
        Ok(manifest) => manifest,
        Err(exit) => return exit,
    };
    let devices = match devices(&manifest) {
        Ok(devices) => devices,
        Err(reason) => {
            screen.error(&reason);
            return Exit::Impossible;
        }
    };
    let session = Session {
        args,
        manifest: &manifest,
        screen,
        stop: signals::listen(screen),
        pairs: Mutex::default(),
    };
    let name = manifest.name.to_string();
    let journal = match Journal::open(&manifest.output.dir, &name) {
        Ok(journal) => journal,
        Err(error) => {
            screen.error(&error.to_string());
            return Exit::Files;
        }
    };
    let bench = Bench {
        devices,
        session,
        journal,
    };
    let ended = match (&args.candidates, &args.socket) {
        (Some(folder), _) => bench.folder(folder),
        (None, Some(socket)) => bench.socket(socket),
        (None, None) => bench.stream(BufReader::new(io::stdin()), &mut io::stdout()),
    };
    match ended {
        Ok(()) => Exit::Fine,
        Err(error) => {
            screen.error(&error.to_string());
            Exit::Files
        }
    }
}

/// The manifest of the problems in a folder, which is written into a folder of its own.
fn problems(
    folder: &Path,
    imported: &mut Option<Scratch>,
    args: &RefereeArgs,
    screen: &Screen,
) -> Result<Manifest, Exit> {
    let failed = |error: io::Error| {
        screen.error(&error.to_string());
        Exit::Files
    };
    let scratch = imported.insert(Scratch::new().map_err(failed)?);
    let named = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let name = named.file_name().unwrap_or_default().to_string_lossy();
    let path = scratch.path().join(format!("{name}.toml"));
    let text = import_folder(folder, path.clone(), screen)?;
    fs::write(&path, text).map_err(failed)?;
    args.manifest.load_in_place(path, screen)
}

/// The devices, those of which there are several by name.
fn devices(manifest: &Manifest) -> Result<Vec<Option<String>>, String> {
    let requests = device_requests(manifest).map_err(|error| error.to_string())?;
    let each = requests.iter().map(|request| {
        let facts = request.kind.facts();
        let name = || format!("{}:{}", facts.name, request.ordinal);
        facts.is_gpu.then(name)
    });
    Ok(each.collect())
}

/// What a folder has, in the order of names.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let named = |error: io::Error| io::Error::other(format!("{}: {error}", folder.display()));
    let entries = fs::read_dir(folder).map_err(named)?;
    let paths = entries.map(|entry| Ok(entry?.path()));
    let mut paths: Vec<PathBuf> = paths.collect::<io::Result<_>>().map_err(named)?;
    paths.sort();
    Ok(paths)
}

/// Where candidates are measured.
struct Bench<'a> {
    devices: Vec<Option<String>>,
    session: Session<'a>,
    journal: Journal,
}

impl Bench<'_> {
    /// A verdict for each file of a folder, and of the folders in it, which have the names of
    /// problems.
    fn folder(&self, folder: &Path) -> io::Result<()> {
        let mut paths: Vec<(Option<String>, PathBuf)> = Vec::new();
        for path in entries(folder)? {
            if path.is_dir() {
                let problem = path.file_name().unwrap_or_default().to_string_lossy();
                let inside = entries(&path)?.into_iter();
                paths.extend(inside.map(|path| (Some(problem.clone().into_owned()), path)));
            } else {
                paths.push((None, path));
            }
        }
        let kind = |path: &Path| path.extension()?.to_str().map(str::to_owned);
        paths.retain(|(_, path)| kind(path).is_some_and(|kind| KINDS.contains(&&*kind)));
        let candidates = paths.into_iter().map(|(problem, path)| {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let code =
                sweeper_model::scratch::read(&path, MOST_LINE_BYTES).map_err(io::Error::other)?;
            Ok(Ok(Candidate {
                id: stem.into_owned(),
                code: String::from_utf8_lossy(&code).into_owned(),
                entry: None,
                like: None,
                problem,
                kind: kind(&path),
            }))
        });
        let screen = self.session.screen;
        self.judge(candidates, &|verdict| {
            match screen.json {
                true => screen.line(&serde_json::to_string(&verdict)?),
                false => screen.line(&verdict.line()),
            }
            Ok(())
        })?;
        screen.note(&format!(
            "all verdicts: sweeper report {}",
            self.journal.path().display()
        ));
        Ok(())
    }

    /// Serves one connection after another, for ever.
    fn socket(&self, path: &Path) -> io::Result<()> {
        let screen = self.session.screen;
        let listener = UnixListener::bind(path)
            .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
        screen.note(&format!("listening on {}", path.display()));
        for connection in listener.incoming() {
            let mut connection = connection?;
            let reader = BufReader::new(connection.try_clone()?);
            // Who hangs up gets no more verdicts; others do.
            if let Err(error) = self.stream(reader, &mut connection) {
                screen.warning(&format!("a connection ended: {error}"));
            }
        }
        Ok(())
    }

    /// A line with a verdict for each line with a candidate, as soon as it is known.
    fn stream(&self, mut lines: impl BufRead, out: &mut (impl Write + Send)) -> io::Result<()> {
        let out = Mutex::new(out);
        let mut line = Vec::new();
        let mut next = || -> io::Result<Option<Line>> {
            loop {
                line.clear();
                let mut bounded = io::Read::take(&mut lines, MOST_LINE_BYTES);
                if bounded.read_until(b'\n', &mut line)? == 0 {
                    return Ok(None);
                }
                if !line.iter().all(u8::is_ascii_whitespace) {
                    let candidate = serde_json::from_slice(&line);
                    return Ok(Some(candidate.map_err(|error| {
                        format!(
                            "the line is not a candidate (`{{\"id\": ..., \"code\": ...}}`): {error}"
                        )
                    })));
                }
            }
        };
        self.judge(std::iter::from_fn(|| next().transpose()), &|verdict| {
            let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
            writeln!(out, "{}", serde_json::to_string(&verdict)?)?;
            out.flush()
        })
    }

    /// Has candidates measured, one on each device at a time, and tells each verdict.
    fn judge(
        &self,
        candidates: impl Iterator<Item = io::Result<Line>>,
        tell: &(dyn Fn(Verdict) -> io::Result<()> + Sync),
    ) -> io::Result<()> {
        let (sender, receiver) = sync_channel(0);
        // It is gone with the last that takes candidates.
        let receiver = Arc::new(Mutex::new(receiver));
        thread::scope(|scope| {
            let jobs = self.devices.iter().map(|device| {
                let receiver = Arc::clone(&receiver);
                scope.spawn(move || self.work(device.clone(), &receiver, tell))
            });
            let jobs: Vec<_> = jobs.collect();
            drop(receiver);
            // Where nobody takes verdicts any more, all have ended.
            let mut read = Ok(true);
            for candidate in candidates {
                read = candidate.map(|candidate| sender.send(candidate).is_ok());
                if !matches!(read, Ok(true)) {
                    break;
                }
            }
            drop(sender);
            let read = read.map(drop);
            let ended = jobs.into_iter().map(|job| {
                job.join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            ended.fold(read, Result::and)
        })
    }

    /// Measures one candidate after the other.
    fn work(
        &self,
        device: Option<String>,
        candidates: &Mutex<Receiver<Line>>,
        tell: &(dyn Fn(Verdict) -> io::Result<()> + Sync),
    ) -> io::Result<()> {
        let seat = Seat {
            workers: IdleWorkers::default(),
            device,
        };
        loop {
            let next = || {
                let candidates = candidates.lock();
                candidates.unwrap_or_else(PoisonError::into_inner).recv()
            };
            let verdict = match next() {
                Ok(Ok(candidate)) => self.session.verdict(&candidate, &seat),
                Ok(Err(reason)) => Verdict::refusal("", reason),
                Err(_) => return Ok(()),
            };
            self.journal.add(&verdict)?;
            tell(verdict)?;
        }
    }
}
