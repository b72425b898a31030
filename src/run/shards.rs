//! The end of a run that is shared between processes: its tables are made by whichever process ends
//! last, and by those that end early.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::RunError;
use super::tables;
use sweeper_model::shard::{Part, Shard};
use sweeper_results::guides::About;
use sweeper_results::record::folder::{FolderError, RunFolder};
use sweeper_results::record::hold;
use sweeper_results::record::parts;
use sweeper_results::record::recorded::{Recorded, contents_of};
use sweeper_results::record::state::{End, State};
use sweeper_results::record::usage::RunUsage;

/// For how long a process that ends before the run is complete makes tables.
pub(super) const SHORT: Duration = Duration::from_secs(10);

/// Bytes of journals that tables and exports are made from in a second, at least.
const BYTES_PER_S: f64 = 4e6;

/// The end of a shard that is done. Tables are made by the process that ends last: if all shards
/// are done, or if others have ended early and it takes only a short time.
///
/// # Errors
/// Errors of reading and writing the files.
pub(super) fn finish(
    folder: &RunFolder,
    shard: Shard,
    about: &About<'_>,
    exports: &[&str],
) -> Result<(), RunError> {
    let path = folder.path();
    let state = |index| {
        let part = Part::Shard(Shard { index, ..shard });
        State::read(&part.state(path))
    };
    let plan = state(shard.index).and_then(|state| state.plan);
    let end = |index| state(index).filter(|state| state.plan == plan)?.end;
    let ends: Option<Vec<End>> = (1..=shard.count).map(end).collect();
    match ends {
        None => {}
        Some(ends) if ends.iter().all(|end| *end == End::Done) => {
            make(path, about, exports)?;
        }
        Some(_) => {
            make_within(path, about, exports, SHORT)?;
        }
    }
    Ok(())
}

/// Makes tables and exports of the rows of a run so far, unless there are such already. False if a
/// process measures the whole run, which makes them when it ends, or another one makes them for
/// very long.
///
/// # Errors
/// Errors of reading and writing the files.
pub fn make(path: &Path, about: &About<'_>, exports: &[&str]) -> Result<bool, RunError> {
    let longest = hold::patience() + Duration::from_secs(1);
    make_of(path, about, exports, longest, |_| true)
}

/// As [`make`], and false as well where it would take longer than `time`.
///
/// # Errors
/// Errors of reading and writing the files.
pub(super) fn make_within(
    path: &Path,
    about: &About<'_>,
    exports: &[&str],
    time: Duration,
) -> Result<bool, RunError> {
    let began = Instant::now();
    make_of(path, about, exports, time, |bytes| {
        let left = time.saturating_sub(began.elapsed());
        bytes as f64 / BYTES_PER_S <= left.as_secs_f64()
    })
}

/// Makes tables and exports if `is_worth_it`, given the bytes of all journals; waits no longer than
/// `longest` for a process that makes them.
fn make_of(
    path: &Path,
    about: &About<'_>,
    exports: &[&str],
    longest: Duration,
    is_worth_it: impl Fn(u64) -> bool,
) -> Result<bool, RunError> {
    if hold::held_by(&Part::Whole.hold(path)).is_some() {
        return Ok(false);
    }
    // Rows that were written before this process has the tables are in them, so that of several
    // that end at once the last one leaves all rows.
    let folder = match RunFolder::open_for_tables(path, longest) {
        Ok(folder) => folder,
        Err(FolderError::Busy { .. }) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let journals = parts::journals(path).unwrap_or_default().into_iter();
    let bytes = journals.filter_map(|journal| Some(fs::metadata(journal).ok()?.len()));
    if !is_worth_it(bytes.sum()) {
        return Ok(false);
    }
    let contents = contents_of(path)?;
    let order = Recorded::read(path)?.plan_order();
    tables::write(&folder, &contents, &order, about, exports)?;
    write_usage(&folder, usage(path).as_ref())?;
    Ok(true)
}

/// The devices' work in all shards; none where no shard says so.
pub fn usage(path: &Path) -> Option<RunUsage> {
    let shards = parts::shards(path).unwrap_or_default().into_iter();
    let states = shards.filter_map(|shard| State::read(&Part::Shard(shard).state(path)));
    let usages: Vec<RunUsage> = states.filter_map(|state| state.usage).collect();
    (!usages.is_empty()).then(|| RunUsage::sum(&usages))
}

/// Writes it down.
///
/// # Errors
/// Those of the file system.
pub fn write_usage(folder: &RunFolder, usage: Option<&RunUsage>) -> Result<(), FolderError> {
    match usage {
        None => Ok(()),
        Some(usage) => folder.write_json(super::points::USAGE, usage),
    }
}
