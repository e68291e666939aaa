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
    let mut object = None;
    let head = 8 + file.length_width;
    // Less than the head of an object is left over. All are gone through, as HDF5 does before it takes one.
    while cursor.rest().len() >= head {
        let found = u32::from(cursor.u16()?);
        cursor.take(2 + 4)?;
        let length = cursor.length(file.length_width)?;
        if found == 0 {
            // Free, the head included.
            cursor.take(length.checked_sub(head).ok_or(NotKnown("a free part without a head"))?)?;
            continue;
        }
        let content = cursor.take(length)?;
        if found == index && object.replace(content).is_some() {
            return Err(NotKnown("two objects of one number"));
        }
        cursor.take(length.next_multiple_of(8) - length)?;
    }
    object.map(<[u8]>::to_vec).ok_or(NotKnown("no such object in the global heap"))
}
