//! A descriptor for one piece of work: opened, used and closed again.
//!
//! It counts among the pool's like any other, so the pool makes room for it, and a child that is forked meanwhile closes
//! its copy: a lock on it is over when the parent's work is.

use std::io;
use std::os::fd::RawFd;
use std::path::Path;

use super::pool::POOL;
use super::syscalls;

/// A file that is open until this is dropped. A thread holds one at a time, and no lease beside it.
#[derive(Debug)]
pub struct Passing {
    fd: RawFd,
}

impl Passing {
    /// Open a file for reading. A pipe is not waited for.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        POOL.open_passing(path).map(|fd| Self { fd })
    }

    /// Take a shared lock (`flock`) without waiting for it.
    ///
    /// # Errors
    /// Somebody has an exclusive one, or the file system has no locks.
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

    /// Fill all of `buf` from `offset`.
    ///
    /// # Errors
    /// What the operating system says; `UnexpectedEof` if the file ends before.
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

impl Drop for Passing {
    fn drop(&mut self) {
        POOL.unpin_retired(self.fd);
    }
}
