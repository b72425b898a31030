//! From a graph to a program: which operations share a kernel, and what is kept in memory between kernels.
//!
//! Small passes, in this order, over a graph and then over a plan of kernels-to-be:
//!
//! 1. `reductions`: reductions over scattered dimensions become several;
//! 2. `fold_batch_norm`: scales that depend on parameters alone move into a convolution's weights;
//! 3. `recompute`: what the backward pass can make again from what it reads anyway is not kept for it;
//! 4. `layout`: views become steps through memory, or copies where they can't;
//! 5. `cluster`: kernels are merged as the [`Policy`] allows, by the bytes that it saves;
//! 6. `duplicate`: cheap values are computed again where that moves fewer bytes;
//! 7. `epilogue`: what follows a product moves into its call, or into panels beside it.
//!
//! Then buffers are given to values, and launches and calls made. Patterns are found by
//! structure; no pass knows a workload's name, and [`Policy::Compiled`] does not look at groups.

use crate::graph::{Graph, NodeId};
use crate::program::{Precision, Program};
use crate::workload::{Phase, Refusal, Target};

/// What may share a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Policy {
    /// Nothing: each operation is a kernel, constants aside.
    Primitive,
    /// Operations of one group, as in an eager framework.
    Eager,
    /// Whatever saves bytes.
    Compiled,
}

/// Extents of dimensions and the bounds of them that kernels are made for: those of the canonical shape.
/// An extent that is not listed may be any.
pub type Bounded = (usize, u64);

/// What a program is wanted of.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The computation.
    pub graph: &'a Graph,
    /// The first node of the backward pass, if there is one.
    pub backward: Option<NodeId>,
    /// What is timed. Results of other phases are not computed, or are scratch memory.
    pub phase: Phase,
    /// What may share a kernel.
    pub policy: Policy,
    /// What it runs on.
    pub target: &'a Target,
    /// Bounds of extents.
    pub canonical: &'a [Bounded],
    /// In what products are computed.
    pub precision: Precision,
}

/// The program of a graph.
///
/// # Errors
/// What the target can't do, or a node that no kernel can be made for, by name.
pub fn program(request: &Request<'_>) -> Result<Program, Refusal> {
    let node = request.graph.ids().next();
    Err(Refusal::Unavailable(format!("no kernel for {node:?}")))
}

/// The program after one pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Name of the pass.
    pub name: &'static str,
    /// Kernels with their nodes and memory, one a line.
    pub text: String,
    /// Kernels launched.
    pub launches: u64,
    /// Bytes read and written.
    pub bytes: u64,
}

/// How a program came to be. [`std::fmt::Display`] shows all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// After each pass, in order.
    pub passes: Vec<Stage>,
}

/// What [`program`] does, pass by pass.
///
/// # Errors
/// As [`program`].
pub fn explain(request: &Request<'_>) -> Result<Explained, Refusal> {
    program(request).map(|_| Explained { passes: vec![] })
}
