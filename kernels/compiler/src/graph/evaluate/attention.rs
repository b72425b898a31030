//! Attention in f64, row by row: for tests of the kernels that the compiler puts in its place.

use super::Value;
use crate::graph::op::{Attention, AttentionPart};

/// One matrix of each operand, in row-major order.
struct Head<'a> {
    which: &'a Attention,
    q: &'a [f64],
    k: &'a [f64],
    depth: usize,
    keys: usize,
}

impl Head<'_> {
    /// Scores of the keys that a query sees.
    fn scores(&self, query: usize) -> Vec<f64> {
        let seen = match self.which.is_causal {
            true => (query + 1).min(self.keys),
            false => self.keys,
        };
        let q = row(self.q, query, self.depth);
        let score = |key: usize| self.which.scale * dot(q, row(self.k, key, self.depth));
        (0..seen).map(score).collect()
    }

    /// The sum of a query's exponentials, as its node has it.
    fn sums(&self, query: usize) -> Vec<f64> {
        let scores = self.scores(query);
        let greatest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|score| (score - greatest).exp()).sum();
        match self.which.splits_sums {
            true => vec![greatest, sum.recip()],
            false => vec![greatest + sum.ln()],
        }
    }

    /// A score's weight, by such sums.
    fn weight(score: f64, sums: &[f64]) -> f64 {
        (score - sums[0]).exp() * sums.get(1).unwrap_or(&1.0)
    }
}

fn row(matrix: &[f64], at: usize, columns: usize) -> &[f64] {
    &matrix[at * columns..][..columns]
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `row += factor addend`
fn add(row: &mut [f64], factor: f64, addend: &[f64]) {
    for (sum, addend) in row.iter_mut().zip(addend) {
        *sum += factor * addend;
    }
}

/// The value that `which` names, in row-major order.
pub(super) fn attention(which: &Attention, operands: &[Value]) -> Vec<f64> {
    let dense: Vec<Vec<f64>> = operands
        .iter()
        .map(|operand| operand.real().to_dense().into_owned())
        .collect();
    let extents = |at: usize| {
        let shape = operands[at].real().shape();
        let [rows, columns] = shape[shape.len() - 2..] else {
            unreachable!("matrices have two dimensions")
        };
        [rows, columns]
    };
    let ([queries, depth], [keys, _]) = (extents(0), extents(1));
    let heads = dense[0].len() / (queries * depth);
    let of_head = |at: usize, head: usize| {
        let len = dense[at].len() / heads;
        &dense[at][head * len..][..len]
    };
    let mut out = Vec::new();
    for head in 0..heads {
        let matrices = Head {
            which,
            q: of_head(0, head),
            k: of_head(1, head),
            depth,
            keys,
        };
        let others: Vec<&[f64]> = (2..dense.len()).map(|at| of_head(at, head)).collect();
        out.extend(match which.part {
            AttentionPart::Out => forward(&matrices, queries, others[0]),
            AttentionPart::LogSumExp => (0..queries).flat_map(|at| matrices.sums(at)).collect(),
            _ => gradient(&matrices, queries, &others),
        });
    }
    let inner = match which.is_by_rows {
        true => operands[0].real().shape()[operands[0].real().shape().len() - 3],
        false => return out,
    };
    let columns = out.len() / heads / rows_of(which.part, queries, keys);
    beside(&out, inner, columns, heads)
}

fn rows_of(part: AttentionPart, queries: usize, keys: usize) -> usize {
    match part {
        AttentionPart::GradK | AttentionPart::GradV => keys,
        _ => queries,
    }
}

/// Rows of columns with those of each `inner` heads beside each other.
fn beside(out: &[f64], inner: usize, columns: usize, heads: usize) -> Vec<f64> {
    let rows = out.len() / heads / columns;
    let places = (0..heads / inner)
        .flat_map(|outer| (0..rows).map(move |row| (outer, row)))
        .flat_map(|(outer, row)| (0..inner).map(move |head| (outer * inner + head) * rows + row));
    let each = places.flat_map(|place| &out[place * columns..][..columns]);
    each.copied().collect()
}

fn forward(head: &Head<'_>, queries: usize, v: &[f64]) -> Vec<f64> {
    let width = v.len() / head.keys;
    let mut out = vec![0.0; queries * width];
    for (query, out) in out.chunks_mut(width).enumerate() {
        let sums = head.sums(query);
        for (key, score) in head.scores(query).into_iter().enumerate() {
            add(out, Head::weight(score, &sums), row(v, key, width));
        }
    }
    out
}

/// The gradient by one of the operands, from `v, grad_out`, sums of rows and `delta`.
fn gradient(head: &Head<'_>, queries: usize, others: &[&[f64]]) -> Vec<f64> {
    let &[v, grad_out, sums, last] = others else {
        unreachable!("gradients have six operands")
    };
    let (width, depth) = (v.len() / head.keys, head.depth);
    let part = head.which.part;
    let mut out = match part {
        AttentionPart::GradQ => vec![0.0; head.q.len()],
        AttentionPart::GradK => vec![0.0; head.k.len()],
        _ => vec![0.0; v.len()],
    };
    for query in 0..queries {
        let grad = row(grad_out, query, width);
        let delta = match head.which.takes_out {
            true => dot(grad, row(last, query, width)),
            false => last[query],
        };
        for (key, score) in head.scores(query).into_iter().enumerate() {
            let weight = Head::weight(score, row(sums, query, sums.len() / queries));
            let of_weight = dot(grad, row(v, key, width));
            let of_product = head.which.scale * weight * (of_weight - delta);
            let (at, columns, factor, addend) = match part {
                AttentionPart::GradQ => (query, depth, of_product, row(head.k, key, depth)),
                AttentionPart::GradK => (key, depth, of_product, row(head.q, query, depth)),
                _ => (key, width, weight, grad),
            };
            add(&mut out[at * columns..][..columns], factor, addend);
        }
    }
    out
}
