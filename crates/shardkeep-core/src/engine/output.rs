//! What a batch is filled into: raw records, or the columns of a schema.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::Arc;

use super::dataset::Place;
use crate::columns::{BatchColumns, Column, RowError, RowErrorKind, Schema, Scratch};
use crate::error::{Error, Kind, Result};

/// A finished batch.
#[derive(Debug)]
pub enum Batch {
    /// Payloads end to end; row `i` is `values[offsets[i]..offsets[i + 1]]`.
    Records { values: Vec<u8>, offsets: Vec<i64> },
    /// In the order of the schema.
    Columns(Vec<(String, Column)>),
}

/// A batch that threads are filling.
#[derive(Debug)]
pub(super) enum Output {
    Records(Records),
    Columns(BatchColumns),
}

impl Output {
    /// `rows` may exceed `places.len()`: the rest is padding.
    pub(super) fn new(schema: Option<&Arc<Schema>>, places: &[Place], rows: usize) -> Result<Self> {
        match schema {
            Some(schema) => BatchColumns::new(Arc::clone(schema), rows).map(Self::Columns).map_err(row_error),
            None => Records::new(places, rows).map(Self::Records),
        }
    }

    /// Fill the rows from `first` on. Each row is filled once, by one thread.
    pub(super) fn fill(
        &self,
        first: usize,
        payloads: &[&[u8]],
        scratch: &mut Scratch,
    ) -> std::result::Result<(), RowError> {
        match self {
            Self::Records(records) => {
                records.fill(first, payloads);
                Ok(())
            }
            Self::Columns(columns) => columns.fill(first, payloads, scratch),
        }
    }

    pub(super) fn finish(self) -> Result<Batch> {
        match self {
            Self::Records(records) => {
                Ok(Batch::Records { values: records.values.into_inner(), offsets: records.offsets })
            }
            Self::Columns(columns) => columns.finish().map(Batch::Columns).map_err(row_error),
        }
    }
}

/// The error of a row, still without its place.
pub(super) fn row_error(error: RowError) -> Error {
    let kind = match error.kind {
        RowErrorKind::Malformed | RowErrorKind::Image => Kind::Corrupt,
        RowErrorKind::Missing | RowErrorKind::WrongDType | RowErrorKind::WrongShape => Kind::Schema,
        RowErrorKind::Slot | RowErrorKind::Memory => Kind::Internal,
    };
    Error::new(
        kind,
        match &error.feature {
            Some(feature) => format!("feature {feature:?}: {}", error.message),
            None => error.message,
        },
    )
}

/// The payloads of a batch in one buffer, whose lengths are known from the index.
#[derive(Debug)]
pub(super) struct Records {
    values: UnsafeCell<Vec<u8>>,
    offsets: Vec<i64>,
}

// SAFETY: `values` is written through `fill` only, whose callers fill disjoint rows (see `Job::claim`), and
// read only after all of them have finished, through ownership.
unsafe impl Sync for Records {}

impl Records {
    fn new(places: &[Place], rows: usize) -> Result<Self> {
        let mut offsets = Vec::with_capacity(rows + 1);
        let mut total = 0_i64;
        offsets.push(total);
        for place in places {
            total = i64::try_from(place.payload_bytes())
                .ok()
                .and_then(|n| total.checked_add(n))
                .ok_or_else(|| Error::internal("a batch larger than the address space"))?;
            offsets.push(total);
        }
        offsets.resize(rows + 1, total);
        let bytes =
            usize::try_from(total).map_err(|_| Error::internal("a batch larger than the address space"))?;
        Ok(Self { values: UnsafeCell::new(vec![0; bytes]), offsets })
    }

    fn row(&self, row: usize) -> Option<Range<usize>> {
        let (from, to) = (*self.offsets.get(row)?, *self.offsets.get(row + 1)?);
        Some(usize::try_from(from).ok()?..usize::try_from(to).ok()?)
    }

    fn fill(&self, first: usize, payloads: &[&[u8]]) {
        for (i, payload) in payloads.iter().enumerate() {
            let Some(range) = self.row(first + i).filter(|range| range.len() == payload.len()) else {
                continue;
            };
            // SAFETY: the range lies inside the buffer, whose length is the last offset; rows are disjoint
            // ranges and each row is filled by one thread, so no two references overlap.
            unsafe {
                let base = (*self.values.get()).as_mut_ptr();
                std::ptr::copy_nonoverlapping(payload.as_ptr(), base.add(range.start), payload.len());
            }
        }
    }
}
