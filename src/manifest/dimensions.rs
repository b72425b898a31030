//! The axes of one case: which shared ones it takes, whether their values are what the workload's
//! parameters can be, and what is multiplied.

use std::collections::BTreeSet;
use std::sync::Arc;

use sweeper_kernels::Value;
use sweeper_kernels::workload::{ParameterInfo, ParameterKind, WorkloadInfo};

use super::applicable::Applicable;
use super::axis::WireAxis;
use super::build::{Shared, Usage};
use super::case::{Conditional, Dimension, ParameterSource, Variable};
use super::diagnostics::Code;
use super::expression::{Kind, Scope};
use super::retie;
use super::rules;
use super::section::{Context, Spanned};
use super::suggest;
use super::text::At;
use super::wire::{WireCase, WireText, WireTie};

/// The ties of a case, plain axes being ties of one column.
pub(super) struct Columns {
    ties: Vec<WireTie>,
}

impl Columns {
    /// Collects what a case walks over: plain axes first, then zips and tables.
    pub(super) fn collect(
        cx: &mut Context<'_>,
        wire: &WireCase,
        own_keys: Vec<WireAxis>,
        info: &'static WorkloadInfo,
        shared: &Shared<'_>,
        expressions: &Applicable,
        usage: &mut Usage,
    ) -> Self {
        let own: Vec<&WireAxis> = wire.scope.axes.iter().chain(&own_keys).collect();
        let mut ties = Vec::new();
        // Names that are dealt with: what ties them takes the place of a plain axis.
        let mut taken: Vec<String> = Vec::new();
        let columns = |ties: &[WireTie]| -> Vec<String> {
            let columns = ties.iter().flat_map(|tie| &tie.columns);
            columns.map(|column| column.value.clone()).collect()
        };
        let concerns = |tie: &WireTie| {
            let mut names = tie.columns.iter().map(|column| &column.value);
            names.any(|name| expressions.wants(name, info) && !shared.is_foreign(name, info))
        };
        let tied: Vec<WireTie> = shared
            .scope
            .ties
            .iter()
            .filter(|tie| concerns(tie))
            .cloned()
            .collect();
        let (shared_columns, own_columns) = (columns(&tied), columns(&wire.scope.ties));
        for axis in &shared.scope.axes {
            let name = &axis.name.value;
            if own_columns.contains(name) && expressions.wants(name, info) {
                usage.axes.insert(name.clone());
                continue;
            }
            let mut overriding = own.iter().filter(|own| own.name.value == *name);
            if let Some(axis) = overriding.next() {
                usage.axes.insert(name.clone());
                taken.push(name.clone());
                ties.push(tie_of(axis));
            } else if expressions.wants(name, info) && !shared.is_foreign(name, info) {
                usage.axes.insert(name.clone());
                ties.push(tie_of(axis));
            }
        }
        for axis in &own {
            let name = &axis.name.value;
            let is_of_tie = shared_columns.contains(name) && !own_columns.contains(name);
            if taken.contains(name) || is_of_tie {
                continue;
            }
            if expressions.wants(name, info) {
                ties.push(tie_of(axis));
            } else {
                unused(cx, name, axis.name.at, info);
            }
        }
        for (tie, is_own) in all_ties(wire, shared) {
            if concerns(tie) {
                usage
                    .axes
                    .extend(tie.columns.iter().map(|column| column.value.clone()));
                if is_own {
                    ties.push(tie.clone());
                } else {
                    ties.extend(retie::retied(cx, tie, wire, &own));
                }
            } else if is_own {
                unused(cx, &tie.columns[0].value, tie.columns[0].at, info);
            }
        }
        let mut columns = Columns { ties };
        columns.refuse_twice(cx);
        columns
    }

    /// Reports names that are defined twice; the first definition stays.
    fn refuse_twice(&mut self, cx: &mut Context<'_>) {
        let mut seen: Vec<Spanned<String>> = Vec::new();
        self.ties.retain(|tie| {
            let mut fresh = true;
            for column in &tie.columns {
                let held = seen.iter().find(|held| held.value == column.value);
                if let Some(held) = held.cloned() {
                    fresh = false;
                    let message = format!("the axis `{}` is defined twice", column.value);
                    let before = cx.name_of(held.at);
                    cx.report(Code::AxisTwice, column.at, message)
                        .label(format!("first at {before}"))
                        .help("an axis is either free or tied to others");
                }
            }
            seen.extend(tie.columns.iter().cloned());
            fresh
        });
    }
}

