//! The extent of a datatype message.

use crate::format::cursor::{Cursor, Known, NotKnown};

const DEEPEST: usize = 32;

/// Return the bytes of a value of a datatype, after a check of all of its parts.
///
/// # Errors
/// The message is not a datatype.
pub(crate) fn value_bytes(message: &[u8]) -> Known<u64> {
    datatype(&mut Cursor::new(message), 0)
}

fn datatype(cursor: &mut Cursor<'_>, depth: usize) -> Known<u64> {
    const ODD: crate::format::cursor::Unread = NotKnown("not a datatype");
    if depth > DEEPEST {
        return Err(ODD);
    }
    let start = cursor.u8()?;
    let (version, class) = (start >> 4, start & 15);
    let bits = u32::try_from(cursor.number(3)?).map_err(|_| ODD)?;
    let size = u64::from(cursor.u32()?);
    if !(1..=5).contains(&version) || size == 0 {
        return Err(ODD);
    }
    match class {
        // Integers, times, bit fields: offset and precision, or the precision alone.
        0 | 4 => {
            let (offset, precision) = (u64::from(cursor.u16()?), u64::from(cursor.u16()?));
            let least = if class == 0 { 1 } else { 0 };
            if precision < least || offset + precision > 8 * size || bits > 0xf {
                return Err(ODD);
            }
        }
        2 => drop(cursor.take(2)?),
        1 => {
            let (offset, precision) = (u64::from(cursor.u16()?), u64::from(cursor.u16()?));
            cursor.take(8)?;
            if precision == 0 || offset + precision > 8 * size {
                return Err(ODD);
            }
        }
        // Text, references.
        3 | 7 => {}
        // Opaque bytes with a tag.
        5 => drop(cursor.take((bits & 0xff) as usize)?),
        6 => compound(cursor, version, (bits & 0xffff) as usize, size, depth)?,
        8 => enumeration(cursor, version, (bits & 0xffff) as usize, depth)?,
        // Of variable length, and complex numbers.
        9 | 11 => drop(datatype(cursor, depth + 1)?),
        10 => {
            let axes = usize::from(cursor.u8()?);
            if version < 3 {
                cursor.take(3)?;
            }
            let mut count = 1_u64;
            for _ in 0..axes {
                count = count.checked_mul(cursor.u32()?.into()).ok_or(ODD)?;
            }
            if version < 3 {
                cursor.take(4 * axes)?;
            }
            let base = datatype(cursor, depth + 1)?;
            if axes == 0 || base.checked_mul(count) != Some(size) {
                return Err(ODD);
            }
        }
        _ => return Err(ODD),
    }
    Ok(size)
}

/// Take a name, which versions before 3 fill up to a multiple of eight bytes.
fn name(cursor: &mut Cursor<'_>, version: u8) -> Known<()> {
    let length = cursor.text()?.len() + 1;
    if version < 3 {
        cursor.take(length.next_multiple_of(8) - length)?;
    }
    Ok(())
}

fn compound(cursor: &mut Cursor<'_>, version: u8, members: usize, size: u64, depth: usize) -> Known<()> {
    for _ in 0..members {
        name(cursor, version)?;
        let offset = match version {
            1 | 2 => u64::from(cursor.u32()?),
            // As few bytes as the size of the compound needs.
            _ => cursor.number((size.ilog2() / 8 + 1) as usize)?,
        };
        let mut count = 1_u64;
        if version == 1 {
            let axes = usize::from(cursor.u8()?).min(4);
            cursor.take(3 + 4 + 4)?;
            for axis in 0..4 {
                let length = u64::from(cursor.u32()?);
                count = count.saturating_mul(if axis < axes { length } else { 1 });
            }
        }
        let member = datatype(cursor, depth + 1)?;
        if member.saturating_mul(count).saturating_add(offset) > size {
            return Err(NotKnown("a member outside its compound"));
        }
    }
    if members == 0 { Err(NotKnown("a compound without members")) } else { Ok(()) }
}

fn enumeration(cursor: &mut Cursor<'_>, version: u8, members: usize, depth: usize) -> Known<()> {
    let base = datatype(cursor, depth + 1)?;
    for _ in 0..members {
        name(cursor, version)?;
    }
    let bytes = usize::try_from(base).unwrap_or(usize::MAX).saturating_mul(members);
    cursor.take(bytes).map(drop)
}
