//! Decoding of an Example into values, for `decode_example` of the Python API.

#![deny(clippy::indexing_slicing)]

use super::content::DecodeError;
use super::lists::FeatureView;
use super::parse::entries;
use crate::example::wire::WireError;
use crate::schema::DType;

/// The values of one feature. Bytes are borrowed from the record.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    Bytes(Vec<&'a [u8]>),
    Float(Vec<f32>),
    Int64(Vec<i64>),
    /// A Feature with no kind set.
    Empty,
}

/// Decode a record into (key, value) pairs, sorted by the bytes of the key. The last value of a repeated key counts.
///
/// # Errors
/// The record is not valid, or holds another message.
pub fn decode(record: &[u8]) -> Result<Vec<(&str, Value<'_>)>, DecodeError> {
    let mut found = Vec::new();
    entries(record, |key, pieces| found.push(keyed(key, pieces)))?;
    Ok(features(found)?)
}

/// Return a map entry with its key as text; the caller has checked that the key is UTF-8.
pub(super) fn keyed<'a>(key: &'a [u8], pieces: &[&'a [u8]]) -> (&'a str, Vec<&'a [u8]>) {
    (std::str::from_utf8(key).unwrap_or_default(), pieces.to_vec())
}

/// Sort entries by key and keep the last entry of each key.
pub(super) fn last_of_each<'a>(mut found: Vec<(&'a str, Vec<&'a [u8]>)>) -> Vec<(&'a str, Vec<&'a [u8]>)> {
    // The sort is stable, and `dedup_by` removes the later of two neighbours, so they are swapped.
    found.sort_by_key(|(key, _)| *key);
    found.dedup_by(|later, kept| {
        let same = later.0 == kept.0;
        if same {
            std::mem::swap(later, kept);
        }
        same
    });
    found
}

/// Decode the entries of a Features message.
pub(super) fn features<'a>(
    found: Vec<(&'a str, Vec<&'a [u8]>)>,
) -> Result<Vec<(&'a str, Value<'a>)>, WireError> {
    let mut values = Vec::with_capacity(found.len());
    for (key, pieces) in last_of_each(found) {
        let mut view = FeatureView::unset();
        for piece in pieces {
            view.merge(piece)?;
        }
        values.push((key, value(&view)?));
    }
    Ok(values)
}

pub(super) fn value<'a>(view: &FeatureView<'a>) -> Result<Value<'a>, WireError> {
    Ok(match view.dtype {
        None => Value::Empty,
        Some(DType::Bytes) => {
            let mut values = Vec::new();
            view.bytes(|value| values.push(value))?;
            Value::Bytes(values)
        }
        Some(DType::Float32) => {
            let mut values = Vec::new();
            view.floats(|value| values.push(value))?;
            Value::Float(values)
        }
        Some(DType::Int64) => {
            let mut values = Vec::new();
            view.int64s(|value| values.push(value))?;
            Value::Int64(values)
        }
    })
}
