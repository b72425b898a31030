//! From a graph to a program: choosing the operations that share a kernel, and the values in memory
//! between kernels.
//!
//! Small passes, in this order, over a graph and then over a plan of kernels-to-be:
//!
//! 1. `reductions`: reductions over scattered dimensions become several;
//! 2. `algebra`: less work for an equal value, such as a sum with only one nonzero term;
//! 3. `attention`: a product, a softmax and a product become one kernel, and so do their gradients;
//! 4. `fold_batch_norm`: scales that depend on parameters alone move into a convolution's weights;
//! 5. `recompute`: the backward pass recomputes values from inputs that it reads anyway, instead of
//!    loading them;
//! 6. `concatenate`, on GPUs: products that share a factor become one product, whose results are
//!    slices, and so do products that are added up;
//! 7. `layout`: views become strides, or copies where they can't;
//! 8. `epilogue`: a factor, a bias and an activation after a product move into its call, on a CPU
//!    only the last of these;
//! 9. `cluster`: kernels are merged as the [`Policy`] allows, by the bytes that merging saves;
//! 10. `duplicate`: cheap values are computed again where this moves fewer bytes;
//! 11. `single_pass`, on GPUs: a full reduction and the combination of its partials become one
//!     single-pass kernel;
//! 12. `in_place`: results that are next values of given tensors take their memory, where nothing
//!     reads them any more;
//! 13. `horizontal`: horizontal fusion of small independent kernels, such as the updates of all
//!     parameters, into one launch.
//!
//! Then buffers are given to values, and launches and calls made; on a CPU, operations that follow
//! a product or a convolution run panel by panel, while the panel is in the cache. The first three
//! are rules of [`crate::graph::pattern`]. Patterns are found by structure; no pass knows a
//! workload's name, and [`Policy::Compiled`] does not look at groups.

mod access;
mod algebra;
mod alike;
mod assemble;
mod attention;
mod batch_norm;
mod bf16;
mod body;
mod cluster;
mod concatenate;
mod cycles;
mod epilogue;
mod explain;
mod horizontal;
mod in_place;
mod kernel;
mod layout;
mod library;
mod lower;
mod memory;
mod order;
mod panels;
mod parts;
mod plan;
mod recompute;
mod reduce;
mod replay;
mod rewrite;
mod scatter;
mod single_pass;
mod space;
mod waits;

use std::collections::BTreeSet;

pub use bf16::{rounds_factors, widens_results};
pub use replay::{Replay, replay};

use crate::graph::{Graph, NodeId, Output};
use sweeper_program::workload::{Phase, Refusal, Target};
use sweeper_program::{Precision, Program, Role};

use cluster::Rules;
use plan::Plan;
use rewrite::Whole;

/// The operations that may share a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Policy {
    /// Nothing: each operation is a kernel, constants aside.
    Primitive,
    /// Operations of one group, as in an eager framework.
    Eager,
    /// Any operations, where sharing saves bytes.
    Compiled,
}

/// Extents of dimensions, with the bounds of the canonical shape, for which kernels are made. An
/// extent that is not listed has no bound.
pub type Bounded = (usize, u64);

/// A graph and the program that is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The computation.
    pub graph: &'a Graph,
    /// The first node of the backward pass, if there is one.
    pub backward: Option<NodeId>,
    /// The timed phase. Results of other phases are not computed, or are scratch memory.
    pub phase: Phase,
    /// The operations that may share a kernel.
    pub policy: Policy,
    /// The target.
    pub target: &'a Target,
    /// Bounds of extents.
    pub canonical: &'a [Bounded],
    /// Precision of products.
    pub precision: Precision,
    /// Whether attention is a call of a library, not of kernels of ours.
    pub by_library: bool,
}

/// The program of a graph.
///
/// The results belong to the phase: for a backward pass the gradients and the values made from
/// them. Where only the backward pass is timed, the forward pass is the prologue. In a forward pass
/// alone, folded parameters are computed in the prologue, too: they are equal in all calls.
///
/// # Errors
/// An operation that the target lacks, or a node that no kernel can be made for, by name.
pub fn program(request: &Request<'_>) -> Result<Program, Refusal> {
    let plan = passes(request, Watcher::default())?;
    Ok(assemble::assemble(&plan, request)?.program)
}

/// The program after one pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Name of the pass.
    pub name: &'static str,
    /// Kernels with their nodes and memory, two lines each.
    pub text: String,
    /// Kernels launched.
    pub launches: u64,
    /// Bytes read and written.
    pub bytes: u64,
}

/// The passes by which a program came to be. [`std::fmt::Display`] shows all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The plan after each pass that changed it, in order; the first stage is the graph, with a
    /// kernel for each node.
    pub passes: Vec<Stage>,
}

/// The passes of [`program`], one by one.
///
/// # Errors
/// As [`program`].
pub fn explain(request: &Request<'_>) -> Result<Explained, Refusal> {
    let mut passes: Vec<Stage> = Vec::new();
    let mut see = |name, plan: &Plan| {
        let stage = explain::stage(name, plan);
        if passes.last().is_none_or(|last| last.text != stage.text) {
            passes.push(stage);
        }
    };
    self::passes(request, Watcher(Some(&mut see)))?;
    Ok(Explained { passes })
}

