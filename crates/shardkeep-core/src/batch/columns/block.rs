//! Memory of one column.
//!
//! Batches are allocated repeatedly, so they use the allocator, up to a size whose blocks it does not reuse. A result is
//! written once, so its large columns are separate mappings, with huge pages if possible. A block of the allocator might
//! have been used and would have to be zeroed, and page faults of 4 KiB each took a fifth of the time of a result with many
//! columns. The columns of a result are filled row by row, so they begin at different offsets in a page: a cache selects
//! its set by the address in the page, and forty columns would compete for the twelve lines of one set.

use std::alloc::{Layout, alloc_zeroed};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An element type whose all-zero bit pattern is the value zero.
///
/// # Safety
/// Implemented only for such types, none of which needs dropping.
pub unsafe trait Zeroed: Copy + Send + Sync {}
// SAFETY: all bits zero is 0.
unsafe impl Zeroed for u8 {}
// SAFETY: all bits zero is 0.
unsafe impl Zeroed for i64 {}
// SAFETY: all bits zero is 0.0.
unsafe impl Zeroed for f32 {}

/// From this size on a separate mapping is worth two system calls.
const LARGE_BYTES: usize = 1 << 20;
const LINE_BYTES: usize = 64;
const PAGE_BYTES: usize = 4096;
/// Number of mappings so far, which determines the offset of the next one in its first page.
static MAPPINGS: AtomicUsize = AtomicUsize::new(0);

/// An array of fixed length.
pub struct Block<T: Zeroed> {
    start: NonNull<T>,
    length: usize,
    /// Size of the mapping, which begins at the page of `start`; 0 for memory of the allocator, as of a `Vec` of this length
    /// and capacity.
    mapped_bytes: usize,
}

// SAFETY: a block owns its elements as a Vec does.
unsafe impl<T: Zeroed> Send for Block<T> {}
// SAFETY: as above.
unsafe impl<T: Zeroed> Sync for Block<T> {}

impl<T: Zeroed> Block<T> {
    /// Allocate `rows * width` zeros; `None` without enough memory. Large blocks take no memory until they are written.
    pub(super) fn zeroed(rows: usize, width: usize) -> Option<Self> {
        let layout = Layout::array::<T>(rows.checked_mul(width)?).ok()?;
        if layout.size() == 0 {
            return Some(Vec::new().into());
        }
        // SAFETY: the layout has a size.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }.cast::<T>())?;
        Some(Self { start, length: layout.size() / size_of::<T>(), mapped_bytes: 0 })
    }

    /// As [`zeroed`](Self::zeroed), with a separate mapping for a large block that is not reused.
    pub(super) fn zeroed_mapping(rows: usize, width: usize) -> Option<Self> {
        let layout = Layout::array::<T>(rows.checked_mul(width)?).ok()?;
        if layout.size() < LARGE_BYTES {
            return Self::zeroed(rows, width);
        }
        let before = MAPPINGS.fetch_add(1, Ordering::Relaxed) * LINE_BYTES % PAGE_BYTES;
        let mapped_bytes = before.checked_add(layout.size())?;
        // SAFETY: `before` is inside the mapping, and the alignment of a cache line suffices for every element.
        let start = unsafe { map(mapped_bytes)?.byte_add(before) }.cast::<T>();
        Some(Self { start, length: layout.size() / size_of::<T>(), mapped_bytes })
    }

    /// Convert into a `Vec` without a copy; return the block if its memory is not the allocator's.
    pub fn into_vec(self) -> Result<Vec<T>, Self> {
        if self.mapped_bytes > 0 {
            return Err(self);
        }
        let block = std::mem::ManuallyDrop::new(self);
        // SAFETY: without a mapping the memory is that of a Vec of this length and capacity, and the block is forgotten.
        Ok(unsafe { Vec::from_raw_parts(block.start.as_ptr(), block.length, block.length) })
    }
}

impl<T: Zeroed> From<Vec<T>> for Block<T> {
    fn from(elements: Vec<T>) -> Self {
        let elements = Box::leak(elements.into_boxed_slice());
        Self { start: NonNull::from(&mut *elements).cast(), length: elements.len(), mapped_bytes: 0 }
    }
}

impl<T: Zeroed> Drop for Block<T> {
    fn drop(&mut self) {
        if self.mapped_bytes > 0 {
            let before = self.start.addr().get() % PAGE_BYTES;
            // SAFETY: the mapping was made with so many bytes before the first element.
            unmap(unsafe { self.start.cast::<u8>().byte_sub(before) }, self.mapped_bytes);
        } else {
            // SAFETY: as in `into_vec`; the block is not used afterwards.
            drop(unsafe { Vec::from_raw_parts(self.start.as_ptr(), self.length, self.length) });
        }
    }
}

impl<T: Zeroed> Deref for Block<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: the block owns `length` initialised elements from `start` on.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl<T: Zeroed> DerefMut for Block<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`, and the block is borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl<T: Zeroed> Clone for Block<T> {
    fn clone(&self) -> Self {
        self.to_vec().into()
    }
}

impl<T: Zeroed + PartialEq> PartialEq for Block<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Zeroed + std::fmt::Debug> std::fmt::Debug for Block<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

/// Map zeroed pages, huge ones if possible.
fn map(bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: a new mapping does not overlap memory that is in use.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return None;
    }
    #[cfg(target_os = "linux")]
    // SAFETY: an advice about the pages of this mapping, which does not change their content; it may fail.
    unsafe {
        libc::madvise(start, bytes, libc::MADV_HUGEPAGE)
    };
    NonNull::new(start.cast())
}

fn unmap(start: NonNull<u8>, bytes: usize) {
    // SAFETY: this is a complete mapping of `map`, and its only owner is being dropped.
    unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_blocks_are_writable_zeros() {
        for (rows, is_vec) in [(0, true), (3, true), (LARGE_BYTES / 8, false), (LARGE_BYTES, false)] {
            let mut block = Block::<i64>::zeroed_mapping(rows, 1).unwrap();
            assert!(block.len() == rows && block.iter().all(|one| *one == 0));
            block.fill(7);
            let copy = block.clone();
            let elements = block.into_vec();
            assert_eq!(elements.is_ok(), is_vec);
            let elements = elements.unwrap_or_else(|block| block.to_vec());
            assert!(elements == vec![7; rows] && *copy == *elements);
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        for make in [Block::<f32>::zeroed, Block::<f32>::zeroed_mapping] {
            assert!(make(usize::MAX, 2).is_none());
            assert!(make(1 << 60, 1).is_none());
            assert!(make(0, 7).is_some_and(|block| block.is_empty()));
        }
    }

    #[test]
    fn a_vec_with_spare_capacity_becomes_a_block_and_a_vec_again() {
        let mut elements = Vec::with_capacity(100);
        elements.extend([1_u8, 2, 3]);
        let block = Block::from(elements);
        assert_eq!(format!("{block:?}"), "[1, 2, 3]");
        assert_eq!(block.into_vec(), Ok(vec![1, 2, 3]));
    }
}
