//! The two builtins: launches taken apart into sequences, which are independent.

use rayon::prelude::*;

use super::backward::Tables;
use super::scores::{Gradients, PartGradients, Parts, Scores};
use super::sequence::{Component, Scratch, Sequence};
use super::sums::{Sums, Terms};
use super::tables::Table;
use super::{Layout, SIZES};
use sweeper_program::builtin::{Builtin, Call};

/// All of the forward pass.
///
/// Arguments: the sizes (see [`super::arguments`]); the scores, one tensor or three; lengths (i64);
/// states (f64, written), scratch (written), value (written), and for the entropy semiring entropy
/// (written).
pub(super) const FORWARD: Builtin = Builtin {
    name: "semicrf.reference_forward",
    function: forward,
};

/// All of the backward pass.
///
/// Arguments: the sizes; the scores; lengths (i64); states (f64); scratch (written), the sequences'
/// shares of gradients (written; decomposed form only), gradients of the scores (written).
pub(super) const BACKWARD: Builtin = Builtin {
    name: "semicrf.reference_backward",
    function: backward,
};

fn forward(call: &mut Call<'_>) {
    let layout = Layout::read(call);
    let mut at = SIZES + layout.scores() + 1;
    let states = call.write_f64(at);
    let scratch = call.write(at + 1);
    let values = call.write(at + 2);
    at += 3;
    let mut none = vec![];
    let entropies = if layout.has_entropy() {
        call.write(at)
    } else {
        none.resize(values.len(), 0.0);
        &mut none[..]
    };
    let given = Given::read(call, &layout);
    let jobs: Vec<_> = (states.chunks_exact_mut(layout.states()))
        .zip(scratch.chunks_exact_mut(layout.scratch()))
        .zip(values.iter_mut().zip(entropies))
        .enumerate()
        .map(|(number, ((states, scratch), results))| {
            let tables = states.chunks_exact_mut(layout.table());
            (given.sequence(&layout, number, tables, scratch).0, results)
        })
        .collect();
    each(jobs, |(mut sequence, (value, entropy))| {
        let [weight, found] = sequence.forward();
        (*value, *entropy) = (weight as f32, found as f32);
    });
}

fn backward(call: &mut Call<'_>) {
    let layout = Layout::read(call);
    let at = SIZES + layout.scores() + 1;
    let states = call.read_f64(at);
    let scratch = call.write(at + 1);
    let mut none = [];
    let (shares, mut gradients) = if layout.sizes.is_decomposed() {
        let shares = call.write(at + 2);
        (shares, [at + 3, at + 4, at + 5].map(|at| call.write(at)))
    } else {
        (&mut none[..], [call.write(at + 2), &mut [], &mut []])
    };
    let given = Given::read(call, &layout);
    let [first, transition, bias] = &mut gradients;
    let per_sequence = first.len() / layout.sizes.b;
    let mut shared = shares.chunks_exact_mut(layout.share().max(1));
    let jobs: Vec<_> = (states.chunks_exact(layout.states()))
        .zip(scratch.chunks_exact_mut(layout.scratch()))
        .zip(first.chunks_exact_mut(per_sequence.max(1)))
        .enumerate()
        .map(|(number, ((states, scratch), own))| {
            let tables = states.chunks_exact(layout.table());
            let (sequence, back) = given.sequence(&layout, number, tables, scratch);
            let gradients = match shared.next() {
                Some(share) => {
                    let (transition, bias) = share.split_at_mut(layout.transition());
                    Gradients::Parts(PartGradients {
                        cum_scores: own,
                        transition,
                        bias,
                    })
                }
                None => Gradients::Edges(own),
            };
            (sequence, back, gradients)
        })
        .collect();
    each(jobs, |(mut sequence, mut back, mut gradients)| {
        sequence.backward(&mut back, &mut gradients);
    });
    add_shares(shares, layout.share(), transition, bias);
}

/// Adds the sequences' shares, in their order.
fn add_shares(shares: &[f32], len: usize, transition: &mut [f32], bias: &mut [f32]) {
    transition.fill(0.0);
    bias.fill(0.0);
    for share in shares.chunks_exact(len.max(1)) {
        let sums = transition.iter_mut().chain(bias.iter_mut());
        for (sum, &gradient) in sums.zip(share) {
            *sum += gradient;
        }
    }
}

/// Runs jobs, on several threads where the pool has them.
fn each<J: Send>(jobs: Vec<J>, run: impl Fn(J) + Sync + Send) {
    if jobs.len() == 1 || rayon::current_num_threads() == 1 {
        jobs.into_iter().for_each(run);
    } else {
        jobs.into_par_iter().for_each(run);
    }
}

/// The tensors of a batch.
struct Given<'a> {
    scores: [&'a [f32]; 3],
    lengths: &'a [i64],
}

impl<'a> Given<'a> {
    fn read(call: &Call<'a>, layout: &Layout) -> Self {
        let mut scores = [&[][..]; 3];
        for (number, scores) in scores[..layout.scores()].iter_mut().enumerate() {
            *scores = call.read(SIZES + number);
        }
        Given {
            scores,
            lengths: call.read_i64(SIZES + layout.scores()),
        }
    }

    /// A sequence, and its gradients' tables where the scratch memory has them.
    fn sequence<'s, D: Default + AsRef<[f64]>>(
        &self,
        layout: &Layout,
        number: usize,
        mut tables: impl Iterator<Item = D>,
        scratch: &'s mut [f32],
    ) -> (Sequence<'s, D>, Tables<'s>)
    where
        'a: 's,
    {
        let sizes = layout.sizes;
        let own = self.scores[0].len() / sizes.b;
        let own = &self.scores[0][number * own..][..own];
        let scores = if sizes.is_decomposed() {
            Scores::Parts(Parts {
                cum_scores: own,
                transition: self.scores[1],
                bias: self.scores[2],
            })
        } else {
            Scores::Edges(own)
        };
        let mut component = || {
            let mut table = |exists: bool| {
                let data = if exists { tables.next() } else { None };
                Table::new(data.unwrap_or_default(), sizes.c)
            };
            Component {
                alpha: table(true),
                arrivals: table(layout.is_factored()),
            }
        };
        let weight = component();
        let entropy = layout.has_entropy().then(component);
        let (scratch, back) = split(layout, scratch);
        let sequence = Sequence {
            sizes,
            end: sizes.end(self.lengths[number] as usize),
            scores,
            weight,
            entropy,
            scratch,
        };
        (sequence, back)
    }
}

/// A sequence's share of the scratch memory, in the order in which [`Layout::scratch`] counts it.
fn split<'s>(layout: &Layout, mut rest: &'s mut [f32]) -> (Scratch<'s>, Tables<'s>) {
    let mut take = |len: usize| {
        let (taken, more) = std::mem::take(&mut rest).split_at_mut(len);
        rest = more;
        taken
    };
    let c = layout.sizes.c;
    let of_entropy = |len: usize| if layout.has_entropy() { len } else { 0 };
    let scratch = Scratch {
        terms: Terms {
            weights: take(layout.terms()),
            entropies: take(of_entropy(layout.terms())),
            spare: take(layout.terms()),
            most: take(c),
        },
        sums: Sums {
            weights: take(c),
            entropies: take(of_entropy(c)),
        },
        gradients: Sums {
            weights: take(c),
            entropies: take(of_entropy(c)),
        },
        window: take(layout.window()),
    };
    let back = Tables {
        weights: take(layout.gradients()),
        entropies: take(of_entropy(layout.gradients())),
    };
    (scratch, back)
}