fn all_ties<'a>(
    wire: &'a WireCase,
    shared: &'a Shared<'_>,
) -> impl Iterator<Item = (&'a WireTie, bool)> {
    let theirs = shared.scope.ties.iter().map(|tie| (tie, false));
    theirs.chain(wire.scope.ties.iter().map(|tie| (tie, true)))
}

pub(super) fn unused(cx: &mut Context<'_>, name: &str, at: At, info: &WorkloadInfo) {
    let known: Vec<&str> = info
        .parameters
        .iter()
        .map(|parameter| parameter.name)
        .collect();
    cx.report(
        Code::UnusedAxis,
        at,
        format!("nothing uses the axis `{name}`"),
    )
    .label(format!(
        "no parameter of `{}`, and in no expression",
        info.name
    ))
    .help(suggest::among(name, "parameters", &known));
}

fn tie_of(axis: &WireAxis) -> WireTie {
    WireTie {
        columns: vec![axis.name.clone()],
        rows: axis
            .values
            .iter()
            .map(|value| vec![value.clone()])
            .collect(),
        when: axis.when.clone(),
        otherwise: axis.otherwise.clone().map(|value| vec![value]),
        at: axis.at,
    }
}

/// What the axes of a case became.
pub(super) struct Built {
    pub(super) variables: Vec<Variable>,
    pub(super) dimensions: Vec<Dimension>,
    pub(super) parameters: Vec<ParameterSource>,
    /// Where the rows of each dimension were written; none for defaults.
    pub(super) rows: Vec<Vec<At>>,
    /// The conditions of dimensions.
    pub(super) when: Vec<Option<WireText>>,
}

/// Builds variables and dimensions, and finds where each parameter comes from.
pub(super) fn build(
    cx: &mut Context<'_>,
    wire: &WireCase,
    info: &'static WorkloadInfo,
    columns: Columns,
    expressions: &Applicable,
) -> Built {
    let mut built = Built {
        variables: Vec::new(),
        dimensions: Vec::new(),
        parameters: Vec::new(),
        rows: Vec::new(),
        when: Vec::new(),
    };
    let mut otherwise = Vec::new();
    for tie in columns.ties {
        let rows = fit_rows(cx, &tie.columns, &tie.rows, info);
        let (rows, places) = match rows {
            Some(rows) => distinct(cx, &tie.columns, rows, &tie.rows),
            None => (vec![stand_in(&tie, info)], vec![tie.at]),
        };
        built.rows.push(places);
        built.when.push(tie.when);
        let row = tie
            .otherwise
            .map(|row| fit_rows(cx, &tie.columns, &[row], info));
        otherwise.push(row.flatten().and_then(|mut rows| rows.pop()));
        let names = tie
            .columns
            .iter()
            .map(|column| column.value.as_str().into());
        built.push(names, rows, true);
    }
    sources(cx, wire, info, expressions, &mut built);
    for (index, otherwise) in otherwise.into_iter().enumerate() {
        if let Some(when) = built.when[index].clone() {
            built.dimensions[index].when = conditional(cx, info, &built, index, &when, otherwise);
        }
    }
    built
}

impl Built {
    fn push(&mut self, names: impl Iterator<Item = Arc<str>>, rows: Vec<Vec<Value>>, given: bool) {
        let first = self.variables.len();
        let dimension = self.dimensions.len();
        self.variables
            .extend(names.enumerate().map(|(column, name)| Variable {
                name,
                dimension,
                column,
                given,
            }));
        self.dimensions.push(Dimension {
            columns: (first..self.variables.len()).collect(),
            swept: rows.len(),
            rows,
            when: None,
        });
    }
}

/// A row for axes whose values were refused: of the right kinds, so that the rest can be judged.
fn stand_in(tie: &WireTie, info: &'static WorkloadInfo) -> Vec<Value> {
    let columns = tie.columns.iter().zip(&tie.rows[0]);
    columns
        .map(|(column, cell)| match info.parameter(&column.value) {
            Some(parameter) => some_value(&parameter.kind),
            None => cell.value.clone(),
        })
        .collect()
}

/// A value that a parameter can have.
fn some_value(kind: &ParameterKind) -> Value {
    match kind {
        ParameterKind::Int { min, .. } => Value::Int(*min),
        ParameterKind::Float { min, .. } => Value::Float(*min),
        ParameterKind::Bool => Value::Bool(false),
        ParameterKind::Choice(words) => Value::from(words.first().map_or("", |(word, _)| *word)),
    }
}

