//! Tables: one value for each, independent of the format that it is written in. `OF_REPORTS` and
//! `OF_SECTIONS` list the functions of all tables; a new table is a function and a line there.

use std::sync::Arc;

use rayon::prelude::*;
use sweeper_program::Value;
use sweeper_program::workload::{DerivedSize, Presentation};

use super::frame::Frame;
use sweeper_model::word::capitalized;

mod comparison;
mod crossover;
mod economics;
mod fusion;
mod generic;
mod hot_paths;
mod operations;
pub mod means;
mod pivot;
mod ratios;
pub mod render;
mod fold;
mod stack;
mod statistics;
pub(super) mod tuning;
mod metrics;
mod units;

pub use economics::NAME as ECONOMICS;
pub use operations::NAME as OPERATIONS;
pub use pivot::by_axis;

/// The unit of a column's numbers in files; people see each number in the unit that suits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Words, and numbers without a unit that are shown in full: sizes, counts.
    Plain,
    /// Nanoseconds.
    Ns,
    /// Milliseconds.
    Ms,
    /// A ratio.
    Ratio,
    /// A ratio that belongs to the column before it.
    Speedup,
    /// Units of 2^30 bytes.
    Gb,
    /// A rate: any amount a second.
    PerSecond,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Name of the column in files.
    pub name: String,
    /// Unit of the numbers in the column.
    pub unit: Unit,
    /// The backend that the column is about, in tables with columns for each backend.
    pub of: Option<String>,
}

/// One field.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Without a value.
    Empty,
    /// A word.
    Word(Arc<str>),
    /// A whole number.
    Count(i64),
    /// A number in the column's unit; NaN where there is none.
    Number(f64),
    /// A number with its interval: three columns in files.
    Interval {
        /// The number.
        value: f64,
        /// Lower end of the interval.
        low: f64,
        /// Upper end of the interval.
        high: f64,
    },
}

impl Cell {
    /// A word.
    pub fn word(word: impl AsRef<str>) -> Self {
        Cell::Word(word.as_ref().into())
    }
}

impl From<Option<Value>> for Cell {
    fn from(value: Option<Value>) -> Self {
        match value {
            None => Cell::Empty,
            Some(Value::Int(value)) => Cell::Count(value),
            Some(Value::Float(value)) => Cell::Number(value),
            Some(Value::Text(word)) => Cell::Word(word),
            Some(Value::Bool(value)) => Cell::word(value.to_string()),
        }
    }
}

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Name of the table's file.
    pub name: String,
    /// The subject of the table, in a line.
    pub title: String,
    /// Columns of the table.
    pub columns: Vec<Column>,
    /// How many of the first columns tell rows apart; 0 where that is not said.
    pub naming: usize,
    /// The rows, each with a cell for every column.
    pub rows: Vec<Vec<Cell>>,
    /// Remarks for the reader; the reason why the table is empty, if it is.
    pub notes: Vec<String>,
}

impl Table {
    /// A table without rows.
    pub fn new(name: impl Into<String>, title: impl Into<String>) -> Self {
        Table {
            name: name.into(),
            title: title.into(),
            columns: Vec::new(),
            naming: 0,
            rows: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Says that the columns so far tell rows apart.
    pub fn names_rows(&mut self) -> &mut Self {
        self.naming = self.columns.len();
        self
    }

    /// Adds a column.
    pub fn column(&mut self, name: impl Into<String>, unit: Unit) -> &mut Self {
        self.columns.push(Column {
            name: name.into(),
            unit,
            of: None,
        });
        self
    }

    /// Adds a column about one backend. All backends with such columns have equally many, in order.
    pub fn column_of(
        &mut self,
        backend: impl Into<String>,
        name: impl Into<String>,
        unit: Unit,
    ) -> &mut Self {
        self.columns.push(Column {
            name: name.into(),
            unit,
            of: Some(backend.into()),
        });
        self
    }

    /// Adds columns of words, sizes and counts.
    pub fn plain(&mut self, names: impl IntoIterator<Item = impl Into<String>>) -> &mut Self {
        for name in names {
            self.column(name, Unit::Plain);
        }
        self
    }
}

/// The input of all tables.
pub struct Request<'r> {
    /// The rows.
    pub frame: &'r Frame<'r>,
    /// The rows of the section.
    pub rows: &'r [usize],
    /// The backend that ratios are relative to.
    pub baseline: Option<&'r str>,
    /// Further backends that loops are held against.
    pub more_baselines: &'r [String],
    /// Iterations of the loop in tables of economics.
    pub iterations: u32,
    /// The section's columns.
    pub layout: &'r Layout,
}

/// The columns that name a row of one workload, in the workload's order where it has one.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Words in which rows differ, except backend and phase: the compared word of the workload.
    pub words: Vec<String>,
    /// Sizes: the workload's, derived ones among them; then other sizes in which rows differ.
    pub sizes: Vec<String>,
    /// The workload's presentation of rows, if they are of one workload that has one, and have all
    /// sizes and words that it names.
    pub presentation: Option<&'static Presentation>,
}

impl Layout {
    /// The layout of a section's rows.
    pub fn of(frame: &Frame<'_>, rows: &[usize]) -> Self {
        let differs = |name: &&str| {
            let mut values = rows.iter().map(|&row| frame.key_of(row, &[name]));
            let first = values.next();
            values.any(|value| Some(value) != first)
        };
        let presentation = presentation(frame, rows);
        let own = presentation.map_or([].as_slice(), |shown| shown.sizes);
        let more = frame.sizes(own).into_iter().filter(differs);
        Layout {
            words: presentation
                .and_then(|shown| shown.compared)
                .map_or(Vec::new(), |compared| vec![compared.name.to_owned()]),
            sizes: (own.iter().copied().chain(more).map(str::to_owned)).collect(),
            presentation,
        }
    }

