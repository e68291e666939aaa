//! Many files looked at, by threads.

use std::io;
use std::path::PathBuf;
use std::sync::Mutex;

use crate::format::file::Storage;
use crate::inspect::source_info::Look;
use shardkeep_core::io::descriptor_pool::TransientFile;
use shardkeep_core::io::known_files::{State, in_turns, threads_for, turn_files};

impl Storage for TransientFile {
    fn length(&self) -> io::Result<u64> {
        Ok(State::of(&self.status()?).size_bytes)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }
}

/// Look at files, one after the other in each thread; None for one that is not known.
///
/// With `lock` each is locked while it is read, as HDF5 does it; with `rows` all rows are hashed.
#[must_use]
pub fn look_at(paths: &[PathBuf], lock: bool, rows: bool) -> Vec<Option<(State, Look)>> {
    let threads = threads_for(paths.len());
    let most = turn_files(paths.len(), threads);
    let mut found: Vec<_> = std::iter::repeat_with(|| None).take(paths.len()).collect();
    let turns = Mutex::new(found.chunks_mut(most).zip(paths.chunks(most)));
    let turns = std::iter::from_fn(|| turns.lock().unwrap_or_else(|e| e.into_inner()).next());
    in_turns(turns, threads, |(targets, paths)| {
        for (target, path) in targets.iter_mut().zip(paths) {
            *target = look_at_one(path, lock, rows);
        }
    });
    found
}

fn look_at_one(path: &std::path::Path, lock: bool, rows: bool) -> Option<(State, Look)> {
    let file = TransientFile::open(path).ok()?;
    let status = file.status().ok()?;
    if status.st_mode & libc::S_IFMT != libc::S_IFREG {
        return None;
    }
    if lock {
        file.lock_shared().ok()?;
    }
    // Of what is locked: before that a writer could have changed it.
    let state = State::of(&file.status().ok()?);
    let look = Look::new(&file, rows).ok()?;
    Some((state, look))
}
