//! The three files of the semi-CRF guide, with its columns, units and status words: written at full
//! precision, and the first of them read, whichever program wrote it.

pub(crate) mod read;
pub mod write;
