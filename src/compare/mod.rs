//! Comparing two recorded sides, point by point.
//!
//! [`median`] says where one run's samples lie, [`spread`] how far apart runs of one program are on a
//! machine, [`estimate`] what follows for a ratio.

pub mod estimate;
pub mod spread;
mod median;
mod signed_rank;
mod student;
#[cfg(test)]
mod testing;
