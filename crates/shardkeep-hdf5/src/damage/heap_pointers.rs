//! Pointers into global heaps within the values of a datatype: strings and sequences of variable length, region references.
//!
//! Format: HDF5 File Format Specification 4.0, IV.A.2.d.

use std::collections::HashSet;

use crate::format::cursor::{Cursor, Known, NotKnown};
use crate::format::file::{File, Storage};
use crate::format::global_heap::{check, read_object};

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
    at: usize,
    /// Type of the elements to which it points; None for text and coordinates, which have no pointers.
    elements: Option<Box<ValueType>>,
}

/// Read a datatype message.
///
/// # Errors
/// The type is not known.
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
    let mut pointers = Vec::new();
    match class {
        0 | 4 => drop(cursor.take(4)?),
        1 => drop(cursor.take(12)?),
        2 => drop(cursor.take(2)?),
        3 => {}
        5 => drop(cursor.take((bits & 0xff).next_multiple_of(8))?),
        6 => {
            for _ in 0..bits & 0xffff {
                let at = take_member(cursor, version, size)?;
                add(&mut pointers, &take(cursor, depth + 1)?, at)?;
            }
        }
        7 => match bits & 15 {
            0 => {}
            1 => pointers.push(Pointer { at: 0, elements: None }),
            _ => return Err(NotKnown("another kind of reference")),
        },
        8 => {
            let base = take(cursor, depth + 1)?;
            for _ in 0..bits & 0xffff {
                take_name(cursor, version)?;
            }
            cursor.take((bits & 0xffff).saturating_mul(base.size))?;
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
            if !base.pointers.is_empty() {
                for number in 0..count.min(MOST_POINTERS + 1) {
                    add(&mut pointers, &base, number.saturating_mul(base.size))?;
                }
            }
        }
        11 => drop(take(cursor, depth + 1)?),
        _ => return Err(NotKnown("another class of type")),
    }
    Ok(ValueType { size, pointers })
}

fn add(pointers: &mut Vec<Pointer>, base: &ValueType, at: usize) -> Known<()> {
    for pointer in &base.pointers {
        if pointers.len() >= MOST_POINTERS {
            return Err(NotKnown("too many pointers in one value"));
        }
        pointers.push(Pointer { at: pointer.at.saturating_add(at), elements: pointer.elements.clone() });
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

/// Take the description of a member of a compound up to its type; return the offset of the member in a value.
fn take_member(cursor: &mut Cursor<'_>, version: u8, size: usize) -> Known<usize> {
    take_name(cursor, version)?;
    let width = if version < 3 { 4 } else { (size.max(1).ilog2() / 8 + 1) as usize };
    let at = cursor.length(width)?;
    if version == 1 {
        if cursor.u8()? != 0 {
            return Err(NotKnown("an array in a compound of version 1"));
        }
        cursor.take(27)?;
    }
    Ok(at)
}

/// The collections that were found to be whole.
#[derive(Debug, Default)]
pub struct Collections {
    whole: HashSet<u64>,
    last: Option<u64>,
}

impl Collections {
    /// Check all collections that values point to, and those that these point to.
    ///
    /// # Errors
    /// One is damaged.
    pub fn check<S: Storage + ?Sized>(
        &mut self,
        file: &File<'_, S>,
        kind: &ValueType,
        values: &[u8],
    ) -> Known<()> {
        self.check_below(file, kind, values, 0)
    }

    fn check_below<S: Storage + ?Sized>(
        &mut self,
        file: &File<'_, S>,
        kind: &ValueType,
        values: &[u8],
        depth: usize,
    ) -> Known<()> {
        if kind.pointers.is_empty() || kind.size == 0 {
            return Ok(());
        }
        for value in values.chunks_exact(kind.size) {
            for pointer in &kind.pointers {
                let mut cursor = Cursor::new(value.get(pointer.at..).unwrap_or_default());
                let (address, index) = (cursor.address(file.offset_width)?, cursor.u32()?);
                // Nothing was written, or an empty value.
                let Some(address) = address.filter(|address| *address != 0 && index != 0) else { continue };
                if self.last != Some(address) && !self.whole.contains(&address) {
                    check(file, address)?;
                    self.whole.insert(address);
                }
                self.last = Some(address);
                if let Some(elements) = &pointer.elements
                    && depth < DEEPEST
                {
                    let object = read_object(file, address, index)?;
                    self.check_below(file, elements, &object, depth + 1)?;
                }
            }
        }
        Ok(())
    }
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
