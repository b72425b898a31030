//! The promises of the cache, checked from outside: one module per promise.

#![expect(clippy::unwrap_used, reason = "a test that can't go on ends there")]

mod support;

mod lookups;
mod foreign;
mod sharing;
mod upstreams;
mod crashes;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod injection;
mod bounds;
mod refusals;
mod looking_after;
