//! Dataspace messages: the shape of a dataset and its limits.

use crate::format::cursor::{Cursor, Known, NotKnown};
use crate::format::file::{File, Storage};
use crate::format::object_header::{ObjectHeader, kind};

/// Largest number of dimensions of HDF5.
pub const MOST_DIMENSIONS: usize = 32;

/// Shape (None for the null dataspace) and limits (None: unlimited).
pub type Extent = (Option<Vec<u64>>, Vec<Option<u64>>);

impl ObjectHeader {
    /// Return the shape of a dataset; a scalar has no dimensions.
    ///
    /// # Errors
    /// The dataspace is null, or not known.
    pub fn shape<S: Storage + ?Sized>(&self, file: &File<'_, S>) -> Known<Vec<u64>> {
        extent(self.need(kind::DATASPACE)?, file.length_width)?.0.ok_or(NotKnown("a null dataspace"))
    }
}

/// Parse a dataspace message; `width` is the number of bytes of a length.
///
/// # Errors
/// The message is not known.
pub fn extent(message: &[u8], width: usize) -> Known<Extent> {
    let mut cursor = Cursor::new(message);
    let version = cursor.u8()?;
    let dimensions = usize::from(cursor.u8()?);
    let flags = cursor.u8()?;
    let is_null = match (version, flags) {
        (1, 0 | 1) => {
            cursor.take(5)?;
            false
        }
        (2, 0 | 1) => match (cursor.u8()?, dimensions) {
            (0, 0) | (1, 1..) => false,
            (2, 0) => true,
            _ => return Err(NotKnown("a dataspace of another kind")),
        },
        _ => return Err(NotKnown("another version of dataspace")),
    };
    if dimensions > MOST_DIMENSIONS {
        return Err(NotKnown("too many dimensions"));
    }
    let shape = (0..dimensions).map(|_| cursor.number(width)).collect::<Known<Vec<u64>>>()?;
    let limits = if flags & 1 != 0 {
        (0..dimensions).map(|_| cursor.address(width)).collect::<Known<Vec<_>>>()?
    } else {
        shape.iter().copied().map(Some).collect()
    };
    if shape.iter().zip(&limits).any(|(size, limit)| limit.is_some_and(|limit| limit < *size)) {
        return Err(NotKnown("a shape beyond its limits"));
    }
    Ok((if is_null { None } else { Some(shape) }, limits))
}
