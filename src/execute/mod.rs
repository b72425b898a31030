//! Measuring: what became of every point, from worker processes that may crash or hang.
//!
//! [`block`] is the recipe that a worker follows, [`groundwork`] and [`setting`] its preparation,
//! [`sampling`] its stopping rule, [`verify`] its check by the oracle's [`answers`]; [`protocol`] is what main process and
//! [`worker`] say to each other.

pub mod answers;
pub mod block;
mod fresh;
pub mod groundwork;
pub mod on_device;
pub mod protocol;
pub mod rounds;
pub mod sampling;
pub mod setting;
pub mod tensors;
pub mod verify;
pub mod supervisor;
pub mod worker;
