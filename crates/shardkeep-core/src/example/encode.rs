//! Encoding of values as an Example, with the same bytes as Python's `SerializeToString(deterministic=True)`.
//!
//! Int64 and float lists are packed, and an empty list still sets its kind. Keys are sorted by their bytes, with one
//! exception of protobuf (upb, its Python runtime since 4.21): if one key is a prefix of another, the longer one is first,
//! `label_name` before `label`. C++ and Java have the shorter one first; the order of Python is used, so that its users can
//! compare the bytes. The size is computed before the first byte is written, so there is one allocation.

use std::cmp::Ordering;

use crate::example::wire::{put_varint, varint_len};

/// The values of one feature to encode.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FeatureValue<'a> {
    Bytes(&'a [&'a [u8]]),
    Float(&'a [f32]),
    Int64(&'a [i64]),
    /// A Feature with no kind set.
    Empty,
}

/// Return the size of a length-delimited field with a tag of one byte.
pub(super) fn field_len(length: usize) -> usize {
    1 + varint_len(length as u64) + length
}

pub(super) fn put_header(out: &mut Vec<u8>, tag: u8, length: usize) {
    out.push(tag);
    put_varint(out, length as u64);
}

impl FeatureValue<'_> {
    /// Return the size of the packed payload (int64, float).
    fn packed_len(&self) -> usize {
        match self {
            Self::Bytes(_) | Self::Empty => 0,
            Self::Float(values) => 4 * values.len(),
            Self::Int64(values) => values.iter().map(|&value| varint_len(value as u64)).sum(),
        }
    }

    /// Return the size of the list message, from that of its payload.
    fn list_len(&self, packed: usize) -> usize {
        match self {
            Self::Bytes(values) => values.iter().map(|value| field_len(value.len())).sum(),
            _ if packed == 0 => 0,
            _ => field_len(packed),
        }
    }

    /// Return the size of the Feature message.
    pub(super) fn feature_len(&self) -> usize {
        match self {
            Self::Empty => 0,
            _ => field_len(self.list_len(self.packed_len())),
        }
    }

    /// Append the Feature message.
    pub(super) fn put_feature(&self, out: &mut Vec<u8>) {
        let packed = self.packed_len();
        let tag = match self {
            Self::Bytes(_) => 0x0a,
            Self::Float(_) => 0x12,
            Self::Int64(_) => 0x1a,
            Self::Empty => return,
        };
        put_header(out, tag, self.list_len(packed));
        match self {
            Self::Bytes(values) => {
                for value in *values {
                    put_header(out, 0x0a, value.len());
                    out.extend_from_slice(value);
                }
            }
            _ if packed == 0 => {}
            Self::Empty => {}
            Self::Float(values) => {
                put_header(out, 0x0a, packed);
                for value in *values {
                    out.extend_from_slice(&value.to_le_bytes());
                }
            }
            Self::Int64(values) => {
                put_header(out, 0x0a, packed);
                for &value in *values {
                    put_varint(out, value as u64);
                }
            }
        }
    }
}

/// Compare map keys in the order of upb; see the module.
pub(super) fn key_order(a: &[u8], b: &[u8]) -> Ordering {
    match a.iter().zip(b).map(|(a, b)| a.cmp(b)).find(|order| order.is_ne()) {
        Some(order) => order,
        None => b.len().cmp(&a.len()),
    }
}

/// Return the size of a map entry.
fn entry_len(key: &str, value: &FeatureValue<'_>) -> usize {
    field_len(key.len()) + field_len(value.feature_len())
}

/// Return the size of a Features message.
pub(super) fn features_len(features: &[(&str, FeatureValue<'_>)]) -> usize {
    features.iter().map(|(key, value)| field_len(entry_len(key, value))).sum()
}

/// Append a Features message with its entries in the order of the keys' bytes.
pub(super) fn put_features(out: &mut Vec<u8>, features: &[(&str, FeatureValue<'_>)]) {
    let mut sorted: Vec<&(&str, FeatureValue<'_>)> = features.iter().collect();
    sorted.sort_by(|(a, _), (b, _)| key_order(a.as_bytes(), b.as_bytes()));
    for (key, value) in sorted {
        put_header(out, 0x0a, entry_len(key, value));
        put_header(out, 0x0a, key.len());
        out.extend_from_slice(key.as_bytes());
        put_header(out, 0x12, value.feature_len());
        value.put_feature(out);
    }
}

/// Encode an Example. The keys must be unique.
pub fn encode(features: &[(&str, FeatureValue<'_>)]) -> Vec<u8> {
    let inner = features_len(features);
    let mut out = Vec::with_capacity(field_len(inner));
    put_header(&mut out, 0x0a, inner);
    put_features(&mut out, features);
    debug_assert_eq!(out.len(), field_len(inner));
    out
}
