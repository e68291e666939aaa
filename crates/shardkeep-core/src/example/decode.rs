//! An Example into values: what `decode_example` of the Python side returns.

#![deny(clippy::indexing_slicing)]

use super::lists::FeatureView;
use super::parse::entries;
use crate::columns::schema::DType;
use crate::wire::WireError;

/// The values of one feature. Bytes are borrowed from the record.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    Bytes(Vec<&'a [u8]>),
    Float(Vec<f32>),
    Int64(Vec<i64>),
    /// A Feature with no kind set.
    Empty,
}

/// Decodes a record into (key, value) pairs, sorted by the bytes of the key; of a key that comes twice the last counts.
pub fn decode(record: &[u8]) -> Result<Vec<(&str, Value<'_>)>, WireError> {
    let mut found: Vec<(&str, FeatureView<'_>)> = Vec::new();
    let mut broken = None;
    entries(record, |key, pieces| {
        let mut view = FeatureView::unset();
        for piece in pieces {
            broken = broken.or(view.merge(piece).err());
        }
        found.push((std::str::from_utf8(key).unwrap_or_default(), view));
    })?;
    if let Some(error) = broken {
        return Err(error);
    }
    // The sort is stable, so the last of equal keys is the last that came.
    found.sort_by_key(|(key, _)| *key);
    let mut values: Vec<(&str, Value<'_>)> = Vec::with_capacity(found.len());
    for (key, view) in &found {
        let value = value(view)?;
        match values.last_mut() {
            Some(last) if last.0 == *key => last.1 = value,
            _ => values.push((*key, value)),
        }
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
