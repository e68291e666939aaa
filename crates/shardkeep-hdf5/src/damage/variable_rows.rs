//! Checks of the global heaps of rows: strings and sequences of variable length.
//!
//! Rows that are stored as they are, or through deflate, shuffle and Fletcher-32, are read; others are "not known".

use std::io::Read;

use crate::chunk::layout::Layout;
use crate::damage::heap_pointers::Collections;
use crate::format::cursor::{Cursor, Known, NotKnown};
use crate::format::dataspace::extent;
use crate::format::datatype::{ValueType, value_type};
use crate::format::file::{File, Storage};
use crate::format::object_header::{ObjectHeader, kind};

/// Bytes of rows that are read at once.
const PIECE_BYTES: usize = 1 << 20;
const MOST_CHUNK_BYTES: u64 = 64 << 20;
/// Largest number of bytes of one dataset, decompressed.
const MOST_BYTES: u64 = 1 << 30;

/// Check the global heaps to which the rows of an object point, if it is a dataset of such a type.
///
/// # Errors
/// A heap is damaged, or the rows are not known.
pub(crate) fn check_rows<S: Storage + ?Sized>(
    file: &File<'_, S>,
    header: &ObjectHeader,
    collections: &mut Collections,
) -> Known<()> {
    if !header.has(kind::LAYOUT) {
        return Ok(());
    }
    let datatype = datatype(file, header)?;
    if datatype.pointers.is_empty() {
        return Ok(());
    }
    match Layout::parse(header.need(kind::LAYOUT)?)? {
        Layout::Compact(rows) => collections.check(file, &datatype, &rows),
        Layout::Contiguous { address: Some(address), size } => {
            let piece = (PIECE_BYTES / datatype.size).max(1) * datatype.size;
            for first in (0..size.min(MOST_BYTES)).step_by(piece) {
                let length = (size - first).min(piece as u64) as usize;
                let at = address.checked_add(first).ok_or(NotKnown("rows beyond the file"))?;
                let rows = file.read(at, length).map_err(|_| NotKnown("rows beyond the file"))?;
                collections.check(file, &datatype, &rows)?;
            }
            Ok(())
        }
        Layout::Contiguous { address: None, .. } => Ok(()),
        Layout::Chunked(chunked) => {
            let (shape, limits) = extent(header.need(kind::DATASPACE)?, file.length_width)?;
            let shape = shape.ok_or(NotKnown("chunks of nothing"))?;
            let filters = header.first(kind::FILTERS)?.map(filters).transpose()?.unwrap_or_default();
            let chunks = chunked.chunks(file, &shape, &limits, !filters.is_empty());
            let chunks = chunks.map_err(|_| NotKnown("where the chunks are"))?;
            let chunk_bytes = chunked.chunk_bytes()?;
            let mut left = MOST_BYTES;
            for ((address, size), mask) in chunks.addresses.iter().zip(&chunks.sizes).zip(&chunks.masks) {
                left = left.checked_sub(chunk_bytes).ok_or(NotKnown("many rows"))?;
                if chunk_bytes.max(*size) > MOST_CHUNK_BYTES {
                    return Err(NotKnown("large chunks"));
                }
                let stored = file.read(*address, *size as usize);
                let stored = stored.map_err(|_| NotKnown("a chunk beyond the file"))?;
                let rows = unfiltered(stored, &filters, *mask, chunk_bytes as usize)?;
                collections.check(file, &datatype, &rows)?;
            }
            Ok(())
        }
    }
}

