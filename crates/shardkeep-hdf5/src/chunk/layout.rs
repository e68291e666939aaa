//! Layout messages, versions 3 to 5: the storage of the rows of a dataset.

use crate::format::cursor::{Cursor, Known, NotKnown};
use crate::format::dataspace::MOST_DIMENSIONS;

/// Storage of the rows of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    Compact(Vec<u8>),
    /// `address` is None if no rows were written.
    Contiguous {
        address: Option<u64>,
        size: u64,
    },
    Chunked(Chunked),
}

/// Storage in chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunked {
    /// Shape of a chunk, in elements.
    pub chunk: Vec<u64>,
    pub element_bytes: u64,
    pub index: Index,
    /// Whether an array stores the sizes of chunks in eight bytes, as HDF5 2.0 does. Earlier versions use as few bytes as possible.
    pub is_wide: bool,
}

/// Kind and address of an index; None if there are no chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Index {
    BTree1(Option<u64>),
    /// With size and filter mask if the chunk is filtered.
    Single(Option<u64>, Option<(u64, u32)>),
    Implicit(Option<u64>),
    FixedArray(Option<u64>),
    ExtensibleArray(Option<u64>),
}

impl Layout {
    /// Parse a layout message.
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
                // Bit 0: chunks at the edge are not filtered, which no index records.
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
    let element_bytes = sizes.pop().filter(|size| *size > 0).ok_or(NotKnown("chunks of another kind"))?;
    let known = !sizes.is_empty() && sizes.len() <= MOST_DIMENSIONS && !sizes.contains(&0);
    if !known {
        return Err(NotKnown("chunks of another kind"));
    }
    Ok(Layout::Chunked(Chunked { chunk: sizes, element_bytes, index, is_wide }))
}

impl Chunked {
    /// Return the bytes of a chunk before filters.
    ///
    /// # Errors
    /// It is not known.
    pub fn chunk_bytes(&self) -> Known<u64> {
        let bytes = self.chunk.iter().try_fold(self.element_bytes, |size, one| size.checked_mul(*one));
        bytes.filter(|bytes| u32::try_from(*bytes).is_ok()).ok_or(NotKnown("numbers that are too large"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
