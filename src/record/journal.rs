//! The journal: one checksummed line a point, the source of truth of a run.
//!
//! A line is a JSON object that starts with `{"crc":"` and eight hex digits: the CRC-32 (IEEE) of
//! everything that follows the digits' closing quote up to the end of the line. The point's id
//! comes next at a fixed place, so that a finished sweep is recognised without parsing rows. The
//! first line names the version and the run. A line is written by one `write`, so a killed process
//! leaves at most the last one torn.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::files;
use crate::identity::{PointId, RunId};
use crate::row::Row;
use crate::row::outcome::{Cause, Status, is_failure};

/// Version of the lines' format.
pub const VERSION: u32 = 1;

/// Rows reach the disk at least this often.
const SYNC_INTERVAL: Duration = Duration::from_millis(200);

const PREFIX: &str = "{\"crc\":\"";
/// Bytes of a line before the part that the checksum covers: the prefix, eight digits and a quote.
const SEALED_FROM: usize = PREFIX.len() + 9;
/// After the seal, a row's line goes on with this, then the id and a quote.
const POINT: &str = ",\"point\":\"";

/// Why a journal can't be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Reading or writing failed.
    #[error("{path}: {error}", path = path.display())]
    Io {
        /// The journal.
        path: PathBuf,
        /// The error of the system call.
        error: io::Error,
    },
    /// The journal is from a newer program.
    #[error(
        "{path}: version {found} of the journal, this program knows {VERSION}; use a newer sweeper",
        path = path.display()
    )]
    Newer {
        /// The journal.
        path: PathBuf,
        /// The version of the journal.
        found: u32,
    },
    /// The journal belongs to another run.
    #[error(
        "{path} belongs to run {found}, not {expected}; choose another output folder",
        path = path.display()
    )]
    Foreign {
        /// The journal.
        path: PathBuf,
        /// The run that the journal belongs to.
        found: RunId,
        /// The run that was expected.
        expected: RunId,
    },
    /// A line other than a torn last one is damaged.
    #[error(
        "{path}:{line}: {reason}; restore the file, or measure again with --fresh",
        path = path.display()
    )]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The defect of the line.
        reason: String,
    },
}

#[derive(Serialize, Deserialize)]
struct Header {
    journal: u32,
    run: RunId,
}

/// A journal that is open for writing.
pub struct Journal {
    path: PathBuf,
    file: File,
    synced: Instant,
    dirty: bool,
}

/// The contents of a journal: the last row of each point. A point that is tried again gets another
/// row.
#[derive(Debug, Default)]
pub struct Contents {
    bytes: Vec<u8>,
    /// Start and end of each row's line.
    lines: Vec<(usize, usize)>,
    /// Bytes of a torn last line, which was left out.
    pub torn_bytes: usize,
}

/// The status of a point, without its measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Standing {
    /// The point.
    pub point: PointId,
    /// The word.
    pub status: Status,
    /// Where the cause lies.
    #[serde(default)]
    pub cause: Option<Cause>,
}

impl Standing {
    /// True where a run that holds such a row ends with exit code 4.
    pub fn is_failure(&self) -> bool {
        is_failure(self.status, self.cause)
    }

    /// True where the next run tries the point again by itself.
    pub fn is_of_the_moment(&self) -> bool {
        self.cause == Some(Cause::Surroundings)
    }
}

impl Journal {
    /// Opens the journal of `run` at `path`, making it if there is none, and reads its contents. A
    /// torn last line is cut off.
    ///
    /// # Errors
    /// Any [`JournalError`].
    pub fn open(path: &Path, run: RunId) -> Result<(Self, Contents), JournalError> {
        let io_error = |error| JournalError::Io {
            path: path.to_owned(),
            error,
        };
        let mut options = OpenOptions::new();
        let mut file =
            files::open_as(options.read(true).append(true).create(true), path).map_err(io_error)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io_error)?;
        let (header, contents) = parse(path, bytes)?;
        if contents.torn_bytes > 0 {
            let whole = contents.bytes.len() as u64;
            file.set_len(whole).map_err(io_error)?;
        }
        let mut journal = Journal {
            path: path.to_owned(),
            file,
            synced: Instant::now(),
            dirty: false,
        };
        match header {
            None => journal.line(&Header {
                journal: VERSION,
                run,
            })?,
            Some(header) if header.run != run => {
                let (path, found) = (path.to_owned(), header.run);
                return Err(JournalError::Foreign {
                    path,
                    found,
                    expected: run,
                });
            }
            Some(_) => {}
        }
        Ok((journal, contents))
    }

    /// Writes a row.
    ///
    /// # Errors
    /// [`JournalError::Io`]; the run must end, and can be resumed.
    pub fn write(&mut self, row: &Row) -> Result<(), JournalError> {
        self.line(row)?;
        if self.synced.elapsed() >= SYNC_INTERVAL {
            self.sync()?;
        }
        Ok(())
    }

    fn line(&mut self, content: &impl Serialize) -> Result<(), JournalError> {
        let io_error = |error| JournalError::Io {
            path: self.path.clone(),
            error,
        };
        let body = serde_json::to_vec(content).map_err(|error| io_error(error.into()))?;
        // The object's brace becomes a comma: the checksum is its first member.
        let mut line = Vec::with_capacity(body.len() + SEALED_FROM + 1);
        line.extend_from_slice(PREFIX.as_bytes());
        line.extend_from_slice(b"00000000\",");
        line.extend_from_slice(&body[1..]);
        let sum = format!("{:08x}", crc32fast::hash(&line[SEALED_FROM..]));
        line[PREFIX.len()..PREFIX.len() + 8].copy_from_slice(sum.as_bytes());
        line.push(b'\n');
        self.file.write_all(&line).map_err(io_error)?;
        self.dirty = true;
        Ok(())
    }

    /// Brings everything to the disk.
    ///
    /// # Errors
    /// [`JournalError::Io`].
    pub fn sync(&mut self) -> Result<(), JournalError> {
        if std::mem::take(&mut self.dirty) {
            let io_error = |error| JournalError::Io {
                path: self.path.clone(),
                error,
            };
            self.file.sync_data().map_err(io_error)?;
        }
        self.synced = Instant::now();
        Ok(())
    }
}

