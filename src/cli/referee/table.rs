//! Verdicts in a file, and tables of them: of each problem the best candidate, and why others
//! failed.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::verdict::Verdict;
use sweeper_model::row::outcome::Status;
use sweeper_results::report::table::{Cell, Table, Unit, render};

/// How names of files of verdicts end.
pub const ENDING: &str = "verdicts.jsonl";

/// The most letters of a reason that a table shows.
const MOST_REASON: usize = 100;

/// A file to which each verdict is added, so that one that was told is not lost.
pub(super) struct Journal {
    path: PathBuf,
    file: Mutex<File>,
}

impl Journal {
    /// The journal of a manifest of this name.
    ///
    /// # Errors
    /// The system's, with the path.
    pub(super) fn open(folder: &Path, name: &str) -> io::Result<Self> {
        let path = folder.join(format!("{name}.{ENDING}"));
        let named = |error: io::Error| io::Error::other(format!("{}: {error}", path.display()));
        fs::create_dir_all(folder).map_err(named)?;
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = Mutex::new(file.map_err(named)?);
        Ok(Journal { path, file })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a verdict.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn add(&self, verdict: &Verdict) -> io::Result<()> {
        let line = serde_json::to_string(verdict)? + "\n";
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // In one piece: others may add to it, too.
        file.write_all(line.as_bytes())
    }
}

/// The tables of a file of verdicts. A line that was cut off, as by a full disk, is left out.
///
/// # Errors
/// The system's, and a file without a verdict.
pub fn tables(path: &Path) -> io::Result<[Table; 2]> {
    let lines = BufReader::new(File::open(path)?).split(b'\n');
    let mut verdicts = Vec::new();
    for line in lines {
        verdicts.extend(serde_json::from_slice::<Verdict>(&line?).ok());
    }
    match verdicts.is_empty() {
        true => Err(io::Error::other("no line of it is a verdict")),
        false => Ok([best(&verdicts), failures(&verdicts)]),
    }
}

/// Writes tables as CSV into a folder.
///
/// # Errors
/// The system's.
pub fn write(tables: &[Table], folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::create_dir_all(folder)?;
    let written = tables.iter().map(|table| {
        let path = folder.join(format!("table_{}.csv", table.name));
        render::csv(table, File::create(&path)?)?;
        Ok(path)
    });
    written.collect()
}

/// The last verdict on each candidate, by its problem.
fn by_problem(verdicts: &[Verdict]) -> BTreeMap<&str, BTreeMap<&str, &Verdict>> {
    let mut found: BTreeMap<&str, BTreeMap<&str, &Verdict>> = BTreeMap::new();
    for verdict in verdicts {
        let of_problem = found.entry(verdict.subject()).or_default();
        of_problem.insert(&verdict.id, verdict);
    }
    found
}

/// Of each problem, how many candidates are right, and the one that is surely the fastest by most.
fn best(verdicts: &[Verdict]) -> Table {
    let mut table = Table::new("candidates", "candidates by problem");
    table.plain(["problem"]).names_rows();
    table.plain(["candidates", "ok", "best"]);
    table.column("speedup", Unit::Ratio);
    for (problem, candidates) in by_problem(verdicts) {
        let right = candidates.values().filter(|it| it.verdict == Status::Ok);
        let right: Vec<&&Verdict> = right.collect();
        let surely = |it: &&&&Verdict| it.speedup.map_or(0.0, |[low, ..]| low);
        let best = right
            .iter()
            .max_by(|one, other| surely(one).total_cmp(&surely(other)));
        let speedup = best.and_then(|best| best.speedup);
        table.rows.push(vec![
            Cell::word(problem),
            Cell::Count(candidates.len() as i64),
            Cell::Count(right.len() as i64),
            best.map_or(Cell::Empty, |best| Cell::word(&best.id)),
            speedup.map_or(Cell::Empty, |[low, value, high]| Cell::Interval {
                value,
                low,
                high,
            }),
        ]);
    }
    table
}

/// Why candidates failed: by problem and status, with one of them.
fn failures(verdicts: &[Verdict]) -> Table {
    let mut table = Table::new("failures", "candidates that failed");
    table.plain(["problem", "status"]).names_rows();
    table.plain(["candidates", "such as", "reason"]);
    for (problem, candidates) in by_problem(verdicts) {
        let mut kinds: BTreeMap<&str, Vec<&Verdict>> = BTreeMap::new();
        let failed = candidates.values().filter(|it| it.verdict != Status::Ok);
        for verdict in failed {
            let kind = kinds.entry(verdict.verdict.name()).or_default();
            kind.push(verdict);
        }
        for (status, failed) in kinds {
            let first = failed[0];
            let reason: String = first.telling().chars().take(MOST_REASON).collect();
            table.rows.push(vec![
                Cell::word(problem),
                Cell::word(status),
                Cell::Count(failed.len() as i64),
                Cell::word(&first.id),
                Cell::word(reason),
            ]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &str, verdict: &str, reason: &str, low: f64) -> String {
        let speedup = match verdict {
            "ok" => format!("\"speedup\":[{low},{},{}],", low + 0.1, low + 0.2),
            _ => format!("\"reason\":\"{reason}\","),
        };
        format!(
            "{{\"id\":\"{id}\",\"verdict\":\"{verdict}\",{speedup}\"baseline\":\"eager\",\
             \"points\":[],\"seconds\":1.5}}\n"
        )
    }

    #[test]
    fn the_last_verdict_on_each_candidate_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(ENDING);
        let lines = [
            line("a", "wrong", "`y` is off", 0.0),
            line("b", "ok", "", 1.2),
            line("c", "ok", "", 1.4),
            line("a", "ok", "", 1.1),
            line("d", "timeout", "no results in time", 0.0),
            line("e", "timeout", "another", 0.0),
            "{\"id\":\"torn".to_owned(),
        ];
        fs::write(&path, lines.concat()).unwrap();
        let [best, failures] = tables(&path).unwrap();
        assert_eq!(best.rows.len(), 1);
        assert_eq!(
            best.rows[0][1..4],
            [Cell::Count(5), Cell::Count(3), Cell::word("c")]
        );
        let expected = ["eager", "timeout"].map(Cell::word).to_vec();
        assert_eq!(failures.rows[0][..2], expected[..]);
        assert_eq!(failures.rows[0][2..4], [Cell::Count(2), Cell::word("d")]);
        assert_eq!(failures.rows.len(), 1);
        let written = write(&[best, failures], folder.path()).unwrap();
        let text = fs::read_to_string(&written[0]).unwrap();
        assert!(text.contains("eager,5,3,c,1.5,1.4,1.6"), "{text}");
        fs::write(&path, "nothing\n").unwrap();
        assert!(tables(&path).is_err());
    }
}
