//! Forward and backward tables over (boundary, label), and gradients from them.

use super::edges::{Edge, Edges, Marginal};
use super::noise::{GRADIENT_LANES, LANES, Lanes, OF_SCORES, add_own, add_weighted};
use crate::semicrf::sizes::{Semiring, Sizes};
use sweeper_program::rounding::{FUNCTION, of_exponential, of_sum};

/// The value of a sequence.
pub(super) struct Solution {
    pub(super) value: f64,
    /// Zero but for the entropy semiring.
    pub(super) entropy: f64,
    /// The noise of both.
    pub(super) noise: Noise,
}

/// The noise of a [`Weight`].
#[derive(Clone, Copy, Default)]
pub(super) struct Noise {
    pub(super) log: Lanes,
    pub(super) entropy: Lanes,
}

/// An element of a semiring: a log weight, and an entropy where the semiring has one.
#[derive(Clone, Copy, Default)]
struct Weight {
    log: f64,
    entropy: f64,
    noise: Noise,
}

/// The weight of no segment at all.
const ONE: Weight = Weight {
    log: 0.0,
    entropy: 0.0,
    noise: Noise {
        log: [0.0; LANES],
        entropy: [0.0; LANES],
    },
};

/// A term of a sum: a weight, times an edge.
#[derive(Clone, Copy)]
struct Term<'t> {
    log: f64,
    /// Its part of the sum, once that is known.
    share: f64,
    /// The score of the edge.
    score: f64,
    /// The variance of the logarithm by the roundings that form it.
    variance: f64,
    weight: &'t Weight,
}

impl Term<'_> {
    /// Adds `weight` times the noise of the logarithm, without its own roundings.
    fn add_noise(&self, lanes: &mut [f64], weight: f64) {
        add_weighted(lanes, weight, &self.weight.noise.log);
        add_weighted(lanes, weight * self.score, &OF_SCORES);
    }
}

