//! The end of a run that is shared between processes: its tables are made by whichever process
//! finds all of it there.

use std::path::Path;

use super::RunError;
use super::tables;
use crate::guides::About;
use crate::record::folder::{FolderError, RunFolder};
use crate::record::hold;
use crate::record::parts;
use crate::record::recorded::{Recorded, contents_of};
use crate::record::state::{End, State};
use crate::record::usage::RunUsage;
use crate::shard::{Part, Shard};

/// Makes the tables of the run if all of its shards are done.
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
    let is_done = |index| {
        let state: Option<State> = state(index);
        state.is_some_and(|state| state.end == Some(End::Done) && state.plan == plan)
    };
    match (1..=shard.count).all(is_done) {
        true => make(path, about, exports).map(|_| ()),
        false => Ok(()),
    }
}

/// Makes tables and exports of the rows of a run so far, unless there are such already
/// or another process is about it. True if there are such then.
///
/// # Errors
/// Errors of reading and writing the files.
pub fn make(path: &Path, about: &About<'_>, exports: &[&str]) -> Result<bool, RunError> {
    if hold::held_by(&Part::Whole.hold(path)).is_some() {
        return Ok(false);
    }
    let folder = match RunFolder::open_for_tables(path) {
        Ok(folder) => folder,
        Err(FolderError::Busy { .. }) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
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
