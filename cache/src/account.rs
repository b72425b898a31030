//! The disk space that the cache holds, as a number that is never too low, whichever process is
//! killed at whichever moment.
//!
//! A publication reserves space first and writes then. A deletion unlinks first and releases then.
//! A death in between leaves the number too high, which the next complete scan settles. The record
//! has two copies that are written in turn, so that one is always whole.

use std::{
    fs::File,
    io,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    error::Failure,
    layout::Layout,
    lock::{self, Mode, RangeLock},
    record, sys,
    usage::{Record, Usage},
};

const MAGIC: &[u8; 8] = b"SWPACCT1";

/// Bytes that a file costs beyond its blocks: an inode and a name, rounded up.
const INODE_BYTES: u64 = 512;

/// Byte of the lock file that is held by the process that evicts.
const GC_BYTE: u64 = 0;
/// Byte of the lock file that is shared by all processes that have reserved and not yet published,
/// and held alone to know that there is none.
const LEDGER_BYTE: u64 = 1;

/// Why nothing could be reserved.
#[derive(Debug)]
pub(crate) enum NotReserved {
    /// The cache would be over its capacity, or its size is unknown.
    Full,
    Failed(Failure),
}

/// The record on disk and the locks around it.
#[derive(Debug)]
pub(crate) struct Account {
    file: Mutex<File>,
    path: PathBuf,
    lock_file: PathBuf,
    /// How long to wait for a process that updates the record or settles it.
    patience: Duration,
    /// The replacement of a lost record: only the allocation unit is known.
    blank: Record,
}

impl Account {
    /// Opens the record. A new cache starts at nothing, one that lost its record at "unknown".
    pub(crate) fn open(layout: &Layout, patience: Duration) -> Result<Self, Failure> {
        let path = layout.account();
        let file = sys::open_shared(&path).map_err(Failure::at("open", &path))?;
        let mut account = Self {
            file: Mutex::new(file),
            path,
            lock_file: layout.gc_lock(),
            patience,
            blank: Record {
                unit: sys::allocation_unit(layout.root()),
                ..Record::UNKNOWN
            },
        };
        if let Some(record) = account.peek()? {
            account.blank.unit = record.unit;
        } else {
            // Shards are made only after something was reserved, so without any the cache is empty.
            let (shards, _) = layout
                .shards()
                .map_err(Failure::at("list", layout.objects()))?;
            let known = shards.is_empty();
            account.update_or(
                Record {
                    known,
                    ..account.blank
                },
                |_| (),
            )?;
        }
        Ok(account)
    }

    /// The space that is charged for a file of this length. A function of the length alone, so that
    /// a reservation is released exactly, however long ago it was made.
    pub(crate) fn charge(&self, file_bytes: u64) -> Usage {
        let unit = self.blank.unit;
        Usage {
            bytes: file_bytes
                .div_ceil(unit)
                .saturating_mul(unit)
                .saturating_add(INODE_BYTES),
            entries: 1,
        }
    }

    /// The record as it is, without a lock. `None` if neither copy is whole.
    pub(crate) fn peek(&self) -> Result<Option<Record>, Failure> {
        newest(&self.file()).map_err(Failure::at("read", &self.path))
    }

    /// The record, or one that says that nothing is known.
    pub(crate) fn record(&self) -> Result<Record, Failure> {
        Ok(self.peek()?.unwrap_or(self.blank))
    }

    /// Adds `charge` if that leaves the sum at `capacity` or under it. A power failure may forget
    /// that; the next scan finds it out.
    pub(crate) fn reserve(&self, charge: Usage, capacity: u64) -> Result<(), NotReserved> {
        let fits = self
            .update_or(self.blank, |record| {
                let after = record.current + charge;
                let fits = record.known && after.bytes <= capacity;
                if fits {
                    record.current = after;
                    record.reserved += charge;
                }
                fits
            })
            .map_err(NotReserved::Failed)?;
        match fits {
            true => Ok(()),
            false => Err(NotReserved::Full),
        }
    }

    /// Subtracts the space of unlinked files.
    pub(crate) fn release(&self, charge: Usage) -> Result<(), Failure> {
        self.update_or(self.blank, |record| {
            record.current = record.current.saturating_sub(charge);
            record.released += charge;
        })
    }

    /// Makes the record agree with a scan that began when it was `before`, at a moment when no
    /// process was between reserving and publishing.
    pub(crate) fn settle(&self, before: &Record, seen: Usage) -> Result<(), Failure> {
        self.update_or(self.blank, |record| record.settle(before, seen))
    }

    /// How long administrative operations wait for a lock.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// The right to evict, which one has at a time.
    pub(crate) fn lock_gc(&self, wait: Duration) -> Result<Option<RangeLock<File>>, Failure> {
        lock::lock_path(&self.lock_file, GC_BYTE, Mode::Exclusive, wait)
            .map_err(Failure::at("lock", &self.lock_file))
    }

    /// Held from reserving to publishing.
    pub(crate) fn join_ledger(&self) -> Result<RangeLock<File>, Failure> {
        let lock = lock::lock_path(&self.lock_file, LEDGER_BYTE, Mode::Shared, self.patience);
        lock.and_then(|held| held.ok_or_else(timed_out))
            .map_err(Failure::at("lock", &self.lock_file))
    }

