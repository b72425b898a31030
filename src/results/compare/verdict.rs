//! From estimates to verdicts: the rule, and the correction for many comparisons.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

use super::estimate::{CONFIDENCE, Estimate};

/// The verdict on one comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// B takes longer.
    Slower,
    /// B takes less time.
    Faster,
    /// Neither a difference nor equality is shown.
    Inconclusive,
    /// Any difference is smaller than the margin.
    Same,
}

impl Verdict {
    /// All, in the order of reports.
    pub const ALL: [Verdict; 4] = [
        Verdict::Slower,
        Verdict::Faster,
        Verdict::Inconclusive,
        Verdict::Same,
    ];

    /// The word.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Slower => "SLOWER",
            Verdict::Faster => "FASTER",
            Verdict::Inconclusive => "INCONCLUSIVE",
            Verdict::Same => "SAME",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// How probabilities are corrected where many comparisons are made at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Correction {
    /// Holm: at most one comparison of 20 has any wrong FASTER or SLOWER in it
    Holm,
    /// Benjamini and Hochberg: of all FASTER and SLOWER, one of 20 is wrong
    Bh,
    /// None: of points that are the same, one of 20 is FASTER or SLOWER
    None,
}

impl Correction {
    /// Probabilities to hold against 5 %, for `p` in any order.
    pub fn adjust(self, p: &[f64]) -> Vec<f64> {
        let count = p.len() as f64;
        let mut order: Vec<usize> = (0..p.len()).collect();
        order.sort_by(|&one, &other| p[one].total_cmp(&p[other]));
        let mut adjusted = p.to_vec();
        match self {
            Correction::None => {}
            Correction::Holm => {
                let mut greatest: f64 = 0.0;
                for (rank, &index) in order.iter().enumerate() {
                    greatest = greatest.max(p[index] * (count - rank as f64)).min(1.0);
                    adjusted[index] = greatest;
                }
            }
            Correction::Bh => {
                let mut least: f64 = 1.0;
                for (rank, &index) in order.iter().enumerate().rev() {
                    least = least.min(p[index] * count / (rank + 1) as f64);
                    adjusted[index] = least;
                }
            }
        }
        adjusted
    }
}

/// When a difference counts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rule {
    /// The least relative difference that counts: 0.01 is 1 %.
    pub margin: f64,
    /// The correction for many comparisons.
    pub correction: Correction,
}

impl Rule {
    /// The verdict on an estimate whose corrected probability is `p`.
    ///
    /// SAME: the interval lies within the margin. SLOWER, FASTER: the corrected probability is 5 %
    /// at most, and the estimate beyond the margin. The margin is one of ratios, `1 / (1 + m)` to
    /// `1 + m`, so that A against B is the reverse of B against A.
    pub fn verdict(&self, estimate: &Estimate, p: f64) -> Verdict {
        let margin = self.margin.ln_1p();
        let is_shown = p <= 1.0 - CONFIDENCE + 1e-12;
        match estimate.log_ratio {
            _ if estimate.low >= -margin && estimate.high <= margin => Verdict::Same,
            ratio if is_shown && ratio > margin => Verdict::Slower,
            ratio if is_shown && ratio < -margin => Verdict::Faster,
            _ => Verdict::Inconclusive,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::estimate::Method;
    use super::*;
    use proptest::prelude::*;

    fn estimate(low: f64, log_ratio: f64, high: f64) -> Estimate {
        Estimate {
            log_ratio,
            low,
            high,
            p: 0.5,
            method: Method::Welch,
            runs: [2, 2],
        }
    }

    #[test]
    fn the_rule_by_hand() {
        let rule = Rule {
            margin: 0.01,
            correction: Correction::Holm,
        };
        for (low, ratio, high, p, expected) in [
            (-0.005, 0.0, 0.005, 1.0, Verdict::Same),
            // Shown, and too small to count.
            (0.002, 0.004, 0.006, 0.001, Verdict::Same),
            (0.02, 0.03, 0.04, 0.001, Verdict::Slower),
            (-0.04, -0.03, -0.02, 0.05, Verdict::Faster),
            (-0.04, -0.03, -0.02, 0.06, Verdict::Inconclusive),
            (0.001, 0.009, 0.017, 0.02, Verdict::Inconclusive),
            (-0.05, 0.0, 0.05, 1.0, Verdict::Inconclusive),
        ] {
            assert_eq!(
                rule.verdict(&estimate(low, ratio, high), p),
                expected,
                "{ratio} {p}"
            );
        }
    }

    /// Worked examples: Holm (1979) and Benjamini and Hochberg (1995) by hand.
    #[test]
    fn corrections_by_hand() {
        let p = [0.01, 0.04, 0.03, 0.005];
        let close = |found: Vec<f64>, expected: [f64; 4]| {
            let pairs = found.iter().zip(expected);
            assert!(
                pairs.clone().all(|(x, y)| (x - y).abs() < 1e-12),
                "{found:?}"
            );
        };
        close(Correction::Holm.adjust(&p), [0.03, 0.06, 0.06, 0.02]);
        close(Correction::Bh.adjust(&p), [0.02, 0.04, 0.04, 0.02]);
        close(Correction::None.adjust(&p), p);
    }

    proptest! {
        #[test]
        fn corrections_keep_the_order_and_never_help(p in prop::collection::vec(0.0f64..=1.0, 0..30)) {
            for correction in [Correction::Holm, Correction::Bh] {
                let adjusted = correction.adjust(&p);
                for (index, own) in adjusted.iter().enumerate() {
                    prop_assert!(*own >= p[index] - 1e-15 && *own <= 1.0);
                    for (other, value) in adjusted.iter().enumerate() {
                        prop_assert!(p[index] > p[other] || own <= &(value + 1e-12));
                    }
                }
            }
            let (holm, bh) = (Correction::Holm.adjust(&p), Correction::Bh.adjust(&p));
            prop_assert!(holm.iter().zip(&bh).all(|(holm, bh)| holm >= &(bh - 1e-12)));
        }
    }
}
