//! From cases as they are written to cases that run: workloads and backends are looked up, shared
//! axes and rules are taken over, expressions are compiled, and the settings that name axes or
//! backends are checked against the cases.

pub(crate) mod build;
pub(crate) mod chosen;
pub(crate) mod dimensions;
pub(crate) mod null;
pub(crate) mod relate;
mod rules;
mod scope;
pub(crate) mod shared;
mod ties;
mod uses;
