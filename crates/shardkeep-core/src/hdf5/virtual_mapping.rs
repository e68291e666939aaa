//! The mappings of a virtual dataset: an object of the global heap (`H5D__virtual_load_layout`).

use std::collections::HashMap;

use super::cursor::{Cursor, Known, NotKnown};
use super::lookup3::checked;
use super::selection::{Selection, signed, take_selection};

const SAME_FILE: u8 = 4;
const SHARED_DATASET: u8 = 2;
const SHARED_FILE: u8 = 1;

/// Which box of which source is where.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct VirtualMapping {
    /// File and dataset of each source, once, in the order in which they come.
    pub sources: Vec<(Vec<u8>, Vec<u8>)>,
    /// Of each mapping: which source.
    pub numbers: Vec<i64>,
    /// Of each mapping, where its box begins and ends in the virtual dataset: as many numbers as that has dimensions.
    pub low: Vec<i64>,
    pub high: Vec<i64>,
    /// Of each mapping, the dimensions of its box in the source; -1 if it is all of the source.
    pub source_dimensions: Vec<i64>,
    /// The boxes, one behind the other.
    pub source_low: Vec<i64>,
    pub source_high: Vec<i64>,
}

impl VirtualMapping {
    /// Read the mappings of a dataset of some shape; `length_width` is that of its file.
    ///
    /// # Errors
    /// Something is not a box, has no end, or lies outside of the dataset, names have block numbers in them, or it
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
        // HDF5 would not open the dataset.
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

/// HDF5 puts block numbers in the place of "%b", so a "%" is doubled.
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
