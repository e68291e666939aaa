//! What the messages of a dataset say: its dataspace, and where its rows are.

use crate::format::cursor::{Cursor, Known, NotKnown};
use crate::format::file::{File, Storage};
use crate::format::object_header::{ObjectHeader, kind};

/// HDF5 has no more dimensions.
pub const MOST_DIMENSIONS: usize = 32;

/// The layout of a dataset, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Its mappings are an object of a global heap; None if there are none.
    Virtual(Option<(u64, u32)>),
    Other,
}

impl ObjectHeader {
    /// The shape of a dataset; a scalar has no dimensions.
    ///
    /// # Errors
    /// It is empty ("null"), or of an unknown version; as of what follows.
    pub fn shape<S: Storage + ?Sized>(&self, file: &File<'_, S>) -> Known<Vec<u64>> {
        let mut cursor = Cursor::new(self.need(kind::DATASPACE)?);
        let version = cursor.u8()?;
        let dimensions = usize::from(cursor.u8()?);
        let _has_maxima = cursor.u8()?;
        match version {
            1 => drop(cursor.take(5)?),
            2 => {
                let of_dimensions = u8::from(dimensions > 0);
                cursor.expect(&[of_dimensions], "a dataspace of another kind")?;
            }
            _ => return Err(NotKnown("another version of dataspace")),
        }
        if dimensions > MOST_DIMENSIONS {
            return Err(NotKnown("too many dimensions"));
        }
        (0..dimensions).map(|_| cursor.number(file.length_width)).collect()
    }

    pub fn layout<S: Storage + ?Sized>(&self, file: &File<'_, S>) -> Known<Layout> {
        let mut cursor = Cursor::new(self.need(kind::LAYOUT)?);
        match (cursor.u8()?, cursor.u8()?) {
            // Versions 1 and 2 have the dimensions here.
            (1 | 2, _) | (3..=5, 0..=2) => Ok(Layout::Other),
            (4 | 5, 3) => {
                let heap = cursor.address(file.offset_width)?;
                let index = cursor.u32()?;
                Ok(Layout::Virtual(heap.map(|heap| (heap, index))))
            }
            _ => Err(NotKnown("another layout")),
        }
    }
}
