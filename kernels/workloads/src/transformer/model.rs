//! The model as a graph: decoder blocks between an embedding and a linear head.

use std::ops::Range;

use super::sizes::Sizes;
use crate::graph_builder::{Added, Builder};
use sweeper_compiler::graph::{Binary, Graph, GraphError, NodeId, Unary};
use sweeper_program::tensor::Dtype;

/// Added to mean squares by RMSNorm.
const EPS: f64 = 1e-5;

/// Wavelengths of rotary positions go up to this, in radians.
const THETA: f64 = 10_000.0;

/// The score of a later position: its exponential is 0. A finite number, because infinity minus
/// infinity is NaN.
const AHEAD: f64 = -1e30;

/// Nodes that all layers share: they depend on sizes alone, and are buffers of a module in other
/// frameworks.
struct Shared {
    /// Cosines of angles, (context, d_head).
    cosine: NodeId,
    /// Sines of angles, negative for the first of each pair.
    sine: NodeId,
    /// 1 where a position, a row, may look at another, a column.
    mask: NodeId,
}

/// A part of the model: the embedding, a layer, or the final norm and head.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// The input of a layer; of the embedding, its result.
    pub(super) x: NodeId,
    /// The part's parameters, by position.
    pub(super) parameters: Range<usize>,
}

/// The model while it is built.
pub(super) struct Model {
    sizes: Sizes,
    /// The graph, with parameters in the order of parts.
    pub(super) builder: Builder,
    shared: Shared,
    /// The embedding.
    pub(super) embedded: Part,
    /// The layers.
    pub(super) layers: Vec<Part>,
    /// The last norm and the head.
    pub(super) top: Part,
    /// (batch, context, vocabulary)
    pub(super) logits: NodeId,
}

impl Model {
    /// The model of tokens `ids`, in a graph that has inputs alone.
    pub(super) fn new(sizes: Sizes, mut builder: Builder, ids: NodeId) -> Result<Self, GraphError> {
        let shared = shared(&mut builder.graph, &sizes)?;
        let embedding = [sizes.vocabulary, sizes.d_model()];
        let embedding = builder.parameter("token_embeddings.weight", &embedding)?;
        let x = builder.graph.gather(embedding, ids)?;
        let embedded = Part {
            x,
            parameters: 0..builder.by.len(),
        };
        let mut model = Model {
            sizes,
            builder,
            shared,
            top: embedded.clone(),
            embedded,
            layers: vec![],
            logits: x,
        };
        let mut x = x;
        for layer in 0..sizes.layers {
            let (y, part) = model.part_of(x, |model| model.layer(layer, x))?;
            model.layers.push(part);
            x = y;
        }
        (model.logits, model.top) = model.part_of(x, |model| model.head(x))?;
        Ok(model)
    }

    /// Adds a part that is applied to `x`, for the first time.
    fn part_of(
        &mut self,
        x: NodeId,
        add: impl FnOnce(&mut Self) -> Added,
    ) -> Result<(NodeId, Part), GraphError> {
        let first = self.builder.by.len();
        let y = add(self)?;
        let parameters = first..self.builder.by.len();
        Ok((y, Part { x, parameters }))
    }

    /// A layer, applied to `x`.
    pub(super) fn layer(&mut self, layer: usize, x: NodeId) -> Added {
        let block = format!("layers.{layer}");
        let normal = self.norm(&format!("{block}.ln1"), x)?;
        let attended = self.attention(&format!("{block}.attn"), normal)?;
        let x = self.builder.graph.add(x, attended)?;
        let normal = self.norm(&format!("{block}.ln2"), x)?;
        let fed = self.feed_forward(&format!("{block}.ffn"), normal)?;
        self.builder.graph.add(x, fed)
    }

    fn head(&mut self, x: NodeId) -> Added {
        let normal = self.norm("ln_final", x)?;
        let sizes = [self.sizes.d_model(), self.sizes.vocabulary];
        self.linear("lm_head", normal, sizes)
    }

    /// A parameter by its name; it is added once.
    fn parameter(&mut self, name: &str, shape: &[usize]) -> Added {
        let mut known = self.builder.by.iter();
        match known.find(|(known, _)| known == name) {
            Some((_, node)) => Ok(*node),
            None => self.builder.parameter(name, shape),
        }
    }

    fn norm(&mut self, name: &str, x: NodeId) -> Added {
        let gain = [self.sizes.d_model()];
        let gain = self.parameter(&format!("{name}.weight"), &gain)?;
        self.builder.graph.rmsnorm(x, gain, EPS)
    }

    /// `x w^T`, `w` being (out, in).
    fn linear(&mut self, name: &str, x: NodeId, [from, to]: [usize; 2]) -> Added {
        let name = format!("{name}.weight");
        let w = self.parameter(&name, &[to, from])?;
        let turned = self.builder.graph.transpose_last(w)?;
        self.builder.graph.matmul(x, turned)
    }

