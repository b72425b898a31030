//! Regular files, and nothing else: no pipe is waited for, no device is read without end, and a
//! written file is there as a whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};

use crate::identity::Digest;

/// Opens a file for reading.
///
/// # Errors
/// Those of the file system, or that it is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    open_as(OpenOptions::new().read(true), path)
}

/// Opens a file as `options` say.
///
/// # Errors
/// Those of the file system, or that it is not a regular file.
pub fn open_as(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    // Opening a pipe waits for its other end, unless it is told not to.
    let file = options.custom_flags(flags(OFlags::NONBLOCK)).open(path)?;
    regular(file)
}

/// Opens a file of our own, which is not a link to another user's file.
///
/// # Errors
/// Those of the file system, or that it is a link or no regular file.
pub fn open_own(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let wanted = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    regular(options.custom_flags(flags(wanted)).open(path)?)
}

fn flags(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}

fn regular(file: File) -> io::Result<File> {
    let kind = file.metadata()?.file_type();
    match () {
        () if kind.is_file() => Ok(file),
        () if kind.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        () => Err(io::Error::other("not a regular file")),
    }
}

/// Creates a file in a folder, and the folder where it is not there.
///
/// # Errors
/// Those of the file system.
pub fn create(folder: &Path, name: &str) -> io::Result<BufWriter<File>> {
    fs::create_dir_all(folder)?;
    Ok(BufWriter::new(File::create(folder.join(name))?))
}

/// The bytes of a file.
///
/// # Errors
/// Those of the file system, or that it is not a regular file.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of a file.
///
/// # Errors
/// Those of the file system, or that it is not a regular file, or no text.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    io::read_to_string(open(path)?)
}

/// The most bytes of a text that a packed file is unpacked to.
const MOST_UNPACKED_BYTES: u64 = 1 << 30;

/// The text of a file, which may be packed by gzip.
///
/// # Errors
/// As [`read_to_string`], or that it is damaged, or larger than 1 GiB unpacked.
pub fn read_packed(path: &Path) -> io::Result<String> {
    let bytes = read(path)?;
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return String::from_utf8(bytes).map_err(|error| invalid(error.utf8_error()));
    }
    let mut text = String::new();
    let unpacked = MultiGzDecoder::new(&bytes[..]);
    unpacked
        .take(MOST_UNPACKED_BYTES + 1)
        .read_to_string(&mut text)?;
    match text.len() as u64 <= MOST_UNPACKED_BYTES {
        true => Ok(text),
        false => Err(invalid("it is larger than 1 GiB unpacked")),
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Whether a file's first bytes are not those of a text. One that can't be read is none.
pub fn is_binary(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = open(path).and_then(|file| file.take(8192).read_to_end(&mut head));
    read.is_ok() && head.contains(&0)
}

/// The SHA-256 of a file.
///
/// # Errors
/// Those of the file system, or that it is not a regular file.
pub fn digest(path: &Path) -> io::Result<Digest> {
    let mut hasher = Sha256::new();
    io::copy(&mut open(path)?, &mut hasher)?;
    Ok(Digest::from_bytes(hasher.finalize().into()))
}

/// File systems take names of 255 bytes, to which endings are added.
const MOST_NAME_BYTES: usize = 120;

/// A name as file systems take it: a longer one is cut, and ends with a digest.
pub fn short_name(name: &str) -> String {
    if name.len() <= MOST_NAME_BYTES {
        return name.to_owned();
    }
    let cut = &name[..name.floor_char_boundary(MOST_NAME_BYTES - 13)];
    format!("{cut}-{:.12}", hex::encode(Sha256::digest(name)))
}

/// Size, times and inode of a file: one that was written or replaced differs in one of them.
pub fn stamp(found: &fs::Metadata) -> String {
    format!(
        "{} {}.{:09} {}.{:09} {}",
        found.len(),
        found.mtime(),
        found.mtime_nsec(),
        found.ctime(),
        found.ctime_nsec(),
        found.ino()
    )
}

/// The file of a program: a path as shells understand it, or a name that is looked for in the
/// folders of `PATH`. A relative path is one from `folder`.
pub fn program(name: &Path, folder: &Path) -> Option<PathBuf> {
    if name.components().count() > 1 {
        return Some(folder.join(name));
    }
    let folders = std::env::var_os("PATH")?;
    let mut found = std::env::split_paths(&folders).map(|folder| folder.join(name));
    found.find(|path| path.is_file())
}

/// Writes a file as a whole: a reader sees the old file or the new one, also after a crash.
///
/// # Errors
/// Those of the file system; the old file is still there.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_with(path, |file| file.write_all(bytes))
}

/// As [`write()`], of a file that `write` writes.
///
/// # Errors
/// Those of the file system and of `write`; the old file is still there.
pub fn write_with(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{}.new", name.trim_start_matches('.')));
    let mut options = OpenOptions::new();
    let written = open_own(options.write(true).create(true).truncate(true), &temporary)
        .and_then(|mut file| write(&mut file).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, path));
    written.inspect_err(|_| {
        // A file that was not written in full must not take up room.
        let _ = fs::remove_file(&temporary);
    })
}

