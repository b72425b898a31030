//! A CSV file as lines of named fields, with errors that name the place and the expected value.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use csv::{ReaderBuilder, StringRecord};
use serde::de::IntoDeserializer;
use serde::de::value::{Error as Refused, StrDeserializer};
use serde::{Deserialize, de::DeserializeOwned};

use super::schema;

/// Why a CSV file can't be read.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// Reading failed.
    #[error("{path}: {error}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        error: io::Error,
    },
    /// The header of the file is not the header of a table.
    #[error("{path}: {reason}", path = path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// The defect of the header.
        reason: String,
    },
    /// A line is not whole.
    #[error("{path}:{line}: {reason}", path = path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The defect of the line.
        reason: String,
    },
    /// A field has no value of its kind.
    #[error("{path}:{line}: column `{column}`: `{found}` is not {expected}", path = path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The column's name.
        column: String,
        /// The text of the field.
        found: String,
        /// The expected kind of value.
        expected: String,
    },
}

/// A file that was read.
pub struct Table {
    path: PathBuf,
    columns: BTreeMap<String, usize>,
    header: Vec<String>,
    bytes: Vec<u8>,
}

impl Table {
    /// Reads the file's header.
    ///
    /// # Errors
    /// If it can't be read, is empty, or names a column twice.
    pub fn read(path: &Path) -> Result<Self, TableError> {
        let mut bytes = std::fs::read(path).map_err(|error| TableError::Io {
            path: path.to_owned(),
            error,
        })?;
        if bytes.starts_with(b"\xef\xbb\xbf") {
            bytes.drain(..3);
        }
        let foreign = |reason: String| TableError::Header {
            path: path.to_owned(),
            reason,
        };
        let mut reader = ReaderBuilder::new().from_reader(bytes.as_slice());
        let mut header: Vec<String> = reader
            .headers()
            .map_err(|error| foreign(format!("the header can't be read: {error}")))?
            .iter()
            .map(|name| name.trim().to_owned())
            .collect();
        if header.is_empty() {
            return Err(foreign("the file is empty".to_owned()));
        }
        if header.len() == 1 && header[0].contains([';', '\t']) {
            let reason = "fields must be separated by commas; save the file as CSV with commas";
            return Err(foreign(reason.to_owned()));
        }
        rename_axes(&mut header);
        let mut columns = BTreeMap::new();
        for (index, name) in header.iter().enumerate() {
            if columns.insert(name.clone(), index).is_some() {
                return Err(foreign(format!("the header has the column `{name}` twice")));
            }
        }
        Ok(Table {
            path: path.to_owned(),
            columns,
            header,
            bytes,
        })
    }

    /// The names of all columns, in order.
    pub fn header(&self) -> &[String] {
        &self.header
    }

    /// True if there is a column of this name.
    pub fn has(&self, column: &str) -> bool {
        self.columns.contains_key(column)
    }

    /// The `columns` that the table lacks.
    pub fn missing(&self, columns: &[&str]) -> Vec<String> {
        let missing = columns.iter().filter(|column| !self.has(column));
        missing.map(|column| (*column).to_owned()).collect()
    }

    /// True if the last line has no end, as after a copy that broke off.
    pub fn is_open_ended(&self) -> bool {
        self.bytes.last().is_some_and(|&byte| byte != b'\n')
    }

    /// Calls `each` with every line.
    ///
    /// # Errors
    /// Of `each`; or if a line has too few or too many fields, or is not UTF-8.
    pub fn each(
        &self,
        mut each: impl FnMut(&Line<'_>) -> Result<(), TableError>,
    ) -> Result<(), TableError> {
        let mut reader = ReaderBuilder::new()
            .flexible(true)
            .from_reader(self.bytes.as_slice());
        let mut record = StringRecord::new();
        loop {
            let more = reader.read_record(&mut record);
            let line = record.position().map_or(0, csv::Position::line);
            match more {
                Ok(false) => return Ok(()),
                Ok(true) => {}
                Err(error) => return Err(self.at(line, &format!("can't be read: {error}"))),
            }
            if record.len() != self.header.len() {
                let reason = format!(
                    "{} fields where the header has {}; the file was cut off or edited here",
                    record.len(),
                    self.header.len()
                );
                return Err(self.at(line, &reason));
            }
            each(&Line {
                table: self,
                record: &record,
                number: line,
            })?;
        }
    }

    fn at(&self, line: u64, reason: &str) -> TableError {
        TableError::Line {
            path: self.path.clone(),
            line,
            reason: reason.to_owned(),
        }
    }
}

/// Gives axes that are called like a column of every `records.csv` the names that they have since:
/// files of before have such a name twice, axes first.
fn rename_axes(header: &mut [String]) {
    let Some(end) = header.iter().position(|name| name == "canonical") else {
        return;
    };
    for place in 0..end {
        let (own, later) = header.split_at_mut(place + 1);
        let name = &mut own[place];
        if later.contains(name) {
            *name = schema::axis_column(name).into_owned();
        }
    }
}

/// One line.
pub struct Line<'t> {
    table: &'t Table,
    record: &'t StringRecord,
    /// The line's number in the file, from 1.
    pub number: u64,
}

impl Line<'_> {
    /// The text of a field; empty where there is no such column.
    pub fn text(&self, column: &str) -> &str {
        let index = self.table.columns.get(column);
        index
            .and_then(|&index| self.record.get(index))
            .map_or("", str::trim)
    }

    /// An error about a field.
    pub fn refuse(&self, column: &str, expected: &str) -> TableError {
        TableError::Field {
            path: self.table.path.clone(),
            line: self.number,
            column: column.to_owned(),
            found: self.text(column).to_owned(),
            expected: expected.to_owned(),
        }
    }

    /// A real number, or none where the field is empty or `nan`.
    pub fn number(&self, column: &str) -> Result<Option<f64>, TableError> {
        let text = self.text(column);
        if text.is_empty() {
            return Ok(None);
        }
        match text.parse::<f64>() {
            Ok(value) if value.is_nan() => Ok(None),
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(self.refuse(column, "a number")),
        }
    }

    /// A finite number that is not negative, or none where the field is empty or `nan`.
    pub fn amount(&self, column: &str) -> Result<Option<f64>, TableError> {
        match self.number(column)? {
            Some(value) if !(value.is_finite() && value >= 0.0) => {
                Err(self.refuse(column, "a number that is finite and not negative"))
            }
            value => Ok(value),
        }
    }

    /// A whole number, or none where the field is empty.
    pub fn count<N: std::str::FromStr>(&self, column: &str) -> Result<Option<N>, TableError> {
        let text = self.text(column);
        if text.is_empty() {
            return Ok(None);
        }
        let parsed = text.parse().map(Some);
        parsed.map_err(|_| self.refuse(column, "a whole number"))
    }

    /// A value that is written with words, or none where the field is empty.
    pub fn word<W: DeserializeOwned>(
        &self,
        column: &str,
        expected: &str,
    ) -> Result<Option<W>, TableError> {
        let text = self.text(column);
        if text.is_empty() {
            return Ok(None);
        }
        let found = parse_word(text).map(Some);
        found.ok_or_else(|| self.refuse(column, expected))
    }
}

/// The value that files spell as this word.
pub fn parse_word<'w, W: Deserialize<'w>>(word: &'w str) -> Option<W> {
    let text: StrDeserializer<'w, Refused> = word.into_deserializer();
    W::deserialize(text).ok()
}
