//! A graph's value in f64 on a GPU, as a [`Program`]: one plain kernel for each node, a thread for
//! each element.
//!
//! The kernels (`on_device/evaluate.cu`) judge compiled ones, so they share nothing with the
//! compiler: no fusion, no generated text, no tuned constant. A program yields the values of
//! [`evaluate`](super::evaluate()) and, from evaluations that round
//! ([`Rounding`](super::Rounding)), the allowed error of f32 arithmetic. The engine compares it
//! with the host's answer to a smaller problem before it relies on it.

mod launches;
mod lower;
mod rounding;
mod values;

use sweeper_program::spread;
use sweeper_program::tensor::Dtype;
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Binding, Precision, Program, Role};

use super::evaluate::with_sums_apart;
use super::{Graph, NodeId};
use lower::Lowering;
use rounding::NoiseSums;
use values::Value;

/// Dimensions that the kernels know.
pub(super) const MAX_RANK: usize = 5;

/// A result that is asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Name of the result.
    pub name: String,
    /// The node.
    pub node: NodeId,
}

/// The program that computes `wanted` and, from `probes` evaluations that round (an even number),
/// the sums from which [`spread::finish_sums`] makes their spreads; with the program's results, all
/// of f64. `None` where a tensor has more than [`MAX_RANK`] dimensions, or a result has whole
/// numbers.
pub fn program(
    graph: &Graph,
    wanted: &[Wanted],
    precision: Precision,
    probes: u8,
) -> Option<(Program, Vec<TensorSpec>)> {
    let is_known = graph
        .nodes()
        .iter()
        .all(|node| node.shape.len() <= MAX_RANK);
    let is_real = |wanted: &Wanted| graph.node(wanted.node).dtype == Dtype::F32;
    if !is_known || !wanted.iter().all(is_real) {
        return None;
    }
    let nodes: Vec<NodeId> = wanted.iter().map(|wanted| wanted.node).collect();
    let (apart, stands_for) = with_sums_apart(graph);
    let mut lowering = Lowering::new(graph, precision);
    let exact: Vec<Value> = lowering.evaluate(&nodes, None);
    let mut specs = Vec::new();
    let mut results = Vec::new();
    for (wanted, value) in wanted.iter().zip(exact) {
        let result = lowering.launches.result(&wanted.name, value.shape());
        lowering.launches.copy_into(&value, &result);
        lowering.launches.release(value);
        let length = spread::raw_sums_length(result.shape(), probes.into());
        let name = spread::name_of_raw_sums(&wanted.name);
        let sums = NoiseSums::new(lowering.launches.result(&name, &[length]));
        specs.push(spec(&wanted.name, result.shape()));
        specs.push(spec(&name, &[length]));
        results.push((result, sums));
    }
    lowering.graph = &apart;
    let nodes: Vec<NodeId> = nodes.iter().map(|node| stands_for[node.index()]).collect();
    for probe in 0..probes {
        let rounded = lowering.evaluate(&nodes, Some(probe));
        for (rounded, (exact, sums)) in rounded.into_iter().zip(&mut results) {
            lowering.add_noise(rounded, exact, sums);
        }
    }
    for (exact, sums) in &mut results {
        lowering.add_size(exact, sums);
    }
    Some((lowering.launches.into_program(), specs))
}

fn spec(name: &str, shape: &[usize]) -> TensorSpec {
    TensorSpec {
        name: name.to_owned(),
        dtype: Dtype::F64,
        shape: shape.to_vec(),
    }
}

/// Scratch buffers with memory of their own: results are bound by name.
const fn scratch() -> (Role, Binding) {
    (Role::Workspace, Binding::Scratch)
}
