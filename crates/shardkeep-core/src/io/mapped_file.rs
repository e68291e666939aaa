//! A file mapped into memory for reading, whose pages all processes of a host share.
//!
//! The file must not become shorter: an access beyond its end raises SIGBUS, as does a failing disk. It is therefore only used
//! for a cache file of this library on a local disk, which is published by rename and never written again. A file that
//! loses its name stays mapped.
#![deny(clippy::indexing_slicing)]

use std::io;
use std::os::fd::RawFd;

/// A mapping of a whole file.
#[derive(Debug)]
pub struct MappedFile {
    address: *const u8,
    size_bytes: usize,
}

// SAFETY: the pages are only read, and unmapped once, by the owner.
unsafe impl Send for MappedFile {}
// SAFETY: as above.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    /// Map the first `size_bytes` of an open file, which may be closed afterwards.
    ///
    /// # Errors
    /// The size is 0, or the operating system cannot map the file.
    pub fn new(fd: RawFd, size_bytes: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses; nothing is overwritten.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), size_bytes, libc::PROT_READ, libc::MAP_SHARED, fd, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A shuffled order needs single pages: reading ahead would fill the page cache with others.
        // SAFETY: advice for the pages that were just mapped.
        unsafe { libc::madvise(address, size_bytes, libc::MADV_RANDOM) };
        Ok(Self { address: address.cast(), size_bytes })
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is readable for this length until the owner is dropped.
        unsafe { std::slice::from_raw_parts(self.address, self.size_bytes) }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: this owner made the mapping, and no slice of it is left.
        unsafe { libc::munmap(self.address.cast_mut().cast(), self.size_bytes) };
    }
}
