//! Offsets of the frames of a file in two to three bytes each, with access to any of them.
//!
//! A file of `n` records has `n + 1` offsets: the start of each frame, and the end of the last one. They are divided into
//! blocks of 64. Packed, they are the first offset of each block (8 bytes, little-endian), then for each offset its
//! distance from the first of its block in `width` bits, the lowest bit first. `width` is the same for a whole file: the
//! fewest bits that hold the longest distance. It grows with the logarithm of the lengths, so one long record costs a few
//! bits, where an array of lengths would double.
//!
//! An offset is read with a load of 8 bytes, which may extend over the bytes of the next file: storage ends with 8 bytes of
//! padding. A width above 57 bits, where a distance may touch 9 bytes, is stored as 64.
#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::io::mapped_file::MappedFile;

const BLOCK: u64 = 64;
/// The distances of a block lie next to each other in at most a few cache lines; blocks of 32 to 128 have the same size
/// within 5 %.
const BLOCK_OFFSETS: usize = BLOCK as usize;
const WIDEST_LOAD: u32 = 57;
/// Bytes after the last packed offset of a storage.
pub const PADDING_BYTES: usize = 8;

/// Packed offsets of one or several files.
#[derive(Debug)]
pub enum Storage {
    Memory(Vec<u8>),
    File(MappedFile),
}

impl Storage {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Memory(bytes) => bytes,
            Self::File(file) => file.bytes(),
        }
    }
}

/// The offsets of one file.
#[derive(Debug, Clone)]
pub struct Positions {
    storage: Arc<Storage>,
    at: usize,
    records: u64,
    width: u8,
}

impl Positions {
    /// Return the offsets that a storage has at byte `at`.
    ///
    /// # Errors
    /// The storage ends before them, or a width is not possible.
    pub fn new(storage: &Arc<Storage>, at: usize, records: u64, width: u8) -> Result<Self> {
        let end = packed_bytes(records, width)
            .and_then(|bytes| at.checked_add(bytes))
            .and_then(|end| end.checked_add(PADDING_BYTES));
        if end.is_none_or(|end| end > storage.bytes().len()) {
            return Err(Error::internal("packed offsets are longer than their storage"));
        }
        Ok(Self { storage: Arc::clone(storage), at, records, width })
    }

    /// Pack the offsets of one file.
    ///
    /// # Errors
    /// As [`pack`].
    pub fn of(starts: &[u64]) -> Result<Self> {
        let mut bytes = Vec::new();
        let width = pack(starts, &mut bytes)?;
        bytes.extend_from_slice(&[0; PADDING_BYTES]);
        Self::new(&Arc::new(Storage::Memory(bytes)), 0, starts.len() as u64 - 1, width)
    }

    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    #[must_use]
    pub fn width(&self) -> u8 {
        self.width
    }

    /// Return the size of the file.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.offset(self.records).unwrap_or(0)
    }

    /// Return start and end of a frame; None after the last one.
    #[must_use]
    #[inline]
    pub fn frame(&self, record: u64) -> Option<(u64, u64)> {
        if record >= self.records {
            return None;
        }
        Some((self.offset(record)?, self.offset(record + 1)?))
    }

    /// Return the packed offsets.
    #[must_use]
    pub fn packed(&self) -> &[u8] {
        let bytes = self.storage.bytes().get(self.at..).unwrap_or_default();
        packed_bytes(self.records, self.width).and_then(|size| bytes.get(..size)).unwrap_or_default()
    }

    /// Return all offsets.
    #[must_use]
    pub fn starts(&self) -> Vec<u64> {
        (0..=self.records).map_while(|number| self.offset(number)).collect()
    }

    #[inline]
    fn offset(&self, number: u64) -> Option<u64> {
        let bytes = self.storage.bytes().get(self.at..)?;
        let load = |at: u64| {
            let at = usize::try_from(at).ok()?;
            bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
        };
        let first = load(number / BLOCK * 8)?;
        let bit = number * u64::from(self.width);
        let distance = load(blocks(self.records) * 8 + bit / 8)? >> (bit % 8);
        first.checked_add(distance & mask(self.width))
    }
}

/// Append the packed offsets of a file to `out`, and return the width.
///
/// # Errors
/// The offsets do not ascend, or there is none.
pub fn pack(starts: &[u64], out: &mut Vec<u8>) -> Result<u8> {
    if starts.is_empty() || starts.windows(2).any(|pair| matches!(pair, [a, b] if a >= b)) {
        return Err(Error::internal("the offsets of an index do not ascend"));
    }
    let longest = starts.chunks(BLOCK_OFFSETS).map(|block| distance(block, block.last())).max();
    let width = u64::BITS - longest.unwrap_or(0).leading_zeros();
    let width = if width > WIDEST_LOAD { u64::BITS } else { width };
    for block in starts.chunks(BLOCK_OFFSETS) {
        out.extend_from_slice(&block.first().copied().unwrap_or(0).to_le_bytes());
    }
    let (mut bits, mut filled) = (0_u64, 0_u32);
    for block in starts.chunks(BLOCK_OFFSETS) {
        for start in block {
            let distance = distance(block, Some(start));
            bits |= distance << filled;
            filled += width;
            if filled >= u64::BITS {
                out.extend_from_slice(&bits.to_le_bytes());
                filled -= u64::BITS;
                bits = distance.checked_shr(width - filled).unwrap_or(0);
            }
        }
    }
    out.extend(bits.to_le_bytes().iter().take(filled.div_ceil(8) as usize));
    Ok(width as u8)
}

