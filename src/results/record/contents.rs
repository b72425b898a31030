//! The contents of a run's journals: the row of each point.
//!
//! A run that is shared out has a journal for each shard. Their rows stay in the files until they
//! are asked for: a run of a million points has a gigabyte of them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::journal::{Header, JournalError, VERSION, is_sealed, point_of};
use sweeper_model::files;
use sweeper_model::identity::PointId;
use sweeper_model::row::Row;
use sweeper_model::row::outcome::{Cause, Flag, Status, is_failure};

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;

/// The lines of one journal: where each row is.
#[derive(Debug)]
pub struct Lines {
    path: PathBuf,
    file: File,
    /// The first line; none of an empty file.
    pub header: Option<Header>,
    rows: Vec<(PointId, Span)>,
    /// Bytes of all whole lines.
    pub whole_bytes: u64,
    /// Bytes of a torn last line, which is left out.
    pub torn_bytes: usize,
    /// CRC-32 of all whole lines.
    crc: u32,
}

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: u64,
    length: u32,
}

impl Lines {
    /// Finds the lines of a journal, and checks each.
    ///
    /// # Errors
    /// Any [`JournalError`] but a foreign one.
    pub fn read(path: &Path) -> Result<Self, JournalError> {
        let file = files::open(path).map_err(|error| io_error(path, error))?;
        Lines::of(path, file)
    }

    /// As [`Lines::read`], of an open file.
    ///
    /// # Errors
    /// Any [`JournalError`] but a foreign one.
    pub(super) fn of(path: &Path, file: File) -> Result<Self, JournalError> {
        let mut lines = Lines {
            path: path.to_owned(),
            file,
            header: None,
            rows: Vec::new(),
            whole_bytes: 0,
            torn_bytes: 0,
            crc: 0,
        };
        let mut crc = crc32fast::Hasher::new();
        // Bytes that were read and are not yet a whole line.
        let mut open: Vec<u8> = Vec::new();
        let mut number = 0;
        loop {
            let from = open.len();
            open.resize(from + PIECE, 0);
            let read = (&lines.file).read(&mut open[from..]);
            let length = read.map_err(|error| io_error(path, error))?;
            open.truncate(from + length);
            if length == 0 {
                break;
            }
            let mut start = 0;
            for end in memchr::memchr_iter(b'\n', &open) {
                number += 1;
                lines.take(number, &open[start..end])?;
                start = end + 1;
            }
            crc.update(&open[..start]);
            open.drain(..start);
        }
        lines.torn_bytes = open.len();
        lines.crc = crc.finalize();
        lines.keep_last_of_each();
        Ok(lines)
    }

    /// Takes the next line, the `number`-th from 1.
    fn take(&mut self, number: usize, line: &[u8]) -> Result<(), JournalError> {
        let damaged = |reason: &str| JournalError::Damaged {
            path: self.path.clone(),
            line: number,
            reason: reason.to_owned(),
        };
        if !is_sealed(line) {
            return Err(damaged("the line is damaged"));
        }
        if number == 1 {
            let found: Header = serde_json::from_slice(line)
                .map_err(|_| damaged("the first line is not a journal's"))?;
            if found.journal > VERSION {
                return Err(JournalError::Newer {
                    path: self.path.clone(),
                    found: found.journal,
                });
            }
            self.header = Some(found);
        } else {
            let point = point_of(line).ok_or_else(|| damaged("the line is not a row"))?;
            let length = u32::try_from(line.len()).map_err(|_| damaged("the line is too long"))?;
            let start = self.whole_bytes;
            self.rows.push((point, Span { start, length }));
        }
        self.whole_bytes += line.len() as u64 + 1;
        Ok(())
    }

    /// Leaves out rows of points that have a later one.
    fn keep_last_of_each(&mut self) {
        let mut last = HashMap::with_capacity(self.rows.len());
        for (point, span) in &self.rows {
            last.insert(*point, span.start);
        }
        if last.len() < self.rows.len() {
            self.rows
                .retain(|(point, span)| last.get(point) == Some(&span.start));
        }
    }

    fn text(&self, span: Span) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; span.length as usize];
        self.file.read_exact_at(&mut bytes, span.start)?;
        Ok(bytes)
    }

    /// The number of a line, from 1.
    fn number(&self, span: Span) -> usize {
        let before = usize::try_from(span.start).unwrap_or(usize::MAX);
        let bytes = files::read(&self.path).unwrap_or_default();
        let before = &bytes[..before.min(bytes.len())];
        memchr::memchr_iter(b'\n', before).count() + 1
    }
}

