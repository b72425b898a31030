//! Forward and backward tables over (boundary, label), and gradients from them.

use super::edges::{Edge, Edges};
use crate::semicrf::sizes::{Semiring, Sizes};

/// The value of a sequence.
pub(super) struct Solution {
    pub(super) value: f64,
    /// Zero but for the entropy semiring.
    pub(super) entropy: f64,
}

/// An element of a semiring: a log weight, and an entropy where the semiring has one.
#[derive(Clone, Copy)]
struct Weight {
    log: f64,
    entropy: f64,
}

const ONE: Weight = Weight {
    log: 0.0,
    entropy: 0.0,
};

/// The semiring's sum (+) over `terms`, at least one.
fn sum(semiring: Semiring, terms: &[Weight]) -> Weight {
    let most = terms
        .iter()
        .map(|term| term.log)
        .fold(f64::NEG_INFINITY, f64::max);
    if semiring == Semiring::Max {
        return Weight {
            log: most,
            entropy: 0.0,
        };
    }
    let total: f64 = terms.iter().map(|term| (term.log - most).exp()).sum();
    let log = most + total.ln();
    let entropy = match semiring {
        Semiring::Entropy => terms
            .iter()
            .map(|term| (term.log - log).exp() * (term.entropy - (term.log - log)))
            .sum(),
        _ => 0.0,
    };
    Weight { log, entropy }
}

struct Scan<'a, E> {
    semiring: Semiring,
    longest: usize,
    labels: usize,
    end: usize,
    edges: &'a mut E,
}

pub(super) fn solve<E: Edges>(
    sizes: &Sizes,
    edges: &mut E,
    end: usize,
    gradients: bool,
) -> Solution {
    let mut scan = Scan {
        semiring: sizes.semiring,
        longest: sizes.longest(),
        labels: sizes.c,
        end,
        edges,
    };
    let prefixes = scan.prefixes();
    let total = sum(scan.semiring, &prefixes[end]);
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
    }
}

impl<E: Edges> Scan<'_, E> {
    /// Over all ways to reach each boundary and label.
    fn prefixes(&self) -> Vec<Vec<Weight>> {
        let mut table = vec![vec![ONE; self.labels]];
        let mut terms = Vec::new();
        for to in 1..=self.end {
            let row = (0..self.labels)
                .map(|dst| {
                    terms.clear();
                    for duration in 1..=self.longest.min(to) {
                        let from = to - duration;
                        terms.extend(
                            (0..self.labels)
                                .map(|src| self.after(table[from][src], from, duration, dst, src)),
                        );
                    }
                    sum(self.semiring, &terms)
                })
                .collect();
            table.push(row);
        }
        table
    }

    /// Over all ways to reach the end from each boundary and label.
    fn suffixes(&self) -> Vec<Vec<Weight>> {
        let mut table = vec![vec![ONE; self.labels]; self.end + 1];
        let mut terms = Vec::new();
        for from in (0..self.end).rev() {
            for src in 0..self.labels {
                terms.clear();
                for duration in 1..=self.longest.min(self.end - from) {
                    let later = &table[from + duration];
                    terms.extend(
                        (0..self.labels)
                            .map(|dst| self.after(later[dst], from, duration, dst, src)),
                    );
                }
                table[from][src] = sum(self.semiring, &terms);
            }
        }
        table
    }

    /// `weight` (x) the edge.
    fn after(
        &self,
        weight: Weight,
        from: usize,
        duration: usize,
        dst: usize,
        src: usize,
    ) -> Weight {
        let edge = Edge {
            from,
            duration,
            dst,
            src,
        };
        Weight {
            log: weight.log + self.edges.score(edge),
            ..weight
        }
    }

    /// Adds to each edge its probability m, or for the entropy semiring the derivative of
    /// log Z + H, which is `m (1 - log m + H(prefix) + H(suffix) - H)`.
    ///
    /// That follows from `H = log Z - E[score]` and `dE[score]/de = m (1 + E[score | e] -
    /// E[score])`.
    fn add_marginals(&mut self, prefixes: &[Vec<Weight>], suffixes: &[Vec<Weight>], total: Weight) {
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
                        let log = before.log + self.edges.score(edge) + after.log - total.log;
                        let factor = match self.semiring {
                            Semiring::Entropy => {
                                1.0 - log + before.entropy + after.entropy - total.entropy
                            }
                            _ => 1.0,
                        };
                        self.edges.add(edge, log.exp() * factor);
                    }
                }
            }
        }
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
                (0..self.labels).map(move |src| {
                    scan.after(prefixes[from][src], from, duration, dst, src)
                        .log
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
            self.edges.add(edge, 1.0);
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