/// The condition of dimension `index`, over variants and what it can depend on.
fn conditional(
    cx: &mut Context<'_>,
    info: &'static WorkloadInfo,
    built: &Built,
    index: usize,
    when: &WireText,
    otherwise: Option<Vec<Value>>,
) -> Option<Conditional> {
    let mut scope = rules::scope(info, &built.variables, &built.dimensions);
    let known = &mut scope.names[rules::VARIANTS..];
    for (variable, known) in built.variables.iter().zip(known) {
        let at = variable.dimension;
        if at == index || (at > index && matches!(built.when.get(at), Some(Some(_)))) {
            // Slots must stay where they are, so a name out of reach is made unspeakable.
            known.name = "".into();
        }
    }
    let condition = rules::condition(cx, when, &scope)?;
    let dimension = &built.dimensions[index];
    let otherwise = otherwise.or_else(|| defaults(info, &built.variables, dimension));
    let Some(otherwise) = otherwise else {
        return no_else(cx, when, &built.variables[dimension.columns[0]].name);
    };
    Some(Conditional {
        condition,
        otherwise,
    })
}

/// Drops rows that were there before.
fn distinct(
    cx: &mut Context<'_>,
    columns: &[Spanned<String>],
    rows: Vec<Vec<Value>>,
    places: &[Vec<Spanned<Value>>],
) -> (Vec<Vec<Value>>, Vec<At>) {
    let mut seen = BTreeSet::new();
    let mut kept = (Vec::with_capacity(rows.len()), Vec::new());
    for (row, place) in rows.into_iter().zip(places) {
        if seen.insert(format!("{row:?}")) {
            kept.0.push(row);
            kept.1.push(place[0].at);
            continue;
        }
        let message = match (columns, row.as_slice()) {
            ([axis], [value]) => format!("the axis `{}` has the value {value} twice", axis.value),
            _ => {
                let names: Vec<&str> = columns.iter().map(|column| column.value.as_str()).collect();
                let values: Vec<String> = row.iter().map(Value::to_string).collect();
                format!("`{}` is ({}) twice", names.join(", "), values.join(", "))
            }
        };
        cx.report(Code::Merged, place[0].at, message)
            .label("measured once");
    }
    kept
}

/// Values as the parameters want them; `None` if one can't be, which was reported.
fn fit_rows(
    cx: &mut Context<'_>,
    columns: &[Spanned<String>],
    rows: &[Vec<Spanned<Value>>],
    info: &'static WorkloadInfo,
) -> Option<Vec<Vec<Value>>> {
    let parameters: Vec<Option<&ParameterInfo>> = columns
        .iter()
        .map(|column| info.parameter(&column.value))
        .collect();
    let mut sound = true;
    let mut fitted = Vec::with_capacity(rows.len());
    for row in rows {
        let cells = row
            .iter()
            .zip(&parameters)
            .map(|(cell, parameter)| match parameter {
                Some(parameter) => fit(cx, cell, parameter),
                None => Some(cell.value.clone()),
            });
        match cells.collect::<Option<Vec<Value>>>() {
            Some(row) => fitted.push(row),
            None => sound = false,
        }
    }
    sound.then_some(fitted)
}

/// A value as the parameter wants it: words spelt its way, integers as floats where it is one.
pub(super) fn fit(
    cx: &mut Context<'_>,
    cell: &Spanned<Value>,
    parameter: &ParameterInfo,
) -> Option<Value> {
    match fitted(&cell.value, &parameter.kind) {
        Ok(value) => Some(value),
        Err(Misfit::Kind(wanted)) => {
            let message = format!("`{}` takes {wanted}", parameter.name);
            cx.report(Code::WrongType, cell.at, message).label(format!(
                "{} is {}",
                cell.value,
                super::article(cell.value.kind())
            ));
            None
        }
        Err(Misfit::Bounds(wanted)) => {
            let message = format!("`{}` can't be {}", parameter.name, cell.value);
            cx.report(Code::ParameterBounds, cell.at, message)
                .label(wanted)
                .help(format!("`{}`: {}", parameter.name, parameter.about));
            None
        }
        Err(Misfit::Word(words)) => {
            let word = cell.value.to_string();
            let message = format!("`{}` can't be `{word}`", parameter.name);
            cx.report(Code::UnknownChoice, cell.at, message)
                .label("no value of this parameter")
                .help(suggest::among(&word, "values", &words));
            None
        }
    }
}

