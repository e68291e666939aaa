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

mod syscalls;

use std::cell::UnsafeCell;
use std::io::{self, IoSliceMut};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Once, OnceLock};
use std::time::Duration;

use crate::error::{Error, Kind, Result};

/// A slot holds `(fd + 1) << 32 | pins`; 0 means closed.
const PIN: u64 = 1;
const PINS: u64 = 0xffff_ffff;

/// The pool never asks for more, whatever the limit of the process says: beyond this the kernel's
/// and this module's tables cost more than reopening does.
const MOST_DESCRIPTORS: usize = 65_536;

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
    /// Device and inode of the first opening.
    identity: OnceLock<(u64, u64)>,
}

/// What the pool is doing, for `shardkeep.files.budget()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Most descriptors the pool may hold at once.
    pub limit: usize,
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
    file: &'a Inner,
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
        POOL.open(&self.inner)
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

    /// Fill `buf` from `offset`; less than asked for only at the end of the file.
    ///
    /// # Errors
    /// As [`lease`](Self::lease); or the operating system cannot read.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.read_vectored_at(&mut [IoSliceMut::new(buf)], offset)
    }

    /// As [`read_at`](Self::read_at), into several buffers; see [`Lease::read_vectored_at`].
    ///
    /// A stale handle of a network file system (`ESTALE`) is given up and the path opened once more.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        match self.lease()?.read_vectored_at(bufs, offset) {
            // Only where nothing was read yet: afterwards the buffers are no longer whole.
            Err(e) if e.errno == Some(libc::ESTALE) && e.offset_bytes == Some(offset) => {
                POOL.close(&self.inner);
                self.lease()?.read_vectored_at(bufs, offset)
            }
            other => other,
        }
    }
}

impl Drop for VirtualFile {
    fn drop(&mut self) {
        POOL.close(&self.inner);
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
}

impl Lease<'_> {
    /// Fill `buf` from `offset`; less than asked for only at the end of the file.
    ///
    /// # Errors
    /// The operating system cannot read.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.read_vectored_at(&mut [IoSliceMut::new(buf)], offset)
    }
}

impl Lease<'_> {
    /// Fill `bufs` one after the other from `offset`; less than they hold only at the end of the file.
    ///
    /// At most 1,023 buffers, which is what the kernel takes.
    ///
    /// # Errors
    /// The operating system cannot read.
    pub fn read_vectored_at(&self, mut bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        let mut done = 0;
        IoSliceMut::advance_slices(&mut bufs, 0); // steps over empty ones
        while !bufs.is_empty() {
            let at = self.offset(offset, done)?;
            let count = libc::c_int::try_from(bufs.len()).unwrap_or(libc::c_int::MAX);
            // SAFETY: an `IoSliceMut` has the layout of an `iovec`, each is writable for its length, and the pin
            // keeps the descriptor open.
            let n = unsafe { libc::preadv(self.fd, bufs.as_ptr().cast(), count, at) };
            match self.got(n, offset, done)? {
                Some(0) => break,
                Some(n) => {
                    done += n;
                    IoSliceMut::advance_slices(&mut bufs, n);
                }
                None => {}
            }
        }
        Ok(done)
    }

    fn offset(&self, offset: u64, done: usize) -> Result<libc::off_t> {
        offset.checked_add(done as u64).and_then(|at| libc::off_t::try_from(at).ok()).ok_or_else(|| {
            Error::new(Kind::Corrupt, "an offset beyond what a file can have").at(&self.file.path)
        })
    }

    /// What a read returned: bytes, or None if it was interrupted.
    fn got(&self, n: libc::ssize_t, offset: u64, done: usize) -> Result<Option<usize>> {
        if let Ok(n) = usize::try_from(n) {
            return Ok(Some(n));
        }
        let e = io::Error::last_os_error();
        if e.kind() == io::ErrorKind::Interrupted {
            return Ok(None);
        }
        Err(Error::os(&e, "read", &self.file.path).offset(offset + done as u64))
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.file.slot.fetch_sub(PIN, Ordering::AcqRel);
    }
}

/// What the pool is doing now.
#[must_use]
pub fn usage() -> Usage {
    let state = POOL.lock();
    Usage {
        limit: state.limit,
        open: state.open.len(),
        peak: state.peak,
        opened: state.opened,
        evicted: state.evicted,
    }
}

/// Hold at most `limit` descriptors from now on (at least 1); what is open beyond it is closed as it
/// falls out of use.
pub fn set_limit(limit: usize) {
    let mut victims = Vec::new();
    {
        let mut state = POOL.lock();
        state.limit = limit.clamp(1, MOST_DESCRIPTORS);
        while state.open.len() + state.opening > state.limit {
            let Some(fd) = state.evict() else { break };
            victims.push(fd);
        }
    }
    victims.into_iter().for_each(syscalls::close);
}

// -- the pool itself ----------------------------------------------------------------------------------

static POOL: Pool = Pool { locked: AtomicBool::new(false), state: UnsafeCell::new(State::EMPTY) };
static PREPARE: Once = Once::new();

struct Pool {
    /// A spin lock, since it must be possible to take it in one process and release it in two.
    /// No system call is made while it is held.
    locked: AtomicBool,
    state: UnsafeCell<State>,
}

struct State {
    limit: usize,
    /// Descriptors promised to openings under way.
    opening: usize,
    open: Vec<Arc<Inner>>,
    hand: usize,
    peak: usize,
    opened: u64,
    evicted: u64,
}

// SAFETY: `state` is reached only through `Guard`, which holds `locked`.
unsafe impl Sync for Pool {}

struct Guard<'a>(&'a Pool);

