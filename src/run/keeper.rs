//! Tells the world how far this process is with its part of a run, and sees to it that no other
//! process has taken the part meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{io, path::PathBuf};

use super::RunError;
use super::rows::now_unix_s;
use sweeper_model::files;
use sweeper_model::hardware::DeviceKind;
use sweeper_model::row::Row;
use sweeper_model::shard::Part;
use sweeper_results::record::folder::RunFolder;
use sweeper_results::record::hold::{BEAT, Hold};
use sweeper_results::record::state::{End, Failure, State};

/// A hold that was looked at less than this ago is still this process's.
const SURE_FOR: Duration = Duration::from_secs(2);

/// Writes the state of a part, now and again until it is dropped.
pub(super) struct Keeper {
    shared: Arc<Shared>,
    part: Part,
    began: Instant,
    checked: Instant,
    ends: Option<(Sender<()>, JoinHandle<()>)>,
}

struct Shared {
    path: PathBuf,
    state: Mutex<State>,
    hold: Arc<Hold>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> io::Result<()> {
        let text = {
            let mut state = self.lock();
            state.beat += 1;
            serde_json::to_vec(&*state)?
        };
        files::replace(&self.path, &text)
    }
}

impl Keeper {
    /// Begins to tell. `stop` is set when another process has taken the part.
    pub(super) fn begin(
        folder: &RunFolder,
        mut state: State,
        kind: DeviceKind,
        stop: &'static AtomicBool,
    ) -> Result<Self, RunError> {
        state.began_unix_s = now_unix_s(kind);
        let shared = Arc::new(Shared {
            path: folder.part().state(folder.path()),
            state: Mutex::new(state),
            hold: Arc::clone(folder.hold()),
        });
        // A disk that is full is found by the journal, which matters.
        let _ = shared.write();
        let (sender, ended) = mpsc::channel::<()>();
        let told = Arc::clone(&shared);
        let beats = thread::Builder::new()
            .name("state".to_owned())
            .spawn(move || {
                while ended.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                    if !told.hold.is_own() {
                        stop.store(true, Ordering::Relaxed);
                        return;
                    }
                    let _ = told.write();
                }
            });
        let beats = beats
            .map_err(|error| RunError::Impossible(format!("a thread can't be started: {error}")))?;
        let now = Instant::now();
        Ok(Keeper {
            shared,
            part: folder.part(),
            began: now,
            checked: now,
            ends: Some((sender, beats)),
        })
    }

    /// Refuses to write rows to a part that another process has taken, as happens when this one was
    /// suspended for long.
    pub(super) fn check(&mut self) -> Result<(), RunError> {
        if self.checked.elapsed() < SURE_FOR {
            return Ok(());
        }
        if !self.shared.hold.is_own() {
            return Err(RunError::Lost(self.part));
        }
        self.checked = Instant::now();
        Ok(())
    }

    /// Measuring begins.
    pub(super) fn measures(&mut self) {
        self.began = Instant::now();
    }

    /// A row was written.
    pub(super) fn row(&self, row: &Row, label: &str, left_s: Option<f64>, journal_bytes: u64) {
        let mut state = self.shared.lock();
        state.done = (state.done + 1).min(state.points);
        state.written += 1;
        state.left_s = left_s;
        state.measured_s = (self.began.elapsed().as_secs_f64() * 1e3).round() / 1e3;
        state.journal_bytes = journal_bytes;
        *state.statuses.entry(row.outcome.status).or_insert(0) += 1;
        if row.outcome.is_failure() {
            let reason = row.outcome.reason.as_deref().unwrap_or_default();
            state.failures += 1;
            state.last_failure = Some(Failure {
                label: label.to_owned(),
                status: row.outcome.status,
                reason: reason.lines().next().unwrap_or_default().to_owned(),
            });
        }
    }

    /// Says how it ended.
    pub(super) fn end(&mut self, end: End, change: impl FnOnce(&mut State)) {
        let Some((sender, beats)) = self.ends.take() else {
            return;
        };
        drop(sender);
        // A thread that panicked has said all that it could.
        let _ = beats.join();
        {
            let mut state = self.shared.lock();
            state.end = Some(end);
            state.left_s = None;
            change(&mut state);
        }
        if self.shared.hold.is_own() {
            let _ = self.shared.write();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end(End::Failed, |_| {});
    }
}
