//! Files of other tools, read into manifests and rows.

pub mod flashinfer;
pub mod kernelbench;
pub mod names;
pub mod python;
pub mod t1;
pub mod t4;
