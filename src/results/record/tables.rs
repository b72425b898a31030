//! `records.csv` and `samples.csv`: one line a row, one line a sample. Column names carry units.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use rayon::prelude::*;
use serde::Deserialize;
use serde::de::IgnoredAny;
use sweeper_program::Value;

use super::contents::Contents;
use sweeper_model::identity::PointId;
use sweeper_model::row::Row;
use sweeper_model::row::entry::{Entry, Times, Words};
use sweeper_model::row::schema::{self, Column, MetricColumn};

/// Number of rows whose lines are held at a time.
const PIECE: usize = 8192;

/// Number of rows that a thread makes lines of at a time.
const PART: usize = 512;

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
            FileColumn::Metric(column) => {
                let value = column.value(entry);
                value.map(|value| value.to_string()).unwrap_or_default()
            }
        }
    }
}

/// The names of parameters, those of axes and derived values, and those of metrics, that rows have.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    parameters: BTreeSet<String>,
    values: BTreeSet<String>,
    metrics: BTreeSet<String>,
}

impl Names {
    /// Adds the names of other rows.
    fn join(&mut self, other: &Names) {
        add(&mut self.parameters, other.parameters.iter());
        add(&mut self.values, other.values.iter());
        add(&mut self.metrics, other.metrics.iter());
    }

    /// The columns of a file with such rows.
    fn columns(&self) -> Vec<FileColumn<'_>> {
        let parameters = self.parameters.iter().map(String::as_str);
        columns_of(
            parameters,
            self.values.iter().map(String::as_str),
            self.metrics.iter().map(String::as_str),
        )
    }
}

fn add<'n>(names: &mut BTreeSet<String>, held: impl Iterator<Item = &'n String>) {
    for name in held {
        if !names.contains(name) {
            names.insert(name.clone());
        }
    }
}

/// The metrics of a row.
fn metrics(row: &Row) -> impl Iterator<Item = &String> {
    let measurement = row.outcome.measurement.as_ref();
    measurement
        .into_iter()
        .flat_map(|found| found.metrics.keys())
}

/// The columns of a file with these rows.
pub(super) fn columns(rows: &[Row]) -> Vec<FileColumn<'_>> {
    let parameters = rows.iter().flat_map(|row| row.parameters.keys());
    let parameters: BTreeSet<&str> = parameters.map(String::as_str).collect();
    let values = rows.iter().flat_map(|row| row.values.keys());
    let values: BTreeSet<&str> = values.map(String::as_str).collect();
    let metrics = rows.iter().flat_map(metrics).map(String::as_str);
    columns_of(parameters, values, metrics)
}

fn columns_of<'n>(
    parameters: impl IntoIterator<Item = &'n str>,
    values: impl IntoIterator<Item = &'n str>,
    metrics: impl IntoIterator<Item = &'n str>,
) -> Vec<FileColumn<'n>> {
    let named = parameters.into_iter().chain(values);
    let before = schema::BEFORE_NAMED.iter().map(FileColumn::Fixed);
    let after = schema::after_named().map(FileColumn::Fixed);
    before
        .chain(named.map(FileColumn::Named))
        .chain(after)
        .chain(MetricColumn::of(metrics).map(FileColumn::Metric))
        .collect()
}

/// The part of a line that `samples.csv` needs, and the names that a line has.
#[derive(Deserialize)]
struct SamplesLine {
    point: PointId,
    parameters: BTreeMap<String, IgnoredAny>,
    values: BTreeMap<String, IgnoredAny>,
    measurement: Option<Samples>,
}

#[derive(Deserialize)]
struct Samples {
    samples_ns: Vec<f64>,
    #[serde(default)]
    metrics: BTreeMap<String, IgnoredAny>,
}

/// Writes the lines that `lines` makes of rows in this order. Threads do so, each for a part of the
/// rows; not all of them fit into memory.
///
/// # Errors
/// Those of the stream and of `lines`.
fn write_lines<T: Send>(
    order: &[usize],
    mut out: impl Write,
    lines: impl Fn(&mut csv::Writer<Vec<u8>>, &[usize]) -> csv::Result<T> + Sync,
    mut take: impl FnMut(T),
) -> csv::Result<()> {
    let of_part = |part: &[usize]| {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let found = lines(&mut writer, part)?;
        let text = writer.into_inner().map_err(|error| error.into_error())?;
        Ok((text, found))
    };
    for piece in order.chunks(PIECE) {
        let parts = piece.par_chunks(PART).map(of_part);
        for (text, found) in parts.collect::<csv::Result<Vec<_>>>()? {
            out.write_all(&text)?;
            take(found);
        }
    }
    out.flush()?;
    Ok(())
}

