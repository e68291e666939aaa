//! Attributes by their bytes.

use crate::format::cursor::{Cursor, Known, NotKnown};
use crate::format::file::{File, Storage};
use crate::format::global_heap::read_object;
use crate::inspect::source_info::add;

/// Integers, floats, bit fields, fixed text, opaque bytes and enums have their values where they are.
const IN_PLACE: [u8; 6] = [0, 1, 3, 4, 5, 8];
const VARIABLE: u8 = 9;
const KIND: u16 = 0x0c;

/// The datatype of an attribute, and its values.
///
/// # Errors
/// It is not known.
pub(crate) fn type_and_values(message: &[u8]) -> Known<(&[u8], &[u8])> {
    let mut cursor = Cursor::new(message);
    let version = cursor.u8()?;
    let flags = cursor.u8()?;
    if !(1..=3).contains(&version) || (version > 1 && flags != 0) {
        return Err(NotKnown("an attribute of another kind"));
    }
    let sizes = [cursor.u16()?, cursor.u16()?, cursor.u16()?].map(usize::from);
    if version == 3 {
        cursor.take(1)?; // ASCII or UTF-8
    }
    let [name, datatype, dataspace] =
        sizes.map(|size| if version == 1 { size.next_multiple_of(8) } else { size });
    cursor.take(name)?;
    let datatype = cursor.take(datatype)?;
    cursor.take(dataspace)?;
    Ok((datatype, cursor.rest()))
}

/// Add all that an attribute is to a form, the text that it points to included.
///
/// # Errors
/// It points to anything else, or is not known.
pub(crate) fn add_attribute<S: Storage + ?Sized>(
    file: &File<'_, S>,
    message: &[u8],
    form: &mut Vec<u8>,
) -> Known<()> {
    let (datatype, values) = type_and_values(message)?;
    let class = datatype.first().map_or(u8::MAX, |byte| byte & 15);
    if IN_PLACE.contains(&class) {
        add(form, KIND, message);
        return Ok(());
    }
    let is_text = class == VARIABLE && datatype.get(1).is_some_and(|kind| kind & 15 == 1);
    if !is_text {
        return Err(NotKnown("an attribute that may point to somewhere"));
    }
    add(form, KIND, message.get(..message.len() - values.len()).unwrap_or_default());
    let mut cursor = Cursor::new(values);
    while !cursor.rest().is_empty() {
        let length = cursor.length(4)?;
        let (heap, index) = (cursor.address(8)?, cursor.u32()?);
        // Also of an empty text HDF5 reads the heap, unless there is none.
        let text = match heap {
            None | Some(0) => Vec::new(),
            Some(heap) => read_object(file, heap, index)?,
        };
        add(form, KIND, text.get(..length).ok_or(NotKnown("a text that ends too early"))?);
    }
    Ok(())
}
