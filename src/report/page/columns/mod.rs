//! The columns of the page's table: those of `records.csv`, by its names and with its values.

mod measured;

use std::collections::BTreeSet;
use std::sync::Arc;

use sweeper_kernels::{Phase, Value};

use self::measured::{memory, program, results, statistics};
use super::super::entry::{DIMENSIONS, Entry, Program};
use super::super::frame::MACHINE;
use super::super::source::Source;
use crate::record::tables;
use crate::status::Status;

/// What a column is about; the page's column chooser groups by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// What tells points apart.
    Axis,
    /// What became of a point.
    Result,
    /// Statistics of its samples.
    Statistic,
    /// Bytes.
    Memory,
    /// What its program does, and how it was checked.
    Program,
    /// Digests.
    Identity,
}

impl Group {
    /// The word in the page's data.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Group::Axis => "axis",
            Group::Result => "result",
            Group::Statistic => "statistic",
            Group::Memory => "memory",
            Group::Program => "program",
            Group::Identity => "identity",
        }
    }
}

/// The values of a column, one a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cells {
    /// Text; empty where a row has none.
    Words(Vec<Arc<str>>),
    /// Numbers; NaN where a row has none.
    Numbers(Vec<f64>),
    /// The first [`DIGEST_BYTES`] bytes of digests.
    Digests(Vec<[u8; DIGEST_BYTES]>),
}

/// Bytes of a digest that the page shows: the twelve digits by which people name points.
pub(super) const DIGEST_BYTES: usize = 6;

/// One column.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Column {
    /// Its name in `records.csv`.
    pub(super) name: String,
    /// What it is about.
    pub(super) group: Group,
    /// True for what follows from parameters.
    pub(super) is_derived: bool,
    /// What its values mean, for people.
    pub(super) about: &'static str,
    /// The values.
    pub(super) cells: Cells,
}

impl Column {
    /// The order of words that have one.
    pub(super) fn natural_order(&self) -> Vec<&'static str> {
        match self.name.as_str() {
            "phase" => Phase::ALL.iter().map(|phase| phase.name()).collect(),
            "status" => Status::ALL.iter().map(|status| status.name()).collect(),
            _ => Vec::new(),
        }
    }

    /// True if no row has a value.
    fn is_empty(&self) -> bool {
        match &self.cells {
            Cells::Words(words) => words.iter().all(|word| word.is_empty()),
            Cells::Numbers(numbers) => numbers.iter().all(|number| number.is_nan()),
            Cells::Digests(digests) => digests.iter().all(|digest| digest == &[0; DIGEST_BYTES]),
        }
    }
}

/// All columns of some sources, one below the other; a column that no row fills is left out, but for
/// those that the page can't do without.
pub(super) fn columns(sources: &[Source]) -> Vec<Column> {
    let entries: Vec<&Entry> = sources.iter().flat_map(|source| &source.entries).collect();
    let mut columns = Vec::new();
    if sources.len() > 1 {
        columns.push(machine_column(sources));
    }
    columns.extend(axes(&entries));
    columns.extend(results(&entries));
    columns.extend(statistics(&entries));
    columns.extend(memory(&entries));
    columns.extend(program(&entries));
    columns.extend(identity(&entries));
    columns.retain(|column| {
        !column.is_empty() || ["status", "median_ns", "backend"].contains(&column.name.as_str())
    });
    columns
}

fn machine_column(sources: &[Source]) -> Column {
    let words = sources.iter().flat_map(|source| {
        let label: Arc<str> = source.label.as_str().into();
        std::iter::repeat_n(label, source.entries.len())
    });
    Column {
        name: MACHINE.to_owned(),
        group: Group::Axis,
        is_derived: false,
        about: "The run or file that the row is from",
        cells: Cells::Words(words.collect()),
    }
}

/// What tells points apart: words of the plan, then parameters, then derived values.
fn axes(entries: &[&Entry]) -> Vec<Column> {
    const WORDS: [(&str, &str); 9] = [
        ("case", "Name of the case in the manifest"),
        ("workload", "What is computed"),
        ("backend", "How it is computed"),
        ("phase", "The forward pass, the backward pass, or both"),
        ("dtype", "Type of the elements"),
        ("device_name", "The device that measured the row"),
        ("l2", "State of the second-level cache before each sample"),
        ("mode", "Launch by launch, or as one graph"),
        ("threads", "CPU threads of the measured program"),
    ];
    let mut columns: Vec<Column> = WORDS
        .iter()
        .map(|&(name, about)| axis(entries, name, about, false))
        .collect();
    let named = |of: fn(&Entry) -> Vec<&Arc<str>>| -> BTreeSet<&str> {
        let names = entries.iter().flat_map(|entry| of(entry));
        names.map(AsRef::as_ref).collect()
    };
    let parameters = named(|entry| entry.parameters.keys().collect());
    let values = named(|entry| entry.values.keys().collect());
    // A parameter that is called like another column is, has the name that it has in `records.csv`.
    let is_taken = |name: &str| name == MACHINE || WORDS.iter().any(|(held, _)| *held == name);
    columns.extend(
        parameters
            .iter()
            .filter(|name| !is_taken(name))
            .map(|name| axis(entries, name, "A parameter of the workload", false)),
    );
    columns.extend(
        values
            .difference(&parameters)
            .filter(|name| !is_taken(name))
            .map(|name| {
                axis(
                    entries,
                    name,
                    "An axis or derived value of the manifest",
                    true,
                )
            }),
    );
    columns
}

