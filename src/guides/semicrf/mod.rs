//! The three files of the semi-CRF guide, with its columns, units and status words: written at full
//! precision, and the first of them read, ours or anyone's.

pub(crate) mod read;
pub mod write;
