//! Values of a map entry: the list of a Feature.

#![deny(clippy::indexing_slicing)]

use crate::example::wire::{Cursor, Wire, WireError};
use crate::schema::DType;

/// A Feature: the kind that is set last, and the bytes of its list (several pieces of a merged message).
#[derive(Debug, Clone)]
pub struct FeatureView<'a> {
    pub dtype: Option<DType>,
    first: &'a [u8],
    more: Vec<&'a [u8]>,
}

impl<'a> FeatureView<'a> {
    /// Parse a Feature in one piece.
    #[inline]
    pub fn new(value: &'a [u8]) -> Result<Self, WireError> {
        let mut view = Self::unset();
        // One list that fills the whole Feature, as encoders write it.
        if let [tag @ (0x0a | 0x12 | 0x1a), rest @ ..] = value {
            let mut cursor = Cursor::new(rest);
            let list = cursor.bytes()?;
            if cursor.is_done() {
                view.dtype = dtype(u32::from(*tag >> 3));
                view.first = list;
                return Ok(view);
            }
        }
        view.merge(value)?;
        Ok(view)
    }

    /// Return a Feature without a kind.
    pub fn unset() -> Self {
        Self { dtype: None, first: &[], more: Vec::new() }
    }

    /// Merge another piece of the same Feature, as protobuf merges a repeated message field.
    pub fn merge(&mut self, value: &'a [u8]) -> Result<(), WireError> {
        let mut cursor = Cursor::new(value);
        while let Some((field, wire)) = cursor.tag()? {
            let Some(dtype) = dtype(field).filter(|_| wire == Wire::Bytes) else {
                cursor.skip(field, wire)?;
                continue;
            };
            let list = cursor.bytes()?;
            if self.dtype == Some(dtype) {
                self.more.push(list);
            } else {
                *self = Self { dtype: Some(dtype), first: list, more: Vec::new() };
            }
        }
        Ok(())
    }

    /// Yield the pieces of the list, in order.
    #[inline]
    pub fn lists(&self) -> impl Iterator<Item = &'a [u8]> + '_ {
        std::iter::once(self.first).chain(self.more.iter().copied())
    }

    /// Return the number of values of the list.
    pub fn count(&self) -> Result<usize, WireError> {
        let mut count = 0usize;
        match self.dtype {
            None => {}
            Some(DType::Int64) => self.int64s(|_| count += 1)?,
            Some(DType::Float32) => self.floats(|_| count += 1)?,
            Some(DType::Bytes) => self.bytes(|_| count += 1)?,
        }
        Ok(count)
    }

    /// Call `each` for every value of an int64 list.
    #[inline]
    pub fn int64s(&self, mut each: impl FnMut(i64)) -> Result<(), WireError> {
        for list in self.lists() {
            let mut cursor = Cursor::new(list);
            while let Some((field, wire)) = cursor.tag()? {
                match (field, wire) {
                    (1, Wire::Bytes) => {
                        let mut packed = Cursor::new(cursor.bytes()?);
                        while !packed.is_done() {
                            each(packed.varint()? as i64);
                        }
                    }
                    (1, Wire::Varint) => each(cursor.varint()? as i64),
                    _ => cursor.skip(field, wire)?,
                }
            }
        }
        Ok(())
    }

    /// Call `each` for every value of a float list.
    #[inline]
    pub fn floats(&self, mut each: impl FnMut(f32)) -> Result<(), WireError> {
        for list in self.lists() {
            let mut cursor = Cursor::new(list);
            while let Some((field, wire)) = cursor.tag()? {
                match (field, wire) {
                    (1, Wire::Bytes) => {
                        let (values, rest) = cursor.bytes()?.as_chunks::<4>();
                        if !rest.is_empty() {
                            return Err(WireError::Truncated);
                        }
                        values.iter().for_each(|value| each(f32::from_le_bytes(*value)));
                    }
                    (1, Wire::Fixed32) => each(f32::from_le_bytes(cursor.fixed32()?)),
                    _ => cursor.skip(field, wire)?,
                }
            }
        }
        Ok(())
    }

    /// Call `each` for every value of a bytes list.
    #[inline]
    pub fn bytes(&self, mut each: impl FnMut(&'a [u8])) -> Result<(), WireError> {
        for list in self.lists() {
            let mut cursor = Cursor::new(list);
            while let Some((field, wire)) = cursor.tag()? {
                match (field, wire) {
                    (1, Wire::Bytes) => each(cursor.bytes()?),
                    _ => cursor.skip(field, wire)?,
                }
            }
        }
        Ok(())
    }
}

#[inline]
fn dtype(field: u32) -> Option<DType> {
    match field {
        1 => Some(DType::Bytes),
        2 => Some(DType::Float32),
        3 => Some(DType::Int64),
        _ => None,
    }
}
