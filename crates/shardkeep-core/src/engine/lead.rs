//! Who goes first where the first image of a batch says how large all others are.
//!
//! Threads take the chunks of a batch in order but would reach the parsing of them in any; then it would be chance
//! which image is the measure, and so which record an error names. Until one image has been decoded, a chunk waits here
//! for all chunks before it. A chunk is given out only after those before it, so the first one that is not finished
//! always has a thread, and that thread never waits.
#![deny(clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(super) struct Lead {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct State {
    settled: bool,
    /// All chunks before this one are finished.
    next: usize,
    /// Chunks behind it that are finished.
    ahead: BTreeSet<usize>,
}

impl Lead {
    /// Returns when the measure is settled (false) or `chunk` is the one to settle it (true).
    pub(super) fn wait(&self, chunk: usize) -> bool {
        let mut state = self.lock();
        while !state.settled && state.next < chunk {
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.settled
    }

    pub(super) fn settle(&self) {
        self.lock().settled = true;
        self.moved.notify_all();
    }

    pub(super) fn finish(&self, chunk: usize) {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.ahead.insert(chunk);
        while state.ahead.remove(&state.next) {
            state.next += 1;
        }
        drop(guard);
        self.moved.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_first_unfinished_chunk_leads() {
        let lead = Arc::new(Lead::default());
        let (tell, told) = channel();
        let waiting = [1, 2].map(|chunk| {
            let (lead, tell) = (Arc::clone(&lead), tell.clone());
            std::thread::spawn(move || {
                let leads = lead.wait(chunk);
                tell.send((chunk, leads)).unwrap();
            })
        });
        assert!(lead.wait(0));
        assert!(told.recv_timeout(Duration::from_millis(50)).is_err());
        lead.finish(0);
        assert_eq!(told.recv().unwrap(), (1, true));
        assert!(told.recv_timeout(Duration::from_millis(50)).is_err());
        lead.settle();
        assert_eq!(told.recv().unwrap(), (2, false));
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn chunks_that_end_early_are_passed() {
        let lead = Lead::default();
        lead.finish(1);
        lead.finish(2);
        assert!(lead.wait(0));
        lead.finish(0);
        assert!(lead.wait(3));
        lead.settle();
        assert!(!lead.wait(9));
    }
}
