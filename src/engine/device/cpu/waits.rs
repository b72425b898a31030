//! How long threads stood ready and had no processor: the neighbour's work is in their times.

use std::fs;
use std::path::PathBuf;

use rayon::ThreadPool;
use rustix::thread::gettid;

/// The threads of a pool, by the files in which the system says how long each ran and waited.
pub(super) struct Waits(Vec<PathBuf>);

impl Waits {
    /// Those of a pool.
    pub(super) fn of(pool: &ThreadPool) -> Self {
        let threads = pool.broadcast(|_| gettid().as_raw_pid());
        let file = |thread| PathBuf::from(format!("/proc/self/task/{thread}/schedstat"));
        Waits(threads.into_iter().map(file).collect())
    }

    /// Does something, and says how long one of the threads waited meanwhile at most, in
    /// nanoseconds. A thread of the pool is to ask: one that hands over its processor has the other
    /// wait.
    pub(super) fn during<T>(&self, act: impl FnOnce() -> T) -> (T, Option<f64>) {
        let before = self.so_far();
        let found = act();
        let pairs = self.so_far().into_iter().zip(before);
        let waits = pairs.filter_map(|(now, before)| Some(now?.saturating_sub(before?)));
        (found, waits.max().map(|wait| wait as f64))
    }

    /// How long each has waited so far, in nanoseconds; none where the system does not say.
    fn so_far(&self) -> Vec<Option<u64>> {
        let texts = self.0.iter().map(|file| fs::read_to_string(file).ok());
        let wait = |text: String| text.split_whitespace().nth(1)?.parse().ok();
        texts.map(|text| wait(text?)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::device::cpu::identity;

    /// Two threads that spin on one processor wait for half of the time, one alone hardly.
    #[test]
    fn a_thread_beside_another_waits() {
        let Some(&processor) = identity::allowed_cpus().first() else {
            return;
        };
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(2)
            .build()
            .unwrap();
        let waits = Waits::of(&pool);
        if waits.so_far().contains(&None) {
            return;
        }
        let spin = |duration: Duration| {
            let start = Instant::now();
            while start.elapsed() < duration {
                std::hint::spin_loop();
            }
        };
        pool.broadcast(|_| identity::keep_current_thread_on(&[processor]));
        let ((), waited_ns) = waits.during(|| {
            pool.broadcast(|_| spin(Duration::from_millis(100)));
        });
        let waited_ns = waited_ns.unwrap();
        assert!(waited_ns > 20e6, "{waited_ns}");
    }
}
