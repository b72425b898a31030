//! A field of a line, as columns read it.

use std::str::FromStr;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::row::entry::Words;
use crate::row::lines::{Line, TableError};

/// A field that is read into a row.
pub struct Field<'l> {
    /// The line.
    pub line: &'l Line<'l>,
    /// The name of its column.
    pub column: &'static str,
    /// The words of the file.
    pub words: &'l mut Words,
}

impl Field<'_> {
    /// Another field of the line.
    pub(super) fn sibling(&mut self, column: &'static str) -> Field<'_> {
        Field {
            line: self.line,
            column,
            words: self.words,
        }
    }

    /// The text; empty where there is no such column.
    pub(super) fn text(&self) -> &str {
        self.line.text(self.column)
    }

    /// The text, or none where it is empty.
    pub(super) fn owned(&self) -> Option<String> {
        let text = self.text();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// The text as a word that rows share, or none where it is empty.
    pub(super) fn shared(&mut self) -> Option<Arc<str>> {
        self.words.some(self.line.text(self.column))
    }

    /// A real number, or none where the field is empty or `nan`.
    pub(super) fn number(&self) -> Result<Option<f64>, TableError> {
        self.line.number(self.column)
    }

    /// A finite number that is not negative, or none where the field is empty or `nan`.
    pub(super) fn amount(&self) -> Result<Option<f64>, TableError> {
        self.line.amount(self.column)
    }

    /// A whole number, or none where the field is empty.
    pub(super) fn count<N: FromStr>(&self) -> Result<Option<N>, TableError> {
        self.line.count(self.column)
    }

    /// A value that is written as a word, or none where the field is empty.
    pub(super) fn word<W: DeserializeOwned>(
        &self,
        expected: &str,
    ) -> Result<Option<W>, TableError> {
        self.line.word(self.column, expected)
    }

    /// An error about the field.
    pub(super) fn refuse(&self, expected: &str) -> TableError {
        self.line.refuse(self.column, expected)
    }
}
