//! Cold caches: pushes everything out of the private caches of the measuring threads.

use std::cell::RefCell;
use std::fs;

use rayon::ThreadPool;

/// What a thread writes at least, where the caches' sizes are not known.
const LEAST_BYTES: usize = 16 << 20;

/// Writes a stretch of memory several times as large as the private caches, in every thread.
///
/// The last level is left alone: it is shared with whatever else runs, and may belong to more
/// machines than this one.
pub struct Flush {
    bytes: usize,
}

thread_local! {
    static STRETCH: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

impl Flush {
    /// For the second-level caches of this host.
    pub fn of_host() -> Self {
        let second_level = second_level_bytes().unwrap_or(0);
        Flush {
            bytes: (8 * second_level).max(LEAST_BYTES),
        }
    }

    /// Bytes that each thread writes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Flushes the caches of all threads of `pool`. The values differ from call to call.
    pub fn run(&self, pool: &ThreadPool) {
        pool.broadcast(|_| {
            STRETCH.with_borrow_mut(|stretch| {
                if stretch.is_empty() {
                    *stretch = (0..self.bytes as u64 / 8).collect();
                }
                for value in stretch.iter_mut() {
                    *value = value
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                }
                std::hint::black_box(stretch);
            });
        });
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

    #[test]
    fn every_thread_writes_more_than_its_caches_hold() {
        let flush = Flush::of_host();
        assert!(flush.bytes() >= 4 * second_level_bytes().unwrap_or(0));
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(2)
            .build()
            .unwrap();
        flush.run(&pool);
        let first = pool.broadcast(|_| STRETCH.with_borrow(|stretch| stretch[1]));
        flush.run(&pool);
        let second = pool.broadcast(|_| STRETCH.with_borrow(|stretch| stretch[1]));
        assert!(
            first
                .iter()
                .zip(&second)
                .all(|(first, second)| first != second)
        );
    }
}
