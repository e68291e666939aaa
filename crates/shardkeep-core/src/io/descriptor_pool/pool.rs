//! The pool: the files that have a descriptor.

use std::cell::UnsafeCell;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use super::identity::check_identity;
use super::{Inner, PIN, PINS, Usage, limit, syscalls};
use crate::error::{Error, Kind, Result};

pub(super) static POOL: Pool = Pool { locked: AtomicBool::new(false), state: UnsafeCell::new(State::EMPTY) };
/// Set when a file was closed because of the limit.
pub(super) static IS_SHORT: AtomicBool = AtomicBool::new(false);
static PREPARE: Once = Once::new();

pub(super) struct Pool {
    /// A spin lock, since it is acquired in one process and released in two. No system call is made while it is held.
    locked: AtomicBool,
    state: UnsafeCell<State>,
}

struct State {
    limit: usize,
    /// Number of descriptors reserved for files that are being opened.
    opening: usize,
    open: Vec<Arc<Inner>>,
    /// Pinned descriptors without a file in the list, and the number of their pins: retired or transient ones.
    retired: Vec<(RawFd, u64)>,
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
    pub(super) fn usage(&self) -> Usage {
        let state = self.lock();
        Usage {
            limit: state.limit,
            reserve: limit::reserve(state.limit),
            open: state.held(),
            peak: state.peak,
            opened: state.opened,
            evicted: state.evicted,
        }
    }

    pub(super) fn set_limit(&self, limit: usize) {
        let mut evicted = Vec::new();
        {
            let mut state = self.lock();
            state.limit = limit.clamp(1, limit::MOST_DESCRIPTORS);
            while state.held() + state.opening > state.limit {
                let Some(fd) = state.evict() else { break };
                evicted.push(fd);
            }
        }
        evicted.into_iter().for_each(syscalls::close);
    }

    /// Open the file, unless another thread has opened it meanwhile, and pins the descriptor.
    pub(super) fn open(&self, file: &Arc<Inner>) -> Result<RawFd> {
        self.reserve();
        let opened = self.open_path(&file.path);
        let checked = opened
            .map_err(|e| match file.identity.get() {
                Some(_) if e.raw_os_error() == Some(libc::ENOENT) => deleted(file),
                _ => Error::os(&e, "open", &file.path),
            })
            .and_then(|fd| check_identity(fd, file).map(|()| fd).inspect_err(|_| syscalls::close(fd)));
        let mut state = self.lock();
        state.opening = state.opening.saturating_sub(1);
        let fd = checked?;
        if let Some(existing) = file.pin_if_open() {
            drop(state);
            syscalls::close(fd);
            return Ok(existing);
        }
        file.slot.store(((fd as u64 + 1) << 32) | PIN, Ordering::Release);
        file.recent.store(true, Ordering::Relaxed);
        file.list_index.store(state.open.len(), Ordering::Relaxed);
        state.open.push(Arc::clone(file));
        state.opened += 1;
        state.peak = state.peak.max(state.held() + state.opening);
        Ok(fd)
    }

    /// Open a file for one operation; the descriptor is counted until `unpin_retired`.
    pub(super) fn open_transient(&self, path: &Path) -> io::Result<RawFd> {
        self.reserve();
        let opened = self.open_path(path);
        let mut state = self.lock();
        state.opening = state.opening.saturating_sub(1);
        let fd = opened?;
        state.retired.push((fd, 1));
        state.opened += 1;
        state.peak = state.peak.max(state.held() + state.opening);
        Ok(fd)
    }

