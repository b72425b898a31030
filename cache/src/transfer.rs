//! All entries at once: into one file, and from a file or folder into this cache.

use std::{
    cmp::Reverse,
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process,
};

use nix::libc;
use serde::Serialize;

use crate::{
    admin::BadEntry,
    bundle::{Bundle, Writer},
    cache::Cache,
    clock,
    error::{CacheError, Failure, Warning},
    format::Defect,
    scan,
    source::Source,
    summary::{self, Listed},
    sys::{self, ReadError},
};

/// The result of [`Cache::export`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Exported {
    /// How many entries are in the bundle.
    pub entries: u64,
    /// The size of the bundle in bytes.
    pub bytes: u64,
    /// Entries that aren't sound, and were left out.
    pub bad: Vec<BadEntry>,
}

/// The result of [`Cache::import`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Imported {
    /// Entries that were copied.
    pub copied: u64,
    /// Entries that were here before.
    pub present: u64,
    /// Entries that there was no room for.
    pub refused: u64,
    /// Entries that aren't sound.
    pub bad: Vec<BadEntry>,
    /// Why there was no room.
    pub warning: Option<Warning>,
}

impl Cache {
    /// Writes all sound entries into one file, a bundle, which other caches can have as an upstream
    /// or import. It appears under its name when it is complete, in place of an older bundle.
    ///
    /// # Errors
    ///
    /// When the cache can't be listed or read, the file can't be written, or one of that name is no
    /// bundle.
    pub fn export(&self, path: &Path) -> Result<Exported, CacheError> {
        let may_be_replaced = match sys::open_unknown(path) {
            Ok((file, _)) => Bundle::is_one(&file),
            Err(error) => matches!(error, ReadError::Absent),
        };
        if !may_be_replaced {
            return Err(CacheError::NotABundle {
                path: path.to_owned(),
            });
        }
        let draft = draft_of(path).map_err(Failure::at("write", path))?;
        let written = self.write_bundle(&draft).and_then(|exported| {
            fs::rename(&draft, path).map_err(Failure::at("publish", path))?;
            Ok(exported)
        });
        if written.is_err() {
            // The first error counts.
            let _ = fs::remove_file(&draft);
        }
        written
    }

    fn write_bundle(&self, draft: &Path) -> Result<Exported, CacheError> {
        let (entries, _) = summary::list(&self.inner.store.layout, |_| true)?;
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .custom_flags(libc::O_NOFOLLOW)
            .open(draft)
            .map_err(Failure::at("create", draft))?;
        let failed = || Failure::at("write", draft);
        let mut exported = Exported::default();
        let mut writer = Writer::begin(BufWriter::new(file)).map_err(failed())?;
        for Listed { name, metadata } in entries {
            let path = self.inner.store.layout.entry(&name);
            match self.check(name) {
                Ok(entry) => {
                    let last_use_ns = scan::last_use_ns(&metadata);
                    writer.add(&entry, last_use_ns).map_err(failed())?;
                    exported.entries += 1;
                }
                Err(ReadError::Bad(Defect::Unreadable(reason))) => {
                    return Err(Failure::at("read", path)(io::Error::other(reason)).into());
                }
                Err(ReadError::Unavailable(error)) => {
                    return Err(Failure::at("read", path)(error).into());
                }
                Err(error) => exported.bad.extend(BadEntry::of(name, error)),
            }
        }
        exported.bytes = finish(writer).map_err(failed())?;
        Ok(exported)
    }

    /// Copies all sound entries of another cache's folder, or of a bundle, the most recently used
    /// first, as long as there is room: nothing that this import copied is evicted for the rest.
    ///
    /// # Errors
    ///
    /// When the source can't be opened or listed, or this cache stores nothing.
    pub fn import(&self, path: &Path) -> Result<Imported, CacheError> {
        let source = Source::open(path)?;
        let mut all = source.all().map_err(Failure::at("list", path))?;
        all.sort_unstable_by_key(|candidate| Reverse(*candidate));
        let store = &self.inner.store;
        let mut imported = Imported::default();
        for candidate in all {
            let name = candidate.name;
            // One that is here and bad makes way.
            if store.get(&name).is_some() {
                imported.present += 1;
                continue;
            }
            match source.read(&name) {
                Ok(entry) => match store.put(&entry) {
                    Ok(()) => imported.copied += 1,
                    Err(warning) if self.warning().is_some() => {
                        return Err(CacheError::ReadOnly(warning));
                    }
                    Err(warning) => {
                        imported.refused += 1;
                        imported.warning = Some(warning);
                    }
                },
                Err(error) => imported.bad.extend(BadEntry::of(name, error)),
            }
        }
        Ok(imported)
    }
}

/// Ends a bundle and makes sure of its content. Yields its size in bytes.
fn finish(writer: Writer<BufWriter<File>>) -> io::Result<u64> {
    let mut out = writer.finish()?;
    out.flush()?;
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_data()?;
    let bytes = file.metadata()?.len();
    nix::unistd::close(file)?;
    Ok(bytes)
}

/// A name beside `path` for a bundle that isn't complete. Drafts that dead processes left there
/// are deleted.
fn draft_of(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let prefix = format!(".{}.draft.", name.display());
    for item in fs::read_dir(folder)? {
        let item = item?;
        let is_draft = item.file_name().to_string_lossy().starts_with(&prefix);
        if is_draft && item.metadata().is_ok_and(|it| scan::is_abandoned(&it)) {
            // Another export may have been here first.
            let _ = fs::remove_file(item.path());
        }
    }
    Ok(folder.join(format!("{prefix}{}.{}", process::id(), clock::now_ns())))
}
