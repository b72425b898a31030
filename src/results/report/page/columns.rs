//! The columns of the page's table: the columns of `records.csv`, with their names and values.

use std::collections::BTreeSet;
use std::sync::Arc;

use sweeper_program::{Phase, Value};

use super::super::frame::MACHINE;
use super::super::source::Source;
use sweeper_model::row::entry::Entry;
use sweeper_model::row::schema::{self, Group, Kind};
use sweeper_model::status::Status;

/// The values of a column, one for each row.
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
    /// Name of the column in `records.csv`.
    pub(super) name: String,
    /// The group of columns that it belongs to.
    pub(super) group: Group,
    /// True for values that follow from parameters.
    pub(super) is_derived: bool,
    /// The meaning of the values, for people.
    pub(super) about: String,
    /// The values, one for each row.
    pub(super) cells: Cells,
}

impl Column {
    /// The natural order of words, where they have one.
    pub(super) fn natural_order(&self) -> Vec<&'static str> {
        match self.name.as_str() {
            "phase" => Phase::EVERY.iter().map(|phase| phase.name()).collect(),
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

/// All columns of some sources, one below the other; a column that no row fills is left out, except
/// for columns that the page can't do without.
pub(super) fn columns(sources: &[Source]) -> Vec<Column> {
    let entries: Vec<&Entry> = sources.iter().flat_map(|source| &source.entries).collect();
    let mut columns = Vec::new();
    if sources.len() > 1 {
        columns.push(machine_column(sources));
    }
    columns.extend(of_group(&entries, Group::Axis));
    columns.extend(named(&entries));
    for group in [
        Group::Result,
        Group::Statistic,
        Group::Memory,
        Group::Program,
    ] {
        columns.extend(of_group(&entries, group));
    }
    columns.push(kernel_names(&entries));
    columns.extend(of_group(&entries, Group::Identity));
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
        about: "The run or file that the row is from".to_owned(),
        cells: Cells::Words(words.collect()),
    }
}

/// The columns of every `records.csv` that are of one group.
fn of_group(entries: &[&Entry], group: Group) -> Vec<Column> {
    let columns = schema::columns().filter(|column| column.group == Some(group));
    columns
        .map(|column| fixed(entries, column, group))
        .collect()
}

fn fixed(entries: &[&Entry], column: &schema::Column, group: Group) -> Column {
    let values = entries.iter().map(|entry| column.get(entry));
    // On the null device rows have no times.
    let values = values.map(|value| value.filter(|value| !is_no_time(column, value)));
    Column {
        name: column.name.to_owned(),
        group,
        is_derived: false,
        about: about(column),
        cells: match column.kind {
            Kind::Int | Kind::Float => Cells::Numbers(values.map(number).collect()),
            Kind::Text | Kind::Bool => Cells::Words(values.map(|value| word(&value)).collect()),
            Kind::Digest => Cells::Digests(values.map(|value| first_bytes(&value)).collect()),
        },
    }
}

fn is_no_time(column: &schema::Column, value: &Value) -> bool {
    column.name == "unix_time_s" && *value == Value::Float(0.0)
}

/// The meaning and unit of a column as a line of plain text.
fn about(column: &schema::Column) -> String {
    let mut text = column.meaning.replace('`', "");
    // A sentence may begin with a name, which stays as it is.
    if let Some(first) = text
        .get_mut(..1)
        .filter(|_| !column.meaning.starts_with('`'))
    {
        first.make_ascii_uppercase();
    }
    if column.kind == Kind::Digest {
        text.push_str(&format!(" (the first {} are shown)", 2 * DIGEST_BYTES));
    }
    if !column.unit.is_empty() {
        text.push_str(&format!(", in {}", column.unit));
    }
    text
}

/// Parameters, then other axes and derived values.
fn named(entries: &[&Entry]) -> Vec<Column> {
    let names = |of: fn(&Entry) -> Vec<&Arc<str>>| -> BTreeSet<&str> {
        let names = entries.iter().flat_map(|entry| of(entry));
        names.map(AsRef::as_ref).collect()
    };
    let parameters = names(|entry| entry.parameters.keys().collect());
    let values = names(|entry| entry.values.keys().collect());
    let taken: BTreeSet<&str> = schema::columns()
        .filter(|column| column.group == Some(Group::Axis))
        .map(|column| column.name)
        .chain([MACHINE])
        .collect();
    let parameters_alone = parameters.difference(&taken);
    let mut columns: Vec<Column> = parameters_alone
        .map(|name| axis(entries, name, "A parameter of the workload", false))
        .collect();
    let derived = values.difference(&parameters);
    columns.extend(derived.filter(|name| !taken.contains(*name)).map(|name| {
        let about = "An axis or derived value of the manifest";
        axis(entries, name, about, true)
    }));
    columns
}

fn axis(entries: &[&Entry], name: &str, about: &str, is_derived: bool) -> Column {
    let values: Vec<Option<Value>> = entries
        .iter()
        .map(|entry| entry.value(name).cloned())
        .collect();
    Column {
        name: schema::axis_column(name).into_owned(),
        group: Group::Axis,
        is_derived,
        about: about.to_owned(),
        cells: cells(&values),
    }
}

fn kernel_names(entries: &[&Entry]) -> Column {
    let names = entries.iter().map(|entry| {
        let kernels = entry.measurement.iter().flat_map(|found| &*found.kernels);
        let names: Vec<&str> = kernels.map(|kernel| kernel.name.as_ref()).collect();
        names.join(" ").into()
    });
    Column {
        name: "kernel_names".to_owned(),
        group: Group::Program,
        is_derived: false,
        about: "Kernels of the program, where the source names them".to_owned(),
        cells: Cells::Words(names.collect()),
    }
}

/// Numbers where all values are numbers that an f64 holds exactly, else words.
fn cells(values: &[Option<Value>]) -> Cells {
    const EXACT: i64 = 1 << 53;
    let is_number = |value: &Value| match value {
        Value::Int(value) => value.abs() <= EXACT,
        Value::Float(value) => value.is_finite(),
        Value::Bool(_) | Value::Text(_) => false,
    };
    match values.iter().flatten().all(is_number) {
        true => Cells::Numbers(values.iter().cloned().map(number).collect()),
        false => Cells::Words(values.iter().map(word).collect()),
    }
}

/// A number; NaN where there is none.
fn number(value: Option<Value>) -> f64 {
    match value {
        Some(Value::Int(value)) => value as f64,
        Some(Value::Float(value)) => value,
        Some(Value::Bool(_) | Value::Text(_)) | None => f64::NAN,
    }
}

fn word(value: &Option<Value>) -> Arc<str> {
    match value {
        None => Arc::default(),
        Some(Value::Text(text)) => Arc::clone(text),
        Some(other) => other.to_string().into(),
    }
}

/// The first bytes of a digest in hexadecimal; zeros where there is no digest.
fn first_bytes(hex: &Option<Value>) -> [u8; DIGEST_BYTES] {
    let mut bytes = [0; DIGEST_BYTES];
    let digits = hex.as_ref().and_then(Value::as_text);
    let digits = digits.and_then(|hex| hex.get(..2 * DIGEST_BYTES));
    if digits.is_none_or(|digits| hex::decode_to_slice(digits, &mut bytes).is_err()) {
        bytes = [0; DIGEST_BYTES];
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_explained_in_plain_text() {
        let about = |name: &str| {
            let column = schema::columns().find(|column| column.name == name);
            column.map(about).unwrap()
        };
        assert_eq!(about("mean_ns"), "Arithmetic mean, in ns");
        assert_eq!(about("threads"), "CPU threads of the measured program");
        assert_eq!(
            about("flops_per_s"),
            "flops over median_ns, in operations/s"
        );
        assert!(about("output_digest").ends_with("(the first 12 are shown)"));
    }
}
