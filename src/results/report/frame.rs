//! The rows of a report, whose distinguishing values are small numbers, so that rows can be grouped
//! and joined quickly: by everything but the backend, everything but the phase, and so on.

use std::collections::BTreeMap;
use std::sync::Arc;

use sweeper_program::Value;
use sweeper_program::workload::{DerivedSize, Formula, ParameterKind};
use sweeper_workloads::registry;

use super::source::Source;
use sweeper_model::row::entry::{DIMENSIONS, Entry};

/// The dimension of sources.
pub const MACHINE: &str = "machine";

/// The code of a value that a row lacks.
const ABSENT: u32 = u32::MAX;

/// A parameter or another property in which rows may differ.
#[derive(Clone, Debug)]
pub struct Dimension {
    /// Name of the dimension.
    pub name: Arc<str>,
    /// Values of the dimension, in ascending order.
    pub values: Vec<Value>,
    /// True for numbers: sizes, for axes and means of plots. Words make different questions.
    pub is_size: bool,
}

/// Rows and their dimensions.
pub struct Frame<'s> {
    /// The rows, of all sources one after the other.
    pub entries: Vec<&'s Entry>,
    /// The label of each row's source.
    machines: Vec<Arc<str>>,
    /// For each row, whether its source took samples in turns.
    in_turns: Vec<bool>,
    /// Dimensions in which rows differ, in the order of [`DIMENSIONS`], then by name.
    pub dimensions: Vec<Dimension>,
    /// Dimensions with one value only, and this value.
    pub constants: Vec<(Arc<str>, Value)>,
    /// Codes of the rows' values, row by row.
    codes: Vec<u32>,
    /// True if there are several sources.
    has_machines: bool,
}

/// The values that identify rows that are alike in some dimensions.
pub type Key = Box<[u32]>;

impl<'s> Frame<'s> {
    /// The rows of some sources.
    pub fn new(sources: &'s [Source]) -> Self {
        let mut entries = Vec::new();
        let mut machines = Vec::new();
        let mut in_turns = Vec::new();
        for source in sources {
            let label: Arc<str> = source.label.as_str().into();
            entries.extend(&source.entries);
            machines.extend(source.entries.iter().map(|_| Arc::clone(&label)));
            in_turns.resize(entries.len(), source.is_in_turns());
        }
        let mut frame = Frame {
            entries,
            machines,
            in_turns,
            dimensions: Vec::new(),
            constants: Vec::new(),
            codes: Vec::new(),
            has_machines: sources.len() > 1,
        };
        frame.find_dimensions();
        frame
    }

    fn find_dimensions(&mut self) {
        let mut names: Vec<Arc<str>> = [MACHINE]
            .into_iter()
            .chain(DIMENSIONS)
            // A run on several alike devices deals its points out to them, and a manifest may have
            // a backend in one case and another in the next: neither makes rows unlike.
            .filter(|&name| !["device_name", "case"].contains(&name))
            .map(Arc::from)
            .collect();
        let mut parameters: Vec<&Arc<str>> = Vec::new();
        let mut last: Option<&Entry> = None;
        for entry in &self.entries {
            let same = |held: &&Entry| held.parameters.keys().eq(entry.parameters.keys());
            if !last.as_ref().is_some_and(same) {
                parameters.extend(entry.parameters.keys());
                parameters.sort();
                parameters.dedup();
            }
            last = Some(entry);
        }
        names.extend(parameters.into_iter().cloned());
        let mut columns: Vec<Vec<u32>> = Vec::new();
        for name in names {
            let (values, codes) = self.encode(&name);
            let is_partial = codes.contains(&ABSENT) && !values.is_empty();
            if (values.len() > 1 || is_partial) && !self.is_machines(&name, &codes) {
                let is_size = values
                    .iter()
                    .all(|value| matches!(value, Value::Int(_) | Value::Float(_)));
                self.dimensions.push(Dimension {
                    name,
                    values,
                    is_size,
                });
                columns.push(codes);
            } else if let Some(value) = values.into_iter().next() {
                self.constants.push((name, value));
            }
        }
        self.codes = (0..self.entries.len())
            .flat_map(|row| columns.iter().map(move |codes| codes[row]))
            .collect();
    }

