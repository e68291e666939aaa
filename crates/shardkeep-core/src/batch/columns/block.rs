//! Memory of one column.
//!
//! Batches are allocated repeatedly, so they use the allocator, up to a size whose blocks it does not reuse. A result is
//! written once, so its large columns are separate mappings, with huge pages if possible. A block of the allocator might
//! have been used and would have to be zeroed, and page faults of 4 KiB each took a fifth of the time of a result with many
//! columns. The columns of a result are filled row by row, so they begin at different offsets in a page: a cache selects
//! its set by the address in the page, and forty columns would compete for the twelve lines of one set.
//!
//! Elements begin at a multiple of 64 bytes: TensorFlow and JAX copy every array that does not.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
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

/// An array of fixed length, which begins at a multiple of 64 bytes.
pub struct Block<T: Zeroed> {
    start: NonNull<T>,
    length: usize,
    memory: Memory,
}

/// Memory of a block, with the number of bytes before its first element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// None, for no elements.
    Empty,
    /// Of the allocator.
    Heap { before: usize },
    /// A mapping of `bytes`.
    Mapping { before: usize, bytes: usize },
}

// SAFETY: a block owns its elements as a Vec does.
unsafe impl<T: Zeroed> Send for Block<T> {}
// SAFETY: as above.
unsafe impl<T: Zeroed> Sync for Block<T> {}

impl<T: Zeroed> Block<T> {
    /// Allocate `rows * width` zeros; `None` without enough memory. Large blocks take no memory until they are written.
    pub(super) fn zeroed(rows: usize, width: usize) -> Option<Self> {
        let length = rows.checked_mul(width)?;
        if length == 0 {
            return Some(Self { start: NonNull::dangling(), length, memory: Memory::Empty });
        }
        // The allocator would write the zeros of memory with such an alignment itself, also where it comes zeroed from
        // the kernel, so the block begins inside memory of the usual alignment.
        let layout = heap_layout::<T>(length)?;
        // SAFETY: the layout has a size.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let before = memory.addr().get().wrapping_neg() % LINE_BYTES;
        // SAFETY: the memory has `LINE_BYTES` more than the elements need.
        let start = unsafe { memory.byte_add(before) }.cast::<T>();
        Some(Self { start, length, memory: Memory::Heap { before } })
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
        Some(Self {
            start,
            length: layout.size() / size_of::<T>(),
            memory: Memory::Mapping { before, bytes: mapped_bytes },
        })
    }
}

/// Memory of the allocator for `length` elements that begin at a multiple of 64 bytes.
fn heap_layout<T>(length: usize) -> Option<Layout> {
    let elements = Layout::array::<T>(length).ok()?;
    Layout::from_size_align(elements.size().checked_add(LINE_BYTES)?, elements.align()).ok()
}

impl<T: Zeroed> From<Vec<T>> for Block<T> {
    fn from(elements: Vec<T>) -> Self {
        let Some(mut block) = Self::zeroed(elements.len(), 1) else { handle_alloc_error(Layout::new::<T>()) };
        block.copy_from_slice(&elements);
        block
    }
}

impl<T: Zeroed> Drop for Block<T> {
    fn drop(&mut self) {
        let start = self.start.cast::<u8>();
        match self.memory {
            Memory::Empty => (),
            // SAFETY: the allocation was made with this layout and so many bytes before the first element.
            Memory::Heap { before } => unsafe {
                if let Some(layout) = heap_layout::<T>(self.length) {
                    dealloc(start.byte_sub(before).as_ptr(), layout);
                }
            },
            // SAFETY: the mapping was made with so many bytes before the first element.
            Memory::Mapping { before, bytes } => unmap(unsafe { start.byte_sub(before) }, bytes),
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
        for rows in [0, 1, 3, 100, LARGE_BYTES / 8, LARGE_BYTES] {
            for make in [Block::<i64>::zeroed, Block::<i64>::zeroed_mapping] {
                let mut block = make(rows, 1).unwrap();
                assert!(block.len() == rows && block.iter().all(|one| *one == 0));
                block.fill(7);
                let copy = block.clone();
                for one in [block, copy] {
                    assert!(*one == vec![7; rows]);
                    assert!(rows == 0 || one.as_ptr().addr() % LINE_BYTES == 0);
                }
            }
        }
    }

    #[test]
    fn blocks_of_bytes_are_aligned() {
        let blocks: Vec<Block<u8>> = (1..200).map(|bytes| Block::zeroed(bytes, 1).unwrap()).collect();
        assert!(blocks.iter().all(|block| block.as_ptr().addr() % LINE_BYTES == 0));
    }

    #[test]
    fn impossible_sizes_are_refused() {
        for make in [Block::<f32>::zeroed, Block::<f32>::zeroed_mapping] {
            assert!(make(usize::MAX, 2).is_none());
            assert!(make(1 << 60, 1).is_none());
            assert!(make(0, 7).is_some_and(|block| block.is_empty()));
        }
    }
}
