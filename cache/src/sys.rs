//! The calls to the file system that std lacks or does too trustingly.
//!
//! `nix` provides them: it is the one crate that has open-file-description locks and a checked
//! close without `unsafe`.

use std::{
    fs::{File, Metadata, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use nix::{errno::Errno, libc, sys::statfs};

use crate::{
    clock,
    format::{Defect, MAX_ENTRY_BYTES},
};

/// The effective user.
pub(crate) fn user() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// Why a file yields no bytes.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// There is no file.
    Absent,
    /// There is a file, but it can't be an entry.
    Bad(Defect),
    /// The trouble is not with the file: too many open files, no memory, a network that is down.
    Unavailable(io::Error),
}

/// Opens a file of unknown type: no link is followed, and a pipe without a writer doesn't block.
pub(crate) fn open_unknown(path: &Path) -> Result<(File, Metadata), ReadError> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(|error| match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT | Errno::ENOTDIR) => ReadError::Absent,
        // A link, a socket or a device without a driver.
        Some(Errno::ELOOP | Errno::EMLINK | Errno::ENXIO | Errno::ENODEV) => {
            ReadError::Bad(Defect::NotAFile)
        }
        Some(Errno::EACCES | Errno::EPERM | Errno::EIO) => {
            ReadError::Bad(Defect::Unreadable(error.to_string()))
        }
        _ => ReadError::Unavailable(error),
    })?;
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => Ok((file, metadata)),
        Ok(_) => Err(ReadError::Bad(Defect::NotAFile)),
        Err(error) => Err(ReadError::Unavailable(error)),
    }
}

/// Reads the file at `path`, at most `limit` bytes of it, with one open and in effect one read. It
/// has to belong to `owner`.
///
/// Yields the open file, the bytes, and the length that the file claims to have.
pub(crate) fn read(path: &Path, limit: u64, owner: u32) -> Result<(File, Vec<u8>, u64), ReadError> {
    let (file, metadata) = open_unknown(path)?;
    // Checksums prove nothing against a user who can write; the owner of the file does.
    let (user, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    if user != owner || mode & 0o022 != 0 {
        return Err(ReadError::Bad(Defect::Untrusted { owner: user, mode }));
    }
    let length = metadata.size();
    if length > MAX_ENTRY_BYTES {
        return Err(ReadError::Bad(Defect::Length(length)));
    }
    let bytes = read_at(&file, 0, length.min(limit))?;
    Ok((file, bytes, length))
}

/// Reads up to `length` bytes from an offset on; fewer where the file ends before.
pub(crate) fn read_at(file: &File, offset: u64, length: u64) -> Result<Vec<u8>, ReadError> {
    let wanted = usize::try_from(length).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(wanted)
        .map_err(|_| ReadError::Unavailable(io::ErrorKind::OutOfMemory.into()))?;
    bytes.resize(wanted, 0);
    let mut filled = 0;
    while filled < wanted {
        match file.read_at(&mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.raw_os_error() == Some(libc::EIO) => {
                return Err(ReadError::Bad(Defect::Unreadable(
                    "the device can't read it".into(),
                )));
            }
            Err(error) => return Err(ReadError::Unavailable(error)),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Makes a new file that only its owner can read. On failure it may be left there.
pub(crate) fn write_draft(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    file.write_all(bytes)?;
    Ok(file)
}

/// Writes a new file with the given time of last use and makes sure of its content. On failure it
/// may be left there.
pub(crate) fn write_new(path: &Path, bytes: &[u8], last_use_ns: u64) -> io::Result<()> {
    let file = write_draft(path, bytes)?;
    file.set_modified(clock::at(last_use_ns))?;
    file.sync_data()?;
    // A network file system may report only here that the bytes never arrived.
    Ok(nix::unistd::close(file)?)
}

/// Opens a small file that all processes share, such as a lock file, and makes it if it is missing.
pub(crate) fn open_shared(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
}

/// Opens a small file for reading and writing in place.
pub(crate) fn open_existing(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(path)
}

/// Whether a name was free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    /// The name was free, and names the file now.
    New,
    /// The name belongs to another file, which is left alone. The source keeps its old name.
    Exists,
}

/// Gives the file at `from` the name `to`, never replacing anything.
pub(crate) fn rename_no_replace(from: &Path, to: &Path) -> io::Result<Placed> {
    let renamed = match rename_exclusive(from, to) {
        // Known to some file systems only, NFS not among them.
        Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => {
            // The entry is in place then. A second name that stays in `tmp/` is reaped some day.
            std::fs::hard_link(from, to).map(|()| drop(std::fs::remove_file(from)))
        }
        other => other.map_err(io::Error::from),
    };
    match renamed {
        Ok(()) => Ok(Placed::New),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Placed::Exists),
        Err(error) => Err(error),
    }
}

#[cfg(target_env = "gnu")]
fn rename_exclusive(from: &Path, to: &Path) -> nix::Result<()> {
    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
    renameat2(AT_FDCWD, from, AT_FDCWD, to, RenameFlags::RENAME_NOREPLACE)
}

#[cfg(not(target_env = "gnu"))]
fn rename_exclusive(_from: &Path, _to: &Path) -> nix::Result<()> {
    Err(Errno::ENOSYS)
}

/// `f_type` of file systems on a network: nfs, smb, cifs, smb2, lustre, gpfs, ceph, afs, beegfs,
/// 9p. See `statfs(2)`.
const NETWORK: [u32; 10] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x0bd0_0bd0,
    0x4750_4653,
    0x00c3_6400,
    0x5346_414f,
    0x1983_0326,
    0x0102_1997,
];

/// `f_type` of file systems that a process serves, which may ask a network.
const FUSE: u32 = 0x6573_5546;

/// Whether `path` lies on a network file system. Of a path that is not there yet, its nearest
/// parent that is counts.
pub fn is_network(path: &Path) -> bool {
    kind(path).is_some_and(|kind| NETWORK.contains(&kind))
}

/// Whether `path` lies on a file system where every call may be a round trip.
pub(crate) fn is_slow(path: &Path) -> bool {
    kind(path).is_some_and(|kind| kind == FUSE || NETWORK.contains(&kind))
}

fn kind(path: &Path) -> Option<u32> {
    let found = path
        .ancestors()
        .find_map(|path| match statfs::statfs(path) {
            Err(Errno::ENOENT) => None,
            found => Some(found),
        });
    // The type is a signed long on some targets; the numbers above are its low 32 bits.
    Some(found?.ok()?.filesystem_type().0 as u32)
}

/// The unit in which the file system at `path` allocates, in bytes, at least 4096.
pub(crate) fn allocation_unit(path: &Path) -> u64 {
    let unit = nix::sys::statvfs::statvfs(path).map_or(0, |fs| fs.fragment_size());
    unit.clamp(4096, 1 << 20)
}
