//! Datatypes: their parts, and the places in their values that point to global heaps (strings and sequences of variable length,
//! region references).
//!
//! HDF5 (2.0) crashes over numbers whose bits lie outside of their bytes, and over an unknown kind of variable length.
//!
//! Format: HDF5 File Format Specification 4.0, IV.A.2.d.

use crate::format::cursor::{Cursor, Known, NotKnown, Unread};

const DEEPEST: usize = 16;
const MOST_POINTERS: usize = 4096;

/// Size and pointers of the values of a datatype.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueType {
    pub size: usize,
    pub pointers: Vec<Pointer>,
}

/// A pointer within each value: the address of a collection (8 bytes) and the index of an object in it (4 bytes).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    /// Offset in the value.
    pub at: usize,
    /// Type of the elements to which it points; None for text and coordinates, which have no pointers.
    pub elements: Option<Box<ValueType>>,
}

/// Read a datatype message. The size is never 0.
///
/// # Errors
/// The type is not known, or its parts do not fit.
pub fn value_type(message: &[u8]) -> Known<ValueType> {
    take(&mut Cursor::new(message), 0)
}

fn take(cursor: &mut Cursor<'_>, depth: usize) -> Known<ValueType> {
    if depth > DEEPEST {
        return Err(NotKnown("types that are nested too deep"));
    }
    let (class, version) = cursor.u8().map(|byte| (byte & 15, byte >> 4))?;
    let bits = cursor.number(3)? as usize;
    let size = cursor.length(4)?;
    if !(1..=5).contains(&version) || size == 0 {
        return Err(NotKnown("not a datatype"));
    }
    let mut pointers = Vec::new();
    match class {
        0 | 1 | 4 => {
            let [offset, precision] = [cursor.u16()?, cursor.u16()?].map(usize::from);
            if precision == 0 || offset + precision > size.saturating_mul(8) {
                return Err(Unread::damaged("a number of more bits than its bytes have"));
            }
            cursor.take(if class == 1 { 8 } else { 0 })?;
        }
        2 => drop(cursor.take(2)?),
        3 => {}
        5 => drop(cursor.take((bits & 0xff).next_multiple_of(8))?),
        6 => {
            for _ in 0..bits & 0xffff {
                let (at, count) = take_member(cursor, version, size)?;
                let member = take(cursor, depth + 1)?;
                if member.size.saturating_mul(count).saturating_add(at) > size {
                    return Err(Unread::damaged("a member outside its compound"));
                }
                add(&mut pointers, &member, at, count)?;
            }
            if bits & 0xffff == 0 {
                return Err(NotKnown("a compound without members"));
            }
        }
        7 if bits & 15 == 1 => pointers.push(Pointer { at: 0, elements: None }),
        7 => {} // to an object; the pointers of other kinds are not known
        8 => {
            let base = take(cursor, depth + 1)?;
            for _ in 0..bits & 0xffff {
                take_name(cursor, version)?;
            }
            cursor.take((bits & 0xffff).saturating_mul(base.size))?;
        }
        9 if bits & 15 > 1 => {
            return Err(Unread::damaged("a type of variable length that is not text or a sequence"));
        }
        9 => {
            let base = take(cursor, depth + 1)?;
            let elements = Some(Box::new(base)).filter(|base| !base.pointers.is_empty());
            pointers.push(Pointer { at: 4, elements });
        }
        10 => {
            let axes = usize::from(cursor.u8()?);
            cursor.take(if version < 3 { 3 } else { 0 })?;
            let mut count = 1_usize;
            for _ in 0..axes {
                count = count.saturating_mul(cursor.length(4)?);
            }
            cursor.take(if version < 3 { 4 * axes } else { 0 })?;
            let base = take(cursor, depth + 1)?;
            if axes == 0 || count.saturating_mul(base.size) != size {
                return Err(Unread::damaged("an array of another size than that of its elements"));
            }
            add(&mut pointers, &base, 0, count)?;
        }
        11 => drop(take(cursor, depth + 1)?),
        _ => return Err(NotKnown("another class of type")),
    }
    Ok(ValueType { size, pointers })
}

/// Add the pointers of an array of `count` elements, which begins at `at`.
fn add(pointers: &mut Vec<Pointer>, base: &ValueType, at: usize, count: usize) -> Known<()> {
    if base.pointers.len().saturating_mul(count) > MOST_POINTERS - pointers.len() {
        return Err(NotKnown("too many pointers in one value"));
    }
    for pointer in &base.pointers {
        for start in (at..).step_by(base.size).take(count) {
            pointers.push(Pointer { at: start + pointer.at, elements: pointer.elements.clone() });
        }
    }
    Ok(())
}

fn take_name(cursor: &mut Cursor<'_>, version: u8) -> Known<()> {
    let length = cursor.text()?.len() + 1;
    if version < 3 {
        cursor.take(length.next_multiple_of(8) - length)?;
    }
    Ok(())
}

/// Take the description of a member of a compound up to its type; return its offset in a value, and its number of elements.
fn take_member(cursor: &mut Cursor<'_>, version: u8, size: usize) -> Known<(usize, usize)> {
    take_name(cursor, version)?;
    let width = if version < 3 { 4 } else { (size.ilog2() / 8 + 1) as usize };
    let (at, mut count) = (cursor.length(width)?, 1_usize);
    if version == 1 {
        let axes = cursor.u8()?;
        cursor.take(11)?;
        for axis in 0..4 {
            let length = cursor.length(4)?;
            count = if axis < axes { count.saturating_mul(length) } else { count };
        }
    }
    Ok((at, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: [u8; 8] = [0x13, 0, 0, 0, 1, 0, 0, 0];
    const LONG: [u8; 12] = [0x10, 8, 0, 0, 8, 0, 0, 0, 0, 0, 64, 0];

    fn variable(base: &[u8]) -> Vec<u8> {
        [&[0x19, 1, 0, 0, 16, 0, 0, 0][..], base].concat()
    }

    fn places(message: &[u8]) -> Vec<usize> {
        value_type(message).unwrap().pointers.iter().map(|pointer| pointer.at).collect()
    }

    #[test]
    fn pointers_of_types() {
        assert_eq!(places(&LONG), [0; 0]);
        assert_eq!(places(&variable(&TEXT)), [4]);
        let nested = value_type(&variable(&variable(&LONG))).unwrap();
        assert!(nested.pointers[0].elements.is_some());
        // Version 1: names padded, 28 bytes between the place and the type.
        let head = [0x16, 2, 0, 0, 24, 0, 0, 0];
        let [first, second] = [("n", 0_u8), ("text", 8)].map(|(name, at)| {
            let mut member = [name.as_bytes(), &[0; 8][name.len()..]].concat();
            member.extend([at, 0, 0, 0]);
            member.extend([0; 28]);
            member
        });
        let old = [&head[..], &first, &LONG, &second, &variable(&TEXT)].concat();
        assert_eq!(places(&old), [12]);
        let new =
            [&[0x36, 2, 0, 0, 24, 0, 0, 0][..], b"n\0\0", &LONG, b"text\0\x08", &variable(&TEXT)].concat();
        assert_eq!(places(&new), [12]);
        let array = [&[0x3a, 0, 0, 0, 32, 0, 0, 0, 1, 2, 0, 0, 0][..], &variable(&TEXT)].concat();
        assert_eq!(places(&array), [4, 20]);
        assert!(value_type(&new[..new.len() - 1]).is_err());
        assert!(value_type(&[0x1f, 0, 0, 0, 1, 0, 0, 0]).is_err());
    }
}