    fn open_path(&self, path: &Path) -> io::Result<RawFd> {
        let mut tries = 0;
        loop {
            match limit::open(path) {
                Err(e) if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) && tries < 3 => {
                    // Other code of the process has the descriptors: close one of the pool.
                    tries += 1;
                    let Some(fd) = self.lock().evict() else {
                        return Err(e);
                    };
                    syscalls::close(fd);
                }
                // A folder of the path was stale; the second attempt asks the server.
                Err(e) if e.raw_os_error() == Some(libc::ESTALE) && tries == 0 => tries += 1,
                other => return other,
            }
        }
    }

    pub(super) fn close(&self, file: &Arc<Inner>) {
        if file.slot.load(Ordering::Acquire) == 0 {
            return;
        }
        let fd = {
            let mut state = self.lock();
            let fd = take_if_unpinned(file);
            if fd.is_some() {
                state.forget(file);
            }
            fd
        };
        if let Some(fd) = fd {
            syscalls::close(fd);
        }
    }

    /// Retire `fd`, if it is still the descriptor of `file`; the caller has it pinned, and unpins it afterwards.
    pub(super) fn retire(&self, file: &Arc<Inner>, fd: RawFd) {
        let mut state = self.lock();
        let mut slot = file.slot.load(Ordering::Acquire);
        while slot >> 32 == fd as u64 + 1 {
            match file.slot.compare_exchange_weak(slot, 0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    state.retired.push((fd, slot & PINS));
                    state.forget(file);
                    return;
                }
                Err(now) => slot = now,
            }
        }
    }

    pub(super) fn unpin_retired(&self, fd: RawFd) {
        let last = {
            let mut state = self.lock();
            let Some(at) = state.retired.iter().position(|(other, _)| *other == fd) else { return };
            let last = state.retired.get_mut(at).is_none_or(|(_, pins)| {
                *pins = pins.saturating_sub(1);
                *pins == 0
            });
            if last {
                state.retired.swap_remove(at);
            }
            last
        };
        if last {
            syscalls::close(fd);
        }
    }

    /// Wait until one more descriptor may be opened, and reserves it.
    fn reserve(&self) {
        loop {
            let mut state = self.lock();
            if state.held() + state.opening < state.limit {
                state.opening += 1;
                return;
            }
            if let Some(fd) = state.evict() {
                state.opening += 1;
                drop(state);
                syscalls::close(fd);
                return;
            }
            // Other threads have all descriptors pinned, each for one read.
            drop(state);
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn lock(&self) -> Guard<'_> {
        PREPARE.call_once(|| {
            // SAFETY: the three handlers are `extern "C"` functions that live as long as the process.
            unsafe {
                libc::pthread_atfork(Some(before_fork), Some(after_fork_in_parent), Some(after_fork_in_child))
            };
            limit::read_limits();
        });
        self.acquire();
        let mut guard = Guard(self);
        if guard.limit == 0 {
            guard.limit = limit::pool_limit();
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
}

impl State {
    const EMPTY: Self = Self {
        limit: 0,
        opening: 0,
        open: Vec::new(),
        retired: Vec::new(),
        hand: 0,
        peak: 0,
        opened: 0,
        evicted: 0,
    };

    fn held(&self) -> usize {
        self.open.len() + self.retired.len()
    }

    fn forget(&mut self, file: &Arc<Inner>) {
        let index = file.list_index.load(Ordering::Relaxed);
        if self.open.get(index).is_some_and(|other| Arc::ptr_eq(other, file)) {
            self.remove(index);
        }
    }

    /// Remove a file from the list; the last file gets its index.
    fn remove(&mut self, index: usize) {
        self.open.swap_remove(index);
        if let Some(moved) = self.open.get(index) {
            moved.list_index.store(index, Ordering::Relaxed);
        }
    }

    /// Remove a file that is not pinned and return its descriptor, which the caller closes without the lock.
    fn evict(&mut self) -> Option<RawFd> {
        for _ in 0..self.open.len() * 2 {
            if self.hand >= self.open.len() {
                self.hand = 0;
            }
            let file = self.open.get(self.hand)?;
            if !file.recent.swap(false, Ordering::Relaxed)
                && let Some(fd) = take_if_unpinned(file)
            {
                self.remove(self.hand);
                self.evicted += 1;
                IS_SHORT.store(true, Ordering::Relaxed);
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

#[cold]
fn deleted(file: &Inner) -> Error {
    let now = super::identity::utc_now();
    Error::new(
        Kind::NotFound,
        format!("the file existed when it was opened first and is gone now ({now}): deleted or renamed"),
    )
    .at(&file.path)
}

extern "C" fn before_fork() {
    POOL.acquire();
    limit::before_fork();
}

extern "C" fn after_fork_in_parent() {
    limit::after_fork_in_parent();
    POOL.locked.store(false, Ordering::Release);
}

extern "C" fn after_fork_in_child() {
    // SAFETY: the forking thread acquired the lock in `before_fork` and is the only thread of the child.
    let state = unsafe { &mut *POOL.state.get() };
    state.opening = 0;
    for file in &state.open {
        file.slot.fetch_and(!PINS, Ordering::AcqRel);
    }
    // The threads that read through these do not exist in the child. Memory must not be freed in the child of a process
    // with several threads, so the list keeps its memory.
    state.retired.drain(..).for_each(|(fd, _)| syscalls::close(fd));
    limit::after_fork_in_child();
    POOL.locked.store(false, Ordering::Release);
}
