//! One column: its buffers while rows are filled, and its final form.

#![deny(clippy::indexing_slicing)]

use super::block::Block;
use super::cells::{Purpose, SharedRows};
use super::images::{Finished, ImageStore};
use super::row_error::{RowError, RowErrorKind};
use crate::schema::{DType, Feature, Kind};

/// A finished column, row-major. Offsets start at 0 and have one entry more than they delimit.
#[derive(Debug, Clone, PartialEq)]
pub enum Column {
    /// `shape` starts with the number of rows, as in the other variants.
    FixedI64 {
        data: Block<i64>,
        shape: Vec<usize>,
    },
    FixedF32 {
        data: Block<f32>,
        shape: Vec<usize>,
    },
    /// `offsets` delimit the values, whose number is the product of `shape`.
    FixedBytes {
        values: Vec<u8>,
        offsets: Vec<i64>,
        shape: Vec<usize>,
    },
    /// `offsets` delimit the rows.
    VarI64 {
        values: Vec<i64>,
        offsets: Vec<i64>,
    },
    VarF32 {
        values: Vec<f32>,
        offsets: Vec<i64>,
    },
    /// `value_offsets` delimit values in bytes, `offsets` delimit rows in values.
    VarBytes {
        values: Vec<u8>,
        value_offsets: Vec<i64>,
        offsets: Vec<i64>,
    },
    /// (rows, height, width, channels)
    ImageU8 {
        data: Block<u8>,
        shape: [usize; 4],
    },
    ImageF32 {
        data: Block<f32>,
        shape: [usize; 4],
    },
}

/// Buffer of a feature while the batch is filled.
#[derive(Debug)]
pub(super) enum Store {
    Int64(SharedRows<i64>),
    Float32(SharedRows<f32>),
    /// The index among the ragged columns of a part.
    Ragged(usize),
    Image(ImageStore),
    /// The column is in the [`GatheredColumns`](super::gathered::GatheredColumns) of the batch.
    Gathered,
}

impl Store {
    /// Allocate the buffer. `ragged` is the number of ragged columns before this one.
    pub(super) fn new(
        feature: &Feature,
        rows: usize,
        ragged: usize,
        purpose: Purpose,
    ) -> Result<Self, RowError> {
        let none = || no_memory(rows, &feature.name);
        Ok(match &feature.kind {
            Kind::Fixed { dtype: DType::Int64, .. } => {
                Self::Int64(purpose.rows(rows, feature.elements()).ok_or_else(none)?)
            }
            Kind::Fixed { dtype: DType::Float32, .. } => {
                Self::Float32(purpose.rows(rows, feature.elements()).ok_or_else(none)?)
            }
            Kind::Fixed { .. } | Kind::Var { .. } => Self::Ragged(ragged),
            Kind::Image { channels, dtype, size } => {
                Self::Image(ImageStore::new(rows, *channels, *dtype, *size, purpose))
            }
        })
    }

    /// Return the column; None if it is ragged or gathered.
    pub(super) fn finish(self, rows: usize, feature: &Feature) -> Result<Option<Column>, RowError> {
        let sides = match &feature.kind {
            Kind::Fixed { shape, .. } => shape.as_slice(),
            _ => &[],
        };
        let shape = std::iter::once(rows).chain(sides.iter().copied()).collect();
        Ok(Some(match self {
            Self::Int64(cells) => Column::FixedI64 { data: cells.into_block(), shape },
            Self::Float32(cells) => Column::FixedF32 { data: cells.into_block(), shape },
            Self::Image(images) => match images.finish() {
                Some(Finished::U8(data, shape)) => Column::ImageU8 { data, shape },
                Some(Finished::F32(data, shape)) => Column::ImageF32 { data, shape },
                None => return Err(no_memory(rows, &feature.name)),
            },
            Self::Ragged(_) | Self::Gathered => return Ok(None),
        }))
    }
}

fn no_memory(rows: usize, feature: &str) -> RowError {
    let message = format!("no memory for a batch of {rows} rows");
    RowError { row: 0, feature: Some(feature.into()), kind: RowErrorKind::Memory, message }
}
