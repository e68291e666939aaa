//! Columns of a result that consists of batches; each batch writes its rows directly into them.
//!
//! If the number of rows is known, columns with a row size that the schema determines are allocated once. Each
//! [`GatheredColumns::part`] is a batch that writes its rows there, and has the other columns (rows of varying length,
//! images of any size) itself. Parts are consecutive and have each row once, so no two write the same row.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::cells::Purpose;
use super::row_error::{RowError, RowErrorKind};
use super::store::{Column, Store};
use crate::schema::{DType, Kind, Schema};

/// The gathered columns; see the module.
#[derive(Debug)]
pub struct GatheredColumns {
    schema: Arc<Schema>,
    rows: usize,
    /// Number of rows of the parts so far.
    taken: AtomicUsize,
    /// One store for each feature; None if the parts have the column.
    stores: Vec<Option<Store>>,
}

impl GatheredColumns {
    /// Allocate `rows` rows, which take no memory until they are written.
    pub fn new(schema: Arc<Schema>, rows: usize) -> Result<Self, RowError> {
        let stores = schema.features().iter().map(|feature| {
            let gathered = match &feature.kind {
                Kind::Fixed { dtype, .. } => *dtype != DType::Bytes,
                Kind::Var { .. } => false,
                Kind::Image { channels, size, .. } => *channels > 0 && size.is_some(),
            };
            if gathered { Store::new(feature, rows, 0, Purpose::Result).map(Some) } else { Ok(None) }
        });
        let stores = stores.collect::<Result<_, _>>()?;
        Ok(Self { schema, rows, taken: AtomicUsize::new(0), stores })
    }

    pub(super) fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Claim the next `rows` rows, and return the first of them.
    #[allow(deprecated, reason = "the new name of fetch_update, try_update, needs Rust 1.95")]
    pub(super) fn claim(&self, rows: usize) -> Result<usize, RowError> {
        let end = |first: usize| first.checked_add(rows).filter(|end| *end <= self.rows);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end).map_err(|first| {
            let message = format!("{rows} rows from row {first} do not fit a result of {} rows", self.rows);
            RowError { row: first, feature: None, kind: RowErrorKind::Slot, message }
        })
    }

    /// Return the store of a column, unless the parts have it.
    pub(super) fn store(&self, column: usize) -> Option<&Store> {
        self.stores.get(column)?.as_ref()
    }

    /// Return the gathered columns in the order of the schema. Rows that were not filled are zeros.
    pub fn finish(self) -> Result<Vec<(String, Column)>, RowError> {
        let mut finished = Vec::new();
        for (feature, store) in self.schema.features().iter().zip(self.stores) {
            let column = store.map(|store| store.finish(self.rows, feature)).transpose()?.flatten();
            finished.extend(column.map(|column| (feature.name.clone(), column)));
        }
        Ok(finished)
    }
}