impl Contents {
    /// Reads a journal without opening it for writing.
    ///
    /// # Errors
    /// Any [`JournalError`] but a foreign one.
    pub fn read(path: &Path) -> Result<Self, JournalError> {
        let io_error = |error| JournalError::Io {
            path: path.to_owned(),
            error,
        };
        let bytes = files::read(path).map_err(io_error)?;
        parse(path, bytes).map(|(_, contents)| contents)
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// True if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The points that have rows, in the order written.
    pub fn points(&self) -> impl Iterator<Item = PointId> + '_ {
        self.lines
            .iter()
            .filter_map(|&(start, end)| point_of(&self.bytes[start..end]))
    }

    /// One row, counted from 0 in the order written.
    ///
    /// # Errors
    /// A message that names the line.
    pub fn row(&self, index: usize) -> Result<Row, String> {
        self.parsed(self.lines[index])
    }

    /// All rows, in the order written.
    ///
    /// # Errors
    /// A message that names the line.
    pub fn rows(&self) -> Result<Vec<Row>, String> {
        (0..self.len()).map(|index| self.row(index)).collect()
    }

    /// The status of each point, in the order written.
    ///
    /// # Errors
    /// A message that names the line.
    pub fn standings(&self) -> Result<Vec<Standing>, String> {
        self.lines
            .par_iter()
            .map(|&line| self.parsed(line))
            .collect()
    }

    /// Length and CRC-32 of the whole journal.
    pub fn stamp(&self) -> (u64, u32) {
        (self.bytes.len() as u64, crc32fast::hash(&self.bytes))
    }

    fn parsed<'d, T: Deserialize<'d>>(&'d self, line: (usize, usize)) -> Result<T, String> {
        let (start, end) = line;
        serde_json::from_slice(&self.bytes[start..end]).map_err(|error| {
            let number = memchr::memchr_iter(b'\n', &self.bytes[..start]).count() + 1;
            format!("journal line {number}: {error}")
        })
    }
}

/// Leaves out lines of points that have a later one.
fn keep_last_of_each(bytes: &[u8], lines: &mut Vec<(usize, usize)>) {
    let mut last = HashMap::with_capacity(lines.len());
    for &(start, end) in lines.iter() {
        last.insert(point_of(&bytes[start..end]), start);
    }
    if last.len() < lines.len() {
        lines.retain(|&(start, end)| last.get(&point_of(&bytes[start..end])) == Some(&start));
    }
}

