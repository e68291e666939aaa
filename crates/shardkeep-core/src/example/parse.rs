//! Parsers of the map of an Example: a fast one for the form that encoders write, and a strict one for all others.
//!
//! Records of one file usually have the same keys in the same order. A [`KeyOrder`] stores the order of earlier records;
//! each key is compared with the expected one (one comparison of known length) before it is hashed. A missing key costs one
//! lookup, after which the next keys are the expected ones again.
//!
//! An entry in the usual form is recognised by its [`Layout`] with a few comparisons; others are parsed.
//!
//! The fast parser returns `None` for unusual records: several `features` fields, entries that are not exactly key then
//! value, a repeated key. The strict parser then parses the record from its start by the full rules of protobuf. Only it
//! reports errors, so both agree on every record that both accept.

#![deny(clippy::indexing_slicing)]

use std::collections::HashMap;

use super::content::{Content, DecodeError, has_control};
use super::layout::Layout;
use crate::example::wire::{Cursor, Wire, WireError};
use crate::schema::Schema;

/// Largest number of stored keys; others are looked up for each record.
const MAX_KNOWN: usize = 4_096;

/// A key in the form of an entry, and its column.
#[derive(Debug)]
pub struct KnownKey {
    /// The key field: tag, length, text.
    field: Box<[u8]>,
    pub column: Option<usize>,
    pub layout: Option<Layout>,
}

/// The value of a column in a record.
#[derive(Debug, Clone, Copy)]
pub enum FoundValue<'a> {
    /// A whole Feature.
    Feature(&'a [u8]),
    /// The only packed list or byte string of a Feature of the kind in the schema: the first `payload_bytes` of `bytes`; the
    /// rest of the record follows.
    Payload { bytes: &'a [u8], payload_bytes: usize },
}

/// The order of the keys in the records so far, for one schema.
#[derive(Debug, Default)]
pub struct KeyOrder {
    known: Vec<KnownKey>,
    positions: HashMap<Box<[u8]>, usize>,
}

impl KeyOrder {
    /// Return the keys in the order of their first occurrence.
    #[inline]
    pub fn known(&self) -> &[KnownKey] {
        &self.known
    }

    /// Parse the entries of a record, of which the first is expected to have key number `next`, and call
    /// `each(column, feature)` for every entry with a key of the schema. Returns `None` if the record is unusual or `each`
    /// returned false; the strict parser must then parse it.
    pub fn walk<'a>(
        &mut self,
        entries: &'a [u8],
        mut next: usize,
        schema: &Schema,
        mut each: impl FnMut(usize, FoundValue<'a>) -> bool,
    ) -> Option<()> {
        let mut entries = Cursor::new(entries);
        loop {
            // The expected entry in the usual form.
            if let Some(KnownKey { column, layout: Some(layout), .. }) = self.known.get(next)
                && let Some((bytes, payload_bytes)) = layout.open(entries.rest())
            {
                next += 1;
                entries = Cursor::new(bytes.get(payload_bytes..)?);
                if let Some(column) = column
                    && !each(*column, FoundValue::Payload { bytes, payload_bytes })
                {
                    return None;
                }
                continue;
            }
            let [0x0a, rest @ ..] = entries.rest() else {
                break;
            };
            let mut cursor = Cursor::new(rest);
            let entry = cursor.bytes().ok()?;
            entries = cursor;
            let (column, value) = match self.known.get(next) {
                Some(known) if entry.starts_with(&known.field) => {
                    next += 1;
                    (known.column, entry.get(known.field.len()..)?)
                }
                _ => self.find_key(entry, schema, &mut next)?,
            };
            // The value field must fill the rest of the entry.
            let [0x12, rest @ ..] = value else {
                return None;
            };
            let mut cursor = Cursor::new(rest);
            let value = cursor.bytes().ok()?;
            if !cursor.is_done() {
                return None;
            }
            if let Some(column) = column
                && !each(column, FoundValue::Feature(value))
            {
                return None;
            }
        }
        if entries.is_done() { Some(()) } else { None }
    }

    #[cold]
    fn find_key<'a>(
        &mut self,
        entry: &'a [u8],
        schema: &Schema,
        next: &mut usize,
    ) -> Option<(Option<usize>, &'a [u8])> {
        let [0x0a, rest @ ..] = entry else {
            return None;
        };
        let mut cursor = Cursor::new(rest);
        let key = cursor.bytes().ok()?;
        let value = cursor.rest();
        if let Some(&position) = self.positions.get(key) {
            *next = position + 1;
            return Some((self.known.get(position)?.column, value));
        }
        // Such a key may be a message in another message, which the strict parser recognises.
        std::str::from_utf8(key).ok().filter(|_| !has_control(key))?;
        let column = schema.position(key);
        if self.known.len() < MAX_KNOWN {
            let field = entry.get(..entry.len() - value.len())?;
            self.positions.insert(key.into(), self.known.len());
            let kind = column.and_then(|column| schema.features().get(column)).map(|feature| &feature.kind);
            let layout = Layout::new(field, kind);
            self.known.push(KnownKey { field: field.into(), column, layout });
            *next = self.known.len();
        }
        Some((column, value))
    }
}

