//! How many descriptors the pool may have, and where their numbers lie.
//!
//! The soft `RLIMIT_NOFILE` is low (1,024) for the sake of programs that use `select()`, which overruns its
//! bit set at larger numbers; the hard limit is high. Raising the soft one for the whole process would let *other* code
//! get numbers beyond 1,023, because ours fill those below, and every program it starts would inherit the raised limit: a
//! library cannot put it back there, since neither `vfork` nor `posix_spawn`, which `subprocess` uses, runs any hook.
//!
//! So the limit is raised for the moment of an opening only. The pool's first descriptors stay among the low numbers; when
//! these are a quarter full, a descriptor is moved (`F_DUPFD_CLOEXEC`) to a number at or beyond the soft limit, where
//! nobody else can be, and the limit is put back. A descriptor outlives the limit that allowed it. Others see the
//! raised limit only if they look in that very microsecond; a program that is started in it inherits it, which does no
//! harm by itself.

use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

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

/// Who has raised the limit, and what it was.
static RAISED: Raised =
    Raised { locked: AtomicBool::new(false), threads: AtomicUsize::new(0), before: AtomicU64::new(0) };

struct Raised {
    /// A spin lock over the other two and the limit itself, held for a system call or two and over a fork: so a child
    /// finds the three in accord.
    locked: AtomicBool,
    /// Threads that are under the raised limit.
    threads: AtomicUsize,
    /// What to put back.
    before: AtomicU64,
}

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

/// Do something under the raised limit. Threads may overlap: the last one to leave puts the limit back. Where the
/// program has set a limit of its own meanwhile it is raised once more.
fn raised<T>(work: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let ceiling = CEILING.load(Ordering::Relaxed);
    RAISED.change(|raised| raised.threads.fetch_add(1, Ordering::Relaxed));
    let mut done = Err(io::Error::from_raw_os_error(libc::EMFILE));
    for _ in 0..8 {
        if !RAISED.change(|raised| raised.raise(ceiling)) {
            break;
        }
        done = work();
        let by_limit =
            matches!(&done, Err(e) if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::EINVAL)));
        if !by_limit {
            break;
        }
    }
    RAISED.change(|raised| {
        if raised.threads.fetch_sub(1, Ordering::Relaxed) == 1 {
            raised.put_back(ceiling);
        }
    });
    done
}

impl Raised {
    fn change<T>(&self, change: impl FnOnce(&Self) -> T) -> T {
        self.acquire();
        let changed = change(self);
        self.release();
        changed
    }

    fn acquire(&self) {
        while self.locked.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            std::thread::yield_now();
        }
    }

    fn release(&self) {
        self.locked.store(false, Ordering::Release);
    }

    fn raise(&self, ceiling: u64) -> bool {
        let Ok(now) = syscalls::no_file() else { return false };
        if now.soft >= ceiling {
            return true;
        }
        let Ok(before) = syscalls::swap_soft_no_file(ceiling, now.hard) else { return false };
        if before.soft != ceiling {
            // Whatever it is: it may have been changed since the pool looked at it.
            self.before.store(before.soft, Ordering::Relaxed);
        }
        true
    }

    fn put_back(&self, ceiling: u64) {
        let Ok(now) = syscalls::no_file() else { return };
        let mut theirs = self.before.load(Ordering::Relaxed);
        let mut ours = ceiling;
        if now.soft != ceiling || theirs == 0 {
            return;
        }
        // It can always be lowered. What is found in its place is what we set, or the program has set a limit between the
        // two calls, and that one goes back.
        for _ in 0..8 {
            match syscalls::swap_soft_no_file(theirs, now.hard) {
                Ok(found) if found.soft != ours => (ours, theirs) = (theirs, found.soft),
                _ => return,
            }
        }
    }
}

pub(super) fn before_fork() {
    RAISED.acquire();
}

pub(super) fn after_fork_in_parent() {
    RAISED.release();
}

/// The threads that were under the raised limit are not in the child.
pub(super) fn after_fork_in_child() {
    if RAISED.threads.swap(0, Ordering::Relaxed) > 0 {
        RAISED.put_back(CEILING.load(Ordering::Relaxed));
    }
    RAISED.release();
}