fn point_of(line: &[u8]) -> Option<PointId> {
    let start = SEALED_FROM + POINT.len();
    let digits = line.get(start..start + 64)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Splits a journal into lines and checks each.
fn parse(path: &Path, mut bytes: Vec<u8>) -> Result<(Option<Header>, Contents), JournalError> {
    let whole = bytes
        .iter()
        .rposition(|&byte| byte == b'\n')
        .map_or(0, |last| last + 1);
    let torn_bytes = bytes.len() - whole;
    bytes.truncate(whole);
    let damaged = |line: usize, reason: &str| JournalError::Damaged {
        path: path.to_owned(),
        line,
        reason: reason.to_owned(),
    };
    let mut lines = Vec::new();
    let mut header = None;
    let mut start = 0;
    for (number, end) in memchr::memchr_iter(b'\n', &bytes).enumerate() {
        let line = &bytes[start..end];
        if !is_sealed(line) {
            return Err(damaged(number + 1, "the line is damaged"));
        }
        if number == 0 {
            let found: Header = serde_json::from_slice(line)
                .map_err(|_| damaged(1, "the first line is no journal's"))?;
            if found.journal > VERSION {
                return Err(JournalError::Newer {
                    path: path.to_owned(),
                    found: found.journal,
                });
            }
            header = Some(found);
        } else if line[SEALED_FROM..].starts_with(POINT.as_bytes()) {
            lines.push((start, end));
        } else {
            return Err(damaged(number + 1, "the line is no row"));
        }
        start = end + 1;
    }
    keep_last_of_each(&bytes, &mut lines);
    Ok((
        header,
        Contents {
            bytes,
            lines,
            torn_bytes,
        },
    ))
}

fn is_sealed(line: &[u8]) -> bool {
    let Some(rest) = line.strip_prefix(PREFIX.as_bytes()) else {
        return false;
    };
    let Some(digits) = rest
        .get(..8)
        .and_then(|digits| std::str::from_utf8(digits).ok())
    else {
        return false;
    };
    let sealed = line.get(SEALED_FROM..).unwrap_or_default();
    let is_quoted = line.get(SEALED_FROM - 1) == Some(&b'"');
    is_quoted && digits == format!("{:08x}", crc32fast::hash(sealed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Digest;
    use crate::row::outcome::{Outcome, Status};
    use crate::row::test_row;

    fn run(byte: u8) -> RunId {
        RunId(Digest::from_bytes([byte; 32]))
    }

    #[test]
    fn a_point_that_was_tried_again_has_its_last_row() {
        let (_folder, path) = written(3);
        let (mut journal, _) = Journal::open(&path, run(1)).unwrap();
        let killed = Outcome::without_measurement(Status::Crashed, "killed");
        let again = test_row(1, killed.because_of(Cause::Surroundings));
        journal.write(&again).unwrap();
        let contents = Contents::read(&path).unwrap();
        let numbers = [0, 2, 1].map(|number| test_row(number, again.outcome.clone()).point);
        assert_eq!(contents.points().collect::<Vec<_>>(), numbers);
        assert_eq!(contents.row(2).unwrap(), again);
        let standings = contents.standings().unwrap();
        let words: Vec<_> = standings.iter().map(|it| (it.point, it.status)).collect();
        let statuses = [Status::Oom, Status::Oom, Status::Crashed];
        let expected: Vec<_> = numbers.into_iter().zip(statuses).collect();
        assert_eq!(words, expected);
        let momentary: Vec<bool> = standings.iter().map(Standing::is_of_the_moment).collect();
        assert_eq!(momentary, [false, false, true]);
    }

    fn written(rows: u8) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let (mut journal, contents) = Journal::open(&path, run(1)).unwrap();
        assert!(contents.is_empty());
        for number in 0..rows {
            let outcome = Outcome::without_measurement(Status::Oom, "line\nbreak");
            journal.write(&test_row(number, outcome)).unwrap();
        }
        journal.sync().unwrap();
        (folder, path)
    }

    #[test]
    fn rows_come_back_as_they_were_written() {
        let (_folder, path) = written(3);
        let contents = Contents::read(&path).unwrap();
        let rows = contents.rows().unwrap();
        let outcome = Outcome::without_measurement(Status::Oom, "line\nbreak");
        let expected: Vec<Row> = (0..3)
            .map(|number| test_row(number, outcome.clone()))
            .collect();
        assert_eq!(rows, expected);
        let points: Vec<PointId> = contents.points().collect();
        assert_eq!(
            points,
            expected.iter().map(|row| row.point).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_tail_torn_anywhere_costs_its_row_alone() {
        let (_folder, path) = written(2);
        let whole = std::fs::read(&path).unwrap();
        let last = whole[..whole.len() - 1]
            .iter()
            .rposition(|&byte| byte == b'\n')
            .unwrap()
            + 1;
        for length in last..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let (mut journal, contents) = Journal::open(&path, run(1)).unwrap();
            assert_eq!((contents.len(), contents.torn_bytes), (1, length - last));
            let row = test_row(1, Outcome::without_measurement(Status::Oom, "line\nbreak"));
            journal.write(&row).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), whole);
        }
    }

    #[test]
    fn damage_elsewhere_is_an_error_that_names_the_line() {
        let (_folder, path) = written(3);
        let whole = std::fs::read(&path).unwrap();
        for position in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[position] ^= 1;
            std::fs::write(&path, &damaged).unwrap();
            let is_last_newline = position == whole.len() - 1;
            match Contents::read(&path) {
                Ok(contents) => assert!(is_last_newline && contents.len() == 2, "{position}"),
                Err(error) => assert!(error.to_string().contains("jsonl:"), "{error}"),
            }
        }
    }

    #[test]
    fn foreign_and_newer_journals_are_refused() {
        let (_folder, path) = written(1);
        let message = Journal::open(&path, run(2)).err().unwrap().to_string();
        assert!(
            message.contains("belongs to run 010101010101, not 020202020202"),
            "{message}"
        );
        let text = std::fs::read_to_string(&path).unwrap();
        let first = text
            .lines()
            .next()
            .unwrap()
            .replace("\"journal\":1", "\"journal\":9");
        let sum = format!("{:08x}", crc32fast::hash(&first.as_bytes()[SEALED_FROM..]));
        std::fs::write(
            &path,
            format!("{PREFIX}{sum}{}\n", &first[PREFIX.len() + 8..]),
        )
        .unwrap();
        let message = Journal::open(&path, run(1)).err().unwrap().to_string();
        assert!(message.contains("version 9"), "{message}");
    }
}