/// The semiring's sum (+) over `terms`, at least one, with noise whose directions follow from
/// `place`.
fn sum(semiring: Semiring, terms: &mut [Term<'_>], place: u64) -> Weight {
    if semiring == Semiring::Max {
        let best = &terms[first_best(terms.iter().map(|term| term.log))];
        let mut noise = best.weight.noise;
        add_own(&mut noise.log, best.variance, place);
        return Weight {
            log: best.log,
            entropy: 0.0,
            noise,
        };
    }
    let logs = terms.iter().map(|term| term.log);
    let most = logs.fold(f64::NEG_INFINITY, f64::max);
    let mut total = 0.0;
    for term in terms.iter_mut() {
        term.share = (term.log - most).exp();
        total += term.share;
    }
    let mut found = Weight {
        log: most + total.ln(),
        ..ONE
    };
    let (mut variance, mut squares) = (0.0, 0.0);
    for term in terms.iter_mut() {
        term.share /= total;
        let share = term.share;
        let square = share * share;
        squares += square;
        // A weight that is none at all has no noise, however large its logarithm is.
        if square > 0.0 {
            variance += square * (term.variance + of_exponential(term.log - most));
            term.add_noise(&mut found.noise.log, share);
        }
    }
    variance += of_sum(terms.len(), 1.0, squares) + FUNCTION * total.ln().powi(2);
    add_own(&mut found.noise.log, variance + found.log.powi(2), place);
    if semiring == Semiring::Entropy {
        found.add_entropy(terms, place);
    }
    found
}

impl Weight {
    /// The sum over terms of p (h - ln p), where the sum of the weights is known.
    fn add_entropy(&mut self, terms: &[Term<'_>], place: u64) {
        let below = |term: &Term<'_>| term.weight.entropy - (term.log - self.log);
        let entropy: f64 = terms.iter().map(|term| term.share * below(term)).sum();
        let (mut variance, mut squares, mut slopes) = (0.0, 0.0, 0.0);
        for term in terms {
            let (share, below) = (term.share, term.weight.entropy - (term.log - self.log));
            let (product, slope) = (share * below, share * (below - 1.0));
            if share * share == 0.0 {
                continue;
            }
            add_weighted(&mut self.noise.entropy, share, &term.weight.noise.entropy);
            term.add_noise(&mut self.noise.entropy, slope);
            slopes += slope;
            squares += product * product;
            // The logarithm of the share, its exponential, the difference and the product.
            let log = term.log - self.log;
            variance +=
                slope * slope * (term.variance + log * log) + product * product * (FUNCTION + 2.0);
        }
        // Shares are relative to the sum as it was found.
        let of_log = self.noise.log;
        add_weighted(&mut self.noise.entropy, -slopes, &of_log);
        variance += of_sum(terms.len(), entropy, squares);
        add_own(&mut self.noise.entropy, variance, place.reverse_bits());
        self.entropy = entropy;
    }
}

struct Scan<'a, E> {
    semiring: Semiring,
    longest: usize,
    labels: usize,
    end: usize,
    edges: &'a mut E,
    /// Where the places of the sequence begin.
    first_place: u64,
}

/// Numbers of places: those of prefixes, suffixes and gradients are apart.
const SUFFIXES: u64 = 1 << 60;
const GRADIENTS: u64 = 2 << 60;
const TOTAL: u64 = 3 << 60;

pub(super) fn solve<E: Edges>(
    sizes: &Sizes,
    edges: &mut E,
    end: usize,
    gradients: bool,
    sequence: usize,
) -> Solution {
    let mut scan = Scan {
        semiring: sizes.semiring,
        longest: sizes.longest(),
        labels: sizes.c,
        end,
        edges,
        first_place: (sequence as u64) << 32,
    };
    let prefixes = scan.prefixes();
    let terms = prefixes[end].iter().map(|weight| Term {
        log: weight.log,
        share: 0.0,
        score: 0.0,
        variance: 0.0,
        weight,
    });
    let mut terms: Vec<Term<'_>> = terms.collect();
    let total = sum(scan.semiring, &mut terms, scan.first_place ^ TOTAL);
    if gradients {
        if scan.semiring == Semiring::Max {
            scan.mark_best(&prefixes);
        } else {
            let suffixes = scan.suffixes();
            scan.add_marginals(&prefixes, &suffixes, total);
        }
    }
    Solution {
        value: total.log,
        entropy: total.entropy,
        noise: total.noise,
    }
}

impl<E: Edges> Scan<'_, E> {
    /// Over all ways to reach each boundary and label.
    fn prefixes(&self) -> Vec<Vec<Weight>> {
        let mut table = vec![vec![ONE; self.labels]];
        for to in 1..=self.end {
            let row = (0..self.labels).map(|dst| {
                let mut terms = Vec::with_capacity(self.longest * self.labels);
                for duration in 1..=self.longest.min(to) {
                    let from = to - duration;
                    let sources = table[from].iter().enumerate();
                    terms.extend(
                        sources.map(|(src, before)| self.after(before, from, duration, dst, src)),
                    );
                }
                sum(self.semiring, &mut terms, self.place(to, dst))
            });
            let row = row.collect();
            table.push(row);
        }
        table
    }

    /// Over all ways to reach the end from each boundary and label.
    fn suffixes(&self) -> Vec<Vec<Weight>> {
        let mut table = vec![vec![ONE; self.labels]; self.end + 1];
        for from in (0..self.end).rev() {
            let row = (0..self.labels).map(|src| {
                let mut terms = Vec::with_capacity(self.longest * self.labels);
                for duration in 1..=self.longest.min(self.end - from) {
                    let later = table[from + duration].iter().enumerate();
                    terms.extend(
                        later.map(|(dst, after)| self.after(after, from, duration, dst, src)),
                    );
                }
                sum(self.semiring, &mut terms, self.place(from, src) ^ SUFFIXES)
            });
            table[from] = row.collect();
        }
        table
    }

    fn place(&self, boundary: usize, label: usize) -> u64 {
        self.first_place + (boundary * self.labels + label) as u64
    }

    /// `weight` (x) the edge.
    fn after<'t>(
        &self,
        weight: &'t Weight,
        from: usize,
        duration: usize,
        dst: usize,
        src: usize,
    ) -> Term<'t> {
        let edge = Edge {
            from,
            duration,
            dst,
            src,
        };
        let (score, variance) = self.edges.score(edge);
        let log = weight.log + score;
        Term {
            log,
            share: 0.0,
            score,
            variance: variance + log * log,
            weight,
        }
    }

    /// Adds to each edge its probability m, or for the entropy semiring the derivative of
    /// log Z + H, which is `m (1 - log m + H(prefix) + H(suffix) - H)`.
    ///
    /// That follows from `H = log Z - E[score]` and `dE[score]/de = m (1 + E[score | e] -
    /// E[score])`.
    fn add_marginals(&mut self, prefixes: &[Vec<Weight>], suffixes: &[Vec<Weight>], total: Weight) {
        let mut place = self.first_place ^ GRADIENTS;
        for from in 0..self.end {
            for duration in 1..=self.longest.min(self.end - from) {
                for (dst, after) in suffixes[from + duration].iter().enumerate() {
                    for (src, before) in prefixes[from].iter().enumerate() {
                        let edge = Edge {
                            from,
                            duration,
                            dst,
                            src,
                        };
                        place += 1;
                        let term = self.after(before, from, duration, dst, src);
                        let marginal = self.marginal(&term, after, &total, place);
                        self.edges.add(edge, marginal);
                    }
                }
            }
        }
    }

    /// The gradient by an edge's score, of which `term` is what leads up to its end.
    fn marginal(&self, term: &Term<'_>, after: &Weight, total: &Weight, place: u64) -> Marginal {
        let before = term.weight;
        let through = term.log + after.log;
        let log = through - total.log;
        let share = log.exp();
        let mut noise = [0.0; GRADIENT_LANES];
        if share == 0.0 {
            return Marginal { value: 0.0, noise };
        }
        let of_log = term.variance + through * through + log * log + FUNCTION + log * log;
        let (value, slope, further) = match self.semiring {
            Semiring::Entropy => {
                let factor = 1.0 - log + before.entropy + after.entropy - total.entropy;
                let entropies = [before.entropy, after.entropy, total.entropy];
                let sizes: f64 = entropies.iter().map(|entropy| entropy * entropy).sum();
                add_weighted(&mut noise, share, &before.noise.entropy);
                add_weighted(&mut noise, share, &after.noise.entropy);
                add_weighted(&mut noise, -share, &total.noise.entropy);
                (
                    share * factor,
                    share * (factor - 1.0),
                    sizes + factor * factor,
                )
            }
            _ => (share, share, 1.0),
        };
        term.add_noise(&mut noise, slope);
        add_weighted(&mut noise, slope, &after.noise.log);
        add_weighted(&mut noise, -slope, &total.noise.log);
        let variance = slope * slope * of_log + share * share * further;
        add_own(&mut noise, variance, place);
        Marginal { value, noise }
    }

    /// Adds 1 to each edge of one best segmentation: of equally good ones the segmentation with the
    /// least label at the end, then with the shortest segments, then with the least source labels.
    fn mark_best(&mut self, prefixes: &[Vec<Weight>]) {
        let mut to = self.end;
        let mut dst = first_best(prefixes[to].iter().map(|weight| weight.log));
        while to > 0 {
            let scores = (1..=self.longest.min(to)).flat_map(|duration| {
                let from = to - duration;
                let scan = &*self;
                let sources = prefixes[from].iter().enumerate();
                sources.map(move |(src, before)| {
                    let term = scan.after(before, from, duration, dst, src);
                    term.log
                })
            });
            let best = first_best(scores);
            let (duration, src) = (best / self.labels + 1, best % self.labels);
            let edge = Edge {
                from: to - duration,
                duration,
                dst,
                src,
            };
            self.edges.add(edge, Marginal::CERTAIN);
            (to, dst) = (edge.from, src);
        }
    }
}

fn first_best(scores: impl Iterator<Item = f64>) -> usize {
    let mut best = (0, f64::NEG_INFINITY);
    for (at, score) in scores.enumerate() {
        if score > best.1 {
            best = (at, score);
        }
    }
    best.0
}