    /// True if there are several machines, each of which has one value only, and the value is a
    /// condition, not part of the problem: a GPU's cache is cold where a CPU's is hot. Also if all
    /// machines that state a value state one value.
    fn is_machines(&self, name: &str, codes: &[u32]) -> bool {
        if !self.has_machines || [MACHINE, "workload", "backend", "phase"].contains(&name) {
            return false;
        }
        let mut of_machine: BTreeMap<&str, u32> = BTreeMap::new();
        for (machine, &code) in self.machines.iter().zip(codes) {
            if *of_machine.entry(machine).or_insert(code) != code {
                return false;
            }
        }
        let is_condition = DIMENSIONS.contains(&name) && name != "dtype";
        let mut said: Vec<u32> = of_machine
            .into_values()
            .filter(|&code| code != ABSENT)
            .collect();
        said.sort_unstable();
        said.dedup();
        is_condition || said.len() == 1
    }

    /// The values of a dimension, sorted, and each row's place among them.
    fn encode(&self, name: &str) -> (Vec<Value>, Vec<u32>) {
        let mut places: BTreeMap<Ordered, u32> = BTreeMap::new();
        let mut given = Vec::with_capacity(self.entries.len());
        // Most rows have the value of the row before.
        let mut last: Option<(Value, u32)> = None;
        for row in 0..self.entries.len() {
            let code = self.value(row, name).map_or(ABSENT, |value| match &last {
                Some((held, code)) if *held == value => *code,
                _ => {
                    let next = places.len() as u32;
                    let code = *places.entry(Ordered(value.clone())).or_insert(next);
                    last = Some((value, code));
                    code
                }
            });
            given.push(code);
        }
        let mut ranks = vec![0; places.len()];
        let mut values = Vec::with_capacity(places.len());
        let mut places: Vec<(Ordered, u32)> = places.into_iter().collect();
        if let Some(words) = self.entries.first().and_then(|entry| sizes_of(entry, name)) {
            places.sort_by_key(|(value, _)| {
                let place = words
                    .iter()
                    .position(|(word, _)| value.0.as_text() == Some(word));
                place.unwrap_or(words.len())
            });
        }
        for (rank, (value, code)) in places.into_iter().enumerate() {
            ranks[code as usize] = rank as u32;
            values.push(value.0);
        }
        for code in &mut given {
            if *code != ABSENT {
                *code = ranks[*code as usize];
            }
        }
        (values, given)
    }

    /// The value of a row in a dimension, a parameter or a derived value.
    pub fn value(&self, row: usize, name: &str) -> Option<Value> {
        if name == MACHINE {
            return Some(Value::Text(Arc::clone(&self.machines[row])));
        }
        self.entries[row].axis(name)
    }

    /// The name of a row's line in plots and tables: the backend, and the machine if there are
    /// several.
    pub fn series(&self, row: usize) -> String {
        let backend = &self.entries[row].backend;
        match self.has_machines {
            true => format!("{backend} ({})", self.machines[row]),
            false => backend.to_string(),
        }
    }

    /// True if a row's samples were taken in turns with samples of other backends
    /// ([`Source::is_in_turns`]).
    pub fn is_in_turns(&self, row: usize) -> bool {
        self.in_turns[row]
    }

    /// The place of a dimension among those in which rows differ.
    pub fn dimension(&self, name: &str) -> Option<usize> {
        self.dimensions
            .iter()
            .position(|held| held.name.as_ref() == name)
    }

    /// A row's values in all dimensions except `except`: rows with equal keys are alike.
    pub fn key_without(&self, row: usize, except: &[&str]) -> Key {
        let width = self.dimensions.len();
        let codes = &self.codes[row * width..][..width];
        self.dimensions
            .iter()
            .zip(codes)
            .filter(|(dimension, _)| !except.contains(&dimension.name.as_ref()))
            .map(|(_, &code)| code)
            .collect()
    }

