//! The walk over the map of an Example: a fast one that expects what encoders write, a careful one for all the rest.
//!
//! Records of one file hold the same keys in the same order. A [`KeyOrder`] remembers the order of the last records; the
//! key at hand is compared with the one expected next (one comparison of known length) before anything is hashed. A key
//! that is missing here and there costs one lookup, after which the walk is in step again.
//!
//! An entry that looks as encoders write it is recognised by its [`Layout`], in a few comparisons; any other one is parsed.
//!
//! The fast walk gives up (returns `None`) on whatever is unusual: several `features` fields, entries that are not
//! exactly key then value, a key that comes twice. The careful walk then reads the record from its start under
//! protobuf's full rules, and it alone reports errors; so both agree on every record that both can read.

#![deny(clippy::indexing_slicing)]

use std::collections::HashMap;

use super::layout::Layout;
use crate::columns::schema::Schema;
use crate::wire::{Cursor, Wire, WireError};

/// More different keys than this are looked up without being remembered.
const MAX_KNOWN: usize = 4_096;

/// A key as it lies in an entry, and the column it belongs to.
#[derive(Debug)]
pub struct Known {
    /// The key field: tag, length, text.
    field: Box<[u8]>,
    pub column: Option<usize>,
    pub layout: Option<Layout>,
}

/// What the walk found for a column.
#[derive(Debug, Clone, Copy)]
pub enum Found<'a> {
    /// A whole Feature.
    Feature(&'a [u8]),
    /// The one packed list or the one byte string of a Feature of the kind that the schema wants: the first
    /// `payload_bytes` of `bytes`, behind which the record goes on.
    Payload { bytes: &'a [u8], payload_bytes: usize },
}

/// The order of the keys in the records read so far. Belongs to one schema.
#[derive(Debug, Default)]
pub struct KeyOrder {
    known: Vec<Known>,
    positions: HashMap<Box<[u8]>, usize>,
}

impl KeyOrder {
    /// The keys in the order in which they were first seen.
    #[inline]
    pub fn known(&self) -> &[Known] {
        &self.known
    }

    /// Walks over the entries of a record, the first of which is expected to have the key of number `next`, and calls
    /// `each(column, feature)` for every entry whose key the schema has. `None` when the record is unusual or `each`
    /// returned false: the careful walk must read it again.
    pub fn walk<'a>(
        &mut self,
        entries: &'a [u8],
        mut next: usize,
        schema: &Schema,
        mut each: impl FnMut(usize, Found<'a>) -> bool,
    ) -> Option<()> {
        let mut entries = Cursor::new(entries);
        loop {
            // The usual entry at its usual place.
            if let Some(Known { column, layout: Some(layout), .. }) = self.known.get(next)
                && let Some((bytes, payload_bytes)) = layout.open(entries.rest())
            {
                next += 1;
                entries = Cursor::new(bytes.get(payload_bytes..)?);
                if let Some(column) = column
                    && !each(*column, Found::Payload { bytes, payload_bytes })
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
                _ => self.look_up(entry, schema, &mut next)?,
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
                && !each(column, Found::Feature(value))
            {
                return None;
            }
        }
        if entries.is_done() { Some(()) } else { None }
    }

    #[cold]
    fn look_up<'a>(
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
        std::str::from_utf8(key).ok()?;
        let column = schema.position(key);
        if self.known.len() < MAX_KNOWN {
            let field = entry.get(..entry.len() - value.len())?;
            self.positions.insert(key.into(), self.known.len());
            let kind = column.and_then(|column| schema.features().get(column)).map(|feature| &feature.kind);
            let layout = Layout::new(field, kind);
            self.known.push(Known { field: field.into(), column, layout });
            *next = self.known.len();
        }
        Some((column, value))
    }
}

/// The entries of a record that is one `features` field and nothing else.
#[inline]
pub fn only_features(record: &[u8]) -> Option<&[u8]> {
    let [0x0a, rest @ ..] = record else {
        return record.is_empty().then_some(record);
    };
    let mut cursor = Cursor::new(rest);
    let entries = cursor.bytes().ok()?;
    cursor.is_done().then_some(entries)
}

/// The careful walk: calls `each(key, pieces)` for every map entry in order, `pieces` being the value fields of that
/// entry (one, unless somebody merged messages).
pub fn entries<'a>(record: &'a [u8], mut each: impl FnMut(&'a [u8], &[&'a [u8]])) -> Result<(), WireError> {
    let mut example = Cursor::new(record);
    while let Some((field, wire)) = example.tag()? {
        if (field, wire) == (1, Wire::Bytes) {
            map_entries(example.bytes()?, &mut each)?;
        } else {
            example.skip(field, wire)?;
        }
    }
    Ok(())
}

/// The entries of a message that is one map from strings to messages: Features, FeatureLists.
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
