//! How far a process is with its part of a run: a small file that it writes again and again, for
//! people and for processes of other machines to look at. Nothing is made from it: rows are in
//! journals.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::hold::Holder;
use super::usage::RunUsage;
use sweeper_model::files;
use sweeper_model::identity::Digest;
use sweeper_model::row::outcome::Status;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Every point of its part has a row.
    Done,
    /// It was stopped early, and goes on when it is started again.
    Stopped,
    /// It could not go on.
    Failed,
}

/// The last point without a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The point, in words.
    pub label: String,
    /// Its status.
    pub status: Status,
    /// The reason, without further lines.
    pub reason: String,
}

/// How far a process is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The process.
    pub holder: Holder,
    /// Goes up each time that the file is written.
    pub beat: u64,
    /// Digest of the plan that was dealt out, of a shard.
    pub plan: Option<Digest>,
    /// Points of the whole run.
    pub run_points: usize,
    /// Points of the process's part.
    pub points: usize,
    /// Points of it that have rows.
    pub done: usize,
    /// Rows that this process wrote.
    pub written: usize,
    /// For how long it has measured, in seconds.
    pub measured_s: f64,
    /// Predicted time of the rest, in seconds, from the times of points of their kinds.
    pub left_s: Option<f64>,
    /// Rows by status, of its part.
    pub statuses: BTreeMap<Status, usize>,
    /// Rows without a result that should have one.
    pub failures: usize,
    /// The last of them.
    pub last_failure: Option<Failure>,
    /// Bytes of the journal when this was written: later rows are not in the counts.
    pub journal_bytes: u64,
    /// When it began, in seconds since 1970 by the clock of its machine.
    pub began_unix_s: f64,
    /// How it ended; none while it works.
    pub end: Option<End>,
    /// The use of the devices' time, once it has ended.
    #[serde(default)]
    pub usage: Option<RunUsage>,
}

impl State {
    /// At the beginning.
    pub fn new(holder: Holder, points: usize) -> Self {
        State {
            holder,
            beat: 0,
            plan: None,
            run_points: points,
            points,
            done: 0,
            written: 0,
            measured_s: 0.0,
            left_s: None,
            statuses: BTreeMap::new(),
            failures: 0,
            last_failure: None,
            journal_bytes: 0,
            began_unix_s: 0.0,
            end: None,
            usage: None,
        }
    }

    /// The state in a file, where there is one that can be read.
    pub fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&files::read(path).ok()?).ok()
    }
}
