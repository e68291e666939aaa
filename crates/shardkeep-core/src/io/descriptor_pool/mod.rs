//! Virtual files over a bounded set of descriptors.
//!
//! The contract (after PostgreSQL's `fd.c`):
//!
//! * A [`VirtualFile`] is a path that can be read at any time; the pool decides when it has a descriptor. A process has one
//!   pool, which never has more descriptors than its limit. At the limit, a file that is not being read is closed
//!   (second-chance order).
//! * Every read is a `pread` at an explicit offset. No code moves a file offset, so a descriptor that parent and child share
//!   after `fork` cannot disturb either.
//! * A [`Lease`] pins the descriptor for one or a few reads. A thread has at most one lease at a time, so a pool with a
//!   limit of 1 still makes progress.
//! * `fork`: the pool's lock is acquired before and released after `fork` in both processes, so that the child gets a
//!   consistent pool. Pins of the parent's threads are removed in the child.
//! * A file that is opened again must be the same inode. If the file was replaced, the read fails, so that it does not mix
//!   two files. The caller of [`VirtualFile::release`] guarantees the content, and may replace the file.
//! * A stale descriptor (`ESTALE` of a network file system) is retired at once, although other threads may have it pinned:
//!   the next read opens the path again, and the last thread that has the old descriptor pinned closes it.

mod identity;
mod limit;
mod pool;
mod syscalls;
#[cfg(test)]
mod tests;
mod transient;

use std::io::{self, IoSliceMut};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Kind, Result};
use identity::Identity;
use pool::POOL;
pub use transient::TransientFile;

/// A slot holds `(fd + 1) << 32 | pins`; 0 means closed.
const PIN: u64 = 1;
const PINS: u64 = 0xffff_ffff;

/// A file that can be read at any time; the pool decides when it has a descriptor.
#[derive(Debug)]
pub struct VirtualFile {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    slot: AtomicU64,
    recent: AtomicBool,
    /// Index in the pool's list of open files.
    list_index: AtomicUsize,
    /// Identity at the first opening.
    identity: OnceLock<Identity>,
    /// The file may have another identity when it is opened again.
    released: AtomicBool,
}

/// Descriptors of the pool, for `shardkeep.files.budget()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Largest number of descriptors that the pool may have.
    pub limit: usize,
    /// Number of descriptors below the soft limit that remain for other code.
    pub reserve: usize,
    /// Number of descriptors now.
    pub open: usize,
    /// Largest number of descriptors so far.
    pub peak: usize,
    /// Number of times that a file was opened.
    pub opened: u64,
    /// Number of times that a file was closed because of the limit.
    pub evicted: u64,
}

/// A pinned descriptor.
#[derive(Debug)]
pub struct Lease<'a> {
    file: &'a Arc<Inner>,
    fd: RawFd,
}