/// Return the entries of a record that consists of one `features` field.
#[inline]
pub fn only_features(record: &[u8]) -> Option<&[u8]> {
    let [0x0a, rest @ ..] = record else {
        return record.is_empty().then_some(record);
    };
    let mut cursor = Cursor::new(rest);
    let entries = cursor.bytes().ok()?;
    cursor.is_done().then_some(entries)
}

/// Parse strictly: calls `each(key, pieces)` for every map entry in order, with the value fields of that entry (one,
/// except in merged messages).
pub fn entries<'a>(record: &'a [u8], mut each: impl FnMut(&'a [u8], &[&'a [u8]])) -> Result<(), DecodeError> {
    maps(record, Content::Example, |_, key, pieces| each(key, pieces))
}

/// Parse the maps of an Example or SequenceExample, and call `each(field, key, pieces)` for every entry.
///
/// # Errors
/// The record is not valid, or it is another message, of which the fields that these messages have are only a part.
pub(super) fn maps<'a>(
    record: &'a [u8],
    expected: Content,
    mut each: impl FnMut(u32, &'a [u8], &[&'a [u8]]),
) -> Result<(), DecodeError> {
    let last = if expected == Content::SequenceExample { 2 } else { 1 };
    let (mut is_empty, mut is_suspect) = (true, false);
    let mut parse = || -> Result<(), WireError> {
        let mut cursor = Cursor::new(record);
        while let Some((field, wire)) = cursor.tag()? {
            if field > last || wire != Wire::Bytes {
                is_suspect |= (field, wire) == (2, Wire::Bytes);
                cursor.skip(field, wire)?;
                continue;
            }
            is_empty = false;
            let map = cursor.bytes()?;
            let mut has_entries = map.is_empty();
            map_entries(map, &mut |key, pieces| {
                has_entries = true;
                is_suspect |= pieces.is_empty() || has_control(key);
                each(field, key, pieces);
            })?;
            is_suspect |= !has_entries;
        }
        Ok(())
    };
    let parsed = parse();
    if parsed.is_err() || is_empty || is_suspect {
        match Content::of(record) {
            None | Some(Content::Example) => {}
            Some(found) if found == expected => {}
            Some(found) => return Err(DecodeError::Other(found)),
        }
    }
    Ok(parsed?)
}

/// Parse the entries of a message that is a map from strings to messages: Features, FeatureLists.
pub(super) fn map_entries<'a>(
    message: &'a [u8],
    each: &mut impl FnMut(&'a [u8], &[&'a [u8]]),
) -> Result<(), WireError> {
    let mut pieces: Vec<&[u8]> = Vec::new();
    let mut map = Cursor::new(message);
    while let Some((field, wire)) = map.tag()? {
        if (field, wire) != (1, Wire::Bytes) {
            map.skip(field, wire)?;
            continue;
        }
        let mut entry = Cursor::new(map.bytes()?);
        let mut key: &[u8] = &[];
        pieces.clear();
        while let Some((field, wire)) = entry.tag()? {
            match (field, wire) {
                (1, Wire::Bytes) => key = entry.bytes()?,
                (2, Wire::Bytes) => pieces.push(entry.bytes()?),
                _ => entry.skip(field, wire)?,
            }
        }
        if std::str::from_utf8(key).is_err() {
            return Err(WireError::NotUtf8);
        }
        each(key, &pieces);
    }
    Ok(())
}
