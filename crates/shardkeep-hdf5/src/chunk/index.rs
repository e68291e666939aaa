//! Where the chunks of a dataset lie, read from its index and not through HDF5.
//!
//! Layout messages of versions 3 to 5; indexes: version 1 B-tree, single chunk, implicit, fixed array, extensible
//! array along the first axis. Format: HDF5 File Format Specification 3.0, sections III.A.1, IV.A.2.i, VII. What is not
//! known here, does not have its checksum or makes no sense is "not known". Only numbers of eight bytes are read.

use crate::chunk::arrays::{extensible_array, fixed_array};
use crate::format::cursor::{Cursor, Known, NotKnown, Unread};
use crate::format::file::{File, Storage};
use crate::format::messages::MOST_DIMENSIONS;
use crate::group::symbol_table::siblings_agree;

/// HDF5's own number of the children of a node of chunks, halved; another one is in no superblock that is read here.
const BTREE_K: usize = 32;
pub(crate) const ARRAY: Unread = NotKnown("an index that is not as it should be");
pub(crate) const FAR: Unread = NotKnown("numbers that are too large");

/// What a layout message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    Compact(Vec<u8>),
    /// An address of None: no rows were written.
    Contiguous {
        address: Option<u64>,
        size: u64,
    },
    Chunked(Chunked),
}

/// A dataset in chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunked {
    /// In elements.
    pub chunk: Vec<u64>,
    pub element_bytes: u64,
    pub index: Index,
    /// Whether an array has sizes of chunks in eight bytes, as HDF5 2.0 writes them; before, in as many as they need.
    pub is_wide: bool,
}

/// The kind of an index, and where it is; None where there are no chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Index {
    BTree1(Option<u64>),
    /// With the size and the filter mask of a chunk that went through filters.
    Single(Option<u64>, Option<(u64, u32)>),
    Implicit(Option<u64>),
    FixedArray(Option<u64>),
    ExtensibleArray(Option<u64>),
}

/// Chunks in no order: the first element of each (axes beside one another), and where its bytes are.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Chunks {
    pub offsets: Vec<u64>,
    pub addresses: Vec<u64>,
    pub sizes: Vec<u64>,
    pub masks: Vec<u32>,
}

