//! The parts of a run that are measured by processes of their own, and their files in its folder:
//! journals, holds and states.
//!
//! The whole has `journal.jsonl`, `.hold` and `.state.json`; the third of 16 shards has
//! `shards/3-of-16.jsonl`, `.hold` and `.state.json`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Folder of the shards' files.
pub const SHARDS: &str = "shards";

/// Greatest number of shards: more than any scheduler takes in one array of jobs.
const MOST: u32 = 10_000;

/// One of several equal shares of a plan, `3/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shard {
    /// Number of shares.
    pub count: u32,
    /// Which share, from 1 to `count`.
    pub index: u32,
}

impl fmt::Display for Shard {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.index, self.count)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.split_once('/').and_then(|(index, count)| {
            let (index, count) = (index.trim().parse().ok()?, count.trim().parse().ok()?);
            let is_one = (1..=MOST).contains(&count) && (1..=count).contains(&index);
            is_one.then_some(Shard { count, index })
        });
        parsed.ok_or_else(|| {
            format!("`{text}` is not a shard: it is such as 3/16, the third of 16, at most {MOST}")
        })
    }
}

impl Serialize for Shard {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Shard {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// The part of a run that one process measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// All of it.
    #[default]
    Whole,
    /// A share of it.
    Shard(Shard),
}

impl fmt::Display for Part {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Whole => out.write_str("this run"),
            Part::Shard(shard) => write!(out, "shard {shard}"),
        }
    }
}

impl Part {
    fn file(self, folder: &Path, whole: &str, ending: &str) -> PathBuf {
        match self {
            Part::Whole => folder.join(whole),
            Part::Shard(Shard { count, index }) => folder
                .join(SHARDS)
                .join(format!("{index}-of-{count}.{ending}")),
        }
    }

    /// The part's journal in the folder of a run.
    pub fn journal(self, folder: &Path) -> PathBuf {
        self.file(folder, "journal.jsonl", "jsonl")
    }

    /// The file that names the process that writes the part.
    pub fn hold(self, folder: &Path) -> PathBuf {
        self.file(folder, ".hold", "hold")
    }

    /// The file that says how far the part is.
    pub fn state(self, folder: &Path) -> PathBuf {
        self.file(folder, ".state.json", "state.json")
    }

    /// All files of the part.
    pub fn files(self, folder: &Path) -> [PathBuf; 4] {
        [
            self.journal(folder),
            self.hold(folder),
            self.state(folder),
            self.lock(folder),
        ]
    }

    /// The lock of the part, for file systems that have locks.
    pub fn lock(self, folder: &Path) -> PathBuf {
        self.file(folder, ".lock", "lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_counted_from_one() {
        let third = Shard {
            count: 16,
            index: 3,
        };
        assert_eq!("3/16".parse(), Ok(third));
        assert_eq!(third.to_string(), "3/16");
        for wrong in ["0/16", "17/16", "3", "3/0", "a/b", "-1/2", "1/10001"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }
}
