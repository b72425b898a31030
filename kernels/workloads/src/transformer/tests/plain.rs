//! The model once more, in f64 by plain loops: nothing of it is shared with the graph.

use std::collections::BTreeMap;

/// Sizes by the names of parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plain {
    pub(super) batch: usize,
    pub(super) context: usize,
    pub(super) vocabulary: usize,
    pub(super) d_model: usize,
    pub(super) d_ff: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
}

/// Weights by their names, each row by row.
pub(super) type Weights = BTreeMap<String, Vec<f64>>;

/// A vector for each position of each sequence.
type Stream = Vec<Vec<f64>>;

fn times(w: &[f64], x: &[f64]) -> Vec<f64> {
    let rows = w.chunks(x.len());
    rows.map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum())
        .collect()
}

fn norm(gain: &[f64], x: &[f64]) -> Vec<f64> {
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    let root = (mean + 1e-5).sqrt();
    x.iter()
        .zip(gain)
        .map(|(x, gain)| gain * x / root)
        .collect()
}

/// Pairs of a head's elements, turned as complex numbers are.
fn turned(head: &[f64], position: usize) -> Vec<f64> {
    let mut out = head.to_vec();
    for (at, pair) in out.chunks_mut(2).enumerate() {
        let frequency = 10_000f64.powf(-2.0 * at as f64 / head.len() as f64);
        let (sine, cosine) = (position as f64 * frequency).sin_cos();
        let (real, imaginary) = (pair[0], pair[1]);
        pair[0] = real * cosine - imaginary * sine;
        pair[1] = real * sine + imaginary * cosine;
    }
    out
}

impl Plain {
    fn attention(&self, weights: &Weights, block: &str, x: &Stream) -> Stream {
        let projected = |name: &str| -> Stream {
            let w = &weights[&format!("{block}.attn.{name}_proj.weight")];
            x.iter().map(|x| times(w, x)).collect()
        };
        let [q, k, v] = ["q", "k", "v"].map(projected);
        let width = self.d_model / self.heads;
        let mut mixed = vec![vec![0.0; self.d_model]; x.len()];
        for (at, mixed) in mixed.iter_mut().enumerate() {
            let (first, position) = (at - at % self.context, at % self.context);
            for head in 0..self.heads {
                let own = head * width..(head + 1) * width;
                let query = turned(&q[at][own.clone()], position);
                let score = |other: usize| -> f64 {
                    let key = turned(&k[first + other][own.clone()], other);
                    let products = query.iter().zip(key).map(|(q, k)| q * k);
                    (products.sum::<f64>() / (width as f64).sqrt()).exp()
                };
                let scores: Vec<f64> = (0..=position).map(score).collect();
                let sum: f64 = scores.iter().sum();
                for (other, score) in scores.iter().enumerate() {
                    for at in own.clone() {
                        mixed[at] += score / sum * v[first + other][at];
                    }
                }
            }
        }
        let w = &weights[&format!("{block}.attn.output_proj.weight")];
        mixed.iter().map(|mixed| times(w, mixed)).collect()
    }

    fn feed_forward(&self, weights: &Weights, block: &str, x: &Stream) -> Stream {
        let [w1, w2, w3] = [1, 2, 3].map(|at| &weights[&format!("{block}.ffn.w{at}.weight")]);
        let of_one = |x: &Vec<f64>| {
            let gates = times(w1, x).into_iter().map(|x| x / (1.0 + (-x).exp()));
            let inner: Vec<f64> = gates
                .zip(times(w3, x))
                .map(|(gate, up)| gate * up)
                .collect();
            assert_eq!(inner.len(), self.d_ff);
            times(w2, &inner)
        };
        x.iter().map(of_one).collect()
    }

    /// A vector of logits for each token.
    pub(super) fn logits(&self, weights: &Weights, ids: &[i64]) -> Stream {
        assert_eq!(ids.len(), self.batch * self.context);
        let rows = &weights["token_embeddings.weight"];
        let row = |&id: &i64| rows[id as usize * self.d_model..][..self.d_model].to_vec();
        let mut x: Stream = ids.iter().map(row).collect();
        let normal = |name: &str, x: &Stream| -> Stream {
            let gain = &weights[&format!("{name}.weight")];
            x.iter().map(|x| norm(gain, x)).collect()
        };
        let add = |x: &mut Stream, more: Stream| {
            for (x, more) in x.iter_mut().zip(more) {
                x.iter_mut().zip(more).for_each(|(x, more)| *x += more);
            }
        };
        for layer in 0..self.layers {
            let block = format!("layers.{layer}");
            let more = self.attention(weights, &block, &normal(&format!("{block}.ln1"), &x));
            add(&mut x, more);
            let more = self.feed_forward(weights, &block, &normal(&format!("{block}.ln2"), &x));
            add(&mut x, more);
        }
        let head = &weights["lm_head.weight"];
        let logits: Stream = normal("ln_final", &x)
            .iter()
            .map(|x| times(head, x))
            .collect();
        assert!(logits.iter().all(|row| row.len() == self.vocabulary));
        logits
    }

    /// The mean over positions of the negative logarithm of the label's probability.
    pub(super) fn cross_entropy(&self, weights: &Weights, ids: &[i64], labels: &[i64]) -> f64 {
        let logits = self.logits(weights, ids);
        let lacks = logits.iter().zip(labels).map(|(row, &label)| {
            let sum: f64 = row.iter().map(|x| x.exp()).sum();
            sum.ln() - row[label as usize]
        });
        lacks.sum::<f64>() / ids.len() as f64
    }
}
