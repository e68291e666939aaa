//! Attribute messages.

use crate::format::cursor::{Cursor, Known, NotKnown};

/// Return the datatype of an attribute and its values.
///
/// # Errors
/// The message is not known.
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
