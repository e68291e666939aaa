//! A zeroed array of rows that several threads fill at once, each its own rows.

use std::alloc::{Layout, alloc_zeroed};
use std::cell::UnsafeCell;
use std::ops::Range;

/// Element types whose all-zero bit pattern is the value zero.
///
/// # Safety
/// Implemented only for such types.
pub(super) unsafe trait Zeroed: Copy + Send {}
// SAFETY: all bits zero is 0.
unsafe impl Zeroed for u8 {}
// SAFETY: all bits zero is 0.
unsafe impl Zeroed for i64 {}
// SAFETY: all bits zero is 0.0.
unsafe impl Zeroed for f32 {}

/// `rows * width` zeros; `None` if that many cannot be had. Large blocks come from the kernel and cost nothing until
/// they are touched.
pub(super) fn zeroed<T: Zeroed>(rows: usize, width: usize) -> Option<Vec<T>> {
    let length = rows.checked_mul(width)?;
    let layout = Layout::array::<T>(length).ok()?;
    if layout.size() == 0 {
        return Some(Vec::new());
    }
    // SAFETY: the layout has a size.
    let start = unsafe { alloc_zeroed(layout) }.cast::<T>();
    if start.is_null() {
        return None;
    }
    // SAFETY: `start` comes from the global allocator with the layout of `length` elements of T, all of them
    // initialised (T: Zeroed).
    Some(unsafe { Vec::from_raw_parts(start, length, length) })
}

/// Rows of `width` elements, writable through a shared reference.
pub(super) struct SharedRows<T> {
    cells: Vec<UnsafeCell<T>>,
    width: usize,
}

// SAFETY: the only access through a shared reference is `rows`, whose contract gives each row to one thread at a time.
unsafe impl<T: Zeroed> Sync for SharedRows<T> {}

impl<T> std::fmt::Debug for SharedRows<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedRows({} cells, {} a row)", self.cells.len(), self.width)
    }
}

impl<T: Zeroed> SharedRows<T> {
    pub(super) fn new(rows: usize, width: usize) -> Option<Self> {
        let cells = std::mem::ManuallyDrop::new(zeroed::<T>(rows, width)?);
        let (start, length, capacity) = (cells.as_ptr().cast_mut(), cells.len(), cells.capacity());
        // SAFETY: UnsafeCell<T> has the layout of T, and `cells` gives up its buffer without dropping it.
        let cells = unsafe { Vec::from_raw_parts(start.cast::<UnsafeCell<T>>(), length, capacity) };
        Some(Self { cells, width })
    }

    /// The elements of `row`; empty if there is no such row.
    ///
    /// # Safety
    /// As [`SharedRows::rows`].
    #[allow(clippy::mut_from_ref)]
    #[inline]
    pub(super) unsafe fn row_mut(&self, row: usize) -> &mut [T] {
        // SAFETY: as the caller promises.
        unsafe { self.rows(row..row.saturating_add(1)) }.cells
    }

    /// Some of the rows; nothing if there are no such rows.
    ///
    /// # Safety
    /// Until the result is gone, no other call for one of these rows may be made, on any thread.
    pub(super) unsafe fn rows(&self, rows: Range<usize>) -> Cells<'_, T> {
        debug_assert!(self.width == 0 || rows.end <= self.cells.len() / self.width);
        let (start, end) = (rows.start.saturating_mul(self.width), rows.end.saturating_mul(self.width));
        let cells = self.cells.get(start..end).unwrap_or_default();
        // SAFETY: the cells are `cells.len()` initialised elements in a row; UnsafeCell allows writing through a shared
        // reference; the caller is the only one at these rows.
        let cells =
            unsafe { std::slice::from_raw_parts_mut(UnsafeCell::raw_get(cells.as_ptr()), cells.len()) };
        Cells { cells, width: self.width }
    }

    /// Takes the array out.
    pub(super) fn into_vec(self) -> Vec<T> {
        let cells = std::mem::ManuallyDrop::new(self.cells);
        let (start, length, capacity) = (cells.as_ptr().cast_mut(), cells.len(), cells.capacity());
        // SAFETY: the reverse of `new`: same layout, buffer given up without dropping it.
        unsafe { Vec::from_raw_parts(start.cast::<T>(), length, capacity) }
    }
}

/// Some of the rows, for one thread alone.
#[derive(Debug)]
pub(super) struct Cells<'b, T> {
    pub(super) cells: &'b mut [T],
    pub(super) width: usize,
}

impl<T> Cells<'_, T> {
    /// The elements of `row`, counted from the first of these rows; empty if there is no such row.
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
    fn rows_are_disjoint_and_come_out_in_order() {
        let cells = SharedRows::<i64>::new(4, 3);
        assert!(cells.is_some());
        let Some(cells) = cells else { return };
        std::thread::scope(|scope| {
            for row in 0..4 {
                let cells = &cells;
                // SAFETY: each thread has its own row.
                scope.spawn(move || unsafe { cells.row_mut(row) }.fill(row as i64 + 1));
            }
        });
        assert_eq!(cells.into_vec(), [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]);
    }

    #[test]
    fn what_cannot_be_had_is_refused() {
        assert!(SharedRows::<f32>::new(usize::MAX, 2).is_none());
        assert!(SharedRows::<f32>::new(1 << 60, 1).is_none());
        assert!(SharedRows::<u8>::new(0, 7).is_some_and(|cells| cells.into_vec().is_empty()));
    }
}
