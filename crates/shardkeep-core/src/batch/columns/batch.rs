//! The buffers of one batch, which several threads fill, and which are returned without a copy.
//!
//! [`BatchColumns::fill`] parses records into consecutive rows. Every row is claimed in a bitmap before it is written, so
//! two calls cannot write the same row: the second one is an error, not a race. If a record cannot be parsed, `fill` stops:
//! the rows before it stay filled, its row is zeroed and free again, and the rows after it are free. The caller may then
//! skip the row (call again with the next row) or fill it with another record. Rows that are not filled are zeros, empty
//! lists or empty strings.
//!
//! The shape of an image column without `size` is that of the first decoded image; all others must have the same. With
//! several threads, [`BatchColumns::needs_shape`] allows the caller to determine which image is the first.

#![deny(clippy::indexing_slicing)]

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::cells::Purpose;
use super::gathered::GatheredColumns;
use super::parts::{Part, Ragged, join, join_bytes};
use super::row::{FeatureError, Rows, Target};
use super::row_error::{RowError, RowErrorKind};
use super::scratch::Scratch;
use super::store::{Column, Store};
use crate::schema::{DType, Kind, Schema};

/// The columns of a batch that is being filled.
#[derive(Debug)]
pub struct BatchColumns {
    schema: Arc<Schema>,
    rows: usize,
    /// The result that this batch is a part of, and the row there of the first row of this batch.
    gathered: Option<(Arc<GatheredColumns>, usize)>,
    claimed: Box<[AtomicU64]>,
    stores: Vec<Store>,
    ragged: Vec<DType>,
    parts: Mutex<Vec<Part>>,
}

impl BatchColumns {
    /// Allocate `rows` rows.
    pub fn new(schema: Arc<Schema>, rows: usize) -> Result<Self, RowError> {
        Self::of(schema, rows, None)
    }

    /// Allocate the columns that `gathered` does not have.
    pub(super) fn of(
        schema: Arc<Schema>,
        rows: usize,
        gathered: Option<(Arc<GatheredColumns>, usize)>,
    ) -> Result<Self, RowError> {
        let mut stores = Vec::with_capacity(schema.features().len());
        let mut ragged = Vec::new();
        for (column, feature) in schema.features().iter().enumerate() {
            if gathered.as_ref().is_some_and(|(gathered, _)| gathered.store(column).is_some()) {
                stores.push(Store::Gathered);
                continue;
            }
            stores.push(Store::new(feature, rows, ragged.len(), Purpose::Batch)?);
            if let (Some(Store::Ragged(_)), Kind::Fixed { dtype, .. } | Kind::Var { dtype }) =
                (stores.last(), &feature.kind)
            {
                ragged.push(*dtype);
            }
        }
        let claimed = (0..rows.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Ok(Self { schema, rows, gathered, claimed, stores, ragged, parts: Mutex::new(Vec::new()) })
    }

    /// Return the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Return true if the next image determines the shape of a column.
    pub fn needs_shape(&self) -> bool {
        self.stores.iter().any(|store| matches!(store, Store::Image(images) if images.needs_shape()))
    }

    /// Parse `records` into rows `first_row ..`; see the module for the state after an error.
    pub fn fill(&self, first_row: usize, records: &[&[u8]], scratch: &mut Scratch) -> Result<(), RowError> {
        self.claim(first_row, records.len())?;
        scratch.use_for(&self.schema);
        let end = first_row + records.len();
        let mut rows = Rows {
            schema: &self.schema,
            targets: (0..self.stores.len())
                .filter_map(|column| self.target(column, first_row..end))
                .collect(),
            ragged: self.ragged.iter().map(|dtype| Ragged::new(*dtype, records.len())).collect(),
            row: 0,
        };
        let mut done = Ok(());
        for (i, record) in records.iter().enumerate() {
            rows.row = i;
            if let Err(FeatureError { feature, kind, message }) = rows.fill(record, scratch) {
                rows.clear();
                done = Err(RowError { row: first_row + i, feature, kind, message });
                break;
            }
        }
        let Rows { ragged: columns, .. } = rows;
        if let Err(error) = &done {
            self.release(error.row, end);
        }
        if !columns.is_empty() {
            self.parts.lock().unwrap_or_else(PoisonError::into_inner).push(Part { first_row, columns });
        }
        done
    }

    /// Return the claimed rows of a column. Only `fill` calls this, once for each column.
    fn target(&self, column: usize, mut rows: Range<usize>) -> Option<Target<'_>> {
        let mut store = self.stores.get(column)?;
        if let (Store::Gathered, Some((gathered, first))) = (store, &self.gathered) {
            store = gathered.store(column)?;
            rows = first + rows.start..first + rows.end;
        }
        Some(match store {
            // SAFETY: `fill` has claimed these rows of the batch, and no other batch has its rows of the result.
            Store::Int64(cells) => Target::Int64(unsafe { cells.rows(rows) }),
            // SAFETY: as above.
            Store::Float32(cells) => Target::Float32(unsafe { cells.rows(rows) }),
            Store::Ragged(index) => Target::Ragged(*index),
            Store::Image(images) => Target::Image { images, first_row: rows.start },
            Store::Gathered => return None,
        })
    }

