//! Election of the image that determines the shape of all images of a batch.
//!
//! Threads claim the chunks of a batch in order, but may parse them in any order. Without an election the first parsed
//! image, and so the record that an error names, would depend on timing. Until one image is decoded, a chunk therefore
//! waits for all chunks before it. Chunks are claimed in order, so the first unfinished chunk always has a thread, and
//! that thread does not wait.
#![deny(clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(super) struct ShapeElection {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    decided: bool,
    /// All chunks before this one are finished.
    next: usize,
    /// Finished chunks after `next`.
    ahead: BTreeSet<usize>,
}

impl ShapeElection {
    /// Wait until the shape is decided (returns false) or `chunk` has to decide it (returns true).
    pub(super) fn wait_for_turn(&self, chunk: usize) -> bool {
        let mut state = self.lock();
        while !state.decided && state.next < chunk {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.decided
    }

    pub(super) fn decide(&self) {
        self.lock().decided = true;
        self.changed.notify_all();
    }

    pub(super) fn finish_chunk(&self, chunk: usize) {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.ahead.insert(chunk);
        while state.ahead.remove(&state.next) {
            state.next += 1;
        }
        drop(guard);
        self.changed.notify_all();
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
    fn the_first_unfinished_chunk_decides() {
        let election = Arc::new(ShapeElection::default());
        let (sender, receiver) = channel();
        let waiting = [1, 2].map(|chunk| {
            let (election, sender) = (Arc::clone(&election), sender.clone());
            std::thread::spawn(move || {
                let decides = election.wait_for_turn(chunk);
                sender.send((chunk, decides)).unwrap();
            })
        });
        assert!(election.wait_for_turn(0));
        assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err());
        election.finish_chunk(0);
        assert_eq!(receiver.recv().unwrap(), (1, true));
        assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err());
        election.decide();
        assert_eq!(receiver.recv().unwrap(), (2, false));
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn chunks_that_finish_early_are_skipped() {
        let election = ShapeElection::default();
        election.finish_chunk(1);
        election.finish_chunk(2);
        assert!(election.wait_for_turn(0));
        election.finish_chunk(0);
        assert!(election.wait_for_turn(3));
        election.decide();
        assert!(!election.wait_for_turn(9));
    }
}
