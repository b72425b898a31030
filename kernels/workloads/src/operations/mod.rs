//! The operations of the operations guide, and two more.
//!
//! Each is one file: its description, its graph, and an oracle written by hand with what that costs
//! and with variances, from which the tolerance follows ([`oracle`]). Files beside them have what
//! several operations share; all else is [`crate::graph_problem`].

mod elementwise;
mod exponentials;
mod info;
mod norm;
mod oracle;
mod prelude;
mod sized;
mod sizes;

pub(crate) mod cross_entropy;
pub(crate) mod gelu;
pub(crate) mod layernorm;
pub(crate) mod mse;
pub(crate) mod rmsnorm;
pub(crate) mod softmax;
pub(crate) mod swish;

pub(crate) use sized::SizedOperation;

#[cfg(test)]
mod tests;