impl std::ops::Deref for Guard<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.0.state.get() }
    }
}

impl std::ops::DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        // SAFETY: the guard holds the lock.
        unsafe { &mut *self.0.state.get() }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.locked.store(false, Ordering::Release);
    }
}

impl Pool {
    fn lock(&self) -> Guard<'_> {
        PREPARE.call_once(|| {
            // SAFETY: the three handlers are `extern "C"` functions that live as long as the process.
            unsafe {
                libc::pthread_atfork(Some(before_fork), Some(after_fork_in_parent), Some(after_fork_in_child))
            };
        });
        self.acquire();
        let mut guard = Guard(self);
        if guard.limit == 0 {
            guard.limit = syscalls::default_limit();
        }
        guard
    }

    fn acquire(&self) {
        let mut spins = 0_u32;
        while self.locked.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            spins += 1;
            if spins.is_multiple_of(64) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    fn open<'a>(&self, file: &'a Arc<Inner>) -> Result<Lease<'a>> {
        self.reserve();
        let mut tries = 0;
        let opened = loop {
            match syscalls::open(&file.path) {
                Err(e) if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) && tries < 3 => {
                    // Somebody else in the process took the descriptors: give one of ours back.
                    tries += 1;
                    let Some(fd) = self.lock().evict() else {
                        break Err(e);
                    };
                    syscalls::close(fd);
                }
                other => break other,
            }
        };
        let checked = opened
            .map_err(|e| Error::os(&e, "open", &file.path))
            .and_then(|fd| check_identity(fd, file).map(|()| fd).inspect_err(|_| syscalls::close(fd)));
        let mut state = self.lock();
        state.opening = state.opening.saturating_sub(1);
        let fd = checked?;
        if let Some(theirs) = file.pin_if_open() {
            // Another thread opened the same file meanwhile.
            drop(state);
            syscalls::close(fd);
            return Ok(Lease { file, fd: theirs });
        }
        file.slot.store(((fd as u64 + 1) << 32) | PIN, Ordering::Release);
        file.recent.store(true, Ordering::Relaxed);
        state.open.push(Arc::clone(file));
        state.opened += 1;
        state.peak = state.peak.max(state.open.len() + state.opening);
        Ok(Lease { file, fd })
    }

    /// Wait until one more descriptor may be opened, and count it.
    fn reserve(&self) {
        loop {
            let mut state = self.lock();
            if state.open.len() + state.opening < state.limit {
                state.opening += 1;
                return;
            }
            if let Some(fd) = state.evict() {
                state.opening += 1;
                drop(state);
                syscalls::close(fd);
                return;
            }
            // Every descriptor is pinned by another thread, each for one read.
            drop(state);
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn close(&self, file: &Arc<Inner>) {
        if file.slot.load(Ordering::Acquire) == 0 {
            return;
        }
        let fd = {
            let mut state = self.lock();
            let fd = take_if_unpinned(file);
            if fd.is_some() {
                state.open.retain(|other| !Arc::ptr_eq(other, file));
            }
            fd
        };
        if let Some(fd) = fd {
            syscalls::close(fd);
        }
    }
}

impl State {
    const EMPTY: Self =
        Self { limit: 0, opening: 0, open: Vec::new(), hand: 0, peak: 0, opened: 0, evicted: 0 };

    /// Take the descriptor of a file that is not pinned; the caller closes it without the lock.
    fn evict(&mut self) -> Option<RawFd> {
        for _ in 0..self.open.len() * 2 {
            if self.hand >= self.open.len() {
                self.hand = 0;
            }
            let file = self.open.get(self.hand)?;
            if !file.recent.swap(false, Ordering::Relaxed)
                && let Some(fd) = take_if_unpinned(file)
            {
                self.open.swap_remove(self.hand);
                self.evicted += 1;
                return Some(fd);
            }
            self.hand += 1;
        }
        None
    }
}

fn take_if_unpinned(file: &Inner) -> Option<RawFd> {
    let slot = file.slot.load(Ordering::Acquire);
    if slot <= PINS || slot & PINS != 0 {
        return None;
    }
    file.slot.compare_exchange(slot, 0, Ordering::AcqRel, Ordering::Acquire).ok()?;
    Some((slot >> 32) as RawFd - 1)
}

fn check_identity(fd: RawFd, file: &Inner) -> Result<()> {
    let stat = syscalls::status(fd).map_err(|e| Error::os(&e, "look at the file", &file.path))?;
    match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG => {}
        libc::S_IFDIR => {
            let what = "a folder, not a file; name the files in it";
            return Err(Error::new(Kind::Format, what).at(&file.path));
        }
        _ => {
            let what = "a pipe, socket or device, not a file that can be read by offset";
            return Err(Error::new(Kind::Format, what).at(&file.path));
        }
    }
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
    // the widths differ between platforms
    let identity = (stat.st_dev as u64, stat.st_ino as u64);
    if *file.identity.get_or_init(|| identity) == identity {
        return Ok(());
    }
    Err(Error::new(
        Kind::Changed,
        "the file was replaced by another one while it was being read; start the epoch again on the new file",
    )
    .at(&file.path))
}

extern "C" fn before_fork() {
    POOL.acquire();
}

extern "C" fn after_fork_in_parent() {
    POOL.locked.store(false, Ordering::Release);
}

extern "C" fn after_fork_in_child() {
    // SAFETY: the forking thread took the lock in `before_fork` and is the only thread of the child.
    let state = unsafe { &mut *POOL.state.get() };
    state.opening = 0;
    for file in &state.open {
        file.slot.fetch_and(!PINS, Ordering::AcqRel);
    }
    POOL.locked.store(false, Ordering::Release);
}
