//! The sum of a semiring over terms (outer, first, kept, last) -> (outer, kept), and its
//! derivative.

use super::Scan;
use super::buffers::Buffers;
use super::position::Position;
use crate::ops;
use crate::ops::emit::{Emitter, Strided};
use sweeper_program::{Arg, BufferId, Index, View};

/// The terms that are summed: their extents and memory, dense.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    /// Extents outer, kept and last; `first` is the number of durations at the position, or 1.
    pub(super) outer: usize,
    pub(super) kept: usize,
    pub(super) last: usize,
    pub(super) durations: Option<Position>,
    /// Log weights of all terms.
    pub(super) weights: View,
    /// Sums of log weights.
    pub(super) sums: View,
    /// Indices of maxima, for the max semiring.
    pub(super) index: Option<View>,
    /// For the entropy semiring.
    pub(super) entropy: Option<EntropyTerms>,
}

/// Entropies (outer, first, last), equal along the kept dimensions, and their sums.
#[derive(Clone, Debug)]
pub(super) struct EntropyTerms {
    pub(super) terms: View,
    pub(super) sums: View,
}

impl Terms {
    /// `factor` times the extent of `first`.
    fn first(&self, factor: usize) -> Index {
        match self.durations {
            Some(position) => position.durations(factor),
            None => Index::from(factor),
        }
    }

    fn extents(&self) -> [Index; 4] {
        let [outer, kept, last] = [self.outer, self.kept, self.last].map(Index::from);
        [outer, self.first(1), kept, last]
    }

    fn count(&self) -> Index {
        self.first(self.outer * self.kept * self.last)
    }

    /// A tensor of the shape of the terms.
    fn dense(&self, view: View) -> Strided {
        let plane = self.kept * self.last;
        let steps = [self.first(plane), plane.into(), self.last.into(), 1.into()];
        Strided::new(view, steps)
    }

    /// A tensor of the shape of the sums, broadcast.
    fn of_sums(&self, view: View) -> Strided {
        Strided::new(view, [self.kept.into(), 0.into(), 1.into(), 0.into()])
    }

    /// A tensor (outer, first, last), broadcast over the kept dimensions.
    pub(super) fn of_sources(&self, view: View) -> Strided {
        let steps = [self.first(self.last), self.last.into(), 0.into(), 1.into()];
        Strided::new(view, steps)
    }

    fn sum_of(&self, emit: &mut Emitter, x: View, out: View) {
        emit.reduce(ops::SUM, x, out, self.extents());
    }
}

/// Gradients of sums, and the places of the gradients of terms.
#[derive(Clone, Debug)]
pub(super) struct Gradients {
    /// (outer, kept): of the sums of log weights, and of entropies.
    pub(super) sums: View,
    pub(super) entropy_sums: Option<View>,
    /// Like the terms: of log weights, and of entropies.
    pub(super) weights: View,
    pub(super) entropies: Option<View>,
}

impl Scan {
    /// Sums terms in the semiring.
    pub(super) fn sum(&mut self, terms: &Terms) {
        if let Some(index) = &terms.index {
            let sums = Index::from(terms.outer * terms.kept);
            let mut args = vec![
                Arg::Read(terms.weights.clone().touching(terms.count())),
                Arg::Write(terms.sums.clone().touching(sums.clone())),
                Arg::Write(index.clone().touching(sums)),
            ];
            args.extend(terms.extents().map(Arg::Int));
            self.emit.launch(ops::ARGMAX, args);
            return;
        }
        self.logsumexp(terms);
        if let Some(entropy) = &terms.entropy {
            self.entropy(terms, entropy);
        }
    }

    /// As `torch.logsumexp`.
    fn logsumexp(&mut self, terms: &Terms) {
        let count = terms.outer * terms.kept;
        let most = self.part(Buffers::held(self.buffers.most), count);
        let shifted = self.emit.all(Buffers::held(self.buffers.first));
        let emit = &mut self.emit;
        emit.reduce(
            ops::AMAX,
            terms.weights.clone(),
            most.clone(),
            terms.extents(),
        );
        let (a, b) = (
            terms.dense(terms.weights.clone()),
            terms.of_sums(most.clone()),
        );
        emit.binary(ops::SUB, terms.extents(), a, b, shifted.clone());
        emit.in_place(ops::EXP_IN_PLACE, shifted.clone(), terms.count());
        terms.sum_of(emit, shifted, terms.sums.clone());
        emit.in_place(ops::LN_IN_PLACE, terms.sums.clone(), count.into());
        let flat = |view| Strided::new(view, [0, 0, 0, 1].map(Index::from));
        emit.onto(
            ops::ADD_IN_PLACE,
            [1, 1, 1, count].map(Index::from),
            flat(most),
            flat(terms.sums.clone()),
        );
    }

