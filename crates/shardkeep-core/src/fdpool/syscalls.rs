//! The system calls of the pool that `std` has no form of, or hides.

use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A pipe is not waited for (`O_NONBLOCK`, which does nothing to a regular file); the caller looks at what it got.
pub(super) fn open(path: &Path) -> io::Result<RawFd> {
    let name = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a path with a NUL byte"))?;
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
    // SAFETY: the descriptor was taken out of its slot, so nobody else closes it. An error of close on
    // a descriptor that was only read has no consequence.
    unsafe { libc::close(fd) };
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

/// Three quarters of the soft limit, so that the rest of the process can open files too.
pub(super) fn default_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable.
    let soft = if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0 {
        limit.rlim_cur
    } else {
        256
    };
    let soft = usize::try_from(soft).unwrap_or(super::MOST_DESCRIPTORS);
    (soft - soft / 4).clamp(1, super::MOST_DESCRIPTORS)
}
