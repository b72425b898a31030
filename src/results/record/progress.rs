//! How far the processes are that measure a run: from files alone, wherever the processes are.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::SystemTime;

use rayon::prelude::*;
use serde::Serialize;

use super::hold::{self, Holder};
use super::parts;
use super::state::{End, Failure, State};
use sweeper_model::row::outcome::Status;
use sweeper_model::shard::{Part, Shard};

/// A process of another machine that has said nothing for so long may be gone.
const SILENT_S: f64 = 60.0;

/// How a part stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// A process is at it.
    AtWork,
    /// A process may be at it, and has said nothing for a while.
    Silent,
    /// It was stopped early.
    Stopped,
    /// Its process could not go on.
    Failed,
    /// Its process is gone without a word.
    Gone,
    /// No process has begun it.
    NotBegun,
    /// Every point has a row.
    Done,
}

impl Standing {
    /// All, in the order in which they are counted.
    pub const ALL: [Standing; 7] = [
        Standing::Done,
        Standing::AtWork,
        Standing::Silent,
        Standing::Stopped,
        Standing::Failed,
        Standing::Gone,
        Standing::NotBegun,
    ];

    /// The words of screens.
    pub const fn words(self) -> &'static str {
        match self {
            Standing::AtWork => "at work",
            Standing::Silent => "silent",
            Standing::Stopped => "stopped",
            Standing::Failed => "failed",
            Standing::Gone => "gone",
            Standing::NotBegun => "not begun",
            Standing::Done => "done",
        }
    }
}

/// How far one part is.
#[derive(Clone, Debug, Serialize)]
pub struct PartProgress {
    /// The shard; none for all of the run.
    pub shard: Option<Shard>,
    /// How it stands.
    pub standing: Standing,
    /// The machine of its last process.
    pub host: Option<String>,
    /// The number of the process there.
    pub pid: Option<u32>,
    /// The scheduler's job.
    pub job: Option<String>,
    /// Its points; none before a process has counted them.
    pub points: Option<usize>,
    /// Those that have rows.
    pub done: usize,
    /// Rows a second of the process.
    pub per_s: Option<f64>,
    /// Predicted time of the rest, in seconds.
    pub left_s: Option<f64>,
    /// How long ago the process has said something, in seconds: by the clock of this machine and
    /// the time of the file, which may disagree.
    pub said_s_ago: Option<f64>,
    /// Rows by status.
    pub statuses: BTreeMap<Status, usize>,
    /// Rows without a result that should have one.
    pub failures: usize,
    /// The last of them.
    pub last_failure: Option<Failure>,
}

/// How far a run is.
#[derive(Clone, Debug, Serialize)]
pub struct Progress {
    /// Points of the run, where they are known.
    pub points: Option<usize>,
    /// Those that have rows.
    pub done: usize,
    /// Rows a second of all processes at work.
    pub per_s: f64,
    /// Predicted time until the end, in seconds, with as many processes as are at work; none where
    /// nobody is.
    pub left_s: Option<f64>,
    /// The parts.
    pub parts: Vec<PartProgress>,
}

impl Progress {
    /// Reads the states of a run's parts. `planned` is asked for the number of points only if no
    /// process has said it.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn read(folder: &Path, planned: impl FnOnce() -> Option<usize>) -> io::Result<Self> {
        let here = Holder::here();
        let shards = parts::shards(folder)?;
        let count = shards.iter().map(|shard| shard.count).max();
        let all: Vec<Part> = match count {
            None => vec![Part::Whole],
            Some(count) => {
                let all = (1..=count).map(|index| Part::Shard(Shard { count, index }));
                all.collect()
            }
        };
        let read = all.par_iter().map(|&part| {
            let state = State::read(&part.state(folder));
            (part_progress(folder, part, state.as_ref(), &here), state)
        });
        let (mut parts, states): (Vec<PartProgress>, Vec<Option<State>>) = read.unzip();
        let said = states.iter().flatten().map(|state| state.run_points).max();
        let points = said.or_else(planned);
        // A plain run that goes on with the rows of shards.
        if count.is_some() && hold::held_by(&Part::Whole.hold(folder)).is_some() {
            let state = State::read(&Part::Whole.state(folder));
            parts.insert(0, part_progress(folder, Part::Whole, state.as_ref(), &here));
        }
        Ok(Progress::of(points, parts))
    }

    fn of(points: Option<usize>, parts: Vec<PartProgress>) -> Self {
        let is_whole = |part: &&PartProgress| part.shard.is_none();
        let whole = parts.iter().find(is_whole).map(|part| part.done);
        let done: usize = whole.unwrap_or_else(|| parts.iter().map(|part| part.done).sum());
        let at_work = parts
            .iter()
            .filter(|part| part.standing == Standing::AtWork);
        let at_work: Vec<&PartProgress> = at_work.collect();
        let per_s = at_work.iter().filter_map(|part| part.per_s).sum();
        let longest = at_work
            .iter()
            .filter_map(|part| part.left_s)
            .fold(0.0, f64::max);
        let known = at_work.iter().all(|part| part.left_s.is_some());
        // Points that no process works on wait for the processes at work, at their rate.
        let waiting: usize = match (points, whole) {
            (Some(points), None) => {
                let own = at_work
                    .iter()
                    .map(|part| part.points.unwrap_or(0) - part.done.min(part.points.unwrap_or(0)));
                points.saturating_sub(done).saturating_sub(own.sum())
            }
            _ => 0,
        };
        let left_s = (known && !at_work.is_empty() && per_s > 0.0).then(|| {
            let own: f64 = at_work.iter().filter_map(|part| part.left_s).sum();
            let shared = own / at_work.len() as f64 + waiting as f64 / per_s;
            longest.max(shared)
        });
        Progress {
            points,
            done,
            per_s,
            left_s,
            parts,
        }
    }

    /// How many parts are in which standing.
    pub fn counts(&self) -> BTreeMap<Standing, usize> {
        let mut counts = BTreeMap::new();
        for part in &self.parts {
            *counts.entry(part.standing).or_insert(0) += 1;
        }
        counts
    }
}

