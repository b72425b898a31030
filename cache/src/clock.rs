//! The time of day as a number, which is also the order of uses.

use std::time::{Duration, SystemTime};

/// Nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    since_epoch_ns(SystemTime::now())
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
