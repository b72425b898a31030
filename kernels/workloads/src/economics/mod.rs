//! The bodies of loops of the compilation guide, which asks when compiling one pays, one file each.
//!
//! They are small on purpose: what an eager loop spends on them is mostly launches. Each is a graph
//! whose value is the oracle ([`crate::graph_oracle`]).

pub(crate) mod attention_block;
pub(crate) mod matmul_chain;
pub(crate) mod mixed;
pub(crate) mod mlp;

use sweeper_program::workload::{self, DefaultValue, ParameterInfo};

/// A whole number from 1 on, of which the compilation guide has one.
const fn size(name: &'static str, default: i64, max: i64, about: &'static str) -> ParameterInfo {
    workload::size(name, max, Some(DefaultValue::Int(default)), about)
}

/// The greatest extent of a matrix.
const MOST: i64 = 1 << 20;

/// Powers of two to where a row of f32 fills the registers of a block of threads; beyond, the next
/// one.
const ROWS: &[u64] = &[16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];

const SQUARE: &str = "(size, size)";

#[cfg(test)]
mod tests;