    /// Held to be sure that no process is between reserving and publishing.
    pub(crate) fn close_ledger(&self, wait: Duration) -> Result<Option<RangeLock<File>>, Failure> {
        lock::lock_path(&self.lock_file, LEDGER_BYTE, Mode::Exclusive, wait)
            .map_err(Failure::at("lock", &self.lock_file))
    }

    /// Changes the record, or `first` where there is none, and writes it over the older copy.
    fn update_or<T>(
        &self,
        first: Record,
        change: impl FnOnce(&mut Record) -> T,
    ) -> Result<T, Failure> {
        let file = self.file();
        let update = || -> io::Result<T> {
            let held = lock::lock_within(&*file, 0, Mode::Exclusive, self.patience)?;
            let _held = held.ok_or_else(timed_out)?;
            let before = newest(&file)?;
            let mut record = before.unwrap_or(first);
            let result = change(&mut record);
            if before != Some(record) {
                record.sequence += 1;
                record::write(&file, record.sequence % 2, MAGIC, record.encode())?;
            }
            Ok(result)
        };
        update().map_err(Failure::at("update", &self.path))
    }

    /// Within a process the lock on an open file excludes no other thread, so threads take turns
    /// here.
    fn file(&self) -> MutexGuard<'_, File> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn newest(file: &File) -> io::Result<Option<Record>> {
    let copies = [record::read(file, 0, MAGIC)?, record::read(file, 1, MAGIC)?];
    Ok(copies
        .into_iter()
        .flatten()
        .map(Record::decode)
        .max_by_key(|record| record.sequence))
}

fn timed_out() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        "another process holds it and doesn't let go",
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    fn account(dir: &tempfile::TempDir) -> (Layout, Account) {
        let layout = Layout::new(dir.path());
        layout.prepare().unwrap();
        layout.complete().unwrap();
        let account = Account::open(&layout, PATIENCE).unwrap();
        (layout, account)
    }

    fn usage(bytes: u64, entries: u64) -> Usage {
        Usage { bytes, entries }
    }

    #[test]
    fn reservations_stop_at_the_capacity() {
        let dir = tempfile::tempdir().unwrap();
        let (layout, account) = account(&dir);
        account.reserve(usage(60, 1), 100).unwrap();
        assert!(matches!(
            account.reserve(usage(41, 1), 100),
            Err(NotReserved::Full)
        ));
        account.reserve(usage(40, 1), 100).unwrap();
        account.release(usage(60, 1)).unwrap();
        let again = Account::open(&layout, PATIENCE).unwrap();
        assert_eq!(again.record().unwrap().usage(), Some(usage(40, 1)));
    }

    #[test]
    fn a_torn_copy_leaves_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let (_, account) = account(&dir);
        account.reserve(usage(10, 1), 100).unwrap();
        account.reserve(usage(20, 1), 100).unwrap();
        let record = account.record().unwrap();
        let file = account.file().try_clone().unwrap();
        let slot = record.sequence % 2 * record::SLOT_BYTES;
        file.write_all_at(&[0xff; 3], slot + 20).unwrap();
        assert_eq!(account.record().unwrap().usage(), Some(usage(10, 1)));
        file.write_all_at(&[0xff; 1000], 0).unwrap();
        assert_eq!(account.record().unwrap().usage(), None);
        assert!(matches!(
            account.reserve(usage(1, 1), 100),
            Err(NotReserved::Full)
        ));
    }

    #[test]
    fn a_lost_record_is_unknown_only_if_there_are_shards() {
        let dir = tempfile::tempdir().unwrap();
        let (layout, _) = account(&dir);
        std::fs::remove_file(layout.account()).unwrap();
        assert!(
            Account::open(&layout, PATIENCE)
                .unwrap()
                .record()
                .unwrap()
                .known
        );
        std::fs::remove_file(layout.account()).unwrap();
        std::fs::create_dir(layout.objects().join("ab")).unwrap();
        assert!(
            !Account::open(&layout, PATIENCE)
                .unwrap()
                .record()
                .unwrap()
                .known
        );
    }

    #[test]
    fn threads_lose_no_update() {
        let dir = tempfile::tempdir().unwrap();
        let (layout, _) = account(&dir);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let account = Account::open(&layout, PATIENCE).unwrap();
                    for _ in 0..25 {
                        account.reserve(usage(3, 1), 1000).unwrap();
                        account.release(usage(2, 0)).unwrap();
                    }
                });
            }
        });
        let record = Account::open(&layout, PATIENCE).unwrap().record().unwrap();
        assert_eq!(record.usage(), Some(usage(100, 100)));
        assert_eq!(
            (record.reserved, record.released),
            (usage(300, 100), usage(200, 0))
        );
    }

    /// A cache that was copied to a file system with another unit.
    #[test]
    fn the_unit_stays_that_of_the_record() {
        let dir = tempfile::tempdir().unwrap();
        let (layout, account) = account(&dir);
        let unit = account.blank.unit * 2;
        account
            .update_or(account.blank, |record| record.unit = unit)
            .unwrap();
        let again = Account::open(&layout, PATIENCE).unwrap();
        assert_eq!(again.charge(1), usage(unit + 512, 1));
    }

    #[test]
    fn a_charge_is_whole_units_and_an_inode() {
        let dir = tempfile::tempdir().unwrap();
        let (_, mut account) = account(&dir);
        account.blank.unit = 8192;
        assert_eq!(account.charge(1), usage(8192 + 512, 1));
        assert_eq!(account.charge(8192), usage(8192 + 512, 1));
        assert_eq!(account.charge(8193), usage(2 * 8192 + 512, 1));
    }
}