/// Makes a file as a whole where there is none; a file that is there stays. Several processes, also
/// on several machines, may do so at once: the file of one of them is there then.
///
/// # Errors
/// Those of the file system.
pub fn make(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match make_alone(path, bytes) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// As [`make`], and fails where the file is there already.
///
/// # Errors
/// Those of the file system.
pub fn make_alone(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = beside(path, bytes)?;
    // Unlike a file that is created and then written, a link is there with its content; and it
    // fails where there is another, also on network file systems.
    let linked = fs::hard_link(&temporary, path);
    let _ = fs::remove_file(&temporary);
    linked
}

/// Replaces a file that is for looking at alone: as a whole, but a crash of the machine may lose
/// it. Several processes may do so at once.
///
/// # Errors
/// Those of the file system.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = beside(path, bytes)?;
    fs::rename(&temporary, path).inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

/// As [`write()`], where several processes may write the file at once: it is that of one of them.
///
/// # Errors
/// Those of the file system; the old file is still there.
pub fn write_shared(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = beside(path, bytes)?;
    let synced = File::open(&temporary).and_then(|file| file.sync_all());
    let written = synced.and_then(|()| fs::rename(&temporary, path));
    written.inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

/// Writes a file of a name of its own beside `path`.
fn beside(path: &Path, bytes: &[u8]) -> io::Result<std::path::PathBuf> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut options = tempfile::Builder::new();
    let prefix = format!(".{}.", name.trim_start_matches('.'));
    let mut file = options.prefix(&prefix).suffix(".new").tempfile_in(folder)?;
    let written = file.write_all(bytes);
    // As others of the folder: people of a group look at the runs of each other.
    let (_, path) = file.keep().map_err(|error| error.error)?;
    let readable = fs::Permissions::from_mode(0o644);
    let written = written.and_then(|()| fs::set_permissions(&path, readable));
    match written {
        Ok(()) => Ok(path),
        Err(error) => {
            let _ = fs::remove_file(&path);
            Err(error)
        }
    }
}

/// Writes a file beside a cache's own, as a whole.
///
/// # Errors
/// Those of the file system; if the folder is not a cache, which would refuse a folder with files
/// in it.
pub fn write_beside_cache(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::metadata(folder.join("CACHEDIR.TAG"))?;
    let file = tempfile::NamedTempFile::new_in(folder)?;
    fs::write(file.path(), bytes)?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn nothing_but_regular_files_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "words").unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        assert_eq!(read(&path("file")).unwrap(), b"words");
        assert_eq!(read_to_string(&path("link")).unwrap(), "words");
        let made = Command::new("mkfifo").arg(path("pipe")).status();
        assert!(made.unwrap().success());
        std::os::unix::fs::symlink("/dev/zero", path("endless")).unwrap();
        for name in ["pipe", "endless", "."] {
            assert!(read(&path(name)).is_err(), "{name}");
        }
        assert!(open_own(OpenOptions::new().read(true), &path("link")).is_err());
    }

    #[test]
    fn several_processes_write_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.json");
        std::thread::scope(|scope| {
            for number in 0..8u8 {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..50 {
                        write_shared(path, &[number; 1000]).unwrap();
                        replace(path, &[number; 1000]).unwrap();
                        make(path, b"never").unwrap();
                        let held = read(path).unwrap();
                        assert_eq!(held, vec![held[0]; 1000]);
                    }
                });
            }
        });
        make_alone(&path, b"never").unwrap_err();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_can_not_be_replaced_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        write(&path, b"a page").unwrap();
        write(&path, b"another page").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"another page");
        // A folder in the place of the temporary file.
        let temporary = folder.path().join(".page.html.new");
        fs::create_dir(&temporary).unwrap();
        write(&path, b"a third page").unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"another page");
        fs::remove_dir(&temporary).unwrap();
        // No other user's file is written through a link.
        let precious = folder.path().join("precious");
        fs::write(&precious, "kept").unwrap();
        std::os::unix::fs::symlink(&precious, &temporary).unwrap();
        write(&path, b"a third page").unwrap_err();
        assert_eq!(fs::read(&precious).unwrap(), b"kept");
    }

    #[test]
    fn packed_texts_are_read_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        let pack = |bytes: &[u8]| {
            let file = File::create(&path).unwrap();
            let mut packed = GzEncoder::new(file, Compression::fast());
            packed.write_all(bytes).unwrap();
            packed.finish().unwrap();
            read_packed(&path)
        };
        assert_eq!(pack(b"one").unwrap(), "one");
        assert!(pack(&[0xff, 0xfe]).is_err());
        let damaged = fs::read(&path).unwrap();
        fs::write(&path, &damaged[..damaged.len() - 1]).unwrap();
        assert!(read_packed(&path).is_err());
        fs::write(&path, "two").unwrap();
        assert_eq!(read_packed(&path).unwrap(), "two");
        fs::write(&path, [0xff]).unwrap();
        assert!(read_packed(&path).is_err());
    }
}
