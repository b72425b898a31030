//! How long threads stood ready and had no processor: the neighbour's work is in their times.

use std::fs;

use rayon::ThreadPool;

/// What the system says of a thread: how long it ran, how long it waited, and how often it ran.
const OF_THIS_THREAD: &str = "/proc/thread-self/schedstat";

/// How long the threads of a pool have waited so far, in nanoseconds; none where the system does
/// not say.
pub(super) struct PoolWaits(Vec<Option<u64>>);

impl PoolWaits {
    /// Until now.
    pub(super) fn of(pool: &ThreadPool) -> Self {
        PoolWaits(pool.broadcast(|_| of_this_thread()))
    }

    /// The longest that one of them has waited since, in nanoseconds.
    pub(super) fn longest_since(&self, pool: &ThreadPool) -> Option<f64> {
        let now = PoolWaits::of(pool);
        let pairs = now.0.iter().zip(&self.0);
        let waits =
            pairs.filter_map(|(now, before)| Some(now.as_ref()?.saturating_sub((*before)?)));
        waits.max().map(|wait| wait as f64)
    }
}

fn of_this_thread() -> Option<u64> {
    let text = fs::read_to_string(OF_THIS_THREAD).ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::device::cpu::identity;

    /// Two threads that spin on one processor wait for half of the time, one alone hardly.
    #[test]
    fn a_thread_beside_another_waits() {
        if of_this_thread().is_none() {
            return;
        }
        let Some(&processor) = identity::allowed_cpus().first() else {
            return;
        };
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(2)
            .build()
            .unwrap();
        let before = PoolWaits::of(&pool);
        pool.broadcast(|_| {
            identity::keep_current_thread_on(&[processor]);
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(100) {
                std::hint::spin_loop();
            }
        });
        let waited_ns = before.longest_since(&pool).unwrap();
        assert!(waited_ns > 20e6, "{waited_ns}");
    }
}
