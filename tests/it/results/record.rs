//! Records as they were committed: rows by the words of their columns, and descriptions of runs.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

use flate2::read::GzDecoder;
use serde_json::Value;
use sweeper::quantity;

use super::table::three;

/// The path of a file of a record.
fn path(record: &str, file: &str) -> PathBuf {
    super::root().join("records").join(record).join(file)
}

/// A file of a record, unpacked.
pub(super) fn unpacked(record: &str, file: &str) -> Vec<u8> {
    bytes(record, file).unwrap_or_else(|| panic!("{record} has no {file}"))
}

fn bytes(record: &str, file: &str) -> Option<Vec<u8>> {
    if let Ok(bytes) = std::fs::read(path(record, file)) {
        return Some(bytes);
    }
    let packed = std::fs::read(path(record, &format!("{file}.gz"))).ok()?;
    let mut bytes = Vec::new();
    GzDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
    Some(bytes)
}

/// A JSON file of a record.
pub(super) fn json(record: &str, file: &str) -> Value {
    serde_json::from_slice(&unpacked(record, file)).unwrap()
}

/// The rows of a CSV file.
pub(super) struct Rows(Vec<Row>);

/// One row.
pub(super) struct Row(BTreeMap<String, String>);

impl Rows {
    /// Reads a CSV file of a record, packed or not.
    pub(super) fn read(record: &str, file: &str) -> Self {
        let bytes = unpacked(record, file);
        let mut reader = csv::Reader::from_reader(&bytes[..]);
        let rows = reader.deserialize().map(|row| Row(row.unwrap()));
        Rows(rows.collect())
    }

    /// The rows whose columns have these words, in the file's order.
    pub(super) fn all(&self, words: &[(&str, &str)]) -> Vec<&Row> {
        let is_meant = |row: &&Row| words.iter().all(|(column, word)| row.text(column) == *word);
        self.0.iter().filter(is_meant).collect()
    }

    /// The only row with these words.
    pub(super) fn one(&self, words: &[(&str, &str)]) -> &Row {
        let found = self.all(words);
        assert_eq!(found.len(), 1, "{} rows have {words:?}", found.len());
        found[0]
    }
}

impl Row {
    /// A column's text.
    pub(super) fn text(&self, column: &str) -> &str {
        self.0
            .get(column)
            .unwrap_or_else(|| panic!("no column {column}"))
    }

    /// A column's number.
    pub(super) fn number(&self, column: &str) -> f64 {
        let text = self.text(column);
        text.parse()
            .unwrap_or_else(|_| panic!("{column} is `{text}`"))
    }

    /// The median in nanoseconds; only of a row that is right, as a whole or by a copy.
    pub(super) fn median(&self) -> f64 {
        assert_eq!(self.text("status"), "ok");
        assert!(["full", "reduced"].contains(&self.text("checked")));
        self.number("median_ns")
    }

    /// The median in milliseconds, and the row's marks.
    pub(super) fn milliseconds(&self) -> String {
        format!("{}{}", three(self.median() / 1e6), self.marks())
    }

    /// The median in nanoseconds of a row that a backend of its manifest has judged.
    pub(super) fn of_peer(row: &Row) -> f64 {
        assert_eq!((row.text("status"), row.text("checked")), ("ok", "peer"));
        row.number("median_ns")
    }

    /// The marks of the row beside its time in a table: `u` ungated, `w` wide interval, and so on:
    /// docs/results.md explains them.
    pub(super) fn marks(&self) -> String {
        let flags = self.text("flags").split(' ').filter_map(|flag| match flag {
            "" => None,
            "ungated" => Some(" u"),
            "wide_interval" => Some(" w"),
            "unsteady" => Some(" y"),
            "above_roofline" => Some(" a"),
            "coarse_clock" => Some(" c"),
            "throttled" => Some(" t"),
            "waited" => Some(" p"),
            "shared_gpu" => Some(" g"),
            "spills" => Some(" s"),
            other => panic!("no mark for {other}"),
        });
        let same = self.0.get("same_program_as");
        let is_same = same.is_some_and(|backend| !backend.is_empty());
        let is_reduced = self.text("checked") == "reduced";
        let marks = flags.chain(is_same.then_some(" ="));
        marks.chain(is_reduced.then_some(" r")).collect()
    }
}

/// Numbers of rows by the word in a column: `5184 ok, 1728 unavailable`.
fn counts(rows: &Rows, column: &str) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for row in &rows.0 {
        for word in row.text(column).split(' ').filter(|word| !word.is_empty()) {
            *counts.entry(word).or_default() += 1;
        }
    }
    let words: Vec<String> = counts
        .iter()
        .map(|(word, count)| format!("{count} `{word}`"))
        .collect();
    words.join(", ")
}

/// The description of a run: device, date, versions, number of points, duration.
pub(super) fn run(record: &str, prefix: &str) -> String {
    let environment = json(record, &format!("{prefix}environment.json"));
    let rows = Rows::read(record, &format!("{prefix}records.csv"));
    let word = |pointer: &str| environment.pointer(pointer).unwrap().as_str().unwrap();
    let device = |key: &str| environment.pointer(&format!("/identity/devices/0/details/{key}"));
    let driver = device("driver").and_then(Value::as_str);
    let begun = environment["started_unix_s"].as_f64().unwrap();
    let (_, compiler) = word("/identity/toolchain")
        .rsplit_once("; ")
        .unwrap_or(("", word("/identity/toolchain")));
    let measured: Vec<&Row> = rows.all(&[("status", "ok")]);
    let states: std::collections::BTreeSet<&str> = measured
        .iter()
        .filter_map(|row| row.0.get("l2").map(String::as_str))
        .collect();
    let mut lines = vec![
        format!(
            "* Record: [records/{record}](../../records/{record}/README.md), of {}",
            quantity::date(begun)
        ),
        format!(
            "* Where: {}{}, {compiler}{}",
            word("/identity/devices/0/name"),
            driver.map_or(String::new(), |driver| format!(", driver {driver}")),
            match states.into_iter().collect::<Vec<_>>()[..] {
                [] => String::new(),
                [state] => format!(", {state} second-level cache"),
                _ => ", several states of the second-level cache".to_owned(),
            }
        ),
        format!(
            "* Points: {}; checked against the oracle: {}",
            counts(&rows, "status"),
            counts(&rows, "checked")
        ),
    ];
    let flags = counts(&rows, "flags");
    if !flags.is_empty() {
        lines.push(format!("* Flags: {flags}"));
    }
    if let Some(bytes) = bytes(record, &format!("{prefix}usage.json")) {
        let usage: Value = serde_json::from_slice(&bytes).unwrap();
        lines.push(format!(
            "* Time: {} s in all, during {:.0} % of which the device ran programs",
            three(usage["wall_s"].as_f64().unwrap()),
            100.0 * usage["running"].as_f64().unwrap()
        ));
    }
    lines.join("\n") + "\n"
}
