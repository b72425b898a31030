//! The time of day, made strictly increasing within a process, so that the order of uses is the
//! order of their times.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime},
};

/// Nanoseconds since 1970, later than any answer before in this process.
pub(crate) fn now_ns() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let wall = since_epoch_ns(SystemTime::now());
    let next = |last: u64| Some(wall.max(last + 1));
    match LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
        Ok(last) | Err(last) => wall.max(last + 1),
    }
}

/// Nanoseconds since 1970; a time before that is 0.
pub(crate) fn since_epoch_ns(time: SystemTime) -> u64 {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX / 2)
}

pub(crate) fn at(since_epoch_ns: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(since_epoch_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_stands_still() {
        let times: Vec<u64> = (0..1000).map(|_| now_ns()).collect();
        assert!(times.is_sorted_by(|a, b| a < b));
        assert_eq!(since_epoch_ns(at(times[0])), times[0]);
    }
}
