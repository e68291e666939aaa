//! Global heaps: collections of objects of any size.

use crate::format::cursor::{Cursor, Known, NotKnown, Unread};
use crate::format::file::{File, Storage};

/// Read one object of the collection at an address.
///
/// # Errors
/// The object does not exist, or the collection is damaged.
pub fn read_object<S: Storage + ?Sized>(file: &File<'_, S>, address: u64, index: u32) -> Known<Vec<u8>> {
    let object = walk(file, address, index).map_err(|error| error.at(file.offset_of(address)))?;
    object.ok_or(NotKnown("no such object in the global heap"))
}

/// Check the collection at an address: HDF5 reads all of it before it takes one object.
///
/// # Errors
/// The collection is damaged. A free part of size 0 makes HDF5 (1.14, 2.0) loop forever.
pub fn check<S: Storage + ?Sized>(file: &File<'_, S>, address: u64) -> Known<()> {
    walk(file, address, 0).map(drop).map_err(|error| error.at(file.offset_of(address)))
}

/// Read a collection and return the object of an index; no object has the index 0.
fn walk<S: Storage + ?Sized>(file: &File<'_, S>, address: u64, index: u32) -> Known<Option<Vec<u8>>> {
    let start = file.start(address)?;
    let mut cursor = Cursor::new(&start);
    cursor.expect(b"GCOL\x01", "not a global heap").map_err(Unread::as_damage)?;
    cursor.take(3)?;
    let length = cursor.length(file.length_width).map_err(Unread::as_damage)?;
    let all = file.whole(start, address, length)?;
    let mut cursor = Cursor::new(&all);
    cursor.take(8 + file.length_width).map_err(Unread::as_damage)?;
    let mut object = None;
    let head = 8 + file.length_width;
    // A rest that is shorter than the head of an object is unused. HDF5 reads all objects before it returns one, and so does this loop.
    while cursor.rest().len() >= head {
        let found = u32::from(cursor.u16()?);
        cursor.take(2 + 4)?;
        let length = cursor.length(file.length_width)?;
        if found == 0 {
            // A free part, whose length includes its head.
            let rest =
                length.checked_sub(head).ok_or(Unread::damaged("a free part shorter than its head"))?;
            cursor.take(rest).map_err(Unread::as_damage)?;
            continue;
        }
        let content = cursor.take(length).map_err(Unread::as_damage)?;
        if found == index && object.replace(content).is_some() {
            return Err(NotKnown("two objects of one number"));
        }
        cursor.take(length.next_multiple_of(8) - length).map_err(Unread::as_damage)?;
    }
    Ok(object.map(<[u8]>::to_vec))
}
