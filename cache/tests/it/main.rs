//! What the cache promises, checked from outside: one module per promise.

mod support;

mod lookups;
mod foreign;
mod sharing;
mod crashes;
mod bounds;
mod refusals;
mod looking_after;
