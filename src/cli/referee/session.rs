//! Runs of one problem with candidates, in workers that wait for the next one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::verdict::{Pairs, Verdict};
use super::{Candidate, NAME, RefereeArgs};
use crate::cli::screen::Screen;
use crate::cli::{place, worker};
use crate::run::{self, Event, Progress, Request, retry::Retry, reuse::Reuse, time::Allowed};
use sweeper_engine::execute::supervisor::IdleWorkers;
use sweeper_manifest::Manifest;
use sweeper_manifest::case::Case;
use sweeper_manifest::import::names;
use sweeper_manifest::user::SourceKey;
use sweeper_model::row::Row;
use sweeper_model::row::outcome::Status;
use sweeper_model::scratch::Scratch;
use sweeper_model::shard::Part;
use sweeper_model::toml_text::{key, string};
use sweeper_model::tuning::family_of;
use sweeper_results::record::{contents::Contents, parts};

/// The longest name of a candidate.
const MOST_NAME: usize = 60;

/// So often the baseline is measured beside itself.
const PAIRS: u32 = 5;

/// The candidates of one problem.
pub(super) struct Session<'a> {
    pub(super) args: &'a RefereeArgs,
    pub(super) manifest: &'a Manifest,
    pub(super) screen: &'a Screen,
    pub(super) stop: &'static AtomicBool,
    /// Ratios of two processes of one baseline, by its name and that of the problem.
    pub(super) pairs: Mutex<BTreeMap<(String, Option<String>), Pairs>>,
}

/// One of several that measure candidates at a time.
pub(super) struct Seat {
    pub(super) workers: IdleWorkers,
    /// Its device, where it is told one.
    pub(super) device: Option<String>,
}

/// A run that nobody watches.
struct Silent;

impl Progress for Silent {
    fn event(&self, _event: &Event<'_>) {}
}

/// Whether a case is that of a problem: by its own name, or by that in the benchmark that it was
/// imported from.
fn is_for(case: &Case, problem: &str) -> bool {
    let plain = names::plain(problem);
    let imported = ["kb", "fi"].map(|prefix| format!("{prefix}_{plain}"));
    let named = [problem, &plain].into_iter();
    let mut named = named.chain(imported.iter().map(String::as_str));
    named.any(|name| name == &*case.name)
}

/// The name of a candidate's file.
fn file_of(source: SourceKey) -> String {
    format!("candidate.{}", source.extension())
}

impl Session<'_> {
    /// Measures and judges a candidate.
    pub(super) fn verdict(&self, candidate: &Candidate, seat: &Seat) -> Verdict {
        let start = Instant::now();
        let mut verdict = match self.run(candidate, seat) {
            Ok(verdict) => verdict,
            Err(reason) => Verdict::refusal(&candidate.id, reason),
        };
        verdict.problem.clone_from(&candidate.problem);
        verdict.seconds = start.elapsed().as_secs_f64();
        verdict
    }

