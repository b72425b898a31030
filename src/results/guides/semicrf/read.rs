//! Reads `benchmark_full.csv`, ours or anyone's.

use std::path::Path;

use sweeper_program::{Phase, Role, Value};

use sweeper_manifest::settings::GB;
use sweeper_model::row::entry::{Entry, Memory, Times, Words};
use sweeper_model::row::lines::{Line, Table, TableError, parse_word};
use sweeper_model::row::outcome::Status;

/// Columns without which nothing can be made of the file.
pub(crate) const REQUIRED: [&str; 9] = [
    "T",
    "K",
    "C",
    "B",
    "backend",
    "semiring",
    "phase",
    "time_ms_median",
    "status",
];

/// The file's rows, and warnings about them. The names of the exports' folders contain the
/// parameters for which the format has no column: `potentials=decomposed`.
///
/// # Errors
/// If a line or a field can't be read.
pub(crate) fn entries(table: &Table, path: &Path) -> Result<(Vec<Entry>, Vec<String>), TableError> {
    let mut words = Words::default();
    let mut entries = Vec::new();
    let mut zeros = 0;
    let of_folders = folders_parameters(path);
    table.each(|line| {
        let (mut entry, is_zero) = entry(line, &mut words)?;
        for &(name, value) in &of_folders {
            if name == "mode" {
                entry.mode = words.some(value);
                continue;
            }
            if entry.parameters.get(name).is_none() {
                let value = Value::Text(words.get(value));
                entry.parameters.insert(words.get(name), value);
            }
        }
        zeros += usize::from(is_zero);
        entries.push(entry);
        Ok(())
    })?;
    let mut warnings = Vec::new();
    if zeros > 0 {
        warnings.push(format!(
            "{zeros} rows have a time of 0 ms, as rounding leaves it: they count as not timed"
        ));
    }
    Ok((entries, warnings))
}

/// The parameters in the names of the file's folders, from the innermost folder outwards up to the
/// first name without one.
fn folders_parameters(path: &Path) -> Vec<(&str, &str)> {
    let folders = path.ancestors().skip(1);
    let names = folders.map_while(|folder| folder.file_name()?.to_str()?.split_once('='));
    names.collect()
}

fn entry(line: &Line<'_>, words: &mut Words) -> Result<(Entry, bool), TableError> {
    let (status, reason) = status(line)?;
    let phase: Option<Phase> = line.word("phase", "`forward`, `backward` or `both`")?;
    let phase = phase.ok_or_else(|| line.refuse("phase", "`forward`, `backward` or `both`"))?;
    let backend = line.text("backend");
    if backend.is_empty() {
        return Err(line.refuse("backend", "the name of a backend"));
    }
    let mut entry = Entry::new(words.get("semicrf"), words.get(backend), phase, status);
    for name in ["T", "K", "C", "B"] {
        let value: Option<i64> = line.count(name)?.filter(|&value: &i64| value > 0);
        let value = value.ok_or_else(|| line.refuse(name, "a whole number from 1"))?;
        entry.parameters.insert(words.get(name), Value::Int(value));
    }
    let states = ["K", "C"]
        .map(|name| entry.int(name).unwrap_or(1))
        .iter()
        .product();
    entry.values.insert(words.get("KC"), Value::Int(states));
    let semiring = semiring(line.text("semiring"));
    let semiring = Value::Text(words.get(&semiring));
    entry.parameters.insert(words.get("semiring"), semiring);
    entry.reason = words.some(reason);
    entry.memory = memory(line)?;
    let times = times(line)?;
    let is_zero = times.is_some_and(|times| times.median <= 0.0);
    entry.times = times.filter(|_| status == Status::Ok && !is_zero);
    if status == Status::Ok && entry.times.is_none() {
        entry.reason = words.some(if is_zero { "its time is 0" } else { "no time" });
    }
    Ok((entry, is_zero && status == Status::Ok))
}

/// The guide's semirings in our spelling, so that rows of both meet; others as they are.
fn semiring(word: &str) -> String {
    let lower = word.to_lowercase();
    if matches!(lower.as_str(), "log" | "max" | "entropy") {
        lower
    } else {
        word.to_owned()
    }
}

/// The status in our words. Our own files begin a failure's message with the exact one.
fn status<'l>(line: &'l Line<'_>) -> Result<(Status, &'l str), TableError> {
    let message = line.text("error_msg");
    let coarse = match line.text("status") {
        "success" => return Ok((Status::Ok, "")),
        "oom" => Status::Oom,
        "error" => Status::Error,
        "not_implemented" | "not_supported" => Status::Unavailable,
        "not_tested" => Status::Pruned,
        "skipped" => Status::Skipped,
        _ => {
            return Err(line.refuse(
                "status",
                "success, oom, error, not_implemented, not_supported, not_tested or skipped",
            ));
        }
    };
    let exact = message
        .split_once(": ")
        .and_then(|(word, reason)| Some((parse_word::<Status>(word)?, reason)));
    Ok(exact.unwrap_or((coarse, message)))
}

fn times(line: &Line<'_>) -> Result<Option<Times>, TableError> {
    let ns = |column| line.amount(column).map(|ms| ms.map(|ms| ms * 1e6));
    let Some(median) = ns("time_ms_median")? else {
        return Ok(None);
    };
    Ok(Some(Times {
        median,
        q1: ns("time_ms_iqr_low")?,
        q3: ns("time_ms_iqr_high")?,
        ..Times::default()
    }))
}

fn memory(line: &Line<'_>) -> Result<Memory, TableError> {
    let bytes = |column| {
        let found = line.amount(column)?;
        Ok::<_, TableError>(found.map(|gb| (gb * GB).round() as u64))
    };
    let mut memory = Memory {
        peak_allocated: bytes("peak_allocated_gb")?,
        peak_reserved: bytes("peak_reserved_gb")?,
        ..Memory::default()
    };
    let roles = [
        (Role::Potentials, "memory_potentials_gb"),
        (Role::DpState, "memory_dp_state_gb"),
        (Role::Workspace, "memory_workspace_gb"),
    ];
    for (role, column) in roles {
        if let Some(held) = bytes(column)? {
            memory.by_role.insert(role, held);
        }
    }
    Ok(memory)
}
