//! Checks of a superblock: the length of the file, and the widths of its trees.

use crate::format::cursor::{Cursor, Known, NotKnown};
use crate::format::file::{File, Storage};

/// Half of the number of entries of a leaf node of a group, and of children of an inner node.
const GROUP_K: (u16, u16) = (4, 16);
const CHUNK_K: u16 = 32;

/// Refuse a file that is truncated, and one whose superblock this reader supports only in part.
///
/// # Errors
/// The file is one of these.
pub(crate) fn is_whole<S: Storage + ?Sized>(file: &File<'_, S>) -> Known<()> {
    let start = file.start(0)?;
    let mut cursor = Cursor::new(&start);
    // `File` has found the signature; after a user block it has another offset.
    cursor.expect(b"\x89HDF\r\n\x1a\n", "a user block")?;
    let version = cursor.u8()?;
    if file.offset_width != 8 || file.length_width != 8 {
        return Err(NotKnown("numbers of another width"));
    }
    let (base, end) = if version < 2 {
        cursor.take(7)?;
        if (cursor.u16()?, cursor.u16()?) != GROUP_K {
            return Err(NotKnown("trees of another width"));
        }
        cursor.expect(&[0; 4], "flags that are not known")?;
        if version == 1 && (cursor.u16()?, cursor.u16()?) != (CHUNK_K, 0) {
            return Err(NotKnown("trees of another width"));
        }
        let base = cursor.number(8)?;
        if cursor.address(8)?.is_some() {
            return Err(NotKnown("an index of free space"));
        }
        let end = cursor.number(8)?;
        // The driver, and name offset and header of the root.
        cursor.take(24)?;
        if cursor.u32()? > 1 {
            return Err(NotKnown("a root of another kind"));
        }
        (base, end)
    } else {
        cursor.take(3)?;
        let base = cursor.number(8)?;
        if cursor.address(8)?.is_some() {
            return Err(NotKnown("an extension of the superblock"));
        }
        (base, cursor.number(8)?)
    };
    // HDF5 follows no address beyond this end, and leaves files of this length.
    if base != 0 || end != file.length() {
        return Err(NotKnown("a file that is truncated, or longer than its superblock says"));
    }
    Ok(())
}
