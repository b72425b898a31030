//! The right answer: the definition, edge by edge, in f64 and log space.
//!
//! It visits every edge (position, duration, destination, source) and factors nothing, so that it
//! shares neither code nor ideas with any backend. Gradients come from forward and backward tables
//! through the marginals of edges, where backends propagate from the end.

use std::borrow::Cow;

use rayon::prelude::*;

use super::sizes::{Semiring, Sizes};
use sweeper_program::check;
use sweeper_program::spread::{Spread, name_of};
use sweeper_program::tensor::{Dtype, Tensor, Tensors};
use sweeper_program::workload::Phase;

pub(super) mod cuda;
mod edges;
mod noise;
pub(super) mod scaled;
mod tables;

use edges::{Decomposed, Edges, Gradient, Materialized};
use noise::{LANES, Lanes};
use tables::{Solution, solve};

/// Values and gradients of `phase`, all in f64.
pub fn oracle(sizes: &Sizes, inputs: &Tensors, phase: Phase) -> Tensors {
    let lengths: Vec<usize> = check::elements(&inputs["lengths"])
        .map(|length| length as usize)
        .collect();
    let scores: Vec<Cow<'_, [f64]>> = sizes
        .score_specs("")
        .iter()
        .map(|spec| check::as_f64(&inputs[&spec.name]))
        .collect();
    let gradients = phase.has_gradients();
    let (solutions, gradients): (Vec<Solution>, Vec<Gradient>) = match &scores[..] {
        [edge] => {
            // Large: no part of it is copied.
            let mut gradient = Gradient::zero(if gradients { edge.len() } else { 0 });
            let edges = Materialized::of_batch(sizes, edge, &mut gradient);
            let (solutions, _) = solve_all(sizes, edges, &lengths, gradients);
            (solutions, vec![gradient])
        }
        [cum_scores, transition, bias] => {
            let edges = Decomposed::of_batch(sizes, cum_scores, transition, bias);
            let (solutions, parts) = solve_all(sizes, edges, &lengths, gradients);
            (solutions, Decomposed::joined(parts))
        }
        _ => unreachable!("one tensor of scores, or three"),
    };
    assemble(sizes, phase, &solutions, gradients)
}

fn solve_all<E: Edges + Send>(
    sizes: &Sizes,
    edges: Vec<E>,
    lengths: &[usize],
    gradients: bool,
) -> (Vec<Solution>, Vec<E>) {
    edges
        .into_par_iter()
        .zip(lengths)
        .enumerate()
        .map(|(sequence, (mut edges, &length))| {
            let end = sizes.end(length);
            let solution = solve(sizes, &mut edges, end, gradients, sequence);
            (solution, edges)
        })
        .unzip()
}

/// Names the answers, each with its spread. That of the value is always there: gradients of the
/// best score are judged by it.
fn assemble(
    sizes: &Sizes,
    phase: Phase,
    solutions: &[Solution],
    gradients: Vec<Gradient>,
) -> Tensors {
    let mut outputs = Tensors::new();
    let mut per_sequence = |name: &str, number: fn(&Solution) -> (f64, &Lanes)| {
        let numbers: Vec<(f64, &Lanes)> = solutions.iter().map(number).collect();
        let values: Vec<f64> = numbers.iter().map(|(value, _)| *value).collect();
        let probe = |lane: usize| {
            numbers
                .iter()
                .map(|(value, noise)| value + noise[lane])
                .collect()
        };
        let probes: Vec<Vec<f64>> = (0..LANES).map(probe).collect();
        let spread = Spread::from_probes(Dtype::F32, &[sizes.b], &values, &probes);
        outputs.insert(name_of(name), spread.into_tensor());
        if phase != Phase::Backward {
            outputs.insert(name.to_owned(), Tensor::f64([sizes.b], values));
        }
    };
    per_sequence("value", |solution| (solution.value, &solution.noise.log));
    if sizes.semiring == Semiring::Entropy {
        per_sequence("entropy", |it| (it.entropy, &it.noise.entropy));
    }
    if phase.has_gradients() {
        for (spec, gradient) in sizes.score_specs("grad_").into_iter().zip(gradients) {
            let Gradient { values, probes } = gradient;
            if sizes.semiring != Semiring::Max {
                let spread = Spread::from_probes(Dtype::F32, &spec.shape, &values, &probes);
                outputs.insert(name_of(&spec.name), spread.into_tensor());
            }
            outputs.insert(spec.name, Tensor::f64(spec.shape, values));
        }
    }
    outputs
}

/// Exponentials that one of `threads` threads takes in [`oracle`]: one for each edge of its
/// sequences for the value, three with gradients.
pub fn operations(sizes: &Sizes, phase: Phase, threads: usize) -> f64 {
    let per_edge = if phase.has_gradients() { 3.0 } else { 1.0 };
    let sequences = sizes.b.div_ceil(threads.max(1));
    per_edge * edge_count(sizes, sizes.last_end()) * sequences as f64
}

/// Sizes at which each thread needs at most `limit` operations: fewer sequences, then shorter ones,
/// but never so short that the longest duration does not fit.
pub fn reduced(sizes: &Sizes, phase: Phase, limit: f64, threads: usize) -> Option<Sizes> {
    let mut less = *sizes;
    let fits = |sizes: &Sizes| operations(sizes, phase, threads) <= limit;
    while less.b > 1 && !fits(&less) {
        less.b = less.b.div_ceil(2);
    }
    let shortest = (2 * less.longest() + 2).min(less.t);
    while less.t > shortest && !fits(&less) {
        less.t = less.t.div_ceil(2).max(shortest);
    }
    fits(&less).then_some(less)
}

/// Edges of one sequence whose value is read at boundary `end`.
pub fn edge_count(sizes: &Sizes, end: usize) -> f64 {
    let longest = sizes.longest().min(end) as f64;
    // Segments of duration k can start at end - k + 1 boundaries.
    let segments = longest * (end as f64 + 1.0) - longest * (longest + 1.0) / 2.0;
    segments * (sizes.c * sizes.c) as f64
}

#[cfg(test)]
mod tests;
