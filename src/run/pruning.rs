//! Learning from failures: points at least as large as one that failed are not tried.

use std::collections::HashMap;

use sweeper_program::Value;

use sweeper_manifest::settings::Prune;
use sweeper_model::identity::PointId;
use sweeper_model::row::Row;
use sweeper_model::row::outcome::Status;

/// The place of a point: values that must be equal, and sizes that are compared.
#[derive(Clone, Debug, PartialEq, PartialOrd)]
pub struct Place {
    /// Everything but the sizes.
    pub same: String,
    /// Values of the rule's axes, in its order.
    pub sizes: Vec<f64>,
}

/// Points that failed.
pub struct Pruner {
    on: Vec<Status>,
    along: Vec<String>,
    failed: HashMap<String, Vec<(Vec<f64>, PointId)>>,
}

impl Pruner {
    /// A pruner that follows a rule, or does nothing.
    pub fn new(rule: Option<&Prune>) -> Self {
        let on = rule.map(|rule| rule.on.clone()).unwrap_or_default();
        let along = rule
            .map(|rule| rule.along.iter().map(ToString::to_string).collect())
            .unwrap_or_default();
        Pruner {
            on,
            along,
            failed: HashMap::new(),
        }
    }

    /// False if it prunes nothing.
    pub fn is_active(&self) -> bool {
        !self.along.is_empty()
    }

    /// True if a point failed that others are measured against.
    pub fn has_failures(&self) -> bool {
        !self.failed.is_empty()
    }

    /// The place of a row in the space of sizes.
    pub fn place(&self, row: &Row) -> Place {
        let mut same = format!(
            "{} {} {} {} {}",
            row.case, row.backend, row.phase, row.dtype, row.mode
        );
        for (name, value) in &row.parameters {
            if !self.along.contains(name) {
                same.push_str(&format!(" {name}={value}"));
            }
        }
        let size = |name: &String| match row.value(name) {
            Some(Value::Int(value)) => *value as f64,
            Some(Value::Float(value)) => *value,
            _ => 0.0,
        };
        Place {
            same,
            sizes: self.along.iter().map(size).collect(),
        }
    }

    /// Remembers a row that failed in a way that also concerns larger points; a temporary problem
    /// of the machine does not.
    pub fn learn(&mut self, row: &Row) {
        let is_its_own = row.outcome.cause.is_none();
        if self.is_active() && is_its_own && self.on.contains(&row.outcome.status) {
            let place = self.place(row);
            self.failed
                .entry(place.same)
                .or_default()
                .push((place.sizes, row.point));
        }
    }

    /// The failed point that a row is at least as large as.
    pub fn covers(&self, row: &Row) -> Option<PointId> {
        let place = self.place(row);
        let failed = self.failed.get(&place.same)?;
        let is_covered = |sizes: &[f64]| {
            sizes
                .iter()
                .zip(&place.sizes)
                .all(|(failed, size)| size >= failed)
        };
        failed
            .iter()
            .find(|(sizes, _)| is_covered(sizes))
            .map(|(_, id)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sweeper_model::row::outcome::Outcome;
    use sweeper_model::row::test_row;

    fn row(number: u8, t: i64, c: i64, status: Status) -> Row {
        let mut row = test_row(number, Outcome::without_measurement(status, ""));
        row.parameters.insert("T".to_owned(), Value::Int(t));
        row.parameters.insert("C".to_owned(), Value::Int(c));
        row
    }

    #[test]
    fn only_points_as_large_on_every_axis_are_covered() {
        let rule = Prune {
            on: vec![Status::Oom],
            along: vec!["T".into(), "K".into(), "C".into()],
        };
        let mut pruner = Pruner::new(Some(&rule));
        let failed = row(1, 512, 6, Status::Oom);
        pruner.learn(&failed);
        pruner.learn(&row(2, 1, 1, Status::Crashed));
        let covered = |t, c| pruner.covers(&row(3, t, c, Status::Ok));
        assert_eq!(covered(512, 6), Some(failed.point));
        assert_eq!(covered(1024, 9), Some(failed.point));
        assert_eq!(covered(1024, 3), None);
        assert_eq!(covered(256, 12), None);
        let mut other = row(3, 1024, 12, Status::Ok);
        other.backend = "streaming".to_owned();
        assert_eq!(pruner.covers(&other), None);
        assert_eq!(Pruner::new(None).covers(&failed), None);
    }
}