    /// Runs the problem with a candidate.
    fn run(&self, candidate: &Candidate, seat: &Seat) -> Result<Verdict, String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let id = &candidate.id;
        if id.is_empty() || id.len() > MOST_NAME || !id.chars().all(is_plain) {
            return Err(format!(
                "an id has 1 to {MOST_NAME} letters, digits, `-` and `_`"
            ));
        }
        let (like, source) = self.model(candidate)?;
        let problem = candidate.problem.as_deref();
        let pairs = match self.args.reuse {
            true => Pairs::default(),
            false => self.calibrated(&like, problem, seat)?,
        };
        let scratch = Scratch::new().map_err(|error| error.to_string())?;
        let path = scratch.path().join(format!("{id}.toml"));
        let text = self.text(&like, problem, Some((candidate, source)));
        let written = fs::write(&path, text);
        let file = scratch.path().join(file_of(source));
        written
            .and_then(|()| fs::write(file, &candidate.code))
            .map_err(|error| error.to_string())?;
        let (folder, rows) = self.measured(&path, seat)?;
        Ok(Verdict::from_rows(id, &like, (&rows, &pairs), folder))
    }

    /// Measures the baseline beside itself some times, once for all candidates: equal code takes a
    /// few per cent more or less in another process, where its memory lies elsewhere.
    fn calibrated(&self, like: &str, problem: Option<&str>, seat: &Seat) -> Result<Pairs, String> {
        // Others wait: nothing may be measured beside it.
        let mut all = self.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (like.to_owned(), problem.map(str::to_owned));
        if let Some(known) = all.get(&key) {
            return Ok(known.clone());
        }
        let scratch = Scratch::new().map_err(|error| error.to_string())?;
        let path = scratch.path().join("baseline.toml");
        fs::write(&path, self.text(like, problem, None)).map_err(|error| error.to_string())?;
        let mut pairs = Pairs::default();
        for _ in 0..PAIRS {
            let (_, rows) = self.measured(&path, seat)?;
            if rows.iter().all(|row| row.outcome.status != Status::Ok) {
                let reasons = rows.iter().find_map(|row| row.outcome.reason.clone());
                let reason = reasons.unwrap_or_default();
                return Err(format!("the baseline `{like}` can't be measured: {reason}"));
            }
            pairs.add(&rows, like);
        }
        all.insert(key, pairs.clone());
        Ok(pairs)
    }

    /// The backend whose arguments a candidate takes, and the key of its source.
    fn model(&self, candidate: &Candidate) -> Result<(String, SourceKey), String> {
        let wanted = candidate.like.as_ref().or(self.args.like.as_ref());
        let cases = self.manifest.cases.iter();
        let problem = candidate.problem.as_deref();
        let cases = cases.filter(|case| problem.is_none_or(|problem| is_for(case, problem)));
        let mut functions = cases.flat_map(|case| {
            let backends = case.backends.iter();
            backends.filter_map(|backend| {
                let name = family_of(backend.0.name);
                let declared = case.workload.declared?;
                Some((name.to_owned(), declared.source_key(name)?))
            })
        });
        let kind = candidate.kind.as_deref();
        let found = functions.find(|(name, source)| {
            let is_meant = wanted.is_none_or(|wanted| wanted == name);
            is_meant && kind.is_none_or(|kind| kind == source.extension())
        });
        found.ok_or_else(|| {
            let what = match kind {
                Some("c") => "kernel in C",
                Some("cu") => "kernel in CUDA",
                Some("py") => "function in Python",
                Some(_) => return "`kind` is `py`, `c` or `cu`".to_owned(),
                None => "function in Python or kernel in C or CUDA",
            };
            let case = match problem {
                Some(problem) => format!("no case `{problem}`"),
                None => "no case".to_owned(),
            };
            match wanted {
                Some(wanted) => format!("{case} has a {what} called `{wanted}`"),
                None => format!("{case} has a {what} whose arguments a candidate could take"),
            }
        })
    }

    /// The manifest of a candidate, or of the baseline beside itself.
    fn text(
        &self,
        like: &str,
        problem: Option<&str>,
        candidate: Option<(&Candidate, SourceKey)>,
    ) -> String {
        let base = self.args.manifest.again();
        // Others need not be measured again for each candidate.
        let cases = self.manifest.cases.iter();
        let has_baseline = |case: &&Case| {
            let mut names = case.backends.iter();
            names.any(|backend| family_of(backend.0.name) == like)
        };
        let cases = cases.filter(|case| problem.is_none_or(|problem| is_for(case, problem)));
        let cases: Vec<&Case> = cases.filter(has_baseline).collect();
        let names: Vec<String> = cases.iter().map(|case| string(&case.name)).collect();
        let mut text = format!("schema = 1\nextends = {}\n", string(&base[0]));
        let _ = writeln!(text, "cases = [{}]", names.join(", "));
        let _ = write!(text, "\n[backend.{NAME}]\nlike  = {}\n", string(like));
        if let Some((candidate, source)) = candidate {
            // Its baseline may call them.
            let _ = writeln!(text, "libraries = false");
            let _ = writeln!(text, "{} = \"{}\"", source.name(), file_of(source));
            let entry = candidate.entry.as_ref().or(self.args.entry.as_ref());
            if let (Some(entry), SourceKey::Python | SourceKey::C | SourceKey::Cuda) =
                (entry, source)
            {
                let _ = writeln!(text, "entry = {}", string(entry));
            }
        }
        for case in cases {
            let _ = write!(
                text,
                "\n[case.{}]\nbackends = [{}, \"{NAME}\"]\n",
                key(&case.name),
                string(like)
            );
        }
        text
    }

    /// Runs a manifest; the folder of the run, and its rows.
    fn measured(&self, path: &Path, seat: &Seat) -> Result<(PathBuf, Vec<Row>), String> {
        let manifest = self
            .args
            .manifest
            .load_other(path, seat.device.as_deref())?;
        let mut worker = worker::command().map_err(|error| error.to_string())?;
        worker.idle = Some(seat.workers.clone());
        let (cache_dir, _) = place::cache_dir(Some(&manifest));
        let request = Request {
            worker,
            resolved: manifest.resolved_toml(),
            command: std::env::args().collect(),
            fresh: !self.args.reuse,
            retry: Retry::default(),
            part: Part::Whole,
            allowed: Allowed::here(Instant::now(), None),
            reuse: match self.args.reuse {
                true => Reuse::Unedited,
                false => Reuse::Nothing,
            },
            require_cached: false,
            skip_precompile: false,
            save_tensors: None,
            compile_threads: place::compile_threads(&manifest),
            cache_dir: Some(cache_dir),
        };
        let ended = run::run(&manifest, &request, self.stop, &Silent);
        let folder = ended.map_err(|error| error.to_string())?.folder;
        let journals = parts::journals(&folder).map_err(|error| error.to_string())?;
        let contents = Contents::read_all(&journals).map_err(|error| error.to_string())?;
        Ok((folder, contents.rows()?))
    }
}
