//! Buffers of a batch: raw records, or the columns of a schema.

use std::sync::Arc;

use super::buffer_pool::{BufferPool, PooledBuffer};
use super::damage::ReadPolicy;
use super::dataset::RecordSpan;
use super::frames::{self, RowResult};
use crate::batch::columns::{BatchColumns, Column, GatheredColumns, RowError, Schema, Scratch};
use crate::error::{Error, Result};

/// A finished batch.
#[derive(Debug)]
pub enum Batch {
    /// Concatenated payloads; row `i` is `values[offsets[i]..offsets[i + 1]]`.
    Records { values: PooledBuffer, offsets: Vec<i64> },
    /// Columns in the order of the schema, without gathered ones.
    Columns(Vec<(String, Column)>),
}

/// Kind of the batches of an engine.
#[derive(Debug)]
pub(super) enum OutputKind {
    Records(Arc<BufferPool>),
    Columns(Arc<Schema>),
    Gathered(Arc<GatheredColumns>),
    /// The gathered columns were taken, so no batch can follow.
    Finished,
}

/// A batch that threads are filling.
#[derive(Debug)]
pub(super) enum Output {
    Records(Records),
    Columns(BatchColumns),
}

impl Output {
    /// `rows` may exceed `spans.len()`; the other rows are padding.
    pub(super) fn new(output_kind: &OutputKind, spans: &[RecordSpan], rows: usize) -> Result<Self> {
        match output_kind {
            OutputKind::Records(pool) => Records::new(spans, rows, pool).map(Self::Records),
            OutputKind::Columns(schema) => {
                BatchColumns::new(Arc::clone(schema), rows).map(Self::Columns).map_err(Error::from)
            }
            OutputKind::Finished => Err(Error::internal("a batch was submitted after the end")),
            OutputKind::Gathered(gathered) => gathered.part(rows).map(Self::Columns).map_err(Error::from),
        }
    }

    /// Fill the rows from `first` on with parsed payloads. Each row is filled once, by one thread.
    pub(super) fn fill(
        &self,
        first: usize,
        payloads: &[&[u8]],
        scratch: &mut Scratch,
    ) -> std::result::Result<(), RowError> {
        match self {
            Self::Records(records) => {
                records.copy(first, payloads);
                Ok(())
            }
            Self::Columns(columns) => columns.fill(first, payloads, scratch),
        }
    }

    /// Return true until the first image has determined the shape of all images.
    pub(super) fn needs_shape(&self) -> bool {
        match self {
            Self::Records(_) => false,
            Self::Columns(columns) => columns.needs_shape(),
        }
    }

    /// Return the batch. `skipped` are rows that were not filled, ascending; they are empty or zero.
    pub(super) fn finish(self, skipped: &[usize]) -> Result<Batch> {
        match self {
            Self::Records(mut records) => {
                records.remove_content(skipped);
                Ok(Batch::Records { values: records.values, offsets: records.offsets })
            }
            Self::Columns(columns) => columns.finish().map(Batch::Columns).map_err(Error::from),
        }
    }
}

fn out_of_batch() -> Error {
    Error::internal("rows beyond the batch")
}

/// The payloads of a batch in one buffer; their lengths come from the index.
#[derive(Debug)]
pub(super) struct Records {
    /// Not accessed until the batch is finished; threads write through `base`.
    values: PooledBuffer,
    base: *mut u8,
    offsets: Vec<i64>,
}

// SAFETY: `base` is written through `read` only, whose callers have claimed disjoint rows (see `Job::claim`), and
// `values` is read only after all of them have finished, through ownership.
unsafe impl Sync for Records {}
// SAFETY: no field depends on the thread.
unsafe impl Send for Records {}

impl Records {
    fn new(spans: &[RecordSpan], rows: usize, pool: &Arc<BufferPool>) -> Result<Self> {
        let mut offsets = Vec::with_capacity(rows + 1);
        let mut total = 0_i64;
        offsets.push(total);
        for span in spans {
            total = i64::try_from(span.payload_bytes())
                .ok()
                .and_then(|n| total.checked_add(n))
                .ok_or_else(|| Error::internal("a batch is larger than the address space"))?;
            offsets.push(total);
        }
        offsets.resize(rows + 1, total);
        let bytes = usize::try_from(total)
            .map_err(|_| Error::internal("a batch is larger than the address space"))?;
        let mut values = pool.acquire(bytes)?;
        let base = values.as_mut_ptr();
        Ok(Self { values, base, offsets })
    }

    /// Read the rows from `first` on into the buffer.
    ///
    /// The caller has claimed these rows, so no other thread reads them.
    pub(super) fn read(&self, policy: &ReadPolicy<'_>, spans: &[RecordSpan], first: usize) -> RowResult<()> {
        // SAFETY: the caller has claimed these rows.
        let slots = unsafe { self.slots(first, spans.len()) };
        frames::read_payloads(policy, spans, first, slots.ok_or_else(|| (0, out_of_batch()))?)
    }

    /// Copy payloads into the rows from `first` on, which the caller has claimed.
    fn copy(&self, first: usize, payloads: &[&[u8]]) {
        // SAFETY: the caller has claimed these rows.
        let mut slots = unsafe { self.slots(first, payloads.len()) }.unwrap_or_default();
        for payload in payloads {
            let Some((slot, rest)) = std::mem::take(&mut slots).split_at_mut_checked(payload.len()) else {
                return; // impossible: frames of another length than in the index were refused
            };
            slot.copy_from_slice(payload);
            slots = rest;
        }
    }

    /// # Safety
    /// The caller has claimed these rows and holds no other slice of them.
    #[allow(clippy::mut_from_ref)]
    unsafe fn slots(&self, first: usize, rows: usize) -> Option<&mut [u8]> {
        let offset = |row: usize| self.offsets.get(row).and_then(|at| usize::try_from(*at).ok());
        let (from, to) = (offset(first)?, offset(first.checked_add(rows)?)?);
        // SAFETY: offsets ascend up to the length of the buffer, so the range lies inside it; the rows of
        // different claims are disjoint, so no two slices overlap.
        Some(unsafe { std::slice::from_raw_parts_mut(self.base.add(from), to - from) })
    }

    /// Remove the content of rows.
    fn remove_content(&mut self, rows: &[usize]) {
        if rows.is_empty() {
            return;
        }
        let mut rows = rows.iter().peekable();
        let (mut from, mut to) = (0_usize, 0_usize);
        for (row, end) in self.offsets.iter_mut().skip(1).enumerate() {
            let next = usize::try_from(*end).unwrap_or(from);
            if rows.next_if(|other| **other == row).is_none() {
                self.values.copy_within(from..next, to);
                to += next - from;
            }
            from = next;
            *end = to as i64;
        }
        self.values.truncate(to);
    }
}
