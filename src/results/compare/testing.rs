//! Random numbers and rows for tests: equal in each run.

use sweeper_program::Phase;

use crate::report::source::{Kind, Source};
use sweeper_model::row::entry::{Entry, Times};
use sweeper_model::status::Status;

/// A generator (SplitMix64 of Steele, Lea and Flood, 2014).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform between zero and one, neither included.
    pub(super) fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Normal, by Box and Muller.
    pub(super) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// A source whose rows have a backend, a length and a median in nanoseconds.
pub(super) fn source(rows: &[(&str, i64, f64)]) -> Source {
    let entries = rows.iter().map(|&(backend, length, median)| {
        let mut entry = Entry::new("semicrf".into(), backend.into(), Phase::Forward, Status::Ok);
        entry.parameters.insert("T".into(), length.into());
        entry.times = Some(Times {
            n: Some(25),
            median,
            q1: Some(median * 0.999),
            q3: Some(median * 1.001),
            ..Times::default()
        });
        entry
    });
    Source {
        label: "machine".to_owned(),
        origin: "records.csv".into(),
        kind: Kind::Records,
        schema: None,
        environment: None,
        usage: None,
        manifest: None,
        entries: entries.collect(),
        warnings: Vec::new(),
    }
}
