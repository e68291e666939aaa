//! A zeroed array of rows that several threads fill, each a different part of the rows.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::ptr::NonNull;

use super::block::{Block, Zeroed};

/// From this size on the allocator of the C library maps each block again, with small pages. Page faults for every 4 KiB
/// took a third of the time of a batch of JPEGs, so such blocks get a mapping with huge pages, as results do.
const MAPPED_BATCH_BYTES: usize = 32 << 20;

/// Use of an array of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// One of many batches.
    Batch,
    /// A result, written once and then kept.
    Result,
}

impl Purpose {
    /// Allocate `rows` rows of `width` zeros; None without enough memory.
    pub(super) fn rows<T: Zeroed>(self, rows: usize, width: usize) -> Option<SharedRows<T>> {
        let bytes = rows.saturating_mul(width).saturating_mul(size_of::<T>());
        let block = match self {
            Self::Batch if bytes < MAPPED_BATCH_BYTES => Block::zeroed(rows, width),
            Self::Batch | Self::Result => Block::zeroed_mapping(rows, width),
        };
        block.map(|block| SharedRows::new(block, width))
    }
}

/// Rows of `width` elements, writable through a shared reference.
pub(super) struct SharedRows<T: Zeroed> {
    /// Not accessed until all rows are filled; threads write through `cells`.
    block: Block<T>,
    cells: NonNull<[UnsafeCell<T>]>,
    width: usize,
}

// SAFETY: the only access through a shared reference is `rows`, whose contract gives each row to one thread at a time.
unsafe impl<T: Zeroed> Sync for SharedRows<T> {}
// SAFETY: `cells` points into `block`, which goes with it.
unsafe impl<T: Zeroed> Send for SharedRows<T> {}

impl<T: Zeroed> std::fmt::Debug for SharedRows<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedRows({} cells, {} a row)", self.cells.len(), self.width)
    }
}

impl<T: Zeroed> SharedRows<T> {
    /// Rows in `block`, which has a multiple of `width` elements.
    pub(super) fn new(mut block: Block<T>, width: usize) -> Self {
        let start = NonNull::from(&mut *block).cast::<UnsafeCell<T>>();
        let cells = NonNull::slice_from_raw_parts(start, block.len());
        Self { block, cells, width }
    }

    /// Return the elements of `row`; empty if the row does not exist.
    ///
    /// # Safety
    /// As [`SharedRows::rows`].
    #[allow(clippy::mut_from_ref)]
    #[inline]
    pub(super) unsafe fn row_mut(&self, row: usize) -> &mut [T] {
        // SAFETY: the caller fulfils the contract of `rows`.
        unsafe { self.rows(row..row.saturating_add(1)) }.cells
    }

    /// Return some of the rows; nothing if they do not exist.
    ///
    /// # Safety
    /// Until the result is gone, no other call for one of these rows may be made, on any thread.
    pub(super) unsafe fn rows(&self, rows: Range<usize>) -> Cells<'_, T> {
        debug_assert!(self.width == 0 || rows.end <= self.cells.len() / self.width);
        let (start, end) = (rows.start.saturating_mul(self.width), rows.end.saturating_mul(self.width));
        // SAFETY: these are the elements of `block`, which lives as long as `self`; UnsafeCell<T> has the layout of T.
        let cells = unsafe { self.cells.as_ref() }.get(start..end).unwrap_or_default();
        // SAFETY: the cells are `cells.len()` consecutive initialised elements; UnsafeCell allows writing through a shared
        // reference; no other caller has these rows.
        let cells =
            unsafe { std::slice::from_raw_parts_mut(UnsafeCell::raw_get(cells.as_ptr()), cells.len()) };
        Cells { cells, width: self.width }
    }

    /// Return the array.
    pub(super) fn into_block(self) -> Block<T> {
        self.block
    }
}

/// Some of the rows, owned by one thread.
#[derive(Debug)]
pub(super) struct Cells<'b, T> {
    pub(super) cells: &'b mut [T],
    pub(super) width: usize,
}

impl<T> Cells<'_, T> {
    /// Return the elements of `row`, counted from the first of these rows; empty if the row does not exist.
    #[inline]
    pub(super) fn row(&mut self, row: usize) -> &mut [T] {
        let start = row.saturating_mul(self.width);
        self.cells.get_mut(start..start.saturating_add(self.width)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_disjoint_and_in_order() {
        let cells = SharedRows::<i64>::new(vec![0; 12].into(), 3);
        std::thread::scope(|scope| {
            for row in 0..4 {
                let cells = &cells;
                // SAFETY: each thread has a different row.
                scope.spawn(move || unsafe { cells.row_mut(row) }.fill(row as i64 + 1));
            }
        });
        assert_eq!(*cells.into_block(), [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]);
    }
}
