//! The journal: one checksummed line a point, the source of truth of a run.
//!
//! A line is a JSON object that starts with `{"crc":"` and eight hex digits: the CRC-32 (IEEE) of
//! everything that follows the digits' closing quote up to the end of the line. The point's id
//! comes next at a fixed place, so that a finished sweep is recognised without parsing rows. The
//! first line names the version and the run. A line is written by one `write`, so a killed process
//! leaves at most the last one torn.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::contents::Lines;
use sweeper_model::files;
use sweeper_model::identity::{Digest, PointId, RunId};
use sweeper_model::row::Row;
use sweeper_model::shard::Shard;

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
    /// The journal is of a share of another plan.
    #[error(
        "{path} was begun for another plan of this run: the field `plan` differs. Use the flags that it was begun \
         with (limits.max_points and device.threads change which points there are), or join what is there with \
         `sweeper merge` first",
        path = path.display()
    )]
    OtherPlan {
        /// The journal.
        path: PathBuf,
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

/// The first line of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the lines' format.
    pub journal: u32,
    /// The run.
    pub run: RunId,
    /// The share of the run's points; none for a journal that may hold all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
}

impl Header {
    /// The first line of a journal that may hold all points of a run.
    pub fn of(run: RunId) -> Self {
        Header {
            journal: VERSION,
            run,
            share: None,
        }
    }
}

/// A share of a run's points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Which one, of how many.
    pub shard: Shard,
    /// Digest of the plan that was dealt out: [`sweeper_manifest::plan::deal::Deal::digest`].
    pub plan: Digest,
}

/// A journal that is open for writing.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    synced: Instant,
    dirty: bool,
    bytes: u64,
}

impl Journal {
    /// Opens the journal with such a first line at `path`, making it if there is none, and finds
    /// its lines. A torn last line is cut off.
    ///
    /// # Errors
    /// Any [`JournalError`].
    pub fn open(path: &Path, wanted: Header) -> Result<(Self, Lines), JournalError> {
        let io_error = |error| JournalError::Io {
            path: path.to_owned(),
            error,
        };
        let mut options = OpenOptions::new();
        let file =
            files::open_as(options.read(true).append(true).create(true), path).map_err(io_error)?;
        let lines = Lines::of(path, file.try_clone().map_err(io_error)?)?;
        if lines.torn_bytes > 0 {
            file.set_len(lines.whole_bytes).map_err(io_error)?;
        }
        let mut journal = Journal {
            path: path.to_owned(),
            file,
            synced: Instant::now(),
            dirty: false,
            bytes: lines.whole_bytes,
        };
        match &lines.header {
            None => journal.line(&wanted)?,
            Some(held) => refuse_foreign(path, held, &wanted)?,
        }
        Ok((journal, lines))
    }

    /// Makes an empty journal where there is none. Several processes may do so at once.
    ///
    /// # Errors
    /// [`JournalError::Io`].
    pub fn make(path: &Path, header: Header) -> Result<(), JournalError> {
        if path.exists() {
            return Ok(());
        }
        let io_error = |error| JournalError::Io {
            path: path.to_owned(),
            error,
        };
        let line = sealed(&header).map_err(io_error)?;
        files::make(path, &line).map_err(io_error)
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
        let line = sealed(content).map_err(io_error)?;
        self.file.write_all(&line).map_err(io_error)?;
        self.dirty = true;
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// Length of the journal.
    pub fn bytes(&self) -> u64 {
        self.bytes
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

fn refuse_foreign(path: &Path, held: &Header, wanted: &Header) -> Result<(), JournalError> {
    let path = path.to_owned();
    if held.run != wanted.run {
        return Err(JournalError::Foreign {
            path,
            found: held.run,
            expected: wanted.run,
        });
    }
    if held.share != wanted.share {
        return Err(JournalError::OtherPlan { path });
    }
    Ok(())
}

/// A line: an object of which the checksum is the first member.
pub(super) fn sealed(content: &impl Serialize) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(content)?;
    // The object's brace becomes a comma.
    let mut line = Vec::with_capacity(body.len() + SEALED_FROM + 1);
    line.extend_from_slice(PREFIX.as_bytes());
    line.extend_from_slice(b"00000000\",");
    line.extend_from_slice(&body[1..]);
    let sum = format!("{:08x}", crc32fast::hash(&line[SEALED_FROM..]));
    line[PREFIX.len()..PREFIX.len() + 8].copy_from_slice(sum.as_bytes());
    line.push(b'\n');
    Ok(line)
}

/// True if the checksum of a line, without its end, is right.
pub(super) fn is_sealed(line: &[u8]) -> bool {
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

/// The point of a row's line; none for other lines.
pub(super) fn point_of(line: &[u8]) -> Option<PointId> {
    let digits = line.get(SEALED_FROM..)?.strip_prefix(POINT.as_bytes())?;
    std::str::from_utf8(digits.get(..64)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::contents::{Contents, Standing};
    use super::*;
    use sweeper_model::row::outcome::{Cause, Outcome, Status};
    use sweeper_model::row::test_row;

    fn run(byte: u8) -> Header {
        Header::of(RunId(Digest::from_bytes([byte; 32])))
    }

    fn open(path: &Path, header: Header) -> Result<(Journal, Contents), JournalError> {
        let (journal, lines) = Journal::open(path, header)?;
        Ok((journal, Contents::of(vec![lines])?))
    }

    #[test]
    fn a_point_that_was_tried_again_has_its_last_row() {
        let (_folder, path) = written(3);
        let (mut journal, _) = open(&path, run(1)).unwrap();
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
        let (mut journal, contents) = open(&path, run(1)).unwrap();
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
            let (mut journal, contents) = open(&path, run(1)).unwrap();
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
        let message = open(&path, run(2)).err().unwrap().to_string();
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
        let message = open(&path, run(1)).err().unwrap().to_string();
        assert!(message.contains("version 9"), "{message}");
    }
}
