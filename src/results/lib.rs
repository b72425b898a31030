//! What is kept and shown: records, formats of others, reports, comparisons.

pub mod guides;
pub mod record;
pub mod report;
pub mod compare;
#[cfg(test)]
mod golden;
