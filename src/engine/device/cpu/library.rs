//! Loads shared objects from memory.
//!
//! The bytes go into a sealed memfd, which is opened by its name under `/proc/self/fd`: no process
//! can change them between the check of their digest and the load, and scratch directories that
//! forbid execution do not matter. glibc takes a library for loaded if a library of that name is,
//! so a descriptor stays open for as long as its library: a reused number would bring back the old
//! code.

use std::collections::HashMap;
use std::ffi::CString;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use crate::device::{Artifact, DeviceError};

/// `void entry(const uint64_t *args, uint32_t block)`.
type EntryFunction = unsafe extern "C" fn(*const u64, u32);

/// A function of a loaded library. Libraries stay loaded for as long as the process.
#[derive(Clone, Copy, Debug)]
pub struct Entry(EntryFunction);

impl Entry {
    /// A function that does nothing.
    pub const EMPTY: Entry = Entry(does_nothing);

    /// Where its code lies.
    pub fn address(self) -> u64 {
        self.0 as usize as u64
    }

    /// Calls the function for one block.
    #[expect(unsafe_code, reason = "compiled kernels are foreign functions")]
    pub fn call(self, cells: &[u64], block: u32) {
        // SAFETY: the cells are the launch's arguments, checked against the program; memory
        // accesses of the kernel are its own responsibility, as with any foreign function. It runs
        // in a worker process, which may die of it.
        unsafe { (self.0)(cells.as_ptr(), block) }
    }
}

extern "C" fn does_nothing(_: *const u64, _: u32) {}

/// All libraries that were loaded, by kernel key. They are never unloaded.
#[derive(Default)]
pub struct Libraries {
    loaded: HashMap<String, Loaded>,
}

struct Loaded {
    // Fields drop in this order: the library is closed before its descriptor is.
    object: Library,
    load_ns: u64,
    _descriptor: OwnedFd,
}

impl Libraries {
    /// How long loading took, summed over those artifacts of `keys` that are loaded, in
    /// nanoseconds.
    pub fn load_ns<'k>(&self, keys: impl IntoIterator<Item = &'k str>) -> u64 {
        let loaded = keys.into_iter().filter_map(|key| self.loaded.get(key));
        loaded.map(|loaded| loaded.load_ns).sum()
    }

    /// The function `name` of an artifact, which is loaded at most once.
    ///
    /// # Errors
    /// [`DeviceError::Launch`] if the bytes are not a library for this machine, or lack the
    /// function.
    pub fn entry(&mut self, artifact: &Artifact, name: &str) -> Result<Entry, DeviceError> {
        if !self.loaded.contains_key(&artifact.key) {
            let loaded = load(artifact).map_err(|reason| {
                DeviceError::Launch(format!("kernel {:.12}: {reason}", artifact.key))
            })?;
            self.loaded.insert(artifact.key.clone(), loaded);
        }
        symbol(&self.loaded[&artifact.key].object, name).map_err(|error| {
            DeviceError::Launch(format!(
                "kernel {:.12} has no `{name}`: {}",
                artifact.key,
                explained(&error)
            ))
        })
    }
}

fn load(artifact: &Artifact) -> Result<Loaded, String> {
    let start = Instant::now();
    let name = format!("sweeper-{:.12}", artifact.key);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let descriptor = memfd_create(&name, flags).map_err(|error| format!("memfd: {error}"))?;
    let mut file = std::fs::File::from(descriptor);
    file.write_all(&artifact.bytes)
        .map_err(|error| format!("memfd: {error}"))?;
    let descriptor = OwnedFd::from(file);
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&descriptor, seals).map_err(|error| format!("seal: {error}"))?;
    let object = open(&descriptor).map_err(|error| explained(&error))?;
    Ok(Loaded {
        object,
        load_ns: start.elapsed().as_nanos() as u64,
        _descriptor: descriptor,
    })
}

/// What the dynamic loader says, which an error of `libloading` has as its source.
fn explained(error: &libloading::Error) -> String {
    match std::error::Error::source(error) {
        Some(reason) => format!("{error}: {reason}"),
        None => error.to_string(),
    }
}

#[expect(unsafe_code, reason = "loading a library runs its initialisers")]
fn open(descriptor: &OwnedFd) -> Result<Library, libloading::Error> {
    let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    // SAFETY: the library was built from kernels of this program, which have no initialisers.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
}

#[expect(
    unsafe_code,
    reason = "the type of a foreign function can't be checked"
)]
fn symbol(library: &Library, name: &str) -> Result<Entry, libloading::Error> {
    let name = CString::new(name).unwrap_or_default();
    // SAFETY: every kernel is declared by the `KERNEL` macro, which fixes this type.
    let function = unsafe { library.get::<EntryFunction>(name.as_bytes_with_nul())? };
    Ok(Entry(*function))
}
