//! A program as the operations that an eager framework's dispatcher is told of.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::{Policy, Request, Watcher, assemble, passes};
use crate::graph::{Graph, NodeId};
use crate::stream::{Call, trace_in_order};
use sweeper_program::Program;
use sweeper_program::workload::{Phase, Refusal};

/// The program of [`Policy::Eager`], and the operations whose work its steps are.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The program.
    pub program: Program,
    /// The graph that nodes of calls are of: that of the request, with reductions over scattered
    /// dimensions as several. Given tensors and results are those of the request.
    pub graph: Arc<Graph>,
    /// The first node of the backward pass.
    pub backward: Option<NodeId>,
    /// The operations of one iteration, in order.
    pub calls: Vec<Call>,
    /// The timed steps of each call; together all of them, in order. A call whose work is part of
    /// another one's launch has none.
    pub steps: Vec<Range<usize>>,
}

/// The program that runs operation by operation, with the steps of each.
///
/// # Errors
/// As [`super::program`]; a phase part of which is not timed.
pub fn replay(request: &Request<'_>) -> Result<Replay, Refusal> {
    let request = Request {
        policy: Policy::Eager,
        ..*request
    };
    if request.phase == Phase::Backward {
        let reason = "a loop runs the forward pass too: take the phase `both`".to_owned();
        return Err(Refusal::Undefined(reason));
    }
    let plan = passes(&request, Watcher::default())?;
    let assembled = assemble::assemble(&plan, &request)?;
    let graph = Arc::clone(&plan.graph);
    let wanted: Vec<NodeId> = graph
        .results(request.phase)
        .map(|output| output.node)
        .collect();
    let backward = plan.boundary.filter(|_| request.phase != Phase::Forward);
    let ends = &assembled.ends;
    let calls = trace_in_order(&graph, &wanted, backward, &|node| {
        ends.get(&node).copied().unwrap_or(0)
    });
    let steps = spans(&calls, ends, assembled.program.steps.len());
    Ok(Replay {
        program: assembled.program,
        graph,
        backward,
        calls,
        steps,
    })
}

/// Cuts steps at the ends of calls.
fn spans(calls: &[Call], ends: &BTreeMap<NodeId, usize>, steps: usize) -> Vec<Range<usize>> {
    let mut spans: Vec<Range<usize>> = Vec::with_capacity(calls.len());
    let mut done = 0;
    for call in calls {
        let computed = call.results.iter().filter_map(|node| ends.get(node));
        let end = computed.copied().max().unwrap_or(0).max(done);
        spans.push(done..end);
        done = end;
    }
    // Steps behind the last call are copies of results.
    if let Some(last) = spans.last_mut() {
        last.end = steps;
    }
    spans
}
