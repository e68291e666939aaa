//! System calls of the pool that `std` does not offer.

use std::ffi::CString;
use std::io::{self, IoSliceMut};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Limits of open files; infinity is the largest number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoFile {
    pub(super) soft: u64,
    pub(super) hard: u64,
}

/// Open a file without waiting for a pipe (`O_NONBLOCK`, which has no effect on a regular file); the caller checks its
/// type.
pub(super) fn open(path: &Path) -> io::Result<RawFd> {
    let name = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the path has a NUL byte"))?;
    loop {
        // SAFETY: `name` is a NUL-terminated string that outlives the call.
        let fd = unsafe { libc::open(name.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK) };
        if fd >= 0 {
            return Ok(fd);
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
}

pub(super) fn close(fd: RawFd) {
    // SAFETY: the descriptor was removed from its slot, so no other code closes it. An error of close has no consequence
    // for a descriptor that was only read.
    unsafe { libc::close(fd) };
}

pub(super) fn read(fd: RawFd, bufs: &mut [IoSliceMut<'_>], at: libc::off_t) -> io::Result<usize> {
    #[cfg(test)]
    if let Some(errno) = faults::of(fd) {
        return Err(io::Error::from_raw_os_error(errno));
    }
    let count = libc::c_int::try_from(bufs.len()).unwrap_or(libc::c_int::MAX);
    // SAFETY: an `IoSliceMut` has the layout of an `iovec`, each is writable for its length, and the caller has the
    // descriptor pinned.
    let n = unsafe { libc::preadv(fd, bufs.as_ptr().cast(), count, at) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

pub(super) fn lock_shared(fd: RawFd) -> io::Result<()> {
    // SAFETY: the call accesses no memory.
    let done = unsafe { libc::flock(fd, libc::LOCK_SH | libc::LOCK_NB) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Duplicate the descriptor to the lowest free number from `least` on.
pub(super) fn move_up(fd: RawFd, least: u64) -> io::Result<RawFd> {
    let least = libc::c_int::try_from(least).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: the call accesses no memory.
    let moved = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, least) };
    if moved >= 0 { Ok(moved) } else { Err(io::Error::last_os_error()) }
}

pub(super) fn status(fd: RawFd) -> io::Result<libc::stat> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `stat` is writable and large enough; it is read only when the call succeeded.
    unsafe {
        if libc::fstat(fd, stat.as_mut_ptr()) == 0 {
            Ok(stat.assume_init())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

#[allow(clippy::unnecessary_cast, clippy::useless_conversion)] // the widths differ between platforms
pub(super) fn no_file() -> io::Result<NoFile> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0 {
        Ok(NoFile { soft: limit.rlim_cur as u64, hard: limit.rlim_max as u64 })
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Set the soft limit and return the old one, atomically.
#[cfg(target_os = "linux")]
#[allow(clippy::unnecessary_cast, clippy::useless_conversion)] // the widths differ between platforms
pub(super) fn swap_soft_no_file(soft: u64, hard: u64) -> io::Result<NoFile> {
    let limit = libc::rlimit { rlim_cur: soft as libc::rlim_t, rlim_max: hard as libc::rlim_t };
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is readable and `before` writable.
    if unsafe { libc::prlimit(0, libc::RLIMIT_NOFILE, &raw const limit, &raw mut before) } == 0 {
        Ok(NoFile { soft: before.rlim_cur as u64, hard: before.rlim_max as u64 })
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Set the soft limit and return the previous one, which is not atomic here.
#[cfg(not(target_os = "linux"))]
pub(super) fn swap_soft_no_file(soft: u64, hard: u64) -> io::Result<NoFile> {
    let before = no_file()?;
    let limit = libc::rlimit { rlim_cur: soft as libc::rlim_t, rlim_max: hard as libc::rlim_t };
    // SAFETY: `limit` is readable.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } == 0 {
        Ok(before)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Injected read errors, for tests.
#[cfg(test)]
pub(super) mod faults {
    use std::collections::HashMap;
    use std::os::fd::RawFd;
    use std::sync::{LazyLock, Mutex};

    /// Reads that fail: those through one descriptor, or all of the file with an inode.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub(in super::super) enum Of {
        Descriptor(RawFd),
        Inode(u64),
    }

    static FAULTS: LazyLock<Mutex<HashMap<Of, i32>>> = LazyLock::new(Mutex::default);

    pub(in super::super) fn of(fd: RawFd) -> Option<i32> {
        let inode = super::status(fd).map_or(0, |stat| stat.st_ino);
        let faults = FAULTS.lock().unwrap();
        faults.get(&Of::Descriptor(fd)).or_else(|| faults.get(&Of::Inode(inode))).copied()
    }

    /// A fault that ends when this is dropped.
    #[derive(Debug)]
    pub(in super::super) struct Fault(Of);

    impl Fault {
        pub(in super::super) fn new(of: Of, errno: i32) -> Self {
            FAULTS.lock().unwrap().insert(of, errno);
            Self(of)
        }
    }

    impl Drop for Fault {
        fn drop(&mut self) {
            FAULTS.lock().unwrap().remove(&self.0);
        }
    }
}
