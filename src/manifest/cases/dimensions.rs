//! The axes of one case: the shared axes that it takes, the check of their values against the
//! workload's parameters, and the dimensions of the grid.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use sweeper_program::Value;
use sweeper_program::workload::{ParameterInfo, ParameterKind, WorkloadInfo};

use super::scope;
use super::shared::Shared;
use super::ties::{stands, tie_of};
use super::uses::Uses;
use crate::grammar::axis::{WireAxis, WireTie};
use crate::grammar::expression::{self, WireText};
use crate::grammar::section::{Context, Spanned};
use crate::grammar::wire::{NAME_CASES, WireCase};
use crate::model::case::{self, Conditional, Dimension, ParameterSource, Variable};
use crate::text::diagnostics::Code;
use crate::text::suggest;
use crate::text::texts::At;

/// The ties of a case, plain axes being ties of one column.
pub(crate) struct Columns {
    ties: Vec<WireTie>,
}

impl Columns {
    /// Collects the axes that a case walks over: plain axes first, then zips.
    pub(crate) fn collect(
        cx: &mut Context<'_>,
        wire: &WireCase,
        own_keys: &[WireAxis],
        info: &'static WorkloadInfo,
        shared: &Shared<'_>,
        uses: &Uses,
        used_axes: &mut BTreeSet<String>,
    ) -> Self {
        let own: Vec<&WireAxis> = wire.scope.axes.iter().chain(own_keys).collect();
        let mut columns = Columns { ties: Vec::new() };
        let is_tied = |name: &str| {
            let mut zips = wire.scope.ties.iter();
            zips.any(|zip| zip.column(name).is_some())
        };
        for axis in &shared.scope.axes {
            let name = &axis.name.value;
            let replacing = own.iter().find(|own| own.name.value == *name);
            let is_wanted = uses.want(name, info) && !shared.is_foreign(name, info);
            if !is_wanted && replacing.is_none() {
                continue;
            }
            used_axes.insert(name.clone());
            if !is_tied(name) {
                columns.ties.push(tie_of(replacing.unwrap_or(&axis)));
            }
        }
        for axis in &own {
            let name = &axis.name.value;
            let mut theirs = shared.scope.axes.iter();
            if theirs.any(|axis| axis.name.value == *name) && !is_tied(name) {
                continue;
            }
            match uses.want(name, info) {
                true => columns.ties.push(tie_of(axis)),
                false => unused(cx, &axis.name, info, ""),
            }
        }
        let theirs = shared.scope.ties.iter();
        let theirs = theirs.filter(|tie| tie.cases.have(wire) && stands(cx, tie, wire, &own));
        let theirs: Vec<&WireTie> = theirs.collect();
        let help = if shared.is_several() { NAME_CASES } else { "" };
        columns.add_zips(cx, &theirs, info, uses, help);
        let own: Vec<&WireTie> = wire.scope.ties.iter().collect();
        columns.add_zips(cx, &own, info, uses, "");
        let names = columns.ties.iter().flat_map(|tie| &tie.columns);
        used_axes.extend(names.map(|name| name.value.clone()));
        columns.refuse_twice(cx);
        columns
    }

