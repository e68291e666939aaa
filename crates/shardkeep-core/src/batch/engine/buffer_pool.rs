//! Pool of batch buffers.
//!
//! A new buffer of megabytes costs a page fault every 4 KiB, and its pages go back to the kernel when it is freed. For raw
//! records this takes as long as reading them. A buffer returns to the pool when its last user drops it.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::error::{Result, try_resize};

/// Largest number of free buffers; buffers in use do not count.
const MAX_FREE: usize = 4;

/// The free buffers of one engine.
#[derive(Debug, Default)]
pub struct BufferPool {
    free: Mutex<Vec<Vec<u8>>>,
}

/// A buffer that returns to its pool when it is dropped.
#[derive(Debug, Default)]
pub struct PooledBuffer {
    bytes: Vec<u8>,
    pool: Weak<BufferPool>,
}

impl BufferPool {
    /// Return a buffer of `length` bytes with any content.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub(super) fn acquire(self: &Arc<Self>, length: usize) -> Result<PooledBuffer> {
        let reused = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut bytes = reused.unwrap_or_default();
        if bytes.capacity() < length || bytes.capacity() / 4 > length {
            bytes = Vec::new(); // growing would copy the old content
        }
        try_resize(&mut bytes, length)?;
        Ok(PooledBuffer { bytes, pool: Arc::downgrade(self) })
    }
}

impl PooledBuffer {
    pub(super) fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else { return };
        // In a forked child a thread of the parent may hold the lock for ever.
        if let Ok(mut free) = pool.free.try_lock()
            && free.len() < MAX_FREE
        {
            free.push(std::mem::take(&mut self.bytes));
        }
    }
}

impl Deref for PooledBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for PooledBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_buffer_is_reused() {
        let pool = Arc::new(BufferPool::default());
        let first = pool.acquire(1000).unwrap();
        let address = first.as_ptr();
        drop(first);
        let second = pool.acquire(900).unwrap();
        assert_eq!((second.as_ptr(), second.len()), (address, 900));
        assert_ne!(pool.acquire(900).unwrap().as_ptr(), address, "a buffer has one user at a time");
    }

    #[test]
    fn buffers_grow_and_giants_are_not_reused() {
        let pool = Arc::new(BufferPool::default());
        drop(pool.acquire(10).unwrap());
        assert_eq!(pool.acquire(5000).unwrap().len(), 5000);
        drop(pool.acquire(1 << 20).unwrap());
        assert!(pool.acquire(100).unwrap().bytes.capacity() < 1 << 20);
    }

    #[test]
    fn a_buffer_outlives_its_pool() {
        let pool = Arc::new(BufferPool::default());
        let buffer = pool.acquire(10).unwrap();
        drop(pool);
        assert_eq!(buffer.len(), 10);
    }
}