    /// Claim all of the rows or none.
    fn claim(&self, first_row: usize, count: usize) -> Result<(), RowError> {
        let slot = |row, message| RowError { row, feature: None, kind: RowErrorKind::Slot, message };
        let end = first_row.checked_add(count).filter(|&end| end <= self.rows).ok_or_else(|| {
            slot(
                first_row,
                format!("{count} rows from row {first_row} do not fit a batch of {} rows", self.rows),
            )
        })?;
        for (word, mask, start) in words(first_row, end) {
            let Some(cell) = self.claimed.get(word) else {
                continue;
            };
            let before = cell.fetch_or(mask, Ordering::Acquire);
            if before & mask != 0 {
                cell.fetch_and(!(mask & !before), Ordering::Release);
                self.release(first_row, start);
                let row = word * 64 + (before & mask).trailing_zeros() as usize;
                return Err(slot(row, "this row of the batch is already filled".into()));
            }
        }
        Ok(())
    }

    fn release(&self, start: usize, end: usize) {
        for (word, mask, _) in words(start, end) {
            if let Some(cell) = self.claimed.get(word) {
                cell.fetch_and(!mask, Ordering::Release);
            }
        }
    }

    /// Return the columns in the order of the schema, without gathered ones.
    pub fn finish(self) -> Result<Vec<(String, Column)>, RowError> {
        let Self { schema, rows, stores, parts, .. } = self;
        let mut parts = parts.into_inner().unwrap_or_else(PoisonError::into_inner);
        parts.sort_by_key(|part| part.first_row);
        let mut finished = Vec::with_capacity(stores.len());
        // Ragged columns are numbered in the order of the features, so the next one is always at the front.
        let mut ragged: Vec<(usize, std::vec::IntoIter<Ragged>)> =
            parts.into_iter().map(|part| (part.first_row, part.columns.into_iter())).collect();
        for (feature, store) in schema.features().iter().zip(stores) {
            match store {
                Store::Gathered => {}
                Store::Ragged(_) => {
                    let columns =
                        ragged.iter_mut().filter_map(|(row, columns)| Some((*row, columns.next()?)));
                    let column = finish_ragged(rows, &feature.kind, feature.elements(), columns);
                    finished.push((feature.name.clone(), column));
                }
                store => {
                    finished
                        .extend(store.finish(rows, feature)?.map(|column| (feature.name.clone(), column)));
                }
            }
        }
        Ok(finished)
    }
}

fn finish_ragged(
    rows: usize,
    kind: &Kind,
    elements: usize,
    parts: impl Iterator<Item = (usize, Ragged)>,
) -> Column {
    let (mut ints, mut floats, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    for (row, part) in parts {
        match part {
            Ragged::Int64 { values, ends } => ints.push((row, values, ends)),
            Ragged::Float32 { values, ends } => floats.push((row, values, ends)),
            Ragged::Bytes { values, value_ends, ends } => bytes.push((row, values, value_ends, ends)),
        }
    }
    match kind {
        Kind::Var { dtype: DType::Int64 } => {
            let (values, offsets) = join(rows, ints);
            Column::VarI64 { values, offsets }
        }
        Kind::Var { dtype: DType::Float32 } => {
            let (values, offsets) = join(rows, floats);
            Column::VarF32 { values, offsets }
        }
        Kind::Fixed { shape, .. } => {
            let (values, offsets, _) = join_bytes(rows, elements, bytes);
            let shape = std::iter::once(rows).chain(shape.iter().copied()).collect();
            Column::FixedBytes { values, offsets, shape }
        }
        _ => {
            let (values, value_offsets, offsets) = join_bytes(rows, 0, bytes);
            Column::VarBytes { values, value_offsets, offsets }
        }
    }
}

/// Yield the 64-bit words of the bitmap that have rows `start..end`, as (word, mask, first row in it).
fn words(start: usize, end: usize) -> impl Iterator<Item = (usize, u64, usize)> {
    let mut at = start;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (word, low) = (at / 64, at % 64);
        let count = (64 - low).min(end - at);
        let mask = (u64::MAX >> (64 - count)) << low;
        let first = at;
        at += count;
        Some((word, mask, first))
    })
}

impl GatheredColumns {
    /// Return a batch of the next `rows` rows.
    pub fn part(self: &Arc<Self>, rows: usize) -> Result<BatchColumns, RowError> {
        let first = self.claim(rows)?;
        BatchColumns::of(Arc::clone(self.schema()), rows, Some((Arc::clone(self), first)))
    }
}