fn io_error(path: &Path, error: io::Error) -> JournalError {
    JournalError::Io {
        path: path.to_owned(),
        error,
    }
}

/// The contents of a run's journals: one row of each point. A point that is tried again gets
/// another row.
#[derive(Debug, Default)]
pub struct Contents {
    journals: Vec<Lines>,
    /// Journal and place of each row.
    rows: Vec<(u32, PointId, Span)>,
    /// Bytes of torn last lines, which were left out.
    pub torn_bytes: usize,
}

/// The status of a point, without its measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The point.
    pub point: PointId,
    /// The word.
    pub status: Status,
    /// Where the cause lies.
    pub cause: Option<Cause>,
    /// Number of earlier rows of the point in this run.
    pub earlier_rows: u32,
    /// The job that measured points again when it wrote the row.
    pub retried_in: Option<String>,
    /// True if the median's interval is wider than was asked for.
    pub is_wide: bool,
}

/// The part of a row that is a [`Standing`].
#[derive(Deserialize)]
struct StandingLine {
    point: PointId,
    status: Status,
    #[serde(default)]
    cause: Option<Cause>,
    #[serde(default)]
    earlier_rows: u32,
    #[serde(default)]
    retried_in: Option<String>,
    #[serde(default)]
    measurement: Option<Flags>,
}

#[derive(Deserialize)]
struct Flags {
    #[serde(default)]
    flags: Vec<Flag>,
}

impl Standing {
    /// True where a run that holds such a row ends with exit code 4.
    pub fn is_failure(&self) -> bool {
        is_failure(self.status, self.cause)
    }

    /// True where the next run tries the point again by itself.
    pub fn is_of_the_moment(&self) -> bool {
        matches!(self.cause, Some(Cause::Surroundings | Cause::Time))
    }
}

/// Length and CRC-32 of a file.
pub type Seal = (u64, u32);

/// The seals of the journals that tables were made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Seals {
    /// Of the only one.
    One(Seal),
    /// Of several, by their names.
    Several(Vec<(String, Seal)>),
}

impl Contents {
    /// Reads a journal without opening it for writing.
    ///
    /// # Errors
    /// Any [`JournalError`] but a foreign one.
    pub fn read(path: &Path) -> Result<Self, JournalError> {
        Contents::of(vec![Lines::read(path)?])
    }

    /// Reads several journals of one run.
    ///
    /// # Errors
    /// Any [`JournalError`].
    pub fn read_all(paths: &[PathBuf]) -> Result<Self, JournalError> {
        let read = paths.par_iter().map(|path| Lines::read(path));
        Contents::of(read.collect::<Result<_, _>>()?)
    }

    /// The rows of several journals of one run. Of a point that is in several of them, it is the
    /// row of the last try; and of equal tries one that is right, which any of them can be: shards
    /// may be finished twice.
    ///
    /// # Errors
    /// If a journal belongs to another run than the first, or a row can't be read.
    pub fn of(journals: Vec<Lines>) -> Result<Self, JournalError> {
        refuse_several_runs(&journals)?;
        let torn_bytes = journals.iter().map(|journal| journal.torn_bytes).sum();
        let count = journals.iter().map(|journal| journal.rows.len()).sum();
        let mut rows: Vec<(u32, PointId, Span)> = Vec::with_capacity(count);
        for (journal, number) in journals.iter().zip(0..) {
            let own = journal.rows.iter();
            rows.extend(own.map(|&(point, span)| (number, point, span)));
        }
        let mut contents = Contents {
            journals,
            rows,
            torn_bytes,
        };
        contents.keep_best_of_each()?;
        for journal in &mut contents.journals {
            journal.rows = Vec::new();
        }
        Ok(contents)
    }

    fn keep_best_of_each(&mut self) -> Result<(), JournalError> {
        if self.journals.len() < 2 {
            return Ok(());
        }
        let mut best: HashMap<PointId, usize> = HashMap::with_capacity(self.rows.len());
        for (index, row) in self.rows.iter().enumerate() {
            match best.get(&row.1) {
                Some(&held) if self.rank(held)? >= self.rank(index)? => {}
                _ => _ = best.insert(row.1, index),
            }
        }
        if best.len() < self.rows.len() {
            let mut index = 0;
            self.rows.retain(|row| {
                index += 1;
                best.get(&row.1) == Some(&(index - 1))
            });
        }
        Ok(())
    }

