//! How many descriptors the pool may have, and where their numbers lie.
//!
//! The soft `RLIMIT_NOFILE` is low (1,024) for the sake of programs that use `select()`, which overruns its
//! bit set at larger numbers; the hard limit is high. Raising the soft one for the whole process would let *other* code
//! get numbers beyond 1,023, because ours fill those below, and every program it starts would inherit the raised limit: a
//! library cannot put it back there, since neither `vfork` nor `posix_spawn`, which `subprocess` uses, runs any hook.
//!
//! So the limit is raised for the moment of an opening only. The pool's first descriptors stay among the low numbers; when
//! these are a quarter full, a descriptor is moved (`F_DUPFD_CLOEXEC`) to a number at or beyond the soft limit, where
//! nobody else can be, and the limit is put back. A descriptor outlives the limit that allowed it. All that others
//! ever see is the limit as it was; a program that is started in that very microsecond inherits the raised one, which
//! does no harm by itself.

use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::syscalls::{self, NoFile};

/// The pool never asks for more, whatever the limit of the process says: beyond this the kernel's
/// and this module's tables cost more than reopening does.
pub(super) const MOST_DESCRIPTORS: usize = 65_536;

/// Set to `soft` it keeps the pool below the soft limit.
const SWITCH: &str = "SHARDKEEP_DESCRIPTORS";

/// What [`choose`] chose; 0 for a ceiling means that there is nothing beyond the soft limit.
static POOL_LIMIT: AtomicUsize = AtomicUsize::new(0);
static SOFT: AtomicU64 = AtomicU64::new(0);
static CEILING: AtomicU64 = AtomicU64::new(0);

/// Threads between raising the limit and putting it back, and what to put back.
static RAISING: AtomicUsize = AtomicUsize::new(0);
static PUT_BACK: AtomicU64 = AtomicU64::new(0);

/// Look at the limits of the process, once.
pub(super) fn choose() {
    let NoFile { soft, hard } = syscalls::no_file().unwrap_or(NoFile { soft: 256, hard: 256 });
    let most = MOST_DESCRIPTORS as u64;
    let share = (soft.min(most) - soft.min(most) / 4).max(1);
    // One less than a limit that somebody may set by hand: so the raised one is known as ours.
    let ceiling = hard.min(most).saturating_sub(1);
    let beyond = ceiling.saturating_sub(soft);
    let stay = std::env::var_os(SWITCH).is_some_and(|value| value == "soft");
    SOFT.store(soft, Ordering::Relaxed);
    if beyond > share && !stay {
        CEILING.store(ceiling, Ordering::Relaxed);
        POOL_LIMIT.store(beyond as usize, Ordering::Relaxed);
    } else {
        POOL_LIMIT.store(share as usize, Ordering::Relaxed);
    }
}

pub(super) fn pool_limit() -> usize {
    POOL_LIMIT.load(Ordering::Relaxed)
}

/// What is left of the soft limit to others if the pool holds `limit` descriptors.
pub(super) fn reserve(limit: usize) -> usize {
    let soft = usize::try_from(SOFT.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
    let low = if CEILING.load(Ordering::Relaxed) > 0 { limit.min(soft / 4) } else { limit };
    soft.saturating_sub(low)
}

/// Open a file for the pool, under a number that does not crowd others out.
pub(super) fn open(path: &Path) -> io::Result<RawFd> {
    let opened = syscalls::open(path);
    if CEILING.load(Ordering::Relaxed) == 0 {
        return opened;
    }
    match opened {
        Ok(fd) if fd as u64 >= SOFT.load(Ordering::Relaxed) / 4 => {
            let moved = raised(|| syscalls::move_up(fd, SOFT.load(Ordering::Relaxed)));
            // If it cannot be moved it is good where it is.
            Ok(moved.inspect(|_| syscalls::close(fd)).unwrap_or(fd))
        }
        Err(e) if e.raw_os_error() == Some(libc::EMFILE) => raised(|| syscalls::open(path)),
        other => other,
    }
}

/// Do something under the raised limit. Threads may overlap: the last one to leave puts the limit back, and one
/// whose limit was put back by another that left too late tries again.
fn raised<T>(work: impl Fn() -> io::Result<T>) -> io::Result<T> {
    RAISING.fetch_add(1, Ordering::SeqCst);
    let mut done = Err(io::Error::from_raw_os_error(libc::EMFILE));
    for _ in 0..8 {
        if !raise() {
            break;
        }
        done = work();
        let by_limit =
            matches!(&done, Err(e) if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::EINVAL)));
        if !by_limit {
            break;
        }
    }
    if RAISING.fetch_sub(1, Ordering::SeqCst) == 1 {
        put_back();
    }
    done
}

fn raise() -> bool {
    let ceiling = CEILING.load(Ordering::Relaxed);
    let Ok(now) = syscalls::no_file() else { return false };
    if now.soft == ceiling {
        return true;
    }
    // Whatever it is: it may have been changed since the pool looked at it.
    PUT_BACK.store(now.soft, Ordering::SeqCst);
    now.soft > ceiling || syscalls::set_soft_no_file(ceiling, now.hard).is_ok()
}

fn put_back() {
    if let Ok(now) = syscalls::no_file()
        && now.soft == CEILING.load(Ordering::Relaxed)
    {
        // It can always be lowered.
        let _ = syscalls::set_soft_no_file(PUT_BACK.load(Ordering::SeqCst), now.hard);
    }
}

/// The threads that were raising the limit are not in the child.
pub(super) fn after_fork_in_child() {
    if RAISING.swap(0, Ordering::SeqCst) > 0 {
        put_back();
    }
}
