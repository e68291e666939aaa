//! Mappings of a virtual dataset, an object of the global heap (`H5D__virtual_load_layout`).

use std::collections::HashMap;

use crate::format::cursor::{Cursor, Known, NotKnown};
use crate::format::lookup3::checked;
use crate::virtual_dataset::selection::{Selection, signed, take_selection};

const SAME_FILE: u8 = 4;
const SHARED_DATASET: u8 = 2;
const SHARED_FILE: u8 = 1;

/// The boxes of a virtual dataset and their sources.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct VirtualMapping {
    /// File and dataset of each source, once, in the order of their first use.
    pub sources: Vec<(Vec<u8>, Vec<u8>)>,
    /// Index of the source of each mapping.
    pub numbers: Vec<i64>,
    /// Start and end of the box of each mapping in the virtual dataset, one number for each dimension.
    pub low: Vec<i64>,
    pub high: Vec<i64>,
    /// Number of dimensions of the box of each mapping in the source; -1 for the whole source.
    pub source_dimensions: Vec<i64>,
    /// Start and end of the boxes in the sources, in the order of the mappings.
    pub source_low: Vec<i64>,
    pub source_high: Vec<i64>,
}

impl VirtualMapping {
    /// Read the mappings of a dataset of a shape; `length_width` is the number of bytes of a length in its file.
    ///
    /// # Errors
    /// A selection is not a box, has no end, or is outside of the dataset; a name has block numbers; or the object
    /// is damaged.
    pub fn read(object: &[u8], shape: &[u64], length_width: usize) -> Known<Self> {
        let mut cursor = Cursor::new(checked(object)?);
        let version = cursor.u8()?;
        if version > 1 {
            return Err(NotKnown("another version of mappings"));
        }
        let count = cursor.number(length_width)?;
        let mut found = Self::default();
        let mut names: Vec<(&[u8], &[u8])> = Vec::new();
        let mut numbers: HashMap<(&[u8], &[u8]), i64> = HashMap::new();
        for _ in 0..count {
            let flags = if version == 0 { 0 } else { cursor.u8()? };
            let (file, dataset) = take_names(&mut cursor, flags, &names, length_width)?;
            names.push((file, dataset));
            let next = numbers.len() as i64;
            let number = *numbers.entry((file, dataset)).or_insert(next);
            if number == next {
                found.sources.push((unescaped(file)?, unescaped(dataset)?));
            }
            found.numbers.push(number);
            found.take_boxes(&mut cursor, shape)?;
        }
        if cursor.rest().is_empty() { Ok(found) } else { Err(NotKnown("more than mappings")) }
    }

    fn take_boxes(&mut self, cursor: &mut Cursor<'_>, shape: &[u64]) -> Known<()> {
        let (here, there) = (self.source_low.len(), self.low.len());
        let source = take_selection(cursor, &mut self.source_low, &mut self.source_high)?;
        match take_selection(cursor, &mut self.low, &mut self.high)? {
            Selection::All => {
                for length in shape {
                    self.low.push(0);
                    self.high.push(signed(*length)?);
                }
            }
            Selection::Box(dimensions) if dimensions == shape.len() => {
                let ends = self.high.get(there..).unwrap_or_default();
                if ends.iter().zip(shape).any(|(end, length)| end.unsigned_abs() > *length) {
                    return Err(NotKnown("a mapping outside of its dataset"));
                }
            }
            Selection::Box(_) => return Err(NotKnown("a mapping of another number of dimensions")),
        }
        let Selection::Box(dimensions) = source else {
            self.source_dimensions.push(-1);
            return Ok(());
        };
        self.source_dimensions.push(dimensions as i64);
        // HDF5 does not open such a dataset.
        if size(&self.source_low, &self.source_high, here) != size(&self.low, &self.high, there) {
            return Err(NotKnown("a mapping of another size than its source"));
        }
        Ok(())
    }
}

fn take_names<'a>(
    cursor: &mut Cursor<'a>,
    flags: u8,
    before: &[(&'a [u8], &'a [u8])],
    length_width: usize,
) -> Known<(&'a [u8], &'a [u8])> {
    if flags & !(SAME_FILE | SHARED_DATASET | SHARED_FILE) != 0 {
        return Err(NotKnown("another kind of mapping"));
    }
    let earlier = |cursor: &mut Cursor<'a>| {
        let number = cursor.length(length_width)?;
        before.get(number).copied().ok_or(NotKnown("a name of no mapping before"))
    };
    let file = if flags & SAME_FILE != 0 {
        b"."
    } else if flags & SHARED_FILE != 0 {
        earlier(cursor)?.0
    } else {
        cursor.text()?
    };
    let dataset = if flags & SHARED_DATASET != 0 { earlier(cursor)?.1 } else { cursor.text()? };
    Ok((file, dataset))
}