/// Why a value can't be that of a parameter.
pub(crate) enum Misfit {
    Kind(&'static str),
    Bounds(String),
    Word(Vec<&'static str>),
}

/// The value as a parameter of this kind holds it.
pub(crate) fn fitted(value: &Value, kind: &ParameterKind) -> Result<Value, Misfit> {
    match (*kind, value) {
        (ParameterKind::Int { min, max }, Value::Int(held)) => {
            if (min..=max).contains(held) {
                return Ok(value.clone());
            }
            Err(Misfit::Bounds(format!("from {min} to {max}")))
        }
        (ParameterKind::Float { min, max }, Value::Int(_) | Value::Float(_)) => {
            let held = match value {
                Value::Int(held) => *held as f64,
                Value::Float(held) => *held,
                _ => f64::NAN,
            };
            if (min..=max).contains(&held) {
                return Ok(Value::Float(held));
            }
            Err(Misfit::Bounds(format!("from {min} to {max}")))
        }
        (ParameterKind::Bool, Value::Bool(_)) => Ok(value.clone()),
        (ParameterKind::Choice(words), Value::Text(held)) => {
            let spelt = |(word, others): &&(&'static str, &'static [&'static str])| {
                let mut spellings = std::iter::once(word).chain(others.iter());
                spellings.any(|spelling| spelling.eq_ignore_ascii_case(held))
            };
            match words.iter().find(spelt) {
                Some((word, _)) => Ok(Value::from(*word)),
                None => Err(Misfit::Word(words.iter().map(|(word, _)| *word).collect())),
            }
        }
        (ParameterKind::Int { .. }, _) => Err(Misfit::Kind("an integer")),
        (ParameterKind::Float { .. }, _) => Err(Misfit::Kind("a number")),
        (ParameterKind::Bool, _) => Err(Misfit::Kind("true or false")),
        (ParameterKind::Choice(_), _) => Err(Misfit::Kind("a word")),
    }
}

/// Finds where each parameter comes from: an axis, a derived value, or a default, which becomes an
/// axis of one value.
fn sources(
    cx: &mut Context<'_>,
    wire: &WireCase,
    info: &'static WorkloadInfo,
    expressions: &Applicable,
    built: &mut Built,
) {
    for parameter in info.parameters {
        let mut variables = built.variables.iter();
        let held = variables.position(|variable| &*variable.name == parameter.name);
        if let Some(index) = held {
            built.parameters.push(ParameterSource::Variable(index));
            continue;
        }
        if let Some(index) = expressions.derived_index(parameter.name) {
            built.parameters.push(ParameterSource::Derived(index));
            continue;
        }
        if parameter.default.is_none() && !cx.broken.contains(parameter.name) {
            let name = &wire.name.value;
            let message = format!("`{}` needs the axis `{}`", info.name, parameter.name);
            cx.report(Code::MissingParameter, wire.at, message)
                .label(format!("case `{name}` has no `{}`", parameter.name))
                .help(format!("`{}`: {}", parameter.name, parameter.about));
        }
        let value = parameter
            .default
            .map_or_else(|| some_value(&parameter.kind), Value::from);
        built
            .parameters
            .push(ParameterSource::Variable(built.variables.len()));
        built.push(
            [parameter.name.into()].into_iter(),
            vec![vec![value]],
            false,
        );
    }
}

/// What a dimension's columns are where it does not exist, if the workload has defaults for them.
fn defaults(
    info: &WorkloadInfo,
    variables: &[Variable],
    dimension: &Dimension,
) -> Option<Vec<Value>> {
    let columns = dimension.columns.iter();
    columns
        .map(|column| {
            let parameter = info.parameter(&variables[*column].name)?;
            parameter.default.map(Value::from)
        })
        .collect()
}

fn no_else<T>(cx: &mut Context<'_>, when: &WireText, name: &str) -> Option<T> {
    let message = format!("`{name}` has no value where it does not exist");
    cx.report(Code::MissingKey, when.at, message)
        .label("not everywhere")
        .help("add `else = VALUE`: the workload has no default for it");
    None
}

/// The kind of a variable's values.
pub(super) fn kind_of(variable: &Variable, dimensions: &[Dimension]) -> Kind {
    Kind::of(&dimensions[variable.dimension].rows[0][variable.column])
}

/// Names as a scope shows them, in the order in which they are listed for people.
pub(super) fn names(scope: &Scope) -> Vec<&str> {
    let names = scope.names.iter().map(|known| &*known.name);
    names.filter(|name| !name.is_empty()).collect()
}
