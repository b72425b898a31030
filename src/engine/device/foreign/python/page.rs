//! The page that is shared with the interpreter: the word of its gate, which a thread here opens
//! when it stays closed for too long, whatever holds the interpreter there.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use memmap2::MmapMut;

use super::shared_file::SharedFile;

const PAGE_BYTES: u64 = 4096;

/// A gate stays closed for as long as this at least, and twice as long at most.
const LIMIT: Duration = Duration::from_millis(250);

/// Where the number of the last closing lies in the page; the number of the last one that was
/// opened again lies before it.
const CLOSED: usize = 4;

/// The page, and who watches it.
pub(super) struct Page {
    file: SharedFile,
    ended: Arc<AtomicBool>,
    watchdog: Option<JoinHandle<()>>,
}

impl Page {
    /// A page that is watched from now on.
    ///
    /// # Errors
    /// The system's.
    #[expect(unsafe_code, reason = "memory that is shared with another process")]
    pub(super) fn new() -> io::Result<Self> {
        let file = SharedFile::of_bytes("sweeper-gate", PAGE_BYTES)?;
        // SAFETY: all accesses to the mapping are atomic.
        let mapped = unsafe { MmapMut::map_mut(file.file()) }?;
        let ended = Arc::new(AtomicBool::new(false));
        let watched = Words {
            mapped,
            ended: Arc::clone(&ended),
        };
        let watchdog = thread::Builder::new()
            .name("gate watchdog".to_owned())
            .spawn(move || watched.watch())?;
        Ok(Page {
            file,
            ended,
            watchdog: Some(watchdog),
        })
    }

    /// The path by which the interpreter opens it.
    pub(super) fn path(&self) -> PathBuf {
        self.file.path()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.thread().unpark();
            // A watchdog that panicked has ended, too.
            let _ = watchdog.join();
        }
    }
}

/// The two words of the page.
struct Words {
    mapped: MmapMut,
    ended: Arc<AtomicBool>,
}

impl Words {
    #[expect(unsafe_code, reason = "memory that is shared with another process")]
    fn word(&self, offset: usize) -> &AtomicU32 {
        let word = self.mapped[offset..].as_ptr().cast::<AtomicU32>();
        // SAFETY: the page has room for it, is aligned, and is accessed as atomic words alone.
        unsafe { &*word }
    }

    /// Opens a gate that is closed from one look to the next.
    fn watch(&self) {
        let mut seen = None;
        while !self.ended.load(Ordering::Acquire) {
            thread::park_timeout(LIMIT);
            let (opened, closed) = (self.word(0), self.word(CLOSED));
            let number = closed.load(Ordering::Acquire);
            let last = opened.load(Ordering::Acquire);
            if last == number || seen != Some(number) {
                seen = (last != number).then_some(number);
                continue;
            }
            // If it fails the interpreter was quicker.
            let _ = opened.compare_exchange(last, number, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_gate_that_another_process_leaves_closed_is_opened() {
        let page = Page::new().unwrap();
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).open(page.path()).unwrap();
        file.write_all_at(&7u32.to_le_bytes(), CLOSED as u64)
            .unwrap();
        let start = Instant::now();
        let opened = || {
            let mut word = [0; 4];
            file.read_exact_at(&mut word, 0).unwrap();
            u32::from_le_bytes(word)
        };
        while opened() != 7 {
            assert!(start.elapsed() < Duration::from_secs(20), "it stays closed");
            thread::sleep(Duration::from_millis(1));
        }
    }
}
