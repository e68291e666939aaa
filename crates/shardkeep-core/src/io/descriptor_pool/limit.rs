//! The number of descriptors of the pool, and the range of their numbers.
//!
//! The soft `RLIMIT_NOFILE` is low (1,024) for programs that use `select()`, whose bit set overflows at larger numbers; the
//! hard limit is high. If the soft limit were raised for the whole process, *other* code would get numbers above 1,023,
//! because the pool fills those below, and every started program would inherit the raised limit: a library cannot restore
//! it there, since neither `vfork` nor `posix_spawn`, which `subprocess` uses, runs a hook.
//!
//! The limit is therefore raised only while a file is opened. The first descriptors of the pool stay among the low numbers.
//! When a quarter of these is in use, a descriptor is moved (`F_DUPFD_CLOEXEC`) to a number at or above the soft limit,
//! which no other code can have, and the limit is restored. A descriptor remains valid after that. Other threads see the
//! raised limit only during that microsecond; a program started in it inherits the limit, which is harmless.

use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::syscalls::{self, NoFile};

/// Largest limit of the pool: above it the tables of the kernel and of this module cost more than opening files again.
pub(super) const MOST_DESCRIPTORS: usize = 65_536;

/// Environment variable; the value `soft` keeps the pool below the soft limit.
const SWITCH: &str = "SHARDKEEP_DESCRIPTORS";

/// Limits that [`read_limits`] determined; a ceiling of 0 means that the pool stays below the soft limit.
static POOL_LIMIT: AtomicUsize = AtomicUsize::new(0);
static SOFT: AtomicU64 = AtomicU64::new(0);
static CEILING: AtomicU64 = AtomicU64::new(0);

/// State of the raised limit.
static RAISED: RaisedLimit =
    RaisedLimit { locked: AtomicBool::new(false), threads: AtomicUsize::new(0), before: AtomicU64::new(0) };

struct RaisedLimit {
    /// A spin lock for the other two fields and the limit itself, held for one or two system calls and during a fork, so
    /// that a child gets consistent values.
    locked: AtomicBool,
    /// Number of threads that use the raised limit.
    threads: AtomicUsize,
    /// Limit to restore.
    before: AtomicU64,
}

/// Read the limits of the process, once.
pub(super) fn read_limits() {
    let NoFile { soft, hard } = syscalls::no_file().unwrap_or(NoFile { soft: 256, hard: 256 });
    let most = MOST_DESCRIPTORS as u64;
    let share = (soft.min(most) - soft.min(most) / 4).max(1);
    // One less than a limit that a user would set, so that the raised limit can be recognised.
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

/// Return the number of descriptors below the soft limit that remain for other code if the pool has `limit`.
pub(super) fn reserve(limit: usize) -> usize {
    let soft = usize::try_from(SOFT.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
    let low = if CEILING.load(Ordering::Relaxed) > 0 { limit.min(soft / 4) } else { limit };
    soft.saturating_sub(low)
}

/// Open a file for the pool, with a number that leaves low numbers to other code.
pub(super) fn open(path: &Path) -> io::Result<RawFd> {
    let opened = syscalls::open(path);
    if CEILING.load(Ordering::Relaxed) == 0 {
        return opened;
    }
    match opened {
        Ok(fd) if fd as u64 >= SOFT.load(Ordering::Relaxed) / 4 => {
            let moved = raised(|| syscalls::move_up(fd, SOFT.load(Ordering::Relaxed)));
            // If it cannot be moved, its number is kept.
            Ok(moved.inspect(|_| syscalls::close(fd)).unwrap_or(fd))
        }
        Err(e) if e.raw_os_error() == Some(libc::EMFILE) => raised(|| syscalls::open(path)),
        other => other,
    }
}

/// Run `work` with the raised limit. Threads may overlap: the last one restores the limit. If the program sets its own
/// limit meanwhile, it is raised once more.
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
            raised.restore(ceiling);
        }
    });
    done
}

impl RaisedLimit {
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
            // The program may have changed the limit since the pool read it.
            self.before.store(before.soft, Ordering::Relaxed);
        }
        true
    }

    fn restore(&self, ceiling: u64) {
        let Ok(now) = syscalls::no_file() else { return };
        let mut previous = self.before.load(Ordering::Relaxed);
        let mut expected = ceiling;
        if now.soft != ceiling || previous == 0 {
            return;
        }
        // Lowering always succeeds. The replaced limit is the raised one, or one that the program has set between the two
        // calls; that one is restored.
        for _ in 0..8 {
            match syscalls::swap_soft_no_file(previous, now.hard) {
                Ok(found) if found.soft != expected => (expected, previous) = (previous, found.soft),
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

/// The threads that used the raised limit do not exist in the child.
pub(super) fn after_fork_in_child() {
    if RAISED.threads.swap(0, Ordering::Relaxed) > 0 {
        RAISED.restore(CEILING.load(Ordering::Relaxed));
    }
    RAISED.release();
}
