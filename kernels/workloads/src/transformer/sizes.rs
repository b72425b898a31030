//! The sizes of a model: named and custom ones, and checks of them.

use crate::graph_workload::Given;
use sweeper_program::workload::ParameterError;

/// The parameters that a named size sets.
const SET: [&str; 4] = ["d_model", "d_ff", "layers", "heads"];

/// The sizes that have a name, by [`SET`].
pub(super) const NAMED: [(&str, [usize; 4]); 5] = [
    ("small", [768, 3072, 12, 12]),
    ("medium", [1024, 4096, 24, 16]),
    ("large", [1280, 5120, 36, 20]),
    ("xl", [1600, 6400, 48, 25]),
    ("2.7B", [2560, 10240, 32, 32]),
];

/// No tensor of a graph has more elements.
const MOST_ELEMENTS: usize = 1 << 44;

/// Sequences of a reduced copy: one alone lies in memory in other ways than several.
const LEAST_BATCH: usize = 2;

/// Layers of a reduced copy: the first layer follows the embedding, the others follow a layer.
const LEAST_LAYERS: usize = 2;

/// Positions of a reduced copy.
const LEAST_CONTEXT: usize = 16;

/// Other extents that are not halved any more.
const LEAST_EXTENT: usize = 8;

/// The sizes of a batch and of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Sequences.
    pub(super) batch: usize,
    /// Positions of a sequence.
    pub(super) context: usize,
    /// Tokens that there are.
    pub(super) vocabulary: usize,
    /// Inner width of the feed-forward network.
    pub(super) d_ff: usize,
    /// Blocks.
    pub(super) layers: usize,
    /// Heads of attention.
    pub(super) heads: usize,
    /// Width of a head: even, for it is turned by pairs.
    pub(super) d_head: usize,
}

impl Sizes {
    /// The sizes that parameters ask for.
    ///
    /// # Errors
    /// A size that is missing, contradicts a named one, or doesn't make a model.
    pub(super) fn new(given: &Given) -> Result<Sizes, ParameterError> {
        let [d_model, d_ff, layers, heads] = set(given)?;
        if !d_model.is_multiple_of(heads) {
            return Err(together(format!(
                "`heads` = {heads} does not divide `d_model` = {d_model}: each head has an equal \
                 part of the width"
            )));
        }
        let d_head = d_model / heads;
        if !d_head.is_multiple_of(2) {
            return Err(together(format!(
                "`d_model` = {d_model} by `heads` = {heads} makes heads of {d_head} elements: \
                 rotary positions turn pairs of them, so that it must be an even number"
            )));
        }
        let sizes = Sizes {
            batch: given.size("batch"),
            context: given.size("context"),
            vocabulary: given.size("vocabulary"),
            d_ff,
            layers,
            heads,
            d_head,
        };
        sizes.refuse_overflow()?;
        Ok(sizes)
    }

    /// Width of the model.
    pub(super) const fn d_model(&self) -> usize {
        self.heads * self.d_head
    }

    /// Numbers that the model would learn.
    pub(super) const fn parameters(&self) -> usize {
        let d = self.d_model();
        let block = 4 * d * d + 3 * d * self.d_ff + 2 * d;
        2 * self.vocabulary * d + self.layers * block + d
    }

    /// Refuses the largest tensors where they are too large, by the names of their extents.
    fn refuse_overflow(&self) -> Result<(), ParameterError> {
        let (batch, context) = (("batch", self.batch), ("context", self.context));
        let (vocabulary, d_ff) = (("vocabulary", self.vocabulary), ("d_ff", self.d_ff));
        let (heads, d_model) = (("heads", self.heads), ("d_model", self.d_model()));
        let largest: [(&str, &[(&str, usize)]); 6] = [
            ("the embedding", &[vocabulary, d_model]),
            ("the logits", &[batch, context, vocabulary]),
            ("the scores of attention", &[batch, heads, context, context]),
            ("the stream between blocks", &[batch, context, d_model]),
            (
                "the inner values of a feed-forward network",
                &[batch, context, d_ff],
            ),
            ("a weight of a feed-forward network", &[d_ff, d_model]),
        ];
        for (tensor, extents) in largest {
            let mut factors = extents.iter().map(|&(_, extent)| extent);
            let elements = factors.try_fold(1, usize::checked_mul);
            if elements.is_none_or(|elements| elements > MOST_ELEMENTS) {
                let named = |(name, extent): &(&str, usize)| format!("`{name}` = {extent}");
                let extents: Vec<String> = extents.iter().map(named).collect();
                return Err(together(format!(
                    "{} make {tensor} too large: no tensor has more than 2^44 elements",
                    extents.join(" and ")
                )));
            }
        }
        Ok(())
    }

    /// A step towards a model that the same kernels compute: fewer layers, of which each is as the
    /// others are, then fewer sequences, then fewer positions. Kernels of small tensors share
    /// launches that larger ones have for themselves, so that extents go last.
    pub(super) fn reduce(&mut self) -> Option<()> {
        let steps = [
            (&mut self.layers, LEAST_LAYERS),
            (&mut self.batch, LEAST_BATCH),
            (&mut self.context, LEAST_CONTEXT),
        ];
        let (extent, least) = steps
            .into_iter()
            .find(|(extent, least)| **extent > *least)?;
        *extent = (*extent / 2).max(least);
        Some(())
    }

    /// A step towards a model of the same operations: the greatest extent is halved.
    pub(super) fn shrink(&mut self) -> Option<()> {
        // Half of a head must have pairs, too.
        let has_half = self.d_head.is_multiple_of(4);
        let mut extents = vec![
            &mut self.batch,
            &mut self.context,
            &mut self.vocabulary,
            &mut self.d_ff,
            &mut self.heads,
        ];
        extents.extend(has_half.then_some(&mut self.d_head));
        let greatest = extents.into_iter().max_by_key(|extent| **extent)?;
        if *greatest > LEAST_EXTENT {
            *greatest = greatest.div_ceil(2);
            return Some(());
        }
        (self.layers > LEAST_LAYERS).then(|| self.layers = LEAST_LAYERS)
    }
}

/// The values of [`SET`].
fn set(given: &Given) -> Result<[usize; 4], ParameterError> {
    let asked = SET.map(|name| given.size(name));
    let size = given.word("size");
    let Some((_, held)) = NAMED.iter().find(|(name, _)| *name == size) else {
        return match SET.iter().zip(asked).find(|(_, value)| *value == 0) {
            Some((name, _)) => Err(together(format!(
                "`{name}` is missing: a custom model needs {}; or `size` names one",
                SET.map(|name| format!("`{name}`")).join(", ")
            ))),
            None => Ok(asked),
        };
    };
    for ((name, asked), held) in SET.iter().zip(asked).zip(held) {
        if asked != 0 && asked != *held {
            return Err(together(format!(
                "`{name}` = {asked} contradicts `size` = {size}, where it is {held}: leave out one \
                 of the two"
            )));
        }
    }
    Ok(*held)
}

fn together(reason: String) -> ParameterError {
    ParameterError::Together { reason }
}
