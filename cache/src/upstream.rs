//! Caches and bundles that are asked before anything is made, in their order. Entries that they
//! have are copied to the own cache, so each is fetched once.
//!
//! One that fails again and again is left alone for as long as the process lives: a file server
//! that is down would be waited for with every kernel.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use crate::{
    entry::Entry, error::Warning, evict::lock, format::Defect, key::EntryName, queue::Candidate,
    source::Source, summary::Summary, sys::ReadError,
};

/// An upstream that has failed so often in a row is left alone.
const MOST_FAILURES: u32 = 3;

#[derive(Debug)]
struct Upstream {
    path: PathBuf,
    source: Source,
    /// Failures since the last answer.
    failures: AtomicU32,
    /// Entries of it that can't be used.
    rejected: Mutex<BTreeSet<EntryName>>,
}

/// All upstreams of a cache.
#[derive(Debug, Default)]
pub(crate) struct Upstreams {
    upstreams: Vec<Upstream>,
    /// Not yet reported.
    warnings: Mutex<Vec<Warning>>,
}

impl Upstreams {
    /// Those that can be opened. Each other one is a warning.
    pub(crate) fn open(paths: &[PathBuf]) -> Self {
        let mut all = Self::default();
        for path in paths {
            match Source::open(path) {
                Ok(source) => all.upstreams.push(Upstream {
                    path: path.clone(),
                    source,
                    failures: AtomicU32::new(0),
                    rejected: Mutex::default(),
                }),
                Err(error) => all.warn(path, error.to_string()),
            }
        }
        all
    }

    /// The entry of the first upstream that has it.
    pub(crate) fn get(&self, name: &EntryName) -> Option<Entry> {
        self.working().find_map(|upstream| self.ask(upstream, name))
    }

    /// The most recently used entry with the content of `name`, of the first upstream that has one.
    pub(crate) fn with_content_of(&self, name: &EntryName) -> Option<Entry> {
        self.working().find_map(|upstream| {
            let beside = self.answer(upstream, upstream.source.beside(name))?;
            let mut alike: Vec<Candidate> = beside
                .into_iter()
                .filter(|candidate| candidate.name.same_content(name))
                .collect();
            alike.sort_unstable_by_key(|candidate| Reverse(*candidate));
            alike
                .iter()
                .find_map(|candidate| self.ask(upstream, &candidate.name))
        })
    }

    /// Never yields this entry again: it is sound, and can't be used.
    pub(crate) fn reject(&self, name: EntryName) {
        for upstream in &self.upstreams {
            lock(&upstream.rejected).insert(name);
        }
    }

    /// Everything that went wrong since the last call.
    pub(crate) fn take_warnings(&self) -> Vec<Warning> {
        std::mem::take(&mut lock(&self.warnings))
    }

    /// Summaries of all entries.
    pub(crate) fn summaries(&self) -> impl Iterator<Item = (Candidate, Summary)> {
        self.working().flat_map(|upstream| {
            let all = self.answer(upstream, upstream.source.all());
            let summary = |candidate: Candidate| {
                let summary = upstream.source.summary(&candidate.name).ok()?;
                Some((candidate, summary))
            };
            all.unwrap_or_default().into_iter().filter_map(summary)
        })
    }

    fn working(&self) -> impl Iterator<Item = &Upstream> {
        let works =
            |upstream: &&Upstream| upstream.failures.load(Ordering::Relaxed) < MOST_FAILURES;
        self.upstreams.iter().filter(works)
    }

    fn ask(&self, upstream: &Upstream, name: &EntryName) -> Option<Entry> {
        if lock(&upstream.rejected).contains(name) {
            return None;
        }
        match upstream.source.read(name) {
            Ok(entry) => self.answer(upstream, Ok::<_, String>(entry)),
            Err(ReadError::Absent) => {
                self.answer(upstream, Ok::<_, String>(()));
                None
            }
            Err(ReadError::Bad(Defect::Unreadable(reason))) => self.answer(upstream, Err(reason)),
            Err(ReadError::Unavailable(error)) => self.answer(upstream, Err(error)),
            // It is not ours to set aside.
            Err(ReadError::Bad(defect)) => {
                lock(&upstream.rejected).insert(*name);
                let path = &upstream.path;
                self.warn(path, format!("its entry {name} is passed over: {defect}"));
                None
            }
        }
    }

    /// Counts failures in a row.
    fn answer<T, E: ToString>(&self, upstream: &Upstream, result: Result<T, E>) -> Option<T> {
        match result {
            Ok(value) => {
                upstream.failures.store(0, Ordering::Relaxed);
                Some(value)
            }
            Err(error) => {
                let before = upstream.failures.fetch_add(1, Ordering::Relaxed);
                if before + 1 == MOST_FAILURES {
                    let reason = error.to_string();
                    self.warn(&upstream.path, format!("it is asked no more: {reason}"));
                }
                None
            }
        }
    }

    fn warn(&self, path: &Path, reason: String) {
        let path = path.to_owned();
        lock(&self.warnings).push(Warning::Upstream { path, reason });
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io};

    use super::*;

    #[test]
    fn one_that_fails_three_times_in_a_row_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("v1/o")).unwrap();
        let all = Upstreams::open(&[dir.path().to_owned(), dir.path().join("none")]);
        assert_eq!(all.take_warnings().len(), 1, "of the one that isn't there");
        let stale = || Err::<(), _>(io::Error::from(io::ErrorKind::StaleNetworkFileHandle));
        let [upstream] = &all.upstreams[..] else {
            panic!("one was opened")
        };
        for result in [stale(), stale(), Ok(()), stale(), stale()] {
            all.answer(upstream, result);
            assert_eq!(all.working().count(), 1);
        }
        all.answer(upstream, stale());
        all.answer(upstream, stale());
        assert_eq!(all.working().count(), 0);
        let warnings = all.take_warnings();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].to_string().contains("it is asked no more: "));
    }
}