/// A function that is shown the plan after each pass, with the name of the pass.
type See<'s> = dyn FnMut(&'static str, &Plan) + 's;

/// Who is shown the plan after each pass, if anybody.
#[derive(Default)]
struct Watcher<'s>(Option<&'s mut See<'s>>);

impl Watcher<'_> {
    fn see(&mut self, name: &'static str, plan: &Plan) {
        if let Some(see) = &mut self.0 {
            see(name, plan);
        }
    }

    /// Shows a graph as a plan. Laying it out takes as long as most passes, so it is done for a
    /// watcher alone.
    fn see_graph(
        &mut self,
        name: &'static str,
        laid_out: impl FnOnce() -> Result<Plan, Refusal>,
    ) -> Result<(), Refusal> {
        if self.0.is_some() {
            self.see(name, &laid_out()?);
        }
        Ok(())
    }
}

/// Runs all passes.
fn passes(request: &Request<'_>, mut watcher: Watcher<'_>) -> Result<Plan, Refusal> {
    let rules = Rules::new(request.policy, request.phase, request.target);
    let mut plan = passes_over_graph(request, &rules, &mut watcher)?;
    watcher.see("layout", &plan);
    attention::merge(&mut plan, request);
    epilogue::epilogue(&mut plan, &rules, request.target);
    watcher.see("epilogue", &plan);
    let mut costs = alike::Costs::new(&plan);
    cluster::cluster(&mut plan, &rules, &mut costs);
    watcher.see("cluster", &plan);
    cluster::duplicate(&mut plan, &rules, &mut costs);
    watcher.see("duplicate", &plan);
    single_pass::single_pass(&mut plan, &rules, request.target);
    watcher.see("single_pass", &plan);
    in_place::in_place(&mut plan);
    watcher.see("in_place", &plan);
    horizontal::horizontal(&mut plan, &rules, request);
    watcher.see("horizontal", &plan);
    Ok(plan)
}

/// Runs the passes over the graph. In the plan of what they make of it each task is a kernel.
fn passes_over_graph(
    request: &Request<'_>,
    rules: &Rules,
    watcher: &mut Watcher<'_>,
) -> Result<Plan, Refusal> {
    let wanted = wanted(request)?;
    let laid_out = |whole: &Whole| {
        let mut plan = Plan::new(whole, &wanted);
        layout::layout(&mut plan)?;
        plan.in_bf16 = bf16::in_memory(&plan, request);
        Ok::<_, Refusal>(plan)
    };
    let (mut whole, _) = rewrite::apply(request.graph, request.backward, reduce::SPLIT);
    if request.policy != Policy::Compiled {
        return laid_out(&whole);
    }
    watcher.see_graph("reductions", || laid_out(&whole))?;
    (whole, _) = rewrite::apply(&whole.graph, whole.boundary, algebra::RULES);
    watcher.see_graph("algebra", || laid_out(&whole))?;
    if request.by_library || attention::has_kernels(request) {
        whole = attention::recognize(&whole, request)?;
        watcher.see_graph("attention", || laid_out(&whole))?;
    }
    let (name, whole) = match request.phase {
        Phase::Forward => ("fold_batch_norm", batch_norm::fold_batch_norm(&whole)),
        _ => ("recompute", recompute::recompute(&whole)),
    };
    let plan = laid_out(&whole)?;
    watcher.see(name, &plan);
    if let Some(concatenated) = concatenate::concatenate(&whole, &plan, rules, request) {
        let other = laid_out(&concatenated)?;
        // Not where a slice would have to be copied.
        if other.kept.len() <= plan.kept.len() {
            watcher.see("concatenate", &other);
            return Ok(other);
        }
    }
    Ok(plan)
}

/// Positions of the outputs of the phase.
fn wanted(request: &Request<'_>) -> Result<Vec<usize>, Refusal> {
    let Some(backward) = request.backward else {
        if request.phase == Phase::Backward {
            let reason = "the graph has no backward pass".to_owned();
            return Err(Refusal::Undefined(reason));
        }
        return Ok((0..request.graph.outputs().len()).collect());
    };
    let of_phase = request.graph.results(request.phase);
    let of_phase: BTreeSet<&str> = of_phase.map(|output| &*output.name).collect();
    let is_backward = |output: &Output| output.role != Role::Output || output.node >= backward;
    let is_wanted = |output: &Output| match request.phase {
        Phase::Forward => !is_backward(output),
        Phase::Backward => is_backward(output),
        Phase::Both | Phase::Step => of_phase.contains(&*output.name),
    };
    let outputs = request.graph.outputs().iter().enumerate();
    let wanted = outputs.filter(|(_, output)| is_wanted(output));
    Ok(wanted.map(|(at, _)| at).collect())
}

#[cfg(test)]
mod tests;
