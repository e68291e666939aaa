//! Chunks that an index names: their order, and checks against the shape of the dataset.

use crate::format::cursor::{Cursor, Known, NotKnown, Unread};

pub(crate) const ARRAY: Unread = NotKnown("an index that is not as it should be");
pub(crate) const FAR: Unread = NotKnown("numbers that are too large");

/// Chunks of a dataset: of each the first element (one offset for each axis), the address, the stored size and the filter mask.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Chunks {
    pub offsets: Vec<u64>,
    pub addresses: Vec<u64>,
    pub sizes: Vec<u64>,
    pub masks: Vec<u32>,
}

impl Chunks {
    /// Sort the chunks by offset, and compare them with the shapes of the dataset and of a chunk.
    ///
    /// # Errors
    /// Two chunks have the same offset or share bytes, one begins within another or outside the shape, or a number is too
    /// large. HDF5 removes chunks outside the shape when a dataset shrinks, so none may be skipped.
    pub fn sort_and_check(&mut self, shape: &[u64], chunk: &[u64]) -> Known<()> {
        let axes = shape.len().max(1);
        for place in self.offsets.chunks_exact(axes) {
            for ((offset, size), one) in place.iter().zip(shape).zip(chunk) {
                if i64::try_from(*offset).is_err() {
                    return Err(FAR);
                }
                if offset >= size || offset.checked_rem(*one) != Some(0) {
                    return Err(NotKnown("a chunk outside the shape"));
                }
            }
        }
        self.share_no_bytes()?;
        let places: Vec<&[u64]> = self.offsets.chunks_exact(axes).collect();
        if places.is_sorted_by(|one, other| one < other) {
            return Ok(());
        }
        let mut all: Vec<_> =
            places.into_iter().zip(self.addresses.iter().zip(self.sizes.iter().zip(&self.masks))).collect();
        all.sort_unstable_by_key(|(place, _)| *place);
        if !all.is_sorted_by(|(one, _), (other, _)| one < other) {
            return Err(NotKnown("two chunks in one place"));
        }
        *self = Self {
            offsets: all.iter().flat_map(|(place, _)| place.iter().copied()).collect(),
            addresses: all.iter().map(|(_, (address, _))| **address).collect(),
            sizes: all.iter().map(|(_, (_, (size, _)))| **size).collect(),
            masks: all.iter().map(|(_, (_, (_, mask)))| **mask).collect(),
        };
        Ok(())
    }

    fn share_no_bytes(&self) -> Known<()> {
        let disjoint = |pieces: &[(u64, u64)]| {
            pieces.windows(2).all(|pair| match pair {
                [(address, size), (next, _)] => address.saturating_add(*size) <= *next,
                _ => true,
            })
        };
        let mut pieces: Vec<(u64, u64)> =
            self.addresses.iter().copied().zip(self.sizes.iter().copied()).collect();
        if !disjoint(&pieces) {
            pieces.sort_unstable();
            if !disjoint(&pieces) {
                return Err(NotKnown("two chunks that share bytes"));
            }
        }
        Ok(())
    }
}

/// Chunks that an index has returned so far.
pub(crate) struct ChunkList<'a> {
    pub(crate) chunks: Chunks,
    pub(crate) chunk: &'a [u64],
    pub(crate) counts: &'a [u64],
    pub(crate) chunk_bytes: u64,
    /// Bytes of one element of the dataset.
    pub(crate) value_bytes: u64,
    pub(crate) is_wide: bool,
}

