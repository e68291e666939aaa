//! Batch buffers that are used again.
//!
//! A fresh buffer of megabytes costs a page fault every 4 KiB and gives the pages back to the kernel when it is freed:
//! for raw records that is as much as reading them. A buffer comes home when its last user drops it, whenever
//! that is; nobody waits for it.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::error::{Result, try_resize};

/// Buffers kept at most: what is lent out does not count.
const KEPT: usize = 4;

/// Where the buffers of one engine come home to.
#[derive(Debug, Default)]
pub struct Recycler {
    kept: Mutex<Vec<Vec<u8>>>,
}

/// A buffer on loan.
#[derive(Debug, Default)]
pub struct Recycled {
    bytes: Vec<u8>,
    home: Weak<Recycler>,
}

impl Recycler {
    /// A buffer of `length` bytes of any content.
    ///
    /// # Errors
    /// The memory cannot be had.
    pub(super) fn lend(self: &Arc<Self>, length: usize) -> Result<Recycled> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut bytes = kept.unwrap_or_default();
        if bytes.capacity() < length || bytes.capacity() / 4 > length {
            bytes = Vec::new(); // growing would copy what nobody needs
        }
        try_resize(&mut bytes, length)?;
        Ok(Recycled { bytes, home: Arc::downgrade(self) })
    }
}

impl Recycled {
    pub(super) fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
    }
}

impl Drop for Recycled {
    fn drop(&mut self) {
        let Some(home) = self.home.upgrade() else { return };
        // In a forked child the lock may be held for ever by a thread that is not there.
        if let Ok(mut kept) = home.kept.try_lock()
            && kept.len() < KEPT
        {
            kept.push(std::mem::take(&mut self.bytes));
        }
    }
}

impl Deref for Recycled {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Recycled {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_home_and_is_lent_again() {
        let recycler = Arc::new(Recycler::default());
        let first = recycler.lend(1000).unwrap();
        let address = first.as_ptr();
        drop(first);
        let second = recycler.lend(900).unwrap();
        assert_eq!((second.as_ptr(), second.len()), (address, 900));
        assert_ne!(recycler.lend(900).unwrap().as_ptr(), address, "it is lent to one at a time");
    }

    #[test]
    fn it_grows_and_does_not_keep_giants() {
        let recycler = Arc::new(Recycler::default());
        drop(recycler.lend(10).unwrap());
        assert_eq!(recycler.lend(5000).unwrap().len(), 5000);
        drop(recycler.lend(1 << 20).unwrap());
        assert!(recycler.lend(100).unwrap().bytes.capacity() < 1 << 20);
    }

    #[test]
    fn it_outlives_its_home() {
        let recycler = Arc::new(Recycler::default());
        let lent = recycler.lend(10).unwrap();
        drop(recycler);
        assert_eq!(lent.len(), 10);
    }
}