    /// `w2 (silu(w1 x) * w3 x)`
    fn feed_forward(&mut self, name: &str, x: NodeId) -> Added {
        let (d_model, d_ff) = (self.sizes.d_model(), self.sizes.d_ff);
        let gate = self.linear(&format!("{name}.w1"), x, [d_model, d_ff])?;
        let up = self.linear(&format!("{name}.w3"), x, [d_model, d_ff])?;
        let graph = &mut self.builder.graph;
        let gate = graph.group("silu", |graph| graph.swish(gate))?;
        let inner = graph.mul(gate, up)?;
        self.linear(&format!("{name}.w2"), inner, [d_ff, d_model])
    }

    /// Causal attention of several heads.
    fn attention(&mut self, name: &str, x: NodeId) -> Added {
        let d_model = self.sizes.d_model();
        let square = [d_model, d_model];
        let [mut q, mut k, mut v] = [x; 3];
        for (node, projection) in [(&mut q, "q"), (&mut k, "k"), (&mut v, "v")] {
            let projected = self.linear(&format!("{name}.{projection}_proj"), x, square)?;
            *node = self.split(projected)?;
        }
        let (graph, shared) = (&mut self.builder.graph, &self.shared);
        let q = rotated(graph, q, shared)?;
        let k = rotated(graph, k, shared)?;
        let keys = graph.transpose_last(k)?;
        let products = graph.matmul(q, keys)?;
        let scores = graph.scale(products, (self.sizes.d_head as f64).sqrt().recip())?;
        let ahead = graph.constant(AHEAD);
        let scores = graph.select(shared.mask, scores, ahead)?;
        let weights = graph.softmax(scores)?;
        let mixed = graph.matmul(weights, v)?;
        let beside = graph.transpose(mixed, &[0, 2, 1, 3])?;
        let joined = [self.sizes.batch, self.sizes.context, d_model];
        let joined = graph.reshape(beside, &joined)?;
        self.linear(&format!("{name}.output_proj"), joined, square)
    }

    /// (batch, context, d_model) by heads: (batch, heads, context, d_head).
    fn split(&mut self, x: NodeId) -> Added {
        let Sizes {
            batch,
            context,
            heads,
            d_head,
            ..
        } = self.sizes;
        let graph = &mut self.builder.graph;
        let split = graph.reshape(x, &[batch, context, heads, d_head])?;
        graph.transpose(split, &[0, 2, 1, 3])
    }
}

/// Pairs of elements turned by angles: `x cos + partner(x) sin`.
fn rotated(graph: &mut Graph, x: NodeId, shared: &Shared) -> Added {
    let along = graph.mul(x, shared.cosine)?;
    let partner = graph.group("swapped_pairs", |graph| swapped(graph, x))?;
    let across = graph.mul(partner, shared.sine)?;
    graph.add(along, across)
}

/// Each pair of the last dimension with its elements exchanged.
fn swapped(graph: &mut Graph, x: NodeId) -> Added {
    let shape = graph.node(x).shape.clone();
    let last = shape.len() - 1;
    let extent = shape[last];
    let second = graph.slice(x, last, 1, 2, extent / 2)?;
    let second = graph.unslice(second, last, 0, 2, extent)?;
    let first = graph.slice(x, last, 0, 2, extent / 2)?;
    let first = graph.unslice(first, last, 1, 2, extent)?;
    graph.add(first, second)
}

fn shared(graph: &mut Graph, sizes: &Sizes) -> Result<Shared, GraphError> {
    let pairs = [sizes.context, sizes.d_head / 2, 2];
    let table = [sizes.context, sizes.d_head];
    let cosine = graph.group("rotary_cosines", |graph| {
        let angle = angles(graph, &pairs)?;
        let cosine = graph.unary(Unary::Cos, angle)?;
        graph.reshape(cosine, &table)
    })?;
    let sine = graph.group("rotary_sines", |graph| {
        let angle = angles(graph, &pairs)?;
        let sine = graph.unary(Unary::Sin, angle)?;
        // -1 for the first of a pair, 1 for the second.
        let parity = count(graph, &pairs, 2)?;
        let twice = graph.scale(parity, 2.0)?;
        let one = graph.constant(1.0);
        let sign = graph.sub(twice, one)?;
        let sine = graph.mul(sine, sign)?;
        graph.reshape(sine, &table)
    })?;
    let mask = graph.group("causal_mask", |graph| {
        let square = [sizes.context, sizes.context];
        let row = graph.iota(&square, 0)?;
        let column = graph.iota(&square, 1)?;
        graph.binary(Binary::LessEqual, column, row)
    })?;
    Ok(Shared { cosine, sine, mask })
}

/// `position / theta^(2 pair / d_head)`, of each position, pair, and element of a pair.
fn angles(graph: &mut Graph, shape: &[usize; 3]) -> Added {
    let pair = count(graph, shape, 1)?;
    let exponent = graph.scale(pair, -THETA.ln() / shape[1] as f64)?;
    let frequency = graph.unary(Unary::Exp, exponent)?;
    let position = count(graph, shape, 0)?;
    graph.mul(position, frequency)
}

/// Indices along a dimension, as real numbers.
fn count(graph: &mut Graph, shape: &[usize], dim: usize) -> Added {
    let index = graph.iota(shape, dim)?;
    graph.cast(index, Dtype::F32)
}