impl VirtualFile {
    /// Create a virtual file; nothing is opened yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            inner: Arc::new(Inner {
                path: path.into(),
                slot: AtomicU64::new(0),
                recent: AtomicBool::new(false),
                list_index: AtomicUsize::new(0),
                identity: OnceLock::new(),
                released: AtomicBool::new(false),
            }),
        }
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Pin a descriptor, and open the file if necessary.
    ///
    /// # Errors
    /// The file cannot be opened, or is not the file that was opened first.
    pub fn lease(&self) -> Result<Lease<'_>> {
        if let Some(fd) = self.inner.pin_if_open() {
            return Ok(Lease { file: &self.inner, fd });
        }
        let fd = POOL.open(&self.inner)?;
        Ok(Lease { file: &self.inner, fd })
    }

    /// Return the current size of the file.
    ///
    /// # Errors
    /// As [`lease`](Self::lease); or the file's status cannot be read.
    pub fn size(&self) -> Result<u64> {
        let lease = self.lease()?;
        let stat = syscalls::status(lease.fd).map_err(|e| Error::os(&e, "inspect the file", self.path()))?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    /// Return true if the file was opened before, and the pool has closed files because of its limit.
    #[must_use]
    pub fn may_be_closed(&self) -> bool {
        self.inner.identity.get().is_some() && pool::IS_SHORT.load(Ordering::Relaxed)
    }

    /// Close the file, which no thread reads. The path may have another copy of its content when it is read again.
    pub fn release(&self) {
        self.inner.released.store(true, Ordering::Relaxed);
        POOL.close(&self.inner);
    }

    /// Return the time of the last write, if the file was written after it was opened first.
    #[must_use]
    pub fn written_since_opened(&self) -> Option<String> {
        let lease = self.lease().ok()?;
        let now = Identity::of(&syscalls::status(lease.fd).ok()?);
        (self.inner.identity.get()?.modified != now.modified).then(|| now.modified_utc())
    }

    /// Fill `buf` from `offset`; return less than its length only at the end of the file.
    ///
    /// # Errors
    /// As [`lease`](Self::lease); or the operating system cannot read.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.read_vectored_at(&mut [IoSliceMut::new(buf)], offset)
    }

    /// As [`read_at`](Self::read_at), into several buffers; at most 1,023, the limit of the kernel.
    ///
    /// A stale handle of a network file system (`ESTALE`) is retired, and the path is opened once more.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        self.read(bufs, offset, false)
    }

    /// As [`read_vectored_at`](Self::read_vectored_at), for a file that should be long enough. If it is not, the path is
    /// opened once more, since a network file system may report an old size for an open handle.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn read_whole_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        self.read(bufs, offset, true)
    }

    fn read(&self, mut bufs: &mut [IoSliceMut<'_>], offset: u64, whole: bool) -> Result<usize> {
        IoSliceMut::advance_slices(&mut bufs, 0); // skips empty ones
        let mut done = 0;
        let mut again = false;
        loop {
            let lease = self.lease()?;
            let outcome = lease.fill(&mut bufs, offset, &mut done);
            let doubtful = match &outcome {
                Ok(()) => whole && !bufs.is_empty(),
                Err(e) => e.errno == Some(libc::ESTALE),
            };
            if again || !doubtful {
                return outcome
                    .map(|()| done)
                    .map_err(|e| if again && doubtful { e.after_reopening() } else { e });
            }
            lease.retire();
            again = true;
        }
    }
}

impl Drop for VirtualFile {
    fn drop(&mut self) {
        POOL.close(&self.inner);
    }
}

impl Error {
    fn after_reopening(mut self) -> Self {
        self.message
            .push_str(", also after the path was opened again: the file no longer exists on its server");
        self
    }
}

impl Inner {
    fn pin_if_open(&self) -> Option<RawFd> {
        let mut slot = self.slot.load(Ordering::Acquire);
        while slot > PINS {
            match self.slot.compare_exchange_weak(slot, slot + PIN, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    self.recent.store(true, Ordering::Relaxed);
                    return Some((slot >> 32) as RawFd - 1);
                }
                Err(now) => slot = now,
            }
        }
        None
    }

    /// Return false if `fd` is no longer the descriptor of this file; then the pool counts its pins.
    fn unpin(&self, fd: RawFd) -> bool {
        let mut slot = self.slot.load(Ordering::Acquire);
        while slot >> 32 == fd as u64 + 1 {
            match self.slot.compare_exchange_weak(slot, slot - PIN, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => slot = now,
            }
        }
        false
    }
}

impl Lease<'_> {
    /// Fill `bufs` from `offset + done`; a rest remains only at the end of the file.
    fn fill(&self, bufs: &mut &mut [IoSliceMut<'_>], offset: u64, done: &mut usize) -> Result<()> {
        while !bufs.is_empty() {
            let at = offset.checked_add(*done as u64).and_then(|at| libc::off_t::try_from(at).ok());
            let at = at.ok_or_else(|| {
                Error::new(Kind::Corrupt, "an offset is larger than a file can be").at(&self.file.path)
            })?;
            match syscalls::read(self.fd, bufs, at) {
                Ok(0) => break,
                Ok(n) => {
                    *done += n;
                    IoSliceMut::advance_slices(bufs, n);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    return Err(Error::os(&e, "read", &self.file.path).offset(offset + *done as u64));
                }
            }
        }
        Ok(())
    }

    /// Retire the descriptor for all threads: the next read opens the path again.
    fn retire(self) {
        POOL.retire(self.file, self.fd);
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if !self.file.unpin(self.fd) {
            POOL.unpin_retired(self.fd);
        }
    }
}

/// Return the current numbers of the pool.
#[must_use]
pub fn usage() -> Usage {
    POOL.usage()
}

/// Set the limit of the pool (at least 1). Descriptors above it are closed as soon as they are not pinned.
pub fn set_limit(limit: usize) {
    POOL.set_limit(limit);
}
