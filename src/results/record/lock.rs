//! Locks on the parts of a run, for file systems that have locks. A process writes into the file
//! that it has locked who it is: where names of files are seen late, who is refused can read that,
//! and not yet the file that names the process ([`super::hold`]).

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::folder::FolderError;
use super::hold::{self, Holder};
use super::parts;
use sweeper_model::files;
use sweeper_model::shard::{Part, Shard};

/// Length of the text in a lock's file: all texts have it, so that of two processes that share a
/// lock the later one writes over the earlier one as a whole.
const TEXT_BYTES: usize = 1024;

/// How long a process is given to write who it is, after it has a lock.
const PATIENCE: Duration = Duration::from_secs(2);

/// The process that has locked a file, and the part of the run that it writes.
#[derive(Serialize, Deserialize)]
struct Named {
    shard: Option<Shard>,
    holder: Holder,
}

/// Locks `part` of a run in `folder`, alone or beside others, for a process that writes `own`.
///
/// # Errors
/// [`FolderError::Busy`], or those of the file system; one without locks has holds.
pub(super) fn take(folder: &Path, part: Part, alone: bool, own: Part) -> Result<File, FolderError> {
    let path = part.lock(folder);
    // A link would be followed to a file that is none of ours.
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false);
    let file = files::open_own(options, &path).map_err(|error| FolderError::Io { path, error })?;
    let locked = match alone {
        true => file.try_lock(),
        false => file.try_lock_shared(),
    };
    match locked {
        Ok(()) => {
            // A name that can't be written is missing in others' messages, and no hindrance.
            let _ = write_name(&file, own);
            Ok(file)
        }
        Err(TryLockError::Error(_)) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let began = Instant::now();
            loop {
                let (what, holder) = holder(folder, part);
                if holder.is_some() || began.elapsed() > PATIENCE {
                    let path = folder.to_owned();
                    return Err(FolderError::Busy { path, what, holder });
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

fn write_name(file: &File, own: Part) -> io::Result<()> {
    let shard = match own {
        Part::Whole => None,
        Part::Shard(shard) => Some(shard),
    };
    let holder = Holder::here();
    let mut text = serde_json::to_vec(&Named { shard, holder })?;
    text.resize(TEXT_BYTES.max(text.len()), b' ');
    file.write_all_at(&text, 0)?;
    // A server has it before others ask.
    file.sync_data()
}

/// The process that a lock's file names, unless it is known to be dead.
fn read_name(path: &Path) -> Option<(Part, Holder)> {
    let named: Named = serde_json::from_slice(&files::read(path).ok()?).ok()?;
    let is_dead = named.holder.lives(&Holder::here()) == Some(false);
    let part = named.shard.map_or(Part::Whole, Part::Shard);
    (!is_dead).then_some((part, named.holder))
}

/// The process that has a part, or a shard of it.
fn holder(folder: &Path, part: Part) -> (Part, Option<Box<Holder>>) {
    let held = |part: Part| Some((part, hold::held_by(&part.hold(folder))?));
    let shards = match part {
        Part::Whole => parts::shards(folder).unwrap_or_default(),
        Part::Shard(_) => Vec::new(),
    };
    let mut parts = std::iter::once(part).chain(shards.into_iter().map(Part::Shard));
    let found = parts.find_map(held);
    match found.or_else(|| read_name(&part.lock(folder))) {
        Some((part, holder)) => (part, Some(Box::new(holder))),
        None => (part, None),
    }
}
