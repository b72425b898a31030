//! Measuring: the outcome of every point, from worker processes that may crash or hang.
//!
//! [`block`] is the recipe that a worker follows, [`block_inputs`] and [`block_context`] its
//! preparation, [`sampling`] its stopping rule, `turns` the order of samples,
//! `contest` the races of tuned backends, [`verify`] its check by the oracle's [`answers`];
//! [`protocol`] has the messages of main process and [`worker`].

pub mod answers;
pub mod block;
mod contest;
mod fresh;
pub mod block_inputs;
pub mod device_oracle;
pub mod foreign_inputs;
mod foreign_oracle;
mod peer;
mod text_in_f64;
mod judge;
mod trespass;
mod trial;
pub mod protocol;
pub mod rounds;
pub mod sampling;
mod audit;
mod auto_point;
pub mod block_context;
pub mod refused;
mod turns;
pub mod tensors;
pub mod verify;
pub mod supervisor;
pub mod worker;