/// Undo the escapes of a name: HDF5 replaces "%b" by block numbers, so "%%" stands for "%".
fn unescaped(name: &[u8]) -> Known<Vec<u8>> {
    let mut found = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(byte) = bytes.next() {
        if *byte == b'%' && bytes.next() != Some(&b'%') {
            return Err(NotKnown("a name with block numbers"));
        }
        found.push(*byte);
    }
    Ok(found)
}

fn size(low: &[i64], high: &[i64], from: usize) -> Option<i64> {
    let sides = low.iter().zip(high).skip(from);
    sides.map(|(low, high)| high - low).try_fold(1_i64, i64::checked_mul)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::lookup3::lookup3;

    const ALL: [u8; 16] = [3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    /// Row `row` of a dataset of two dimensions, six numbers.
    fn row(row: u8) -> Vec<u8> {
        [
            &[2, 0, 0, 0, 3, 0, 0, 0, 1, 2, 2, 0, 0, 0][..],
            &[row, 0, 1, 0, 1, 0, 1, 0],
            &[0, 0, 1, 0, 1, 0, 6, 0],
        ]
        .concat()
    }

    fn read(version: u8, count: u8, parts: &[&[u8]]) -> Known<VirtualMapping> {
        let mut block = vec![version, count, 0, 0, 0];
        block.extend(parts.concat());
        block.extend(lookup3(&block).to_le_bytes());
        VirtualMapping::read(&block, &[4, 6], 4)
    }

    #[test]
    fn names_are_told_once_or_shared() {
        let plain =
            read(0, 3, &[b"a\0x\0", &ALL, &row(2), b".\0%%\0", &ALL, &row(0), b"a\0x\0", &ALL, &row(1)]);
        let shared = [b"\0a\0x\0".as_slice(), &ALL, &row(2), b"\x04%%\0", &ALL, &row(0)];
        let last = [b"\x03\0\0\0\0\0\0\0\0".as_slice(), &ALL, &row(1)];
        let found = plain.unwrap();
        assert_eq!(found, read(1, 3, &[&shared[..], &last[..]].concat()).unwrap());
        assert_eq!(found.sources, [(b"a".to_vec(), b"x".to_vec()), (b".".to_vec(), b"%".to_vec())]);
        assert_eq!(found.numbers, [0, 1, 0]);
        assert_eq!(found.low, [2, 0, 0, 0, 1, 0]);
        assert_eq!(found.high, [3, 6, 1, 6, 2, 6]);
        assert_eq!(found.source_dimensions, [-1; 3]);
    }

    #[test]
    fn what_is_odd_is_not_known() {
        let odd: [(&str, u8, u8, &[&[u8]]); 11] = [
            ("a version to come", 2, 0, &[]),
            ("more than there is", 0, 2, &[b"a\0x\0", &ALL, &row(0)]),
            ("less than there is", 0, 0, &[b"a\0x\0", &ALL, &row(0)]),
            ("a row beyond", 0, 1, &[b"a\0x\0", &ALL, &row(4)]),
            ("block numbers", 0, 1, &[b"a%b\0x\0", &ALL, &row(0)]),
            ("a lone %", 0, 1, &[b"a\0x%\0", &ALL, &row(0)]),
            ("a name of itself", 1, 1, &[b"\x01\0\0\0\0x\0", &ALL, &row(0)]),
            ("an unknown flag", 1, 1, &[b"\x08a\0x\0", &ALL, &row(0)]),
            ("no end of a name", 0, 1, &[b"a"]),
            ("another size", 0, 1, &[b"a\0x\0", &row(0), &ALL]),
            ("points", 0, 1, &[b"a\0x\0", &[1; 16], &row(0)]),
        ];
        for (what, version, count, parts) in odd {
            assert!(read(version, count, parts).is_err(), "{what}");
        }
        assert!(read(0, 1, &[b"a\0x\0", &row(3), &row(0)]).is_ok());
        assert!(VirtualMapping::read(b"\0\0\0\0\0nope", &[4, 6], 4).is_err(), "a wrong checksum");
    }
}
