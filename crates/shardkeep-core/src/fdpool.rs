//! Virtual files over a bounded set of descriptors.
//!
//! The contract, before its code (PostgreSQL's `fd.c` is the model):
//!
//! * A [`VirtualFile`] is a path that can be read at any time; whether a descriptor stands behind it
//!   at the moment is the pool's business. There is one pool in a process, and it never holds more
//!   than its limit. When the limit is reached, a file that is not being read is closed
//!   (second-chance order).
//! * Everything is read by `pread` at an explicit offset. No code here moves a file offset, so a
//!   descriptor that parent and child share after `fork` cannot disturb either.
//! * A [`Lease`] pins the descriptor for the length of one or a few reads. A thread holds at most one
//!   lease at a time, which is why a pool with a limit of 1 still makes progress.
//! * Across `fork`: the pool's lock is taken before and released after in both processes, so that the
//!   child finds the pool whole; pins that belonged to the parent's threads are forgotten in the child.
//! * A file that is opened again after its descriptor was given up must be the same inode. If it
//!   was replaced meanwhile the reader is told, instead of being fed a mixture of two files.
//! * A descriptor that turns out to be stale (`ESTALE` of a network file system) is taken out of service at once,
//!   although other threads may have it pinned: whoever comes next opens the path again, and the last of those who
//!   still read through the old one closes it.

mod identity;
mod limit;
mod passing;
mod pool;
mod syscalls;
#[cfg(test)]
mod tests;

use std::io::{self, IoSliceMut};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Kind, Result};
use identity::Identity;
pub use passing::Passing;
use pool::POOL;

/// A slot holds `(fd + 1) << 32 | pins`; 0 means closed.
const PIN: u64 = 1;
const PINS: u64 = 0xffff_ffff;

/// A file that can be read at any time; the pool decides when it is open.
#[derive(Debug)]
pub struct VirtualFile {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    slot: AtomicU64,
    recent: AtomicBool,
    /// Where it stands in the pool's list, while it is in it.
    place: AtomicUsize,
    /// Of the first opening.
    identity: OnceLock<Identity>,
}

/// What the pool is doing, for `shardkeep.files.budget()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Most descriptors the pool may hold at once.
    pub limit: usize,
    /// What the soft limit of the process leaves to everybody else.
    pub reserve: usize,
    /// Descriptors it holds now.
    pub open: usize,
    /// Most it ever held.
    pub peak: usize,
    /// How many times a file was opened.
    pub opened: u64,
    /// How many times a file was closed to make room.
    pub evicted: u64,
}

/// A pinned descriptor.
#[derive(Debug)]
pub struct Lease<'a> {
    file: &'a Arc<Inner>,
    fd: RawFd,
}

impl VirtualFile {
    /// Name a file; nothing is opened yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            inner: Arc::new(Inner {
                path: path.into(),
                slot: AtomicU64::new(0),
                recent: AtomicBool::new(false),
                place: AtomicUsize::new(0),
                identity: OnceLock::new(),
            }),
        }
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Pin a descriptor, opening the file if need be.
    ///
    /// # Errors
    /// The file cannot be opened, or is no longer the one that was opened first.
    pub fn lease(&self) -> Result<Lease<'_>> {
        if let Some(fd) = self.inner.pin_if_open() {
            return Ok(Lease { file: &self.inner, fd });
        }
        let fd = POOL.open(&self.inner)?;
        Ok(Lease { file: &self.inner, fd })
    }

    /// Bytes in the file now.
    ///
    /// # Errors
    /// As [`lease`](Self::lease); or the file's status cannot be read.
    pub fn size(&self) -> Result<u64> {
        let lease = self.lease()?;
        let stat = syscalls::status(lease.fd).map_err(|e| Error::os(&e, "look at the file", self.path()))?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    /// When the file was last written to, in words, if that was after it was opened first.
    #[must_use]
    pub fn written_since_opened(&self) -> Option<String> {
        let lease = self.lease().ok()?;
        let now = Identity::of(&syscalls::status(lease.fd).ok()?);
        (self.inner.identity.get()?.modified != now.modified).then(|| now.modified_in_words())
    }

    /// Fill `buf` from `offset`; less than asked for only at the end of the file.
    ///
    /// # Errors
    /// As [`lease`](Self::lease); or the operating system cannot read.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.read_vectored_at(&mut [IoSliceMut::new(buf)], offset)
    }

    /// As [`read_at`](Self::read_at), into several buffers, one after the other; at most 1,023, which is what the kernel
    /// takes.
    ///
    /// A stale handle of a network file system (`ESTALE`) is given up and the path opened once more.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        self.read(bufs, offset, false)
    }

    /// As [`read_vectored_at`](Self::read_vectored_at), where the file is known to be long enough: if it is not, the path
    /// is opened once more, since a network file system may hold an old size against an open handle.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn read_whole_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        self.read(bufs, offset, true)
    }

    fn read(&self, mut bufs: &mut [IoSliceMut<'_>], offset: u64, whole: bool) -> Result<usize> {
        IoSliceMut::advance_slices(&mut bufs, 0); // steps over empty ones
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
        self.message.push_str(", also after the path was opened again: the file is gone from its server");
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

    /// False if `fd` is not the descriptor of this file any more: then the pool counts its pins.
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
    /// Fill `bufs` from `offset + done`, stepping over what is full; they are not empty afterwards only where the file
    /// ends.
    fn fill(&self, bufs: &mut &mut [IoSliceMut<'_>], offset: u64, done: &mut usize) -> Result<()> {
        while !bufs.is_empty() {
            let at = offset.checked_add(*done as u64).and_then(|at| libc::off_t::try_from(at).ok());
            let at = at.ok_or_else(|| {
                Error::new(Kind::Corrupt, "an offset beyond what a file can have").at(&self.file.path)
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

    /// Give the descriptor up for everybody: the next one who reads opens the path again.
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

/// What the pool is doing now.
#[must_use]
pub fn usage() -> Usage {
    POOL.usage()
}

/// Hold at most `limit` descriptors from now on (at least 1); what is open beyond it is closed as it
/// falls out of use.
pub fn set_limit(limit: usize) {
    POOL.set_limit(limit);
}