    /// `sum p h - sum p log p`, as two products, a difference and a sum.
    fn entropy(&mut self, terms: &Terms, entropy: &EntropyTerms) {
        let (log_p, p) = (
            self.emit.all(Buffers::held(self.buffers.first)),
            self.emit.all(Buffers::held(self.buffers.second)),
        );
        let weights = terms.dense(terms.weights.clone());
        let (dense_log_p, dense_p) = (terms.dense(log_p.clone()), terms.dense(p.clone()));
        let emit = &mut self.emit;
        let extents = terms.extents();
        let sums = terms.of_sums(terms.sums.clone());
        emit.binary(ops::SUB, extents.clone(), weights, sums, log_p.clone());
        emit.launch(
            ops::EXP,
            vec![
                Arg::Read(log_p.clone().touching(terms.count())),
                Arg::Write(p.clone().touching(terms.count())),
                Arg::Int(terms.count()),
            ],
        );
        emit.onto(
            ops::MUL_IN_PLACE,
            extents.clone(),
            dense_p.clone(),
            dense_log_p.clone(),
        );
        let entropies = terms.of_sources(entropy.terms.clone());
        emit.onto(
            ops::MUL_IN_PLACE,
            extents.clone(),
            entropies,
            dense_p.clone(),
        );
        emit.onto(ops::SUB_IN_PLACE, extents, dense_log_p, dense_p);
        terms.sum_of(emit, p, entropy.sums.clone());
    }

    /// Gradients of terms from the gradients of their sums.
    pub(super) fn sum_backward(&mut self, terms: &Terms, gradients: &Gradients) {
        if let Some(index) = &terms.index {
            let sums = Index::from(terms.outer * terms.kept);
            let mut args = vec![
                Arg::Read(gradients.sums.clone().touching(sums.clone())),
                Arg::Read(index.clone().touching(sums)),
                Arg::Write(gradients.weights.clone().touching(terms.count())),
            ];
            args.extend(terms.extents().map(Arg::Int));
            self.emit.launch(ops::SCATTER_INDEX, args);
            return;
        }
        match (
            &terms.entropy,
            &gradients.entropies,
            &gradients.entropy_sums,
        ) {
            (Some(entropy), Some(p), Some(grad)) => {
                self.entropy_backward(terms, entropy, gradients, p, grad);
            }
            _ => {
                self.probabilities(terms, &gradients.weights);
                self.scale(terms, &gradients.weights, &gradients.sums);
            }
        }
    }

    /// `p = exp(x - sum)`.
    fn probabilities(&mut self, terms: &Terms, p: &View) {
        let weights = terms.dense(terms.weights.clone());
        let sums = terms.of_sums(terms.sums.clone());
        let emit = &mut self.emit;
        emit.binary(ops::SUB, terms.extents(), weights, sums, p.clone());
        emit.in_place(ops::EXP_IN_PLACE, p.clone(), terms.count());
    }

    /// `x = x * factor`, where `factor` has the shape of the sums.
    fn scale(&mut self, terms: &Terms, x: &View, factor: &View) {
        let (from, to) = (terms.of_sums(factor.clone()), terms.dense(x.clone()));
        self.emit.onto(ops::MUL_IN_PLACE, terms.extents(), from, to);
    }

    /// With `gL`, `gH` the gradients of the sums: of entropies `gH p`, of log weights
    /// `p (gL + gH (h - log p - H))`.
    fn entropy_backward(
        &mut self,
        terms: &Terms,
        entropy: &EntropyTerms,
        gradients: &Gradients,
        p: &View,
        grad_entropy: &View,
    ) {
        self.probabilities(terms, p);
        let out = &gradients.weights;
        let sums = terms.of_sums(terms.sums.clone());
        let weights = terms.dense(terms.weights.clone());
        let extents = terms.extents();
        let dense = terms.dense(out.clone());
        let emit = &mut self.emit;
        // -log p
        emit.binary(ops::SUB, extents.clone(), sums, weights, out.clone());
        let entropies = terms.of_sources(entropy.terms.clone());
        emit.onto(ops::ADD_IN_PLACE, extents.clone(), entropies, dense.clone());
        let sums = terms.of_sums(entropy.sums.clone());
        emit.onto(ops::SUB_IN_PLACE, extents.clone(), sums, dense.clone());
        self.scale(terms, out, grad_entropy);
        let grad = terms.of_sums(gradients.sums.clone());
        self.emit
            .onto(ops::ADD_IN_PLACE, extents.clone(), grad, dense.clone());
        let dense_p = terms.dense(p.clone());
        self.emit.onto(ops::MUL_IN_PLACE, extents, dense_p, dense);
        self.scale(terms, p, grad_entropy);
    }

    /// The first `len` elements of a buffer.
    pub(super) fn part(&self, buffer: BufferId, len: usize) -> View {
        View::new(buffer, Index::fixed(0), len)
    }
}
