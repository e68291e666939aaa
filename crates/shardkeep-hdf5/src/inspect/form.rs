//! Forms of objects: the bytes of messages that HDF5 reads the same way wherever they are.
//!
//! A form has types, filters, fill values and attributes as they are stored. Two objects of the same form have the same
//! properties, so HDF5 reads one of them for all.

use crate::chunk::layout::Layout;
use crate::format::attribute::type_and_values;
use crate::format::cursor::{Cursor, Known, NotKnown};
use crate::format::dataspace::extent;
use crate::format::file::{File, Storage};
use crate::format::global_heap::read_object;
use crate::format::object_header::{Message, ObjectHeader, kind};

/// Integers, floats, bit fields, fixed text, opaque bytes and enums: classes whose values are not elsewhere.
const IN_PLACE: [u8; 6] = [0, 1, 3, 4, 5, 8];
const VARIABLE: u8 = 9;

const FILL_OF_OLD: u16 = 0x04;
const FILL: u16 = 0x05;
const GROUP_INFO: u16 = 0x0a;
const LAYOUT_FORM: u16 = 0xff;

// Ignored: empty messages, times of changes, continuations, the number of names.
pub(crate) const DATASET_KINDS: Kinds = Kinds {
    ignored: &[0x00, 0x0e, 0x12, kind::CONTINUATION, 0x16, kind::DATASPACE, kind::LAYOUT],
    kept: &[kind::DATATYPE, FILL_OF_OLD, FILL, kind::FILTERS],
};
pub(crate) const GROUP_KINDS: Kinds = Kinds {
    ignored: &[
        0x00,
        0x0e,
        0x12,
        kind::CONTINUATION,
        0x16,
        kind::LINK_INFO,
        kind::LINK,
        GROUP_INFO,
        kind::SYMBOL_TABLE,
    ],
    kept: &[],
};

/// The kinds of messages of an object that are skipped, and those that are part of its form.
pub(crate) struct Kinds {
    ignored: &'static [u16],
    kept: &'static [u16],
}

/// Return the form of an object.
///
/// # Errors
/// A message is shared, of a kind that is not known, or points to elsewhere.
pub(crate) fn form<S: Storage + ?Sized>(
    file: &File<'_, S>,
    header: &ObjectHeader,
    kinds: &Kinds,
) -> Known<Vec<u8>> {
    let mut form = Vec::new();
    for message in header.messages() {
        if kinds.ignored.contains(&message.kind) {
            continue;
        }
        if message.is_shared() {
            return Err(NotKnown("a shared message"));
        }
        match message.kind {
            kind::ATTRIBUTE => add_attribute(file, &message.data, &mut form)?,
            kind::ATTRIBUTE_INFO => refuse_dense_attributes(message)?,
            kind if kinds.kept.contains(&kind) => add(&mut form, kind, &message.data),
            _ => return Err(NotKnown("a message of another kind")),
        }
    }
    Ok(form)
}

/// Append a message, with its kind and length, to a form.
fn add(form: &mut Vec<u8>, kind: u16, bytes: &[u8]) {
    form.extend(kind.to_le_bytes());
    form.extend((bytes.len() as u64).to_le_bytes());
    form.extend(bytes);
}

/// Add an attribute to a form, with the text to which it points.
///
/// # Errors
/// The attribute points to anything else, or is not known.
fn add_attribute<S: Storage + ?Sized>(file: &File<'_, S>, message: &[u8], form: &mut Vec<u8>) -> Known<()> {
    let (datatype, values) = type_and_values(message)?;
    let class = datatype.first().map_or(u8::MAX, |byte| byte & 15);
    if IN_PLACE.contains(&class) {
        add(form, kind::ATTRIBUTE, message);
        return Ok(());
    }
    let is_text = class == VARIABLE && datatype.get(1).is_some_and(|kind| kind & 15 == 1);
    if !is_text {
        return Err(NotKnown("an attribute that may point to somewhere"));
    }
    add(form, kind::ATTRIBUTE, message.get(..message.len() - values.len()).unwrap_or_default());
    let mut cursor = Cursor::new(values);
    while !cursor.rest().is_empty() {
        let length = cursor.length(4)?;
        let (heap, index) = (cursor.address(8)?, cursor.u32()?);
        // HDF5 reads the heap of an empty text as well, unless there is none.
        let text = match heap {
            None | Some(0) => Vec::new(),
            Some(heap) => read_object(file, heap, index)?,
        };
        add(form, kind::ATTRIBUTE, text.get(..length).ok_or(NotKnown("a text that ends too early"))?);
    }
    Ok(())
}

/// Return the part of a form for a layout: its class, the shape of a chunk and the limits of the axes but the first
/// (0 where an axis cannot grow), without addresses; `width` is the number of bytes of a length.
pub(crate) fn layout_form(header: &ObjectHeader, width: usize) -> Known<Vec<u8>> {
    let mut bytes = Vec::new();
    match Layout::parse(header.need(kind::LAYOUT)?)? {
        Layout::Compact(_) => bytes.push(0),
        Layout::Contiguous { .. } => bytes.push(1),
        Layout::Chunked(chunked) => {
            bytes.push(2);
            bytes.extend(chunked.chunk.iter().flat_map(|size| size.to_le_bytes()));
            let (shape, limits) = extent(header.need(kind::DATASPACE)?, width)?;
            for (length, limit) in shape.iter().flatten().zip(limits).skip(1) {
                let limit = limit.map_or(u64::MAX, |limit| if limit == *length { 0 } else { limit });
                bytes.extend(limit.to_le_bytes());
            }
        }
    }
    let mut form = Vec::new();
    add(&mut form, LAYOUT_FORM, &bytes);
    Ok(form)
}

/// Refuse attributes in a fractal heap.
fn refuse_dense_attributes(message: &Message) -> Known<()> {
    let mut cursor = Cursor::new(&message.data);
    cursor.expect(&[0], "another version of attribute info")?;
    if cursor.u8()? & 1 != 0 {
        cursor.take(2)?;
    }
    match cursor.address(8)? {
        None => Ok(()),
        Some(_) => Err(NotKnown("attributes in a fractal heap")),
    }
}