    /// A row's values in some dimensions; dimensions in which rows do not differ are left out.
    pub fn key_of(&self, row: usize, names: &[&str]) -> Key {
        let width = self.dimensions.len();
        names
            .iter()
            .filter_map(|name| self.dimension(name))
            .map(|dimension| self.codes[row * width + dimension])
            .collect()
    }

    /// Rows by their values in some dimensions, in ascending order of these.
    pub fn groups(&self, rows: &[usize], names: &[&str]) -> BTreeMap<Key, Vec<usize>> {
        let mut groups: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
        for &row in rows {
            groups.entry(self.key_of(row, names)).or_default().push(row);
        }
        groups
    }

    /// Rows by problem: those that differ in the backend alone.
    pub fn problems(&self, rows: &[usize]) -> Vec<Vec<usize>> {
        let mut problems: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
        for &row in rows {
            let key = self.key_without(row, &["backend"]);
            problems.entry(key).or_default().push(row);
        }
        problems.into_values().collect()
    }

    /// The rows with right results, grouped by all dimensions except `except`.
    pub fn joined(&self, rows: &[usize], except: &[&str]) -> BTreeMap<Key, Vec<usize>> {
        let mut groups: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
        for &row in rows {
            if self.entries[row].is_ok() {
                let key = self.key_without(row, except);
                groups.entry(key).or_default().push(row);
            }
        }
        groups
    }

    /// Names of the dimensions of words in which rows differ, except those in `except`.
    pub fn words(&self, except: &[&str]) -> Vec<&str> {
        self.named(false, except)
    }

    /// Names of the dimensions of numbers in which rows differ, except those in `except`.
    pub fn sizes(&self, except: &[&str]) -> Vec<&str> {
        self.named(true, except)
    }

    fn named(&self, is_size: bool, except: &[&str]) -> Vec<&str> {
        self.dimensions
            .iter()
            .filter(|dimension| dimension.is_size == is_size)
            .map(|dimension| dimension.name.as_ref())
            .filter(|name| !except.contains(name))
            .collect()
    }

    /// All rows.
    pub fn all(&self) -> Vec<usize> {
        (0..self.entries.len()).collect()
    }

    /// The names that `--by` takes: the dimensions that distinguish rows, and derived values.
    pub fn axes(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .dimensions
            .iter()
            .map(|dimension| dimension.name.to_string())
            .chain(self.constants.iter().map(|(name, _)| name.to_string()))
            .chain(
                self.entries
                    .iter()
                    .take(1)
                    .flat_map(|entry| entry.values.keys().map(ToString::to_string)),
            )
            .collect();
        names.sort();
        names.dedup();
        names
    }
}

/// Values in the order in which people list them: numbers by size, then words.
#[derive(Clone, Debug)]
pub struct Ordered(pub Value);

impl Ordered {
    fn rank(&self) -> (u8, f64, &str) {
        match &self.0 {
            Value::Bool(value) => (0, f64::from(u8::from(*value)), ""),
            Value::Int(value) => (1, *value as f64, ""),
            Value::Float(value) => (1, *value, ""),
            Value::Text(value) => (2, 0.0, value),
        }
    }
}

impl PartialEq for Ordered {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let (own, other) = (self.rank(), other.rank());
        own.0
            .cmp(&other.0)
            .then_with(|| own.1.total_cmp(&other.1))
            .then_with(|| own.2.cmp(other.2))
    }
}

/// A value as a number, where it is one.
pub fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(value) => Some(*value as f64),
        Value::Float(value) => Some(*value),
        Value::Bool(_) | Value::Text(_) => None,
    }
}

/// A size of a row; also a size that its workload derives where no manifest does.
pub fn number_of(entry: &Entry, name: &str) -> Option<f64> {
    match entry.value(name) {
        Some(value) => number(value),
        None if name == "threads" => entry.threads.map(f64::from),
        None => derived(entry, entry.presentation()?.derived(name)?),
    }
}

