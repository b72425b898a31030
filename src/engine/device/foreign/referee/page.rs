//! The memory that the referee shares with one candidate: words by which calls are announced and
//! ended, a table of where results lie, and on a CPU the tensors that it writes before each call.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapRaw;
use serde::{Deserialize, Serialize};
use sweeper_program::Tensors;

use super::places::{Content, Places};
use crate::device::foreign::python::shared_file::SharedFile;

/// Bytes before the first tensor. `child/candidate.py` has the places of words, too.
pub(super) const PAGE_BYTES: usize = 16 << 10;

/// Bytes from one word that is waited for to the next: each has a cache line to itself.
const LINE_BYTES: usize = 64;

/// Where the table of results begins, and what one of its records takes, in words.
const RESULTS: usize = 128;
const RECORD: usize = 12;

/// The most results that all calls behind one gate can have.
pub(super) const MOST_RESULTS: usize = (PAGE_BYTES / 8 - RESULTS) / RECORD;

/// Announced in place of a call: there are no more.
pub(super) const NO_MORE: u64 = u64::MAX;

/// A word that one of both waits for: the number of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The call that is announced; the referee's.
    Announced,
    /// The call that the candidate waits for or, on a GPU, that it has queued.
    Ready,
    /// The call whose inputs are there; the referee's.
    Written,
    /// The call before whose gate the candidate stands, and is at work.
    Awake,
    /// The call whose gate is open; the referee's.
    Opened,
    /// The call whose results are there.
    Rung,
    /// The call whose results are in the table.
    Told,
    /// How many calls there are behind the gate, each with tensors of its own; the referee's.
    Count,
    /// Whether the gate is in the stream, so that calls are queued before it opens; the referee's.
    IsQueued,
}

/// Where the candidate says that a result lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// On a CPU its address; on a GPU where it begins in the allocation that has it.
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// It lies in the tensors that the referee has written.
    pub(super) is_shared: bool,
    /// What the allocation is opened by.
    pub(super) handle: [u64; 8],
}

/// The memory.
pub(super) struct Page {
    file: SharedFile,
    mapped: MmapRaw,
}

/// What a candidate's process is told of the memory.
#[derive(Serialize, Deserialize)]
pub(super) struct Description {
    descriptor: i32,
    bytes: usize,
    page_bytes: usize,
    /// Both share a processor: who waits for the other lets it run.
    pub(super) yields: bool,
}

impl Page {
    /// Memory for words, and behind them for so many bytes of tensors.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn new(bytes: usize) -> io::Result<Self> {
        let file = SharedFile::sealed("sweeper-referee", (PAGE_BYTES + bytes) as u64)?;
        let mapped = MmapRaw::map_raw(file.file())?;
        Ok(Page { file, mapped })
    }

    /// What the candidate's process is told of it.
    pub(super) fn description(&self, descriptor: i32, yields: bool) -> Description {
        Description {
            descriptor,
            bytes: self.mapped.len(),
            page_bytes: PAGE_BYTES,
            yields,
        }
    }

    /// The memory that another process has described, in a process that got its descriptor.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn described(told: &Description) -> io::Result<Self> {
        let file = SharedFile::handed_over(told.descriptor)?;
        let mapped = MmapRaw::map_raw(file.file())?;
        Ok(Page { file, mapped })
    }

    /// The address of the first tensor.
    pub(super) fn tensors(&self) -> usize {
        self.mapped.as_mut_ptr() as usize + PAGE_BYTES
    }

    /// The file of the memory.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.file().as_fd()
    }

    /// The address of the words.
    pub(super) fn words(&self) -> *mut u8 {
        self.mapped.as_mut_ptr()
    }

    /// Where a word lies, in bytes from the first.
    pub(super) fn offset(word: Word) -> usize {
        word as usize * LINE_BYTES
    }

    /// Writes the tensors of a call.
    #[expect(unsafe_code, reason = "memory that is shared with another process")]
    pub(super) fn write(&self, places: &Places, inputs: &Tensors) {
        let room = self.mapped.len() - PAGE_BYTES;
        let written = places.fill(inputs, |offset, content| {
            // SAFETY: the range lies in the mapping, whose file is sealed against shrinking; no
            // reference to this memory is ever made, and what another process does to it meanwhile
            // is its fault.
            unsafe {
                let to = self.mapped.as_mut_ptr().add(PAGE_BYTES + offset);
                match content {
                    Content::Bytes(bytes) => {
                        assert!(offset + bytes.len() <= room, "a tensor of the page");
                        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
                    }
                    Content::Poison(count) => {
                        assert!(offset + count <= room, "a tensor of the page");
                        std::ptr::write_bytes(to, 0xFF, count);
                    }
                }
            }
            Ok::<(), Infallible>(())
        });
        let Ok(()) = written;
    }

    /// The number in a word.
    pub(super) fn load(&self, word: Word) -> u64 {
        self.atomic(Self::offset(word) / 8).load(Ordering::Acquire)
    }

    /// Puts a number into a word.
    pub(super) fn store(&self, word: Word, number: u64) {
        let word = self.atomic(Self::offset(word) / 8);
        word.store(number, Ordering::Release);
    }

    /// Says where a result lies: in this process's memory, or in tensors of a GPU that the referee
    /// has written.
    pub(super) fn tell(&self, index: usize, (address, bytes): (u64, u64), is_shared: bool) {
        let at = RESULTS + RECORD * index;
        for (place, number) in [address, bytes, u64::from(is_shared)]
            .into_iter()
            .enumerate()
        {
            self.atomic(at + place).store(number, Ordering::Relaxed);
        }
    }

    /// Where the candidate says that a result lies.
    pub(super) fn record(&self, index: usize) -> Record {
        let at = RESULTS + RECORD * index;
        let word = |place: usize| self.atomic(at + place).load(Ordering::Relaxed);
        Record {
            address: word(0),
            bytes: word(1),
            is_shared: word(2) != 0,
            handle: std::array::from_fn(|part| word(4 + part)),
        }
    }

    #[expect(unsafe_code, reason = "memory that is shared with another process")]
    fn atomic(&self, at: usize) -> &AtomicU64 {
        assert!(at < PAGE_BYTES / 8, "a word of the page");
        // SAFETY: the page has room for it, is aligned, and is accessed here as atomic words alone.
        unsafe { &*self.mapped.as_ptr().cast::<AtomicU64>().add(at) }
    }
}
