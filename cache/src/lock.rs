//! Byte-range locks that the kernel lets go of when their holder dies, however it dies.
//!
//! They belong to an open file description (`F_OFD_SETLK`), so they work between threads as between
//! processes. Every wait for a lock is bounded: its holder may be stopped.

use std::{
    fs::File,
    io,
    os::fd::AsFd,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
    libc,
};

use crate::sys;

/// Whether others may hold the byte, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Shared,
    Exclusive,
}

/// One locked byte of a file. Dropping it unlocks.
#[derive(Debug)]
pub(crate) struct RangeLock<F: AsFd> {
    file: F,
    offset: u64,
}

impl<F: AsFd> Drop for RangeLock<F> {
    fn drop(&mut self) {
        // Before closing, because a child process forked at this moment shares the open file.
        let _ = request(&self.file, self.offset, libc::F_UNLCK);
    }
}

/// A pause between attempts that doubles from 50 µs up to 20 ms, until a deadline.
pub(crate) struct Backoff {
    next: Duration,
    deadline: Instant,
}

impl Backoff {
    pub(crate) fn new(wait: Duration) -> Self {
        Self {
            next: Duration::from_micros(50),
            deadline: Instant::now() + wait,
        }
    }

    /// Sleeps, or yields false when the time is up.
    pub(crate) fn pause(&mut self) -> bool {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        thread::sleep(self.next.min(left));
        self.next = (self.next * 2).min(Duration::from_millis(20));
        true
    }
}

/// Locks a byte of `file`, waiting at most `wait`. `None` if another still holds it then.
///
/// # Errors
///
/// When the file system has no locks, or the kernel no room for one.
pub(crate) fn lock_within<F: AsFd>(
    file: F,
    offset: u64,
    mode: Mode,
    wait: Duration,
) -> io::Result<Option<RangeLock<F>>> {
    let kind = match mode {
        Mode::Shared => libc::F_RDLCK,
        Mode::Exclusive => libc::F_WRLCK,
    };
    let mut backoff = Backoff::new(wait);
    loop {
        match request(&file, offset, kind) {
            Ok(()) => return Ok(Some(RangeLock { file, offset })),
            Err(Errno::EAGAIN | Errno::EACCES) if backoff.pause() => {}
            Err(Errno::EAGAIN | Errno::EACCES) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Opens the file at `path`, making it if need be, and locks a byte of it within `wait`.
///
/// # Errors
///
/// As for [`lock_within`], and when the file can't be opened for writing.
pub(crate) fn lock_path(
    path: &Path,
    offset: u64,
    mode: Mode,
    wait: Duration,
) -> io::Result<Option<RangeLock<File>>> {
    lock_within(sys::open_shared(path)?, offset, mode, wait)
}

fn request(file: impl AsFd, offset: u64, kind: libc::c_int) -> nix::Result<()> {
    let range = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: offset.min(i64::MAX as u64 - 1) as libc::off_t,
        l_len: 1,
        l_pid: 0,
    };
    loop {
        match fcntl(&file, FcntlArg::F_OFD_SETLK(&range)) {
            Err(Errno::EINTR) => {}
            result => return result.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_WAIT: Duration = Duration::ZERO;

    #[test]
    fn a_byte_is_held_by_one_open_file_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = |offset, mode| lock_path(&path, offset, mode, NO_WAIT).unwrap();
        let held = lock(7, Mode::Exclusive).unwrap();
        assert!(lock(7, Mode::Exclusive).is_none());
        assert!(lock(7, Mode::Shared).is_none());
        assert!(lock(8, Mode::Exclusive).is_some());
        drop(held);
        let shared = [
            lock(7, Mode::Shared).unwrap(),
            lock(7, Mode::Shared).unwrap(),
        ];
        assert!(lock(7, Mode::Exclusive).is_none());
        drop(shared);
        assert!(lock(7, Mode::Exclusive).is_some());
    }

    #[test]
    fn waiting_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let _held = lock_path(&path, 0, Mode::Exclusive, NO_WAIT).unwrap();
        let start = Instant::now();
        let wait = Duration::from_millis(30);
        assert!(lock_path(&path, 0, Mode::Shared, wait).unwrap().is_none());
        assert!(start.elapsed() >= wait);
    }
}