impl Chunks {
    /// Sort them by place, and check them against the shape of the dataset and of a chunk.
    ///
    /// # Errors
    /// Two have the same place or share bytes, one begins within another or outside the shape, or a number is too
    /// large. HDF5 removes the chunks of rows that are cut off, so there is none that may be dropped.
    pub fn put_in_order(&mut self, shape: &[u64], chunk: &[u64]) -> Known<()> {
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

impl Layout {
    /// Take a layout message apart.
    ///
    /// # Errors
    /// It is not known.
    pub fn parse(message: &[u8]) -> Known<Self> {
        let mut at = Cursor::new(message);
        match (at.u8()?, at.u8()?) {
            (3..=5, 0) => {
                let size = at.u16()?;
                Ok(Self::Compact(at.take(size.into())?.to_vec()))
            }
            (3..=5, 1) => Ok(Self::Contiguous { address: at.address(8)?, size: at.number(8)? }),
            (3, 2) => {
                let axes = usize::from(at.u8()?);
                let address = at.address(8)?;
                let sizes = (0..axes).map(|_| at.u32().map(u64::from)).collect::<Known<Vec<_>>>()?;
                chunked(sizes, Index::BTree1(address), false)
            }
            (version @ (4 | 5), 2) => {
                let flags = at.u8()?;
                let axes = usize::from(at.u8()?);
                let width = usize::from(at.u8()?);
                let sizes = (0..axes).map(|_| at.number(width)).collect::<Known<Vec<_>>>()?;
                // Bit 0: chunks at the edge go around the filters, which no index tells.
                let index = match (at.u8()?, flags) {
                    (1, 0) => Index::Single(at.address(8)?, None),
                    (1, 2) => {
                        let filtered = (at.number(8)?, at.u32()?);
                        Index::Single(at.address(8)?, Some(filtered))
                    }
                    (2, 0) => Index::Implicit(at.address(8)?),
                    (3, 0) => {
                        at.take(1)?;
                        Index::FixedArray(at.address(8)?)
                    }
                    (4, 0) => {
                        at.take(5)?;
                        Index::ExtensibleArray(at.address(8)?)
                    }
                    _ => return Err(NotKnown("another index of chunks")),
                };
                chunked(sizes, index, version == 5)
            }
            _ => Err(NotKnown("another layout")),
        }
    }
}

fn chunked(mut sizes: Vec<u64>, index: Index, is_wide: bool) -> Known<Layout> {
    let element_bytes = sizes.pop().filter(|size| *size > 0).ok_or(ARRAY)?;
    let known = !sizes.is_empty() && sizes.len() <= MOST_DIMENSIONS && !sizes.contains(&0);
    if !known {
        return Err(NotKnown("chunks of another kind"));
    }
    Ok(Layout::Chunked(Chunked { chunk: sizes, element_bytes, index, is_wide }))
}

impl Chunked {
    /// Bytes of a chunk that goes through no filter.
    ///
    /// # Errors
    /// It is not known.
    pub fn chunk_bytes(&self) -> Known<u64> {
        let bytes = self.chunk.iter().try_fold(self.element_bytes, |size, one| size.checked_mul(*one));
        bytes.filter(|bytes| u32::try_from(*bytes).is_ok()).ok_or(FAR)
    }

    /// Read the index of a dataset of this shape, with these limits (None: not limited).
    ///
    /// # Errors
    /// It is not known.
    pub fn chunks<S: Storage + ?Sized>(
        &self,
        file: &File<'_, S>,
        shape: &[u64],
        limits: &[Option<u64>],
        filtered: bool,
    ) -> Known<Chunks> {
        if shape.len() != self.chunk.len() || limits.len() != shape.len() {
            return Err(ARRAY);
        }
        let chunk_bytes = self.chunk_bytes()?;
        let counts: Vec<u64> = shape.iter().zip(&self.chunk).map(|(size, one)| size.div_ceil(*one)).collect();
        // The numbers in an array are counted through the largest shape; HDF5 itself goes through the present one.
        let same = |axis: usize| match (limits.get(axis), self.chunk.get(axis), counts.get(axis)) {
            (Some(Some(limit)), Some(one), Some(count)) => limit.div_ceil(*one) == *count,
            _ => false,
        };
        let mut found = Found {
            chunks: Chunks::default(),
            chunk: &self.chunk,
            counts: &counts,
            chunk_bytes,
            value_bytes: self.element_bytes,
            is_wide: self.is_wide,
        };
        match self.index {
            Index::BTree1(None)
            | Index::Single(None, _)
            | Index::Implicit(None)
            | Index::FixedArray(None)
            | Index::ExtensibleArray(None) => {}
            Index::BTree1(Some(root)) => {
                let mut last = Vec::new();
                btree1(file, root, None, &mut last, &mut found)?;
                if last.iter().any(|(_, right)| right.is_some()) {
                    return Err(ARRAY);
                }
            }
            Index::Single(Some(address), size) => {
                let (size, mask) = size.unwrap_or((chunk_bytes, 0));
                if counts.iter().any(|count| *count != 1) {
                    return Err(ARRAY);
                }
                found.add(0, address, size, mask)?;
            }
            Index::Implicit(Some(address)) => {
                let all = product(&counts);
                let end = all.saturating_mul(chunk_bytes).saturating_add(address);
                if filtered || !(0..counts.len()).all(same) || end > file.length() {
                    return Err(ARRAY);
                }
                for number in 0..all {
                    found.add(number, address + number * chunk_bytes, chunk_bytes, 0)?;
                }
            }
            Index::FixedArray(Some(header)) => {
                if !(0..counts.len()).all(same) {
                    return Err(ARRAY);
                }
                fixed_array(file, header, filtered, &mut found)?;
            }
            Index::ExtensibleArray(Some(header)) => {
                if limits.first() != Some(&None) || !(1..counts.len()).all(same) {
                    return Err(ARRAY);
                }
                extensible_array(file, header, filtered, &mut found)?;
            }
        }
        Ok(found.chunks)
    }
}

/// Chunks as they come.
pub(crate) struct Found<'a> {
    chunks: Chunks,
    chunk: &'a [u64],
    pub(crate) counts: &'a [u64],
    chunk_bytes: u64,
    /// Of one element of the dataset.
    value_bytes: u64,
    is_wide: bool,
}

impl Found<'_> {
    /// Take a chunk by its number in the row-major order of all.
    fn add(&mut self, number: u64, address: u64, size: u64, mask: u32) -> Known<()> {
        let start = self.chunks.offsets.len();
        let mut rest = number;
        for (axis, (one, count)) in self.chunk.iter().zip(self.counts).enumerate().rev() {
            let place = if axis == 0 { rest } else { rest.checked_rem(*count).ok_or(ARRAY)? };
            rest = if axis == 0 { 0 } else { rest / count };
            self.chunks.offsets.push(place.saturating_mul(*one));
        }
        self.chunks.offsets.get_mut(start..).unwrap_or_default().reverse();
        self.put(address, size, mask)
    }

