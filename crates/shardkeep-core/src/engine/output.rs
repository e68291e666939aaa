//! What a batch is filled into: raw records, or the columns of a schema.

use std::sync::Arc;

use super::corrupt::Rules;
use super::dataset::Place;
use super::frames::{self, AtRow};
use super::recycle::{Recycled, Recycler};
use crate::columns::{BatchColumns, Column, RowError, Schema, Scratch, Whole};
use crate::error::{Error, Result};

/// A finished batch.
#[derive(Debug)]
pub enum Batch {
    /// Payloads end to end; row `i` is `values[offsets[i]..offsets[i + 1]]`.
    Records { values: Recycled, offsets: Vec<i64> },
    /// In the order of the schema, without those that the engine gathers.
    Columns(Vec<(String, Column)>),
}

/// What the batches of an engine are.
#[derive(Debug)]
pub(super) enum Delivery {
    Records(Arc<Recycler>),
    Columns(Arc<Schema>),
    Parts(Arc<Whole>),
    /// None any more: the parts have been gathered.
    Nothing,
}

/// A batch that threads are filling.
#[derive(Debug)]
pub(super) enum Output {
    Records(Records),
    Columns(BatchColumns),
}

impl Output {
    /// `rows` may exceed `places.len()`: the rest is padding.
    pub(super) fn new(delivery: &Delivery, places: &[Place], rows: usize) -> Result<Self> {
        match delivery {
            Delivery::Records(recycler) => Records::new(places, rows, recycler).map(Self::Records),
            Delivery::Columns(schema) => {
                BatchColumns::new(Arc::clone(schema), rows).map(Self::Columns).map_err(Error::from)
            }
            Delivery::Nothing => Err(Error::internal("a batch was submitted behind the end")),
            Delivery::Parts(whole) => whole.part(rows).map(Self::Columns).map_err(Error::from),
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

    /// Whether the first image is still to say how large all of them are.
    pub(super) fn lacks_frame(&self) -> bool {
        match self {
            Self::Records(_) => false,
            Self::Columns(columns) => columns.lacks_frame(),
        }
    }

    /// `left_out` are rows that were not filled, ascending: they are empty, or zero.
    pub(super) fn finish(self, left_out: &[usize]) -> Result<Batch> {
        match self {
            Self::Records(mut records) => {
                records.empty(left_out);
                Ok(Batch::Records { values: records.values, offsets: records.offsets })
            }
            Self::Columns(columns) => columns.finish().map(Batch::Columns).map_err(Error::from),
        }
    }
}

fn beyond() -> Error {
    Error::internal("rows beyond the batch")
}

/// The payloads of a batch in one buffer, whose lengths are known from the index.
#[derive(Debug)]
pub(super) struct Records {
    /// Not touched until the batch is finished: threads write through `base`.
    values: Recycled,
    base: *mut u8,
    offsets: Vec<i64>,
}

// SAFETY: `base` is written through `read` only, whose callers have claimed disjoint rows (see `Job::claim`), and
// `values` is read only after all of them have finished, through ownership.
unsafe impl Sync for Records {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Records {}

impl Records {
    fn new(places: &[Place], rows: usize, recycler: &Arc<Recycler>) -> Result<Self> {
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
        let mut values = recycler.lend(bytes)?;
        let base = values.as_mut_ptr();
        Ok(Self { values, base, offsets })
    }

    /// Read the rows from `first` on to their places.
    ///
    /// The caller has claimed these rows: no other thread reads them.
    pub(super) fn read(&self, rules: &Rules<'_>, places: &[Place], first: usize) -> AtRow<()> {
        // SAFETY: as the caller promises.
        let slots = unsafe { self.slots(first, places.len()) };
        frames::read_payloads(rules, places, first, slots.ok_or_else(|| (0, beyond()))?)
    }

    /// Put payloads that have been read elsewhere into the rows from `first` on, which the caller has claimed.
    fn copy(&self, first: usize, payloads: &[&[u8]]) {
        // SAFETY: as the caller promises.
        let mut slots = unsafe { self.slots(first, payloads.len()) }.unwrap_or_default();
        for payload in payloads {
            let Some((slot, rest)) = std::mem::take(&mut slots).split_at_mut_checked(payload.len()) else {
                return; // a frame is as long as the index says, or was refused before
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

    /// Take the content of rows out.
    fn empty(&mut self, rows: &[usize]) {
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
