//! Where everything is under the root of a cache, and who may be trusted with that root.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{
    clock,
    error::{CacheError, Failure},
    key::EntryName,
    sys,
};

/// Marks the tree as one that backups may leave out (<https://bford.info/cachedir/>).
const CACHEDIR_TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n\
    # Compiled kernels, kept by sweeper. Everything in here can be deleted, and is made again.\n";

/// The paths of one cache.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    root: PathBuf,
    v1: PathBuf,
}

/// One name found inside a shard.
pub(crate) enum Found {
    /// The name of an entry, whichever type of file has it.
    Entry(EntryName, fs::Metadata),
    /// Something that this crate never wrote.
    Foreign(PathBuf),
}

impl Layout {
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            v1: root.join("v1"),
        }
    }

    /// Makes the root and `v1` if they are missing and checks that they can be trusted. Lists
    /// nothing but a new root.
    pub(crate) fn prepare(&self) -> Result<(), CacheError> {
        if let Err(source) = make_dir(&self.root, true) {
            let path = self.root.clone();
            return Err(CacheError::Create { path, source });
        }
        self.check_root()?;
        make_dir(&self.v1, false).map_err(Failure::at("create", &self.v1))?;
        self.check_v1()
    }

    /// Checks a tree that exists, as [`prepare`](Self::prepare) does, and makes nothing.
    pub(crate) fn check(&self) -> Result<(), CacheError> {
        self.check_root()?;
        match self.has_v1() {
            true => self.check_v1(),
            false => Ok(()),
        }
    }

    fn has_v1(&self) -> bool {
        fs::symlink_metadata(&self.v1).is_ok()
    }

    fn check_root(&self) -> Result<(), CacheError> {
        check_trust(&self.root, fs::metadata(&self.root))?;
        // `v1` comes before all else: it tells a cache from a directory full of other things.
        // Another process may make it just now, hence the second look.
        let is_other = !self.has_v1()
            && !is_empty(&self.root).map_err(Failure::at("list", &self.root))?
            && !self.has_v1();
        match is_other {
            true => Err(CacheError::NotACache {
                path: self.root.clone(),
            }),
            false => Ok(()),
        }
    }

    fn check_v1(&self) -> Result<(), CacheError> {
        check_trust(&self.v1, fs::symlink_metadata(&self.v1))?;
        // A user who can rename in here can put another shard in place of ours. A damaged tree
        // without it is mended later.
        let objects = self.objects();
        match fs::symlink_metadata(&objects) {
            Ok(metadata) if metadata.is_dir() => check_trust(&objects, Ok(metadata)),
            _ => Ok(()),
        }
    }

    /// Makes the rest of the tree. Where this fails there may still be entries to read.
    pub(crate) fn complete(&self) -> Result<(), Failure> {
        for path in [
            self.objects(),
            self.tmp(),
            self.v1.join("lock"),
            self.v1.join("gc"),
            self.bad(),
        ] {
            make_dir(&path, false).map_err(Failure::at("create", &path))?;
        }
        let tag = self.root.join("CACHEDIR.TAG");
        match sys::write_new(&tag, CACHEDIR_TAG.as_bytes(), clock::now_ns()) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(Failure::at("write", tag)(error))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn objects(&self) -> PathBuf {
        self.v1.join("o")
    }

    pub(crate) fn tmp(&self) -> PathBuf {
        self.v1.join("tmp")
    }

    pub(crate) fn bad(&self) -> PathBuf {
        self.v1.join("bad")
    }

    pub(crate) fn flight_lock(&self) -> PathBuf {
        self.v1.join("lock/flight")
    }

    pub(crate) fn gc_lock(&self) -> PathBuf {
        self.v1.join("lock/gc")
    }

    pub(crate) fn account(&self) -> PathBuf {
        self.v1.join("acct")
    }

    pub(crate) fn queue(&self) -> PathBuf {
        self.v1.join("gc/queue")
    }

    pub(crate) fn stats(&self) -> PathBuf {
        self.v1.join("stats")
    }

    pub(crate) fn shard(&self, name: &EntryName) -> PathBuf {
        self.objects().join(name.shard())
    }

    pub(crate) fn entry(&self, name: &EntryName) -> PathBuf {
        self.shard(name).join(name.file())
    }

    /// A path in `tmp/` that no other process or thread uses, even on another host.
    pub(crate) fn fresh_tmp(&self) -> PathBuf {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let count = NEXT.fetch_add(1, Ordering::Relaxed);
        self.tmp()
            .join(format!("{}.{count}.{}", process::id(), clock::now_ns()))
    }

    /// The shards that exist, sorted. Everything else in `o/` comes second.
    pub(crate) fn shards(&self) -> io::Result<(Vec<String>, Vec<PathBuf>)> {
        let (mut shards, mut foreign) = (Vec::new(), Vec::new());
        for item in absent_is_none(fs::read_dir(self.objects()))?
            .into_iter()
            .flatten()
        {
            let item = item?;
            match item.file_name().into_string() {
                Ok(name) if is_shard(&name) && item.file_type()?.is_dir() => shards.push(name),
                _ => foreign.push(item.path()),
            }
        }
        shards.sort_unstable();
        foreign.sort_unstable();
        Ok((shards, foreign))
    }

    /// The files of one shard, in no order. Names that vanish meanwhile are left out.
    pub(crate) fn list(&self, shard: &str) -> io::Result<Vec<Found>> {
        let mut found = Vec::new();
        for item in absent_is_none(fs::read_dir(self.objects().join(shard)))?
            .into_iter()
            .flatten()
        {
            let item = item?;
            let name = item.file_name().into_string().ok();
            let Some(name) = name.and_then(|file| EntryName::parse(shard, &file)) else {
                found.push(Found::Foreign(item.path()));
                continue;
            };
            if let Some(metadata) = absent_is_none(item.metadata())? {
                found.push(Found::Entry(name, metadata));
            }
        }
        Ok(found)
    }
}

/// Turns "not found" into `None`.
pub(crate) fn absent_is_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes a folder that only its owner can enter. One that exists is fine.
pub(crate) fn make_dir(path: &Path, parents: bool) -> io::Result<()> {
    match fs::DirBuilder::new()
        .mode(0o700)
        .recursive(parents)
        .create(path)
    {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

fn is_empty(path: &Path) -> io::Result<bool> {
    Ok(fs::read_dir(path)?.next().is_none())
}

fn is_shard(name: &str) -> bool {
    name.len() == 2
        && name
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn check_trust(path: &Path, metadata: io::Result<fs::Metadata>) -> Result<(), CacheError> {
    let metadata = metadata.map_err(Failure::at("look at", path))?;
    let path = path.to_owned();
    if !metadata.is_dir() {
        return Err(CacheError::NotADirectory { path });
    }
    let (owner, user) = (metadata.uid(), sys::user());
    if owner != user {
        return Err(CacheError::ForeignOwner { path, owner, user });
    }
    let mode = metadata.mode() & 0o7777;
    // In a sticky directory others may add names, but not replace ours.
    let (others_write, is_sticky) = (mode & 0o022 != 0, mode & 0o1000 != 0);
    if others_write && !is_sticky {
        return Err(CacheError::OthersMayWrite { path, mode });
    }
    Ok(())
}