    /// The sizes that distinguish rows: without derived ones.
    pub fn sizes_of_rows(&self) -> Vec<&str> {
        let sizes = self.sizes.iter().map(String::as_str);
        sizes.filter(|name| self.derived(name).is_none()).collect()
    }

    /// The definition of a size that the workload derives.
    pub fn derived(&self, name: &str) -> Option<&'static DerivedSize> {
        self.presentation?.derived(name)
    }

    /// True if a size is a factor of the product `of`.
    pub fn is_factor(&self, name: &str, of: &str) -> bool {
        let derived = self.derived(of);
        derived.is_some_and(|derived| derived.factors.contains(&name))
    }

    /// A size as it is written in titles and at axes.
    pub fn label<'n>(&self, name: &'n str) -> &'n str {
        self.derived(name).map_or(name, |derived| derived.label)
    }

    /// Sizes over which backends are held against each other, where the workload compares no word:
    /// its axes, the leading one first, and sizes that it does not name.
    pub fn axes(&self) -> Vec<&str> {
        let Some(shown) = self.presentation else {
            return self.sizes.iter().map(String::as_str).collect();
        };
        if shown.compared.is_some() {
            return Vec::new();
        }
        let more = self.sizes.iter().skip(shown.sizes.len());
        let own = [shown.leading_axis, shown.second_axis].into_iter();
        own.chain(more.map(String::as_str)).collect()
    }

    /// A word as tables spell it: some workloads capitalise words.
    pub fn word(&self, frame: &Frame<'_>, row: usize, name: &str) -> Cell {
        let compared = self.presentation.and_then(|shown| shown.compared);
        let is_capitalized =
            compared.is_some_and(|compared| compared.is_capitalized && compared.name == name);
        match frame.value(row, name) {
            Some(Value::Text(word)) if is_capitalized => Cell::word(capitalized(&word)),
            value => Cell::from(value),
        }
    }
}

/// The workload's presentation of some rows, if they are of one workload that has one, and have all
/// sizes and words that it names.
fn presentation(frame: &Frame<'_>, rows: &[usize]) -> Option<&'static Presentation> {
    let first = frame.entries[*rows.first()?];
    let shown = first.presentation()?;
    let has_all = |&row: &usize| {
        let entry = frame.entries[row];
        let has = |name: &&str| entry.value(name).is_some() || shown.derived(name).is_some();
        let compared = shown.compared.map(|compared| compared.name);
        entry.workload == first.workload
            && shown.sizes.iter().all(has)
            && compared.is_none_or(|name| entry.text(name).is_some())
    };
    rows.iter().all(has_all).then_some(shown)
}

/// A size of a row.
pub fn size(frame: &Frame<'_>, row: usize, name: &str) -> Cell {
    match frame.value(row, name) {
        None => {
            let derived = super::frame::number_of(frame.entries[row], name);
            derived.map_or(Cell::Empty, |size| Cell::Count(size as i64))
        }
        value => Cell::from(value),
    }
}

/// Makes a table, or none where its question does not arise.
type Make = fn(&Request<'_>) -> Option<Table>;

/// Tables of all rows at once, in the order in which they are listed; the first one that the report
/// has goes to the screen.
const OF_REPORTS: &[Make] = &[
    operations::operations,
    generic::speedup,
    fusion::fusion,
    generic::geometric_means,
    generic::best_backend,
    tuning::tuning,
    metrics::metrics,
    economics::economics,
    hot_paths::hot_paths,
    generic::not_measured,
];

/// Tables of each section, in the order in which they are listed.
const OF_SECTIONS: &[Make] = &[
    statistics::summary_stats,
    comparison::comparison,
    ratios::backward_forward_ratios,
    ratios::compared_overhead,
    crossover::crossover_points,
    ratios::baseline_ratios,
    pivot::by_leading_axis,
];

/// The tables of all rows.
pub fn of_report(request: &Request<'_>) -> Vec<Table> {
    let mut tables = made(OF_REPORTS, request);
    // The first table goes to the screen: loops that decide themselves, else the costs of loops
    // where no sizes allow means.
    let is_of_single_problems = economics::is_of_single_problems(request);
    tables.sort_by_key(|table| match table.name.as_str() {
        hot_paths::NAME => 0,
        operations::NAME if is_of_single_problems => 1,
        economics::NAME if is_of_single_problems => 2,
        _ => 3,
    });
    tables
}

/// The verdicts on fusing and on compiling, if any: for the page, without room for all tables.
pub fn verdicts(request: &Request<'_>) -> Vec<Table> {
    made(&[fusion::fusion, economics::economics], request)
}

/// Backends of a section side by side, for a workload without tables of its own.
pub fn comparison(request: &Request<'_>) -> Option<Table> {
    comparison::comparison(request)
}

/// The operations guide's comparison of operations, where there are any.
pub fn operations(request: &Request<'_>) -> Option<Table> {
    operations::operations(request)
}

/// The tables of a section.
pub fn of_section(request: &Request<'_>) -> Vec<Table> {
    made(OF_SECTIONS, request)
}

fn made(makers: &[Make], request: &Request<'_>) -> Vec<Table> {
    let tables: Vec<Option<Table>> = makers.par_iter().map(|make| make(request)).collect();
    tables.into_iter().flatten().collect()
}
