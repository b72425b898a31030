//! Files without a name, in memory, which another process of this user opens by this one's number.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::path::PathBuf;

use memmap2::{Mmap, MmapMut};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use safetensors::tensor::SafeTensors;
use sweeper_program::{Tensors, tensor};

use sweeper_model::tensor_file;

/// A file in memory. It is gone with the last process that has it open.
pub(in crate::device::foreign) struct SharedFile {
    file: File,
}

impl SharedFile {
    /// An empty file.
    ///
    /// # Errors
    /// The system's.
    pub(in crate::device::foreign) fn new(name: &str) -> io::Result<Self> {
        let descriptor = memfd_create(name, MemfdFlags::CLOEXEC)?;
        Ok(SharedFile {
            file: File::from(descriptor),
        })
    }

    /// A file of so many zeros.
    ///
    /// # Errors
    /// The system's.
    pub(in crate::device::foreign) fn of_bytes(name: &str, bytes: u64) -> io::Result<Self> {
        let shared = SharedFile::new(name)?;
        shared.file.set_len(bytes)?;
        Ok(shared)
    }

    /// A file of so many zeros, which no process can make shorter or longer.
    ///
    /// # Errors
    /// The system's.
    pub(in crate::device::foreign) fn sealed(name: &str, bytes: u64) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create(name, flags)?);
        file.set_len(bytes)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(SharedFile { file })
    }

    /// The file of a descriptor that another process has handed over to this one.
    ///
    /// # Errors
    /// The system's: there is no such descriptor.
    #[expect(unsafe_code, reason = "descriptors are numbers")]
    pub(in crate::device::foreign) fn handed_over(descriptor: RawFd) -> io::Result<Self> {
        // SAFETY: it is duplicated, not owned, and the system refuses a number that is none.
        let held = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let file = File::from(held.try_clone_to_owned()?);
        Ok(SharedFile { file })
    }

    /// A file of tensors.
    ///
    /// # Errors
    /// The system's.
    #[expect(unsafe_code, reason = "a mapping of a file")]
    pub(in crate::device::foreign) fn of_tensors(
        name: &str,
        tensors: &Tensors,
    ) -> io::Result<Self> {
        let (head, elements) = tensor_file::layout(tensors).map_err(io::Error::other)?;
        let parts = || std::iter::once(&*head).chain(elements.iter().copied());
        let length: usize = parts().map(<[u8]>::len).sum();
        let shared = SharedFile::of_bytes(name, length as u64)?;
        // SAFETY: no other process has been told of the file.
        let mut mapped = unsafe { MmapMut::map_mut(&shared.file) }?;
        let mut rest = &mut mapped[..];
        for part in parts() {
            let (to, others) = rest.split_at_mut(part.len());
            tensor::copy(to, part);
            rest = others;
        }
        Ok(shared)
    }

    /// The path by which any process of this user opens it, as long as this process has it.
    pub(in crate::device::foreign) fn path(&self) -> PathBuf {
        let (process, descriptor) = (std::process::id(), self.file.as_raw_fd());
        PathBuf::from(format!("/proc/{process}/fd/{descriptor}"))
    }

    /// The file itself.
    pub(in crate::device::foreign) fn file(&self) -> &File {
        &self.file
    }

    /// The tensors that another process has written into it.
    ///
    /// # Errors
    /// A file that can't be read, or that does not hold tensors.
    #[expect(unsafe_code, reason = "a mapping of a file")]
    pub(in crate::device::foreign) fn tensors(&self) -> io::Result<Tensors> {
        // SAFETY: the process that writes it has answered that it is done, and is asked for nothing
        // else while the mapping lives.
        let mapped = unsafe { Mmap::map(&self.file) }?;
        let file = SafeTensors::deserialize(&mapped).map_err(io::Error::other)?;
        let wrong = || io::Error::other("a tensor of an unknown type");
        tensor_file::all_of(&file).ok_or_else(wrong)
    }
}
