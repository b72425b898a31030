//! `records.csv` and `samples.csv`: one line a row, one line a sample. Column names carry units.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::Write;

use sweeper_program::Value;

use crate::row::Row;
use crate::row::entry::{Entry, Words};
use crate::row::schema::{self, Column, MetricColumn};

/// A column of one file.
#[derive(Clone, Copy, Debug)]
pub(super) enum FileColumn<'r> {
    /// One that every file has.
    Fixed(&'static Column),
    /// A parameter, axis or derived value.
    Named(&'r str),
    /// A metric.
    Metric(MetricColumn<'r>),
}

impl<'r> FileColumn<'r> {
    /// The column's name in the header.
    pub(super) fn name(&self) -> Cow<'r, str> {
        match *self {
            FileColumn::Fixed(column) => Cow::Borrowed(column.name),
            FileColumn::Named(name) => schema::axis_column(name),
            FileColumn::Metric(column) => Cow::Owned(column.name()),
        }
    }

    /// The value of a row.
    pub(super) fn value(&self, entry: &Entry) -> Option<Value> {
        match self {
            FileColumn::Fixed(column) => column.get(entry),
            FileColumn::Named(name) => entry.value(name).cloned(),
            FileColumn::Metric(column) => column.value(entry),
        }
    }

    /// The field of a row.
    fn text(&self, entry: &Entry) -> String {
        match self {
            FileColumn::Fixed(column) => column.text(entry),
            FileColumn::Named(name) => entry.value(name).map(Value::to_string).unwrap_or_default(),
            FileColumn::Metric(column) => match column.value(entry) {
                Some(Value::Float(number)) => number.to_string(),
                other => other.map(|value| value.to_string()).unwrap_or_default(),
            },
        }
    }
}

/// The columns of a file with these rows.
pub(super) fn columns(rows: &[Row]) -> Vec<FileColumn<'_>> {
    let parameters: BTreeSet<&str> = rows
        .iter()
        .flat_map(|row| row.parameters.keys().map(String::as_str))
        .collect();
    let values: BTreeSet<&str> = rows
        .iter()
        .flat_map(|row| row.values.keys().map(String::as_str))
        .collect();
    let named = parameters.into_iter().chain(values);
    let before = schema::BEFORE_NAMED.iter().map(FileColumn::Fixed);
    let after = schema::after_named().map(FileColumn::Fixed);
    let measured = rows
        .iter()
        .filter_map(|row| row.outcome.measurement.as_ref());
    let metrics = measured.flat_map(|found| found.metrics.keys().map(String::as_str));
    before
        .chain(named.map(FileColumn::Named))
        .chain(after)
        .chain(MetricColumn::of(metrics).map(FileColumn::Metric))
        .collect()
}

/// Writes `records.csv`. Values that a row lacks are empty fields.
///
/// # Errors
/// Those of the stream.
pub fn write_records(rows: &[Row], out: impl Write) -> csv::Result<()> {
    let columns = columns(rows);
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(columns.iter().map(|column| column.name().into_owned()))?;
    let mut words = Words::default();
    for row in rows {
        let entry = Entry::of(row, &mut words);
        writer.write_record(columns.iter().map(|column| column.text(&entry)))?;
    }
    writer.flush()?;
    Ok(())
}

/// Writes `samples.csv`: point, number of the sample from 0, nanoseconds of one iteration.
///
/// # Errors
/// Those of the stream.
pub fn write_samples(rows: &[Row], out: impl Write) -> csv::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(["point", "sample", "time_ns"])?;
    for row in rows {
        let point = row.point.0.hex();
        let samples = row
            .outcome
            .measurement
            .iter()
            .flat_map(|found| &found.samples_ns);
        for (number, time_ns) in samples.enumerate() {
            writer.write_record([&point, &number.to_string(), &time_ns.to_string()])?;
        }
    }
    writer.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::outcome::{Measurement, Outcome, Status};
    use crate::row::test_row;

    #[test]
    fn every_line_has_every_column() {
        let measurement = Measurement {
            samples_ns: vec![3.0, 1.0, 2.0],
            iterations: 7,
            ..Measurement::default()
        };
        let rows = [
            test_row(1, Outcome::measured(measurement)),
            test_row(2, Outcome::without_measurement(Status::Oom, "too, much")),
        ];
        let mut bytes = Vec::new();
        write_records(&rows, &mut bytes).unwrap();
        // The reader refuses lines of unequal lengths.
        let mut reader = csv::Reader::from_reader(bytes.as_slice());
        let header = reader.headers().unwrap().clone();
        let lines: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().unwrap();
        let field = |line: usize, name: &str| {
            let column = header.iter().position(|held| held == name).unwrap();
            lines[line][column].to_owned()
        };
        assert_eq!(field(0, "median_ns"), "2");
        assert_eq!(field(0, "iterations"), "7");
        assert_eq!(field(0, "KC"), "12");
        assert_eq!(field(0, "semiring"), "log");
        assert_eq!(field(1, "reason"), "too, much");
        assert_eq!(field(1, "median_ns"), "");
        let mut samples = Vec::new();
        write_samples(&rows, &mut samples).unwrap();
        assert_eq!(String::from_utf8(samples).unwrap().lines().count(), 4);
    }
}
