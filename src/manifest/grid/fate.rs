//! The fate of each combination of a grid, for callers that ask why a point is in or out.

use std::collections::HashMap;

use super::walk::{Verdict, Walker};
use super::{Grid, Merger, Point, Problems};

/// The fate of a combination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The combination is `points()[n]`.
    Point(usize),
    /// The combination is the problem of `points()[n]`, measured in that way: one of the two is
    /// enough.
    Merged(usize),
    /// Rule `n` of its case's `exclude` holds.
    Excluded(usize),
    /// An expression has no value for the combination.
    Undefined(String),
}

impl Grid<'_> {
    /// Calls `see` with every combination that exists and its fate, in the grid's order.
    pub fn fates(&self, mut see: impl FnMut(Point, Fate)) {
        let mut merger = Merger::default();
        let mut held: HashMap<(u32, &str, u8), usize> = HashMap::new();
        let cases = self.manifest.cases.iter().zip(&self.layouts);
        for (index, (case, layout)) in cases.enumerate() {
            let mut problems = Problems::new(self.manifest, case, &mut merger);
            Walker::new(case, layout).run(|visit| {
                let fate = match &visit.verdict {
                    Verdict::Kept => {
                        let problem = merger.problem(problems.id(&visit));
                        let backend = case.backends[visit.backend].0.name;
                        let next = held.len();
                        let key = (problem, backend, visit.phase as u8);
                        match *held.entry(key).or_insert(next) {
                            number if number == next => Fate::Point(number),
                            number => Fate::Merged(number),
                        }
                    }
                    Verdict::Excluded(rule) => Fate::Excluded(*rule),
                    Verdict::Failed(_, error) => Fate::Undefined(error.to_string()),
                };
                let point = Point {
                    case: index as u16,
                    code: visit.code,
                    backend: visit.backend as u16,
                    phase: visit.phase,
                };
                see(point, fate);
            });
        }
    }
}