    fn put(&mut self, address: u64, size: u64, mask: u32) -> Known<()> {
        if address.checked_add(size).is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(FAR);
        }
        self.chunks.addresses.push(address);
        self.chunks.sizes.push(size);
        self.chunks.masks.push(mask);
        Ok(())
    }

    /// Read the key of a B-tree: size, filter mask and first element of a chunk.
    fn key(&self, at: &mut Cursor<'_>) -> Known<(u32, u32, Vec<u64>)> {
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

    /// Bytes of an element of an array: an address, and of filtered chunks size and mask.
    pub(crate) fn element_bytes(&self, filtered: bool) -> usize {
        // H5D__earray_crt_context: one byte more than the size of a whole chunk needs, eight at most.
        let needed = 1 + (self.chunk_bytes.max(1).ilog2() as usize + 8) / 8;
        let width = if self.is_wide { 8 } else { needed.min(8) };
        if filtered { 8 + width + 4 } else { 8 }
    }

    /// Take elements of an array, the first of which has this number.
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

fn btree1<S: Storage + ?Sized>(
    file: &File<'_, S>,
    address: u64,
    level: Option<u8>,
    last: &mut Vec<(u64, Option<u64>)>,
    found: &mut Found<'_>,
) -> Known<()> {
    let axes = found.chunk.len();
    let key_bytes = 8 + 8 * (axes + 1);
    let node = file.read(address, 24 + 2 * BTREE_K * (key_bytes + 8) + key_bytes)?;
    let mut at = Cursor::new(&node);
    if at.take(4)? != b"TREE" || at.u8()? != 1 {
        return Err(ARRAY);
    }
    let here = at.u8()?;
    let used = usize::from(at.u16()?);
    siblings_agree(last, here, address, (at.address(8)?, at.address(8)?))?;
    if level.is_some_and(|level| level != here) || used > 2 * BTREE_K {
        return Err(ARRAY);
    }
    for _ in 0..used {
        let (size, mask, place) = found.key(&mut at)?;
        let child = at.address(8)?.ok_or(ARRAY)?;
        if here > 0 {
            btree1(file, child, Some(here - 1), last, found)?;
            continue;
        }
        found.chunks.offsets.extend(place);
        found.put(child, size.into(), mask)?;
    }
    if used > 0 {
        found.key(&mut at)?; // behind the last, which HDF5 reads as well
    }
    Ok(())
}

pub(crate) fn product(counts: &[u64]) -> u64 {
    counts.iter().fold(1_u64, |all, count| all.saturating_mul(*count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_put_in_order() {
        let mut chunks = Chunks {
            offsets: vec![4, 0, 0, 2, 0, 0],
            addresses: vec![10, 20, 40],
            sizes: vec![10, 20, 30],
            masks: vec![0, 1, 2],
        };
        chunks.put_in_order(&[8, 3], &[4, 2]).unwrap();
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
        let check = |mut chunks: Chunks| chunks.put_in_order(&[8, 3], &[4, 2]);
        assert!(check(chunks(&[0, 0, 4, 0], &[100, 200])).is_ok());
        assert!(check(chunks(&[4, 0, 4, 0], &[100, 200])).is_err(), "the same place twice");
        assert!(check(chunks(&[0, 0, 8, 0], &[100, 200])).is_err(), "behind the last row");
        assert!(check(chunks(&[0, 0, 0, 4], &[100, 200])).is_err(), "beside the last column");
        assert!(check(chunks(&[0, 0, 2, 0], &[100, 200])).is_err(), "within another chunk");
        assert!(check(chunks(&[0, 0, 4, 0], &[100, 105])).is_err(), "bytes of another chunk");
        assert!(check(chunks(&[0, 0, 4, 0], &[205, 200])).is_err(), "bytes of another chunk");
        assert!(check(chunks(&[0, 0, u64::MAX, 0], &[100, 200])).is_err(), "a place that no number has");
    }

    #[test]
    fn numbers_of_elements_are_places() {
        let mut found = Found {
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

    #[test]
    fn layouts_that_are_not_known() {
        let contiguous = [&[3_u8, 1][..], &[255; 8], &[7, 0, 0, 0, 0, 0, 0, 0]].concat();
        assert_eq!(Layout::parse(&contiguous), Ok(Layout::Contiguous { address: None, size: 7 }));
        assert!(Layout::parse(&contiguous[..12]).is_err());
        for message in [&[2_u8, 1][..], &[4, 3], &[6, 1], &[3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0], &[]]
        {
            assert!(Layout::parse(message).is_err());
        }
    }
}
