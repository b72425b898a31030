//! How many combinations each step of the order of meaning leaves.

use std::sync::Arc;

use super::walk::{Extra, Part, Verdict, Visit};
use crate::model::case::Case;

/// Counts of one case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The factors of the product.
    pub factors: Vec<Factor>,
    /// The product of all factors: grid x zip x backends x phases.
    pub combinations: u64,
    /// Combinations that exist, with conditional axes.
    pub existing: u64,
    /// Skipped because a condition of an axis or a derived value has no value.
    pub undefined: u64,
    /// Skipped by `exclude`.
    pub excluded: u64,
    /// Added by `include`.
    pub included: u64,
    /// Measured already as another point.
    pub merged: u64,
}

/// Something that is multiplied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Factor {
    /// Axes that walk together, or `backends` or `phases`.
    pub names: Vec<Arc<str>>,
    /// How many rows.
    pub rows: u64,
}

impl Counts {
    pub(super) fn of(case: &Case) -> Self {
        let dimensions = case
            .dimensions
            .iter()
            .filter(|dimension| dimension.swept > 1 || case.variables[dimension.columns[0]].given);
        let mut factors: Vec<Factor> = dimensions
            .map(|dimension| Factor {
                names: dimension
                    .columns
                    .iter()
                    .map(|column| case.variables[*column].name.clone())
                    .collect(),
                rows: dimension.swept as u64,
            })
            .collect();
        for (name, rows) in [
            ("backends", case.backends.len()),
            ("phases", case.phases.len()),
        ] {
            factors.push(Factor {
                names: vec![name.into()],
                rows: rows as u64,
            });
        }
        let combinations = factors.iter().map(|factor| factor.rows).product();
        Counts {
            factors,
            combinations,
            ..Counts::default()
        }
    }

    pub(super) fn add(&mut self, visit: &Visit<'_, '_>) {
        let verdict = match &visit.extra {
            Extra::No => &visit.verdict,
            Extra::Overruled(verdict) => {
                self.included += 1;
                verdict
            }
            Extra::New => {
                self.included += u64::from(visit.verdict == Verdict::Kept);
                return;
            }
        };
        self.existing += 1;
        match verdict {
            Verdict::Kept => {}
            Verdict::Failed(Part::When(_) | Part::Derived(_), _) => self.undefined += 1,
            Verdict::Excluded(_) | Verdict::Failed(Part::Exclude(_), _) => self.excluded += 1,
        }
    }

    /// Points that are left.
    pub fn points(&self) -> u64 {
        self.existing + self.included - self.undefined - self.excluded - self.merged
    }

    /// The steps in order, each with the number of combinations after it.
    pub fn steps(&self) -> Vec<(&'static str, u64)> {
        let mut left = self.existing;
        let mut steps = vec![
            ("grid x zip x variants", self.combinations),
            ("conditional axes", left),
        ];
        for (step, lost) in [("derive", self.undefined), ("exclude", self.excluded)] {
            left -= lost;
            steps.push((step, left));
        }
        left += self.included;
        steps.push(("include", left));
        steps.push(("merge", left - self.merged));
        steps
    }
}
