//! Files of other tools, read into manifests.

pub mod python;
pub mod t1;