fn axis(entries: &[&Entry], name: &str, about: &'static str, is_derived: bool) -> Column {
    let values: Vec<Option<Value>> = entries.iter().map(|entry| entry.axis(name)).collect();
    Column {
        name: match DIMENSIONS.contains(&name) {
            true => name.to_owned(),
            false => tables::axis_column(name).into_owned(),
        },
        group: Group::Axis,
        is_derived,
        about,
        cells: cells(&values),
    }
}

/// Numbers where all values are numbers that an f64 holds exactly, else words.
fn cells(values: &[Option<Value>]) -> Cells {
    const EXACT: i64 = 1 << 53;
    let number = |value: &Option<Value>| match value {
        None => Some(f64::NAN),
        Some(Value::Int(value)) if value.abs() <= EXACT => Some(*value as f64),
        Some(Value::Float(value)) if value.is_finite() => Some(*value),
        Some(_) => None,
    };
    let numbers: Option<Vec<f64>> = values.iter().map(number).collect();
    match numbers {
        Some(numbers) => Cells::Numbers(numbers),
        None => Cells::Words(values.iter().map(word).collect()),
    }
}

fn word(value: &Option<Value>) -> Arc<str> {
    match value {
        None => Arc::default(),
        Some(Value::Text(text)) => Arc::clone(text),
        Some(other) => other.to_string().into(),
    }
}

fn identity(entries: &[&Entry]) -> Vec<Column> {
    let digests = |name, about, of: fn(&Entry) -> Option<String>| {
        let digests = entries
            .iter()
            .map(|entry| first_bytes(of(entry).as_deref()));
        make(
            Group::Identity,
            name,
            about,
            Cells::Digests(digests.collect()),
        )
    };
    vec![
        digests("point", "First digits of the point’s id", |entry| {
            Some(entry.point?.0.hex())
        }),
        digests("problem", "First digits of the problem’s id", |entry| {
            Some(entry.problem?.0.hex())
        }),
        digests(
            "output_digest",
            "First digits of the outputs’ SHA-256",
            |entry| {
                of_program(entry, |program| {
                    program.output_digest.as_deref().map(str::to_owned)
                })
            },
        ),
        numbers(
            entries,
            Group::Identity,
            "unix_time_s",
            "When the row was made",
            |entry| entry.unix_time_s.filter(|&time_s| time_s > 0.0),
        ),
    ]
}

fn of_program<T>(entry: &Entry, of: impl Fn(&Program) -> Option<T>) -> Option<T> {
    of(entry.program.as_deref()?)
}

/// The first bytes of a digest in hexadecimal; zeros where there is none.
fn first_bytes(hex: Option<&str>) -> [u8; DIGEST_BYTES] {
    let mut bytes = [0; DIGEST_BYTES];
    let digits = hex.and_then(|hex| hex.get(..2 * DIGEST_BYTES));
    if digits.is_none_or(|digits| hex::decode_to_slice(digits, &mut bytes).is_err()) {
        bytes = [0; DIGEST_BYTES];
    }
    bytes
}

fn or_nan(value: Option<f64>) -> f64 {
    value.unwrap_or(f64::NAN)
}

fn make(group: Group, name: &str, about: &'static str, cells: Cells) -> Column {
    Column {
        name: name.to_owned(),
        group,
        is_derived: false,
        about,
        cells,
    }
}

fn words(
    entries: &[&Entry],
    group: Group,
    name: &str,
    about: &'static str,
    of: fn(&Entry) -> Arc<str>,
) -> Column {
    let words = entries.iter().map(|entry| of(entry)).collect();
    make(group, name, about, Cells::Words(words))
}

fn numbers(
    entries: &[&Entry],
    group: Group,
    name: &str,
    about: &'static str,
    of: fn(&Entry) -> Option<f64>,
) -> Column {
    let numbers = entries.iter().map(|entry| or_nan(of(entry))).collect();
    make(group, name, about, Cells::Numbers(numbers))
}