impl ChunkList<'_> {
    /// Add a chunk by its number in the row-major order of all chunks.
    pub(crate) fn add(&mut self, number: u64, address: u64, size: u64, mask: u32) -> Known<()> {
        let start = self.chunks.offsets.len();
        let mut rest = number;
        for (axis, (one, count)) in self.chunk.iter().zip(self.counts).enumerate().rev() {
            let place = if axis == 0 { rest } else { rest.checked_rem(*count).ok_or(ARRAY)? };
            rest = if axis == 0 { 0 } else { rest / count };
            self.chunks.offsets.push(place.saturating_mul(*one));
        }
        self.chunks.offsets.get_mut(start..).unwrap_or_default().reverse();
        self.push(address, size, mask)
    }

    pub(crate) fn push(&mut self, address: u64, size: u64, mask: u32) -> Known<()> {
        if address.checked_add(size).is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(FAR);
        }
        self.chunks.addresses.push(address);
        self.chunks.sizes.push(size);
        self.chunks.masks.push(mask);
        Ok(())
    }

    /// Read the key of a B-tree: size, filter mask and first element of a chunk.
    pub(crate) fn key(&self, at: &mut Cursor<'_>) -> Known<(u32, u32, Vec<u64>)> {
        let (size, mask) = (at.u32()?, at.u32()?);
        let mut place = Vec::with_capacity(self.chunk.len());
        for one in self.chunk.iter().chain([&self.value_bytes]) {
            let offset = at.number(8)?;
            if offset.checked_rem(*one) != Some(0) {
                return Err(NotKnown("a chunk that begins within another"));
            }
            place.push(offset);
        }
        place.pop();
        Ok((size, mask, place))
    }

    /// Return the bytes of an element of an array: an address, and size and mask of a filtered chunk.
    pub(crate) fn element_bytes(&self, filtered: bool) -> usize {
        // H5D__earray_crt_context: one byte more than the size of an unfiltered chunk needs, at most eight.
        let needed = 1 + (self.chunk_bytes.max(1).ilog2() as usize + 8) / 8;
        let width = if self.is_wide { 8 } else { needed.min(8) };
        if filtered { 8 + width + 4 } else { 8 }
    }

    /// Add elements of an array, of which the first has the number `first`.
    pub(crate) fn elements(&mut self, elements: &[u8], first: u64, filtered: bool) -> Known<()> {
        let width = self.element_bytes(filtered);
        for (number, element) in (first..).zip(elements.chunks_exact(width)) {
            let mut at = Cursor::new(element);
            let Some(address) = at.address(8)? else { continue };
            let (size, mask) =
                if filtered { (at.number(width - 12)?, at.u32()?) } else { (self.chunk_bytes, 0) };
            self.add(number, address, size, mask)?;
        }
        Ok(())
    }
}

pub(crate) fn product(counts: &[u64]) -> u64 {
    counts.iter().fold(1_u64, |all, count| all.saturating_mul(*count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_sorted_by_offset() {
        let mut chunks = Chunks {
            offsets: vec![4, 0, 0, 2, 0, 0],
            addresses: vec![10, 20, 40],
            sizes: vec![10, 20, 30],
            masks: vec![0, 1, 2],
        };
        chunks.sort_and_check(&[8, 3], &[4, 2]).unwrap();
        let expected = Chunks {
            offsets: vec![0, 0, 0, 2, 4, 0],
            addresses: vec![40, 20, 10],
            sizes: vec![30, 20, 10],
            masks: vec![2, 1, 0],
        };
        assert_eq!(chunks, expected);
    }

    #[test]
    fn chunks_that_cannot_be_right_are_not_known() {
        let chunks = |offsets: &[u64], addresses: &[u64]| Chunks {
            offsets: offsets.to_vec(),
            addresses: addresses.to_vec(),
            sizes: vec![10, 10],
            masks: vec![0, 0],
        };
        let check = |mut chunks: Chunks| chunks.sort_and_check(&[8, 3], &[4, 2]);
        assert!(check(chunks(&[0, 0, 4, 0], &[100, 200])).is_ok());
        assert!(check(chunks(&[4, 0, 4, 0], &[100, 200])).is_err(), "the same offset twice");
        assert!(check(chunks(&[0, 0, 8, 0], &[100, 200])).is_err(), "after the last row");
        assert!(check(chunks(&[0, 0, 0, 4], &[100, 200])).is_err(), "after the last column");
        assert!(check(chunks(&[0, 0, 2, 0], &[100, 200])).is_err(), "within another chunk");
        assert!(check(chunks(&[0, 0, 4, 0], &[100, 105])).is_err(), "bytes of another chunk");
        assert!(check(chunks(&[0, 0, 4, 0], &[205, 200])).is_err(), "bytes of another chunk");
        assert!(check(chunks(&[0, 0, u64::MAX, 0], &[100, 200])).is_err(), "an offset that is too large");
    }

    #[test]
    fn element_numbers_become_offsets() {
        let mut found = ChunkList {
            chunks: Chunks::default(),
            chunk: &[2, 5],
            counts: &[3, 4],
            chunk_bytes: 80,
            value_bytes: 8,
            is_wide: false,
        };
        for number in [0, 3, 4, 27] {
            found.add(number, 100, 80, 0).unwrap();
        }
        assert_eq!(found.chunks.offsets, [0, 0, 0, 15, 2, 0, 12, 15]);
        assert_eq!(found.element_bytes(false), 8);
        assert_eq!(found.element_bytes(true), 14); // 8 + 2 + 4
    }
}
