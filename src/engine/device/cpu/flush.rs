//! Cold and clean caches: pushes everything out of the private caches of the measuring threads.

use std::cell::RefCell;
use std::fs;
use std::hint::black_box;

use rayon::ThreadPool;

use sweeper_model::identity::CacheState;

/// Bytes that a thread writes at least, where the caches' sizes are not known.
const LEAST_BYTES: usize = 16 << 20;

/// Writes a stretch of memory several times as large as the private caches, in every thread; for a
/// clean cache, reads another stretch of that size then.
///
/// The last level is left alone: it is shared with all other processes, and may belong to more
/// machines than this one.
pub struct Flush {
    bytes: usize,
    reads: bool,
}

/// Memory that one thread writes and reads.
#[derive(Default)]
struct Stretches {
    written: Vec<u64>,
    /// Empty unless it is read.
    read: Vec<u64>,
}

thread_local! {
    static STRETCHES: RefCell<Stretches> = RefCell::default();
}

impl Flush {
    /// A flush that brings the second-level caches of this host into a state; none where they stay
    /// hot.
    pub fn of_host(cache: CacheState) -> Option<Self> {
        let reads = match cache {
            CacheState::Hot => return None,
            CacheState::Cold => false,
            CacheState::Clean => true,
        };
        let second_level = second_level_bytes().unwrap_or(0);
        Some(Flush {
            bytes: (8 * second_level).max(LEAST_BYTES),
            reads,
        })
    }

    /// Bytes that each thread writes, and reads if it does.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Flushes the caches of all threads of `pool`. The values written differ from call to call.
    pub fn run(&self, pool: &ThreadPool) {
        pool.broadcast(|_| {
            STRETCHES.with_borrow_mut(|stretches| {
                stretches.fit(self);
                stretches.write();
                if self.reads {
                    stretches.read_all();
                }
            });
        });
    }
}

impl Stretches {
    /// Makes both stretches as large as they need be. The one that is read is made first: writing
    /// the other pushes out the lines that this leaves dirty.
    fn fit(&mut self, flush: &Flush) {
        let words = flush.bytes / size_of::<u64>();
        if flush.reads && self.read.is_empty() {
            // Zeros would be one page of the system's, mapped again and again.
            self.read = (1..=words as u64).collect();
        }
        if self.written.is_empty() {
            self.written = (0..words as u64).collect();
        }
    }

    fn write(&mut self) {
        for value in &mut self.written {
            *value = value
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
        }
        black_box(&mut self.written);
    }

    /// The sum keeps the compiler from leaving the reading out.
    fn read_all(&self) -> u64 {
        let words = black_box(&self.read).iter();
        black_box(words.fold(0, |sum, word| sum.wrapping_add(*word)))
    }
}

/// Size of the first processor's second-level cache.
fn second_level_bytes() -> Option<usize> {
    let caches = fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?;
    caches
        .flatten()
        .filter(|cache| {
            let level = fs::read_to_string(cache.path().join("level"));
            level.is_ok_and(|level| level.trim() == "2")
        })
        .find_map(|cache| parse_size(&fs::read_to_string(cache.path().join("size")).ok()?))
}

/// `2048K` and the like, in bytes.
fn parse_size(text: &str) -> Option<usize> {
    let text = text.trim();
    let (digits, unit) = match text.strip_suffix('K') {
        Some(digits) => (digits, 1 << 10),
        None => match text.strip_suffix('M') {
            Some(digits) => (digits, 1 << 20),
            None => (text, 1),
        },
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("2048K\n"), Some(2 << 20));
        assert_eq!(parse_size("1M"), Some(1 << 20));
        assert_eq!(parse_size("64"), Some(64));
        assert_eq!(parse_size("much"), None);
    }

    fn pool() -> ThreadPool {
        let threads = rayon::ThreadPoolBuilder::new().num_threads(2);
        threads.build().unwrap()
    }

    #[test]
    fn every_thread_writes_more_than_its_caches_hold() {
        for cache in [CacheState::Cold, CacheState::Clean] {
            let flush = Flush::of_host(cache).unwrap();
            assert!(flush.bytes() >= 4 * second_level_bytes().unwrap_or(0));
            let pool = pool();
            let last =
                || pool.broadcast(|_| STRETCHES.with_borrow(|held| *held.written.last().unwrap()));
            flush.run(&pool);
            let first = last();
            flush.run(&pool);
            let second = last();
            let mut both = first.iter().zip(&second);
            assert!(both.all(|(first, second)| first != second));
        }
    }

    #[test]
    fn only_what_is_to_be_clean_reads_and_it_reads_other_memory() {
        let read_bytes = |cache| {
            let pool = pool();
            let flush = Flush::of_host(cache).unwrap();
            flush.run(&pool);
            let held = |held: &Stretches| size_of_val(held.read.as_slice());
            let all = pool.broadcast(|_| STRETCHES.with_borrow(held));
            (all, flush.bytes())
        };
        assert_eq!(read_bytes(CacheState::Cold).0, [0, 0]);
        let (all, bytes) = read_bytes(CacheState::Clean);
        assert_eq!(all, [bytes, bytes]);
        assert!(Flush::of_host(CacheState::Hot).is_none());
        let stretches = Stretches {
            written: Vec::new(),
            read: vec![1, 2, u64::MAX],
        };
        assert_eq!(stretches.read_all(), 2, "every word counts");
    }
}
