//! Errors of records that do not fit the schema.

use crate::error::{self, Error};

/// The kinds of a [`RowError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowErrorKind {
    /// The bytes are not a protobuf message of this type.
    Malformed,
    /// The record is another message.
    OtherMessage,
    /// The record lacks a feature that has no default.
    Missing,
    /// The record has another kind of list.
    WrongDType,
    /// The record has another number of values.
    WrongShape,
    /// The image cannot be decoded, or differs in size.
    Image,
    /// The rows do not exist or are already filled: an error of the caller.
    Slot,
    /// The memory for a batch cannot be allocated.
    Memory,
}

/// A record that does not fit the schema; `message` is one line with both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowError {
    /// Row in the batch.
    pub row: usize,
    pub feature: Option<String>,
    pub kind: RowErrorKind,
    pub message: String,
}

impl std::fmt::Display for RowError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.feature {
            Some(feature) => write!(f, "row {}, feature {feature:?}: {}", self.row, self.message),
            None => write!(f, "row {}: {}", self.row, self.message),
        }
    }
}

impl std::error::Error for RowError {}

/// Without the row; the caller, who knows the record, adds its location.
impl From<RowError> for Error {
    fn from(row: RowError) -> Self {
        let kind = match row.kind {
            RowErrorKind::Malformed | RowErrorKind::Image => error::Kind::Corrupt,
            RowErrorKind::Missing | RowErrorKind::WrongDType | RowErrorKind::WrongShape => {
                error::Kind::Schema
            }
            RowErrorKind::OtherMessage => error::Kind::Format,
            RowErrorKind::Slot => error::Kind::Internal,
            RowErrorKind::Memory => error::Kind::Memory,
        };
        match &row.feature {
            Some(feature) => Self::new(kind, format!("feature {feature:?}: {}", row.message)),
            None => Self::new(kind, row.message),
        }
    }
}
