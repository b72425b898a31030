//! Entries by name on disk: read and verified, published without ever replacing one, set aside when
//! bad.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::{
    clock,
    counters::{Event, Session},
    entry::Entry,
    error::{Failure, Warning},
    evict::{Evictor, Refusal},
    format::{MAX_ENTRY_BYTES, MAX_METADATA_BYTES},
    key::EntryName,
    layout::{Layout, absent_is_none, make_dir},
    scan,
    sys::{self, Placed, ReadError},
    usage::Usage,
};

/// The quarantine keeps this many files at most, and this many bytes.
const BAD_FILES: usize = 32;
const BAD_BYTES: u64 = 64 << 20;

/// On a network file system an entry's time of last use is set this rarely.
const NETWORK_TOUCH: Duration = Duration::from_mins(10);

/// The files on disk, and the rules for changing them.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) layout: Layout,
    pub(crate) session: Arc<Session>,
    /// Present unless the directory could only be read when it was opened.
    pub(crate) evictor: Option<Evictor>,
    stopped: OnceLock<Warning>,
    relieved: AtomicBool,
    touch_after_ns: u64,
}

impl Store {
    /// A store that writes through `evictor`, or one that only reads, for the reason given.
    pub(crate) fn new(
        layout: Layout,
        session: Arc<Session>,
        evictor: Result<Evictor, Failure>,
    ) -> Self {
        let touch_after = if sys::is_slow(layout.root()) {
            NETWORK_TOUCH
        } else {
            Duration::ZERO
        };
        let stopped = OnceLock::new();
        let evictor = match evictor {
            Ok(evictor) => Some(evictor),
            Err(failure) => {
                stopped.get_or_init(|| failure.to_warning());
                None
            }
        };
        Self {
            layout,
            session,
            evictor,
            stopped,
            relieved: AtomicBool::new(false),
            touch_after_ns: u64::try_from(touch_after.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// Why nothing is written any more. `None` if files are written.
    pub(crate) fn stopped(&self) -> Option<&Warning> {
        self.stopped.get()
    }

    /// Reads and verifies an entry. Changes nothing.
    pub(crate) fn read(&self, name: &EntryName) -> Result<(File, Entry), ReadError> {
        Entry::read(&self.layout.entry(name), name, sys::user())
    }

    /// Reads an entry in order to use it: it counts as used now, and a bad one is set aside.
    pub(crate) fn get(&self, name: &EntryName) -> Option<Entry> {
        match self.read(name) {
            Ok((file, entry)) => {
                self.note_use(&file, name, entry.bytes().len() as u64);
                Some(entry)
            }
            Err(ReadError::Bad(_)) => {
                self.quarantine(name);
                None
            }
            Err(ReadError::Absent | ReadError::Unavailable(_)) => None,
        }
    }

    /// Counts an entry as used now, without reading it. Yields the space that it takes, if it is
    /// there.
    pub(crate) fn hold(&self, name: &EntryName) -> Option<Usage> {
        let (file, metadata) = sys::open_unknown(&self.layout.entry(name)).ok()?;
        self.note_use(&file, name, metadata.size())
    }

    /// Counts an entry as used now. Yields the space that it takes, where that is counted.
    fn note_use(&self, file: &File, name: &EntryName, file_bytes: u64) -> Option<Usage> {
        let evictor = self.evictor.as_ref()?;
        let charge = evictor.account.charge(file_bytes);
        evictor.pin(*name, charge.bytes);
        let now = clock::now_ns();
        let due = |last: u64| now.saturating_sub(last) >= self.touch_after_ns;
        if self.touch_after_ns == 0
            || file
                .metadata()
                .is_ok_and(|metadata| due(scan::last_use_ns(&metadata)))
        {
            // Fails where the directory has become one that can only be read.
            let _ = file.set_modified(clock::at(now));
        }
        Some(charge)
    }

    /// Moves the file of a name to `bad/`, whichever type it has. The account isn't told: it errs
    /// high until the next scan.
    pub(crate) fn quarantine(&self, name: &EntryName) -> bool {
        let Some(evictor) = &self.evictor else {
            return false;
        };
        let (path, bad) = (self.layout.entry(name), self.layout.bad());
        let target = bad.join(format!("{name}.{}", clock::now_ns()));
        let set_aside = || fs::rename(&path, &target);
        // The folder may have been deleted. Without it the entry would stay in the way.
        let moved = set_aside().or_else(|_| make_dir(&bad, false).and_then(|()| set_aside()));
        if moved.is_err() {
            return false;
        }
        self.session.count(Event::Quarantine, 1);
        evictor.unpin(name);
        // Should this fail, the next one tries again.
        let _ = bound_quarantine(&bad, BAD_FILES, BAD_BYTES);
        true
    }

    /// Deletes everything that was set aside. Yields the number of files.
    pub(crate) fn empty_quarantine(&self) -> io::Result<u64> {
        bound_quarantine(&self.layout.bad(), 0, 0)
    }

    /// Publishes an entry, unless there is no room or writing fails. One that is there already is
    /// as good.
    pub(crate) fn put(&self, entry: &Entry) -> Result<(), Warning> {
        let put = self.try_put(entry);
        match &put {
            Ok(Placed::New) => self.session.count(Event::Store, 1),
            Ok(Placed::Exists) => {}
            Err(_) => self.session.count(Event::Refusal, 1),
        }
        put.map(drop)
    }

    fn try_put(&self, entry: &Entry) -> Result<Placed, Warning> {
        let evictor = match (self.stopped(), &self.evictor) {
            (None, Some(evictor)) => evictor,
            (Some(warning), _) => return Err(warning.clone()),
            (None, None) => {
                unreachable!("a store without an evictor is stopped from the beginning")
            }
        };
        for (bytes, limit) in [
            (entry.bytes().len() as u64, MAX_ENTRY_BYTES),
            (entry.metadata_bytes(), MAX_METADATA_BYTES),
        ] {
            if bytes > limit {
                return Err(Warning::TooLong { bytes, limit });
            }
        }
        let mut published = self.publish(evictor, entry);
        if let Err(Refusal::Failed(failure)) = &published
            && is_out_of_space(&failure.source)
            && !self.relieved.swap(true, Ordering::Relaxed)
        {
            published = evictor
                .relieve()
                .map_err(Refusal::Failed)
                .and_then(|()| self.publish(evictor, entry));
        }
        published.map_err(|refusal| match refusal {
            Refusal::NoRoom(warning) => warning,
            Refusal::Failed(failure) => self.stopped.get_or_init(|| failure.to_warning()).clone(),
        })
    }

    fn publish(&self, evictor: &Evictor, entry: &Entry) -> Result<Placed, Refusal> {
        let admission = evictor.admit(entry.name(), entry.bytes().len() as u64)?;
        let tmp = self.layout.fresh_tmp();
        let placed = self.place(&tmp, entry);
        // The process that unlinks the file releases its room. If it is gone, another one did.
        if !matches!(placed, Ok(Placed::New)) && fs::remove_file(&tmp).is_ok() {
            evictor.account.release(admission.charge)?;
        }
        let placed = placed?;
        evictor.pin(entry.name(), admission.charge.bytes);
        Ok(placed)
    }

    fn place(&self, tmp: &Path, entry: &Entry) -> Result<Placed, Failure> {
        sys::write_new(tmp, entry.bytes(), clock::now_ns()).map_err(Failure::at("write", tmp))?;
        let (name, target) = (entry.name(), self.layout.entry(&entry.name()));
        match sys::rename_no_replace(tmp, &target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let shard = self.layout.shard(&name);
                make_dir(&shard, false).map_err(Failure::at("create", shard))?;
                sys::rename_no_replace(tmp, &target)
            }
            other => other,
        }
        .map_err(Failure::at("publish", target))
    }
}

fn is_out_of_space(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// Deletes the oldest files in `bad` until at most `files` with at most `bytes` bytes are left.
/// Yields how many went.
fn bound_quarantine(bad: &Path, files: usize, bytes: u64) -> io::Result<u64> {
    let mut found = Vec::new();
    for item in fs::read_dir(bad)? {
        let path = item?.path();
        if let Some(metadata) = absent_is_none(fs::symlink_metadata(&path))? {
            found.push(((metadata.ctime(), metadata.ctime_nsec()), path, metadata));
        }
    }
    found.sort_unstable_by(|(a, path_a, _), (b, path_b, _)| (b, path_b).cmp(&(a, path_a)));
    let (mut kept_bytes, mut deleted) = (0_u64, 0);
    for (position, (_, path, metadata)) in found.iter().enumerate() {
        kept_bytes = kept_bytes.saturating_add(metadata.size());
        if position >= files || kept_bytes > bytes {
            let removed = if metadata.is_dir() {
                fs::remove_dir_all(path)
            } else {
                fs::remove_file(path)
            };
            deleted += u64::from(absent_is_none(removed)?.is_some());
        }
    }
    Ok(deleted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        account::Account,
        entry::{Artifact, Metadata},
        format::Kind,
        key::KeyBuilder,
    };

    /// On a network file system every change of a time is a round trip.
    #[test]
    fn a_use_is_written_down_only_when_the_last_one_is_long_ago() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        layout.prepare().unwrap();
        layout.complete().unwrap();
        let account = Account::open(&layout, Duration::from_secs(5)).unwrap();
        let session = Arc::new(Session::default());
        let time = Duration::from_secs(1);
        let evictor = Evictor::new(layout.clone(), account, Arc::clone(&session), 1 << 20, time);
        let mut store = Store::new(layout, session, Ok(evictor));
        let artifact = Artifact {
            kind: Kind::Cubin,
            payload: vec![1],
            metadata: Metadata::default(),
        };
        let entry = Entry::new(&KeyBuilder::new("test").finish(), artifact, 1);
        store.put(&entry).unwrap();
        let file = File::open(store.layout.entry(&entry.name())).unwrap();
        let last_use = || scan::last_use_ns(&file.metadata().unwrap());
        let (stored, minute) = (last_use(), 60_000_000_000);
        store.touch_after_ns = minute;
        store.get(&entry.name()).unwrap();
        assert_eq!(last_use(), stored);
        let long_ago = stored - 2 * minute;
        file.set_modified(clock::at(long_ago)).unwrap();
        store.get(&entry.name()).unwrap();
        assert!(last_use() >= stored);
        store.touch_after_ns = 0;
        let before = last_use();
        store.get(&entry.name()).unwrap();
        assert!(last_use() > before);
    }
}
