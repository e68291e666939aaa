//! Objects of any size, many in one collection.

use super::cursor::{Cursor, Known, NotKnown};
use super::file::{File, Storage};

/// Read one object of the collection at an address.
///
/// # Errors
/// It is not there, or the collection not as it should be.
pub fn read_object<S: Storage + ?Sized>(file: &File<'_, S>, address: u64, index: u32) -> Known<Vec<u8>> {
    let start = file.start(address)?;
    let mut cursor = Cursor::new(&start);
    cursor.expect(b"GCOL\x01\0\0\0", "not a global heap")?;
    let length = cursor.length(file.length_width)?;
    let all = file.whole(start, address, length)?;
    let mut cursor = Cursor::new(&all);
    cursor.take(8 + file.length_width)?;
    // Less than the head of an object is left over.
    while cursor.rest().len() >= 8 + file.length_width {
        let found = u32::from(cursor.u16()?);
        cursor.take(2 + 4)?;
        let length = cursor.length(file.length_width)?;
        if found == 0 {
            break; // the rest is free
        }
        let object = cursor.take(length)?;
        if found == index {
            return Ok(object.to_vec());
        }
        let filling = length.next_multiple_of(8) - length;
        cursor.take(filling.min(cursor.rest().len()))?;
    }
    Err(NotKnown("no such object in the global heap"))
}