/// Writes `samples.csv` of a run. Yields the names that its rows have.
///
/// # Errors
/// Those of the stream, or a row that can't be read.
pub(super) fn write_samples_of(
    contents: &Contents,
    order: &[usize],
    mut out: impl Write,
) -> csv::Result<Names> {
    samples_writer(&mut out)?.flush()?;
    let lines = |writer: &mut csv::Writer<Vec<u8>>, part: &[usize]| {
        let mut names = Names::default();
        for &index in part {
            let line: SamplesLine = contents.fields(index).map_err(io::Error::other)?;
            add(&mut names.parameters, line.parameters.keys());
            add(&mut names.values, line.values.keys());
            if let Some(found) = &line.measurement {
                add(&mut names.metrics, found.metrics.keys());
                add_samples(writer, line.point, &found.samples_ns)?;
            }
        }
        Ok(names)
    };
    let mut names = Names::default();
    write_lines(order, out, lines, |found| names.join(&found))?;
    Ok(names)
}

/// Writes `records.csv` of a run whose rows have these names.
///
/// # Errors
/// Those of the stream, or a row that can't be read.
pub(super) fn write_records_of(
    contents: &Contents,
    order: &[usize],
    names: &Names,
    mut out: impl Write,
) -> csv::Result<()> {
    let columns = names.columns();
    records_writer(&columns, &mut out)?.flush()?;
    let lines = |writer: &mut csv::Writer<Vec<u8>>, part: &[usize]| {
        let mut words = Words::default();
        part.iter().try_for_each(|&index| {
            let row = contents.row(index).map_err(io::Error::other)?;
            add_record(writer, &columns, row, &mut words)
        })
    };
    write_lines(order, out, lines, |()| ())
}

/// Writes `records.csv`. Values that a row lacks are empty fields.
///
/// # Errors
/// Those of the stream.
pub fn write_records(rows: &[Row], out: impl Write) -> csv::Result<()> {
    let columns = columns(rows);
    let mut writer = records_writer(&columns, out)?;
    let mut words = Words::default();
    for row in rows {
        add_record(&mut writer, &columns, row.clone(), &mut words)?;
    }
    writer.flush()?;
    Ok(())
}

fn records_writer<W: Write>(columns: &[FileColumn<'_>], out: W) -> csv::Result<csv::Writer<W>> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(columns.iter().map(|column| column.name().into_owned()))?;
    Ok(writer)
}

fn add_record(
    writer: &mut csv::Writer<impl Write>,
    columns: &[FileColumn<'_>],
    row: Row,
    words: &mut Words,
) -> csv::Result<()> {
    let times = row.summary().map(Times::from);
    let entry = Entry::from_row(row, times, words);
    writer.write_record(columns.iter().map(|column| column.text(&entry)))
}

/// Writes `samples.csv`: point, number of the sample from 0, nanoseconds of one iteration.
///
/// # Errors
/// Those of the stream.
pub fn write_samples(rows: &[Row], out: impl Write) -> csv::Result<()> {
    let mut writer = samples_writer(out)?;
    for row in rows {
        let measured = row.outcome.measurement.as_ref();
        let samples = measured.map_or(&[][..], |found| &found.samples_ns);
        add_samples(&mut writer, row.point, samples)?;
    }
    writer.flush()?;
    Ok(())
}

fn samples_writer<W: Write>(out: W) -> csv::Result<csv::Writer<W>> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(["point", "sample", "time_ns"])?;
    Ok(writer)
}

fn add_samples(
    writer: &mut csv::Writer<impl Write>,
    point: PointId,
    samples_ns: &[f64],
) -> csv::Result<()> {
    let point = point.0.hex();
    for (number, time_ns) in samples_ns.iter().enumerate() {
        writer.write_record([&point, &number.to_string(), &format!("{time_ns:?}")])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sweeper_model::row::outcome::{Measurement, Outcome, Status};
    use sweeper_model::row::test_row;

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
        assert_eq!(field(0, "median_ns"), "2.0");
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