    /// Adds the zips with an axis that the case uses.
    fn add_zips(
        &mut self,
        cx: &mut Context<'_>,
        zips: &[&WireTie],
        info: &WorkloadInfo,
        uses: &Uses,
        help: &str,
    ) {
        for zip in zips {
            let mut names = zip.columns.iter().map(|column| &column.value);
            match names.any(|name| uses.want(name, info)) {
                true => self.ties.push((*zip).clone()),
                false => unused(cx, &zip.columns[0], info, help),
            }
        }
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

/// Warns of an axis that nothing uses.
pub(crate) fn unused(
    cx: &mut Context<'_>,
    name: &Spanned<String>,
    info: &WorkloadInfo,
    help: &str,
) {
    // A parameter of this name that could not be read would use it.
    if cx.broken.contains(&name.value) {
        return;
    }
    let parameters = info.parameters.iter();
    let known: Vec<&str> = parameters.map(|parameter| parameter.name).collect();
    let message = format!("nothing uses the axis `{}`", name.value);
    let label = format!("no parameter of `{}`, and in no expression", info.name);
    cx.report(Code::UnusedAxis, name.at, message)
        .label(label)
        .help(suggest::among(&name.value, "parameters", &known))
        .help(help);
}

/// The dimensions and variables of a case.
pub(crate) struct Built {
    pub(crate) variables: Vec<Variable>,
    pub(crate) dimensions: Vec<Dimension>,
    pub(crate) parameters: Vec<ParameterSource>,
    /// Where the rows of each dimension were written; none for defaults.
    pub(crate) rows: Vec<Vec<At>>,
    /// The conditions of dimensions.
    pub(crate) when: Vec<Option<WireText>>,
}

/// Builds variables and dimensions, and finds where each parameter comes from.
pub(crate) fn build(
    cx: &mut Context<'_>,
    wire: &WireCase,
    info: &'static WorkloadInfo,
    columns: Columns,
    uses: &Uses,
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
    sources(cx, wire, info, uses, &mut built);
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

/// The condition of dimension `index`, over variants and earlier dimensions.
fn conditional(
    cx: &mut Context<'_>,
    info: &'static WorkloadInfo,
    built: &Built,
    index: usize,
    when: &WireText,
    otherwise: Option<Vec<Value>>,
) -> Option<Conditional> {
    let mut scope = scope::scope(info, &built.variables, &built.dimensions);
    let known = &mut scope.names[case::VARIANTS..];
    for (variable, known) in built.variables.iter().zip(known) {
        let at = variable.dimension;
        if at == index || (at > index && matches!(built.when.get(at), Some(Some(_)))) {
            // Slots must stay where they are, so a name out of reach is made unspeakable.
            known.name = "".into();
        }
    }
    let condition = expression::condition(cx, when, &scope)?;
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

/// A value that is compared by its bits, so that it can be looked for.
#[derive(PartialEq, Eq, Hash)]
enum Distinct {
    Bool(bool),
    Int(i64),
    Float(u64),
    Text(Arc<str>),
}

impl From<&Value> for Distinct {
    fn from(value: &Value) -> Self {
        match value {
            Value::Bool(value) => Distinct::Bool(*value),
            Value::Int(value) => Distinct::Int(*value),
            // -0 is 0.
            Value::Float(value) => Distinct::Float((value + 0.0).to_bits()),
            Value::Text(text) => Distinct::Text(text.clone()),
        }
    }
}

/// Drops rows that were there before.
fn distinct(
    cx: &mut Context<'_>,
    columns: &[Spanned<String>],
    rows: Vec<Vec<Value>>,
    places: &[Vec<Spanned<Value>>],
) -> (Vec<Vec<Value>>, Vec<At>) {
    let mut seen = HashSet::with_capacity(rows.len());
    let mut kept = (
        Vec::with_capacity(rows.len()),
        Vec::with_capacity(rows.len()),
    );
    for (row, place) in rows.into_iter().zip(places) {
        if seen.insert(row.iter().map(Distinct::from).collect::<Vec<_>>()) {
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
pub(crate) fn fit(
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
                sweeper_model::word::article(cell.value.kind())
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

/// Why a parameter can't have a value.
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
    uses: &Uses,
    built: &mut Built,
) {
    for parameter in info.parameters {
        let mut variables = built.variables.iter();
        let held = variables.position(|variable| &*variable.name == parameter.name);
        if let Some(index) = held {
            built.parameters.push(ParameterSource::Variable(index));
            continue;
        }
        if let Some(index) = uses.derived_index(parameter.name) {
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

/// The values of a dimension's columns where it does not exist, if the workload has defaults.
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
