//! Files of other tools, read into manifests and rows.

pub mod kernelbench;
pub mod python;
pub mod t1;
pub mod t4;