/// Read the datatype of a dataset, which may be a named type.
fn datatype<S: Storage + ?Sized>(file: &File<'_, S>, header: &ObjectHeader) -> Known<ValueType> {
    let message = header.messages().iter().find(|message| message.kind == kind::DATATYPE);
    let message = message.ok_or(NotKnown("no datatype"))?;
    if !message.is_shared() {
        return value_type(&message.data);
    }
    let mut cursor = Cursor::new(&message.data);
    if !matches!(cursor.u8()?, 2 | 3) {
        return Err(NotKnown("a type that is shared in another way"));
    }
    cursor.take(1)?;
    let address = cursor.address(file.offset_width)?.ok_or(NotKnown("a named type without an address"))?;
    let (named, _) = ObjectHeader::read_any(file, address)?;
    value_type(named.need(kind::DATATYPE)?)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filter {
    Deflate,
    /// Shuffle of values of this many bytes.
    Shuffle(usize),
    Fletcher32,
}

fn filters(message: &[u8]) -> Known<Vec<Filter>> {
    let mut cursor = Cursor::new(message);
    let version = cursor.u8()?;
    let count = cursor.u8()?;
    if version == 1 {
        cursor.take(6)?;
    }
    let mut found = Vec::new();
    for _ in 0..count {
        let number = cursor.u16()?;
        let name = if version == 1 || number >= 256 { usize::from(cursor.u16()?) } else { 0 };
        cursor.take(2)?;
        let values = usize::from(cursor.u16()?);
        cursor.take(if version == 1 { name.next_multiple_of(8) } else { name })?;
        let first = if values > 0 { cursor.length(4)? } else { 0 };
        cursor.take(4 * values.saturating_sub(1))?;
        if version == 1 && values % 2 == 1 {
            cursor.take(4)?;
        }
        found.push(match number {
            1 => Filter::Deflate,
            // Without a width HDF5 leaves the bytes as they are.
            2 => Filter::Shuffle(first.max(1)),
            3 => Filter::Fletcher32,
            _ => return Err(NotKnown("another filter")),
        });
    }
    Ok(found)
}

/// Undo the filters of a chunk.
fn unfiltered(mut bytes: Vec<u8>, filters: &[Filter], mask: u32, chunk_bytes: usize) -> Known<Vec<u8>> {
    for (number, filter) in filters.iter().enumerate().rev() {
        if mask.checked_shr(number as u32).unwrap_or(0) & 1 != 0 {
            continue;
        }
        match *filter {
            Filter::Fletcher32 => bytes.truncate(bytes.len().saturating_sub(4)),
            Filter::Deflate => {
                let mut rows = Vec::new();
                // A Fletcher-32 checksum may be part of the compressed data.
                let most = chunk_bytes as u64 + 4;
                let read = flate2::read::ZlibDecoder::new(&bytes[..]).take(most).read_to_end(&mut rows);
                read.map_err(|_| NotKnown("a chunk that cannot be decompressed"))?;
                bytes = rows;
            }
            Filter::Shuffle(width) => {
                let count = bytes.len() / width;
                let (shuffled, rest) = bytes.split_at(count * width);
                let mut rows = Vec::with_capacity(bytes.len());
                for value in 0..count {
                    rows.extend(shuffled.iter().skip(value).step_by(count).take(width));
                }
                rows.extend_from_slice(rest);
                bytes = rows;
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_undone_in_reverse() {
        // Version 2: shuffle of two bytes a value, deflate.
        let message = [2, 2, 2, 0, 1, 0, 1, 0, 2, 0, 0, 0, 1, 0, 1, 0, 1, 0, 6, 0, 0, 0];
        let found = filters(&message).unwrap();
        assert_eq!(found, [Filter::Shuffle(2), Filter::Deflate]);
        let mut encoder = flate2::read::ZlibEncoder::new(&b"aceXbdfYz"[..], flate2::Compression::new(6));
        let mut packed = Vec::new();
        encoder.read_to_end(&mut packed).unwrap();
        assert_eq!(unfiltered(packed.clone(), &found, 0, 9).unwrap(), b"abcdefXYz");
        assert_eq!(unfiltered(packed, &found, 1, 9).unwrap(), b"aceXbdfYz");
        assert!(filters(&[2, 1, 9, 0, 0, 0, 0, 0]).is_err());
    }
}