    fn rank(&self, index: usize) -> Result<(u32, bool), JournalError> {
        let standing = self.standing(index).map_err(|reason| {
            let (journal, _, span) = self.rows[index];
            let journal = &self.journals[journal as usize];
            JournalError::Damaged {
                path: journal.path.clone(),
                line: journal.number(span),
                reason,
            }
        })?;
        let is_right = standing.status.is_fine() && !standing.is_of_the_moment();
        Ok((standing.earlier_rows, is_right))
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The journals.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.journals.iter().map(|journal| journal.path.as_path())
    }

    /// First lines of the journals that have one.
    pub fn headers(&self) -> impl Iterator<Item = (&Path, &Header)> {
        let journals = self.journals.iter();
        journals.filter_map(|journal| Some((journal.path.as_path(), journal.header.as_ref()?)))
    }

    /// The points that have rows: journal by journal, each in the order written.
    pub fn points(&self) -> impl Iterator<Item = PointId> + '_ {
        self.rows.iter().map(|(_, point, _)| *point)
    }

    /// The point of one row.
    pub fn point(&self, index: usize) -> PointId {
        self.rows[index].1
    }

    /// The line of one row, without its end.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn line(&self, index: usize) -> io::Result<Vec<u8>> {
        let (journal, _, span) = self.rows[index];
        self.journals[journal as usize].text(span)
    }

    /// One row, in the order of [`Contents::points`].
    ///
    /// # Errors
    /// A message that names the line.
    pub fn row(&self, index: usize) -> Result<Row, String> {
        self.parsed(index, Row::of_line)
    }

    /// Some fields of a row, in the order of [`Contents::points`].
    ///
    /// # Errors
    /// A message that names the line.
    pub(super) fn fields<T: DeserializeOwned>(&self, index: usize) -> Result<T, String> {
        self.parsed(index, |line| serde_json::from_slice(line))
    }

    /// All rows, in the order of [`Contents::points`].
    ///
    /// # Errors
    /// A message that names the line.
    pub fn rows(&self) -> Result<Vec<Row>, String> {
        let all = (0..self.len()).into_par_iter();
        all.map(|index| self.row(index)).collect()
    }

    /// The status of each point, in the order of [`Contents::points`].
    ///
    /// # Errors
    /// A message that names the line.
    pub fn standings(&self) -> Result<Vec<Standing>, String> {
        let all = (0..self.len()).into_par_iter();
        all.map(|index| self.standing(index)).collect()
    }

    fn standing(&self, index: usize) -> Result<Standing, String> {
        let line: StandingLine = self.fields(index)?;
        let flags = line.measurement.map(|found| found.flags);
        Ok(Standing {
            point: line.point,
            status: line.status,
            cause: line.cause,
            earlier_rows: line.earlier_rows,
            retried_in: line.retried_in,
            is_wide: flags.is_some_and(|flags| flags.contains(&Flag::WideInterval)),
        })
    }

    /// Lengths and CRC-32 of the whole journals.
    pub fn seals(&self) -> Seals {
        let seal = |journal: &Lines| (journal.whole_bytes, journal.crc);
        if let [only] = &self.journals[..] {
            return Seals::One(seal(only));
        }
        let name = |path: &Path| {
            path.file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into()
        };
        let journals = self.journals.iter();
        Seals::Several(
            journals
                .map(|journal| (name(&journal.path), seal(journal)))
                .collect(),
        )
    }

    fn parsed<T>(
        &self,
        index: usize,
        read: impl Fn(&[u8]) -> serde_json::Result<T>,
    ) -> Result<T, String> {
        let (journal, _, span) = self.rows[index];
        let journal = &self.journals[journal as usize];
        let named = |error: &dyn std::fmt::Display| {
            let file = journal.path.file_name().unwrap_or_default();
            let name = file.to_string_lossy();
            let name = name.trim_end_matches(".jsonl");
            format!("{name} line {}: {error}", journal.number(span))
        };
        let bytes = journal.text(span).map_err(|error| named(&error))?;
        read(&bytes).map_err(|error| named(&error))
    }
}

fn refuse_several_runs(journals: &[Lines]) -> Result<(), JournalError> {
    let mut headers = journals
        .iter()
        .filter_map(|journal| Some((journal, journal.header?.run)));
    let Some((_, expected)) = headers.next() else {
        return Ok(());
    };
    match headers.find(|(_, run)| *run != expected) {
        Some((journal, found)) => Err(JournalError::Foreign {
            path: journal.path.clone(),
            found,
            expected,
        }),
        None => Ok(()),
    }
}