/// Return the size of the packed offsets of a file; None for impossible numbers.
#[must_use]
pub fn packed_bytes(records: u64, width: u8) -> Option<usize> {
    if u32::from(width) > WIDEST_LOAD && u32::from(width) != u64::BITS {
        return None;
    }
    let bits = records.checked_add(1)?.checked_mul(u64::from(width))?;
    usize::try_from(blocks(records).checked_mul(8)?.checked_add(bits.div_ceil(8))?).ok()
}

fn blocks(records: u64) -> u64 {
    records / BLOCK + 1
}

fn distance(block: &[u64], offset: Option<&u64>) -> u64 {
    offset.copied().unwrap_or(0) - block.first().copied().unwrap_or(0)
}

#[inline]
fn mask(width: u8) -> u64 {
    u64::MAX.checked_shr(u64::BITS - u32::from(width)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(lengths: impl IntoIterator<Item = u64>) -> Vec<u64> {
        std::iter::once(0)
            .chain(lengths.into_iter().scan(0, |at, length| {
                *at += length;
                Some(*at)
            }))
            .collect()
    }

    fn check(want: &[u64]) -> u8 {
        let found = Positions::of(want).unwrap();
        let records = want.len() as u64 - 1;
        assert_eq!(found.starts(), want);
        assert_eq!((found.records(), found.size_bytes()), (records, *want.last().unwrap()));
        for (record, pair) in want.windows(2).enumerate() {
            assert_eq!(found.frame(record as u64), Some((pair[0], pair[1])));
        }
        assert_eq!(found.frame(records), None);
        assert_eq!(found.frame(u64::MAX), None);
        found.width()
    }

    #[test]
    fn packed_offsets_are_those_that_were_packed() {
        let mut seed = 7_u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seed >> 33
        };
        for records in [0, 1, 2, 62, 63, 64, 65, 127, 128, 129, 1000] {
            for bits in [1, 8, 16, 20, 31] {
                let lengths: Vec<u64> = (0..records).map(|_| 16 + random() % (1 << bits)).collect();
                check(&starts(lengths));
            }
        }
    }

    #[test]
    fn every_width_is_read_back() {
        for bits in 0..63 {
            for records in [1, 3, 64, 130] {
                let mut lengths = vec![16; records];
                lengths[records / 2] = (1_u64 << bits) + 16;
                let width = check(&starts(lengths));
                assert!(u32::from(width) <= WIDEST_LOAD || width == 64);
            }
        }
        assert_eq!(check(&[0]), 0);
        assert_eq!(check(&[5]), 0);
        assert_eq!(check(&[0, u64::MAX]), 64);
    }

    #[test]
    fn a_long_record_costs_a_few_bits() {
        let bytes =
            |lengths: &[u64]| packed_bytes(lengths.len() as u64, check(&starts(lengths.iter().copied())));
        let mut lengths = vec![1700; 64_000];
        assert_eq!(bytes(&lengths).unwrap() / 6400, 22); // 2.2 bytes a record
        lengths[40_000] = 1 << 20;
        assert_eq!(bytes(&lengths).unwrap() / 6400, 27);
    }

    #[test]
    fn several_files_share_a_storage() {
        let files = [starts(vec![20; 5]), starts([]), starts(vec![300; 200])];
        let mut bytes = Vec::new();
        let places: Vec<(usize, u8)> =
            files.iter().map(|one| (bytes.len(), pack(one, &mut bytes).unwrap())).collect();
        bytes.extend_from_slice(&[255; PADDING_BYTES]);
        let storage = Arc::new(Storage::Memory(bytes));
        for ((at, width), want) in places.into_iter().zip(files) {
            assert_eq!(Positions::new(&storage, at, want.len() as u64 - 1, width).unwrap().starts(), want);
        }
    }

    #[test]
    fn what_cannot_be_packed_or_stored_is_refused() {
        for starts in [vec![], vec![1, 1], vec![0, 20, 19]] {
            assert!(pack(&starts, &mut Vec::new()).is_err());
        }
        let storage = Arc::new(Storage::Memory(vec![0; 40]));
        for (at, records, width) in
            [(0, 10, 58), (0, u64::MAX, 0), (0, u64::MAX - 1, 64), (40, 0, 0), (25, 0, 0), (0, 30, 8)]
        {
            assert!(Positions::new(&storage, at, records, width).is_err(), "{at} {records} {width}");
        }
        assert!(Positions::new(&storage, 24, 0, 0).is_ok());
    }
}
