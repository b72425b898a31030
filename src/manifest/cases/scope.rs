//! The names that expressions of a case may use, with their kinds.

use sweeper_program::workload::{ParameterKind, WorkloadInfo};

use crate::model::case::{Dimension, Variable};
use sweeper_model::expression::{Kind, Known, Scope};
use sweeper_model::tuning::family_of;

/// The names for expressions of a case: variants, then variables. Derived values are added later.
pub(crate) fn scope(
    info: &'static WorkloadInfo,
    variables: &[Variable],
    dimensions: &[Dimension],
) -> Scope {
    let text = |name: &str, words| Known {
        name: name.into(),
        kind: Kind::Text,
        words,
    };
    let mut backends: Vec<(&'static str, &'static [&'static str])> = Vec::new();
    for each in info.backends {
        let family = family_of(each.name);
        if backends.last().is_none_or(|(last, _)| *last != family) {
            backends.push((family, each.aliases));
        }
    }
    let phases = info
        .phases
        .iter()
        .map(|phase| (phase.name(), &[][..]))
        .collect();
    let dtypes = info
        .dtypes
        .iter()
        .map(|dtype| (dtype.name(), &[][..]))
        .collect();
    let mut names = vec![
        text("backend", Some(backends)),
        text("phase", Some(phases)),
        text("dtype", Some(dtypes)),
        text("workload", None),
    ];
    names.extend(variables.iter().map(|variable| {
        let words = match info
            .parameter(&variable.name)
            .map(|parameter| parameter.kind)
        {
            Some(ParameterKind::Choice(words)) => Some(words.to_vec()),
            _ => None,
        };
        Known {
            name: variable.name.clone(),
            kind: kind_of(variable, dimensions),
            words,
        }
    }));
    Scope { names }
}

/// The kind of a variable's values.
pub(crate) fn kind_of(variable: &Variable, dimensions: &[Dimension]) -> Kind {
    Kind::of(&dimensions[variable.dimension].rows[0][variable.column])
}