/// The words of a parameter that names sizes, from the least on.
fn sizes_of(
    entry: &Entry,
    name: &str,
) -> Option<&'static [(&'static str, &'static [&'static str])]> {
    let info = registry::workload(&entry.workload)?.info();
    let is_size = info.presentation?.sizes.contains(&name);
    match info.parameter(name)?.kind {
        ParameterKind::Choice(words) if is_size => Some(words),
        _ => None,
    }
}

fn derived(entry: &Entry, size: &DerivedSize) -> Option<f64> {
    match size.formula {
        Formula::Product => product_of(entry, size.factors),
        Formula::Computed(formula) => {
            let parameters = entry.parameters.iter();
            let parameters = parameters.map(|(name, value)| (&**name, value.clone()));
            formula(&parameters.collect())
        }
    }
}

/// The product of some sizes of a row.
pub fn product_of(entry: &Entry, names: &[&str]) -> Option<f64> {
    let mut sizes = names.iter().map(|name| number_of(entry, name));
    sizes.try_fold(1.0, |product, size| Some(product * size?))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::PathBuf;

    use sweeper_program::{Phase, Value};

    use super::*;
    use crate::report::source::Kind;
    use sweeper_model::row::entry::Times;
    use sweeper_model::row::measured::Measured;
    use sweeper_model::stats::Summary;
    use sweeper_model::status::Status;

    /// A row of `linear`, of a program that moves and computes nothing: every sample is `time_ns`,
    /// a little more in two of three rounds.
    pub(crate) fn linear(backend: &str, pattern: &str, m: i64, time_ns: f64) -> Entry {
        let mut entry = Entry::new("linear".into(), backend.into(), Phase::Forward, Status::Ok);
        for (name, size) in [("m", m), ("k", 512), ("n", 256)] {
            entry.parameters.insert(name.into(), Value::Int(size));
        }
        let parameters = &mut entry.parameters;
        parameters.insert("pattern".into(), Value::from(pattern));
        entry.samples_ns = (0..10)
            .map(|round| time_ns * (1.0 + 0.001 * f64::from(round % 3)))
            .collect();
        entry.times = Summary::of(&entry.samples_ns).map(Times::from);
        entry.measurement = Some(Box::<Measured>::default());
        entry
    }

    /// A source of semi-CRF rows: backend, T, K, and the time if there is one.
    pub(crate) fn source(label: &str, rows: &[(&str, i64, i64, Option<f64>)]) -> Source {
        let entries = rows.iter().map(|&(backend, length, longest, time_ns)| {
            let status = if time_ns.is_some() {
                Status::Ok
            } else {
                Status::Oom
            };
            let mut entry = Entry::new("semicrf".into(), backend.into(), Phase::Forward, status);
            for (name, value) in [("T", length), ("K", longest), ("C", 3), ("B", 4)] {
                entry.parameters.insert(name.into(), value.into());
            }
            entry.parameters.insert("semiring".into(), "log".into());
            entry.times = time_ns.map(|median| Times {
                median,
                ..Times::default()
            });
            entry
        });
        Source {
            label: label.to_owned(),
            origin: PathBuf::from(label),
            kind: Kind::Guide,
            schema: None,
            environment: None,
            usage: None,
            manifest: None,
            entries: entries.collect(),
            warnings: Vec::new(),
        }
    }

    #[test]
    fn dimensions_are_what_rows_differ_in() {
        let sources = [source(
            "here",
            &[
                ("b", 128, 8, Some(1.0)),
                ("a", 64, 8, Some(1.0)),
                ("a", 128, 8, None),
            ],
        )];
        let frame = Frame::new(&sources);
        let names: Vec<&str> = frame.dimensions.iter().map(|held| &*held.name).collect();
        assert_eq!(names, ["backend", "T"]);
        assert_eq!(
            frame.dimensions[1].values,
            [Value::Int(64), Value::Int(128)]
        );
        assert_eq!(
            (frame.words(&[]), frame.sizes(&[])),
            (vec!["backend"], vec!["T"])
        );
        assert_eq!(
            frame.key_without(0, &["backend"]),
            frame.key_without(2, &["backend"])
        );
        assert_ne!(
            frame.key_without(0, &["backend"]),
            frame.key_without(1, &["backend"])
        );
        let joined = frame.joined(&frame.all(), &["backend"]);
        assert_eq!(joined.into_values().collect::<Vec<_>>(), [vec![1], vec![0]]);
        assert!(frame.axes().contains(&"K".to_owned()));
        assert_eq!(number_of(frame.entries[0], "KC"), Some(24.0));
    }

    #[test]
    fn machines_differ_in_what_they_are_not_in_what_they_do() {
        let mut sources = [
            source("one", &[("a", 128, 8, Some(1.0))]),
            source("other", &[("a", 128, 8, Some(2.0))]),
        ];
        sources[0].entries[0].l2 = Some("cold".into());
        sources[1].entries[0].l2 = Some("hot".into());
        sources[0].entries[0]
            .parameters
            .insert("potentials".into(), "decomposed".into());
        let names = |sources: &[Source]| {
            let frame = Frame::new(sources);
            let names = frame.dimensions.iter().map(|held| held.name.to_string());
            names.collect::<Vec<_>>()
        };
        assert_eq!(names(&sources), ["machine"]);
        assert_eq!(Frame::new(&sources).series(1), "a (other)");
        // Two sources whose rows state different words are about different questions.
        sources[1].entries[0]
            .parameters
            .insert("potentials".into(), "materialized".into());
        assert_eq!(names(&sources), ["machine", "potentials"]);
        sources[1].entries[0]
            .parameters
            .insert("T".into(), 64.into());
        assert_eq!(names(&sources), ["machine", "T", "potentials"]);
    }

    #[test]
    fn states_of_the_cache_are_kept_apart() {
        let mut sources = [source(
            "one",
            &[
                ("a", 128, 8, Some(1.0)),
                ("b", 128, 8, Some(2.0)),
                ("a", 128, 8, Some(3.0)),
                ("b", 128, 8, Some(4.0)),
            ],
        )];
        let states = ["cold", "cold", "clean", "clean"];
        for (entry, state) in sources[0].entries.iter_mut().zip(states) {
            entry.l2 = Some(state.into());
        }
        let frame = Frame::new(&sources);
        assert_eq!(frame.words(&[]), ["backend", "l2"]);
        let joined = frame.joined(&frame.all(), &["backend"]);
        let joined: Vec<Vec<usize>> = joined.into_values().collect();
        assert_eq!(joined, [vec![2, 3], vec![0, 1]]);
    }

    /// The guide's sizes are words; plots place them by what their models have.
    #[test]
    fn names_of_sizes_are_in_the_order_of_size() {
        let mut sources = [source("here", &[])];
        sources[0].entries = ["xl", "small", "2.7B", "large"]
            .map(|size| {
                let (workload, backend) = ("transformer".into(), "eager".into());
                let mut entry = Entry::new(workload, backend, Phase::Step, Status::Ok);
                entry.parameters.insert("size".into(), size.into());
                entry.parameters.insert("context".into(), 128.into());
                entry
            })
            .into();
        let frame = Frame::new(&sources);
        let sizes = &frame.dimensions[frame.dimension("size").unwrap()].values;
        let sizes: Vec<String> = sizes.iter().map(Value::to_string).collect();
        assert_eq!(sizes, ["small", "large", "xl", "2.7B"]);
        let parameters = number_of(frame.entries[1], "parameters");
        assert_eq!(parameters, Some(128_625_408.0));
    }

    #[test]
    fn values_are_in_the_order_of_people() {
        let mut values = [
            Value::from("b"),
            Value::Int(10),
            Value::Float(2.5),
            Value::from("a"),
            Value::Bool(true),
        ]
        .map(Ordered);
        values.sort();
        let texts = values.map(|value| value.0.to_string());
        assert_eq!(texts, ["true", "2.5", "10", "a", "b"]);
    }
}
