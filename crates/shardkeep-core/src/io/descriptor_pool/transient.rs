//! A descriptor that is opened for one operation and then closed.
//!
//! It counts as a descriptor of the pool, and a child that is forked meanwhile closes its copy, so that a lock on the file
//! ends with the operation of the parent.

use std::io;
use std::os::fd::RawFd;
use std::path::Path;

use super::pool::POOL;
use super::syscalls;

/// A file that is open until this is dropped. A thread has one at a time, and no lease at the same time.
#[derive(Debug)]
pub struct TransientFile {
    fd: RawFd,
}

impl TransientFile {
    /// Open a file for reading, without waiting for a pipe.
    ///
    /// # Errors
    /// The operating system cannot open the file.
    pub fn open(path: &Path) -> io::Result<Self> {
        POOL.open_transient(path).map(|fd| Self { fd })
    }

    /// Acquire a shared lock (`flock`) without waiting.
    ///
    /// # Errors
    /// Another process has an exclusive lock, or the file system has no locks.
    pub fn lock_shared(&self) -> io::Result<()> {
        syscalls::lock_shared(self.fd)
    }

    #[cfg(test)]
    pub(super) fn fd(&self) -> RawFd {
        self.fd
    }

    pub(crate) fn status(&self) -> io::Result<libc::stat> {
        syscalls::status(self.fd)
    }

    /// Return true for a regular file.
    ///
    /// # Errors
    /// The operating system cannot inspect the file.
    pub fn is_regular(&self) -> io::Result<bool> {
        Ok(self.status()?.st_mode & libc::S_IFMT == libc::S_IFREG)
    }

    /// Fill all of `buf` from `offset`.
    ///
    /// # Errors
    /// The operating system cannot read; `UnexpectedEof` if the file ends before.
    pub fn read_exact_at(&self, mut buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut at = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        while !buf.is_empty() {
            match syscalls::read(self.fd, &mut [io::IoSliceMut::new(buf)], at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    buf = buf.get_mut(n..).unwrap_or_default();
                    at += n as libc::off_t;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl Drop for TransientFile {
    fn drop(&mut self) {
        POOL.unpin_retired(self.fd);
    }
}