fn part_progress(folder: &Path, part: Part, state: Option<&State>, here: &Holder) -> PartProgress {
    let shard = match part {
        Part::Whole => None,
        Part::Shard(shard) => Some(shard),
    };
    let holder = hold::read(&part.hold(folder));
    let named = holder.as_ref().or(state.map(|state| &state.holder));
    let said_s_ago = said_s_ago(&part.state(folder));
    let standing = standing(state, holder.as_ref(), here, said_s_ago);
    let is_over = state.is_some_and(|state| state.end.is_some());
    let unseen = match state {
        Some(state) if !is_over => rows_after(&part.journal(folder), state.journal_bytes),
        _ => Ok(0),
    };
    let points = state.map(|state| state.points);
    let done = state.map_or(0, |state| state.done) + unseen.unwrap_or(0);
    PartProgress {
        shard,
        standing,
        host: named.map(|holder| holder.host.clone()),
        pid: named.map(|holder| holder.pid),
        job: named.and_then(|holder| holder.job.clone()),
        points,
        done: points.map_or(done, |points| done.min(points)),
        per_s: state
            .filter(|state| state.measured_s > 0.0)
            .map(|state| state.written as f64 / state.measured_s),
        left_s: match standing {
            Standing::AtWork => state.and_then(|state| {
                let since = said_s_ago.unwrap_or(0.0).max(0.0);
                Some((state.left_s? - since).max(0.0))
            }),
            _ => None,
        },
        said_s_ago,
        statuses: state
            .map(|state| state.statuses.clone())
            .unwrap_or_default(),
        failures: state.map_or(0, |state| state.failures),
        last_failure: state.and_then(|state| state.last_failure.clone()),
    }
}

fn standing(
    state: Option<&State>,
    holder: Option<&Holder>,
    here: &Holder,
    said_s_ago: Option<f64>,
) -> Standing {
    let ended = state.and_then(|state| state.end);
    let is_of = |holder: &Holder| state.is_none_or(|state| state.holder.token == holder.token);
    match (holder, ended) {
        (Some(holder), None) => match holder.lives(here) {
            Some(true) => Standing::AtWork,
            Some(false) => Standing::Gone,
            None if said_s_ago.is_some_and(|ago| ago > SILENT_S) => Standing::Silent,
            None => Standing::AtWork,
        },
        // A process that has begun and not yet said so.
        (Some(holder), Some(_)) if !is_of(holder) && holder.lives(here) != Some(false) => {
            Standing::AtWork
        }
        (_, Some(End::Done)) => Standing::Done,
        (_, Some(End::Stopped)) => Standing::Stopped,
        (_, Some(End::Failed)) => Standing::Failed,
        (None, None) if state.is_some() => Standing::Gone,
        (None, None) => Standing::NotBegun,
    }
}

fn said_s_ago(path: &Path) -> Option<f64> {
    let time = fs::metadata(path).and_then(|file| file.modified()).ok()?;
    Some(match SystemTime::now().duration_since(time) {
        Ok(ago) => ago.as_secs_f64(),
        // The file's machine is ahead.
        Err(ahead) => -ahead.duration().as_secs_f64(),
    })
}

/// Rows of a journal after so many bytes.
fn rows_after(path: &Path, bytes: u64) -> io::Result<usize> {
    if fs::metadata(path)?.len() <= bytes {
        return Ok(0);
    }
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(bytes))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(memchr::memchr_iter(b'\n', &text).count())
}
