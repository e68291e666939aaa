//! The work of one batch, cut into chunks of rows that threads take one by one.
#![deny(clippy::indexing_slicing)]

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::corrupt::{Fault, OnCorrupt, Rules};
use super::dataset::{Dataset, Place};
use super::frames;
use super::lead::Lead;
use super::output::Output;
use crate::columns::Scratch;
use crate::error::{Error, Result};

/// Frames are read in groups of about this many bytes: they stay in the L2 cache between the copy out of the
/// kernel, the checksum and the parsing.
const GROUP_BYTES: u64 = 256 << 10;
/// See `pays_to_copy`.
const COPIED_BYTES: u64 = 4096;
/// A scratch buffer that grew beyond this for a large record is given back after it.
const KEEP_BYTES: usize = 8 << 20;

#[derive(Debug)]
pub(super) struct Job {
    pub(super) places: Vec<Place>,
    pub(super) output: Output,
    chunk_rows: usize,
    next: AtomicUsize,
    unfinished: AtomicUsize,
    on_corrupt: OnCorrupt,
    faults: Mutex<Vec<Fault>>,
    /// The error of the lowest row.
    error: Mutex<Option<(usize, Error)>>,
    /// Only while rows must agree with the first.
    lead: Option<Lead>,
}

/// What a thread keeps from one chunk to the next.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    frames: Vec<u8>,
    scratch: Scratch,
}

/// Whether payloads should be read with their frames and then copied, not read to their places: the kernel takes 200 ns
/// for each piece that it copies to, in which two kilobytes can be copied again.
fn pays_to_copy(places: &[Place]) -> bool {
    let bytes: u64 = places.iter().map(Place::frame_bytes).sum();
    bytes < COPIED_BYTES * places.len() as u64
}

impl Job {
    pub(super) fn new(places: Vec<Place>, output: Output, threads: usize, on_corrupt: OnCorrupt) -> Self {
        // Small batches are shared among the threads, large ones cut finely enough to end together.
        let chunk_rows = places.len().div_ceil(threads.max(1)).clamp(8, 256);
        let chunks = places.len().div_ceil(chunk_rows);
        let lead = output.lacks_frame().then(Lead::default);
        Self {
            places,
            output,
            chunk_rows,
            next: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(chunks),
            on_corrupt,
            faults: Mutex::default(),
            error: Mutex::new(None),
            lead,
        }
    }

    /// Rows that nobody else has taken, or None when all are taken. No row is ever given out twice.
    pub(super) fn claim(&self) -> Option<Range<usize>> {
        let from = self.next.fetch_add(1, Ordering::Relaxed).checked_mul(self.chunk_rows)?;
        (from < self.places.len()).then(|| from..(from + self.chunk_rows).min(self.places.len()))
    }

    /// Whether `rows` are the last that can be claimed.
    pub(super) fn ends_with(&self, rows: &Range<usize>) -> bool {
        rows.end == self.places.len()
    }

    pub(super) fn is_done(&self) -> bool {
        self.unfinished.load(Ordering::Acquire) == 0
    }

    /// Fill the claimed rows; true if they were the last of the batch.
    pub(super) fn work(
        &self,
        data: &Dataset,
        verify: bool,
        rows: Range<usize>,
        space: &mut Workspace,
    ) -> bool {
        let first = rows.start;
        if let Err((row, e)) = self.fill(data, verify, rows, space)
            && let Ok(mut error) = self.error.lock()
            && error.as_ref().is_none_or(|(first, _)| row < *first)
        {
            *error = Some((row, e));
        }
        self.end_chunk(first)
    }

    /// Give up a claimed chunk whose thread panicked, so that nobody waits for it.
    pub(super) fn abandon(&self, row: usize) -> bool {
        if let Ok(mut error) = self.error.lock() {
            *error = Some((row, Error::internal("a reading thread died; please report this")));
        }
        self.end_chunk(row)
    }

    fn end_chunk(&self, first_row: usize) -> bool {
        if let Some(lead) = &self.lead {
            lead.finish(self.chunk_of(first_row));
        }
        self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1
    }

    fn chunk_of(&self, row: usize) -> usize {
        row.checked_div(self.chunk_rows).unwrap_or_default()
    }

    /// The batch, and what was wrong with its records and did not end it, in the order of the rows.
    pub(super) fn finish(self) -> Result<(super::Batch, Vec<Fault>)> {
        match self.error.into_inner() {
            Ok(None) => {
                let mut faults = self.faults.into_inner().unwrap_or_else(PoisonError::into_inner);
                faults.sort_by_key(|fault| fault.row);
                let left_out: Vec<usize> =
                    faults.iter().filter(|fault| !fault.repaired).map(|fault| fault.row).collect();
                Ok((self.output.finish(&left_out)?, faults))
            }
            Ok(Some((_, error))) => Err(error),
            Err(_) => Err(Error::internal("a reading thread died; please report this")),
        }
    }

    fn fill(
        &self,
        data: &Dataset,
        verify: bool,
        rows: Range<usize>,
        space: &mut Workspace,
    ) -> std::result::Result<(), (usize, Error)> {
        let rules = Rules { data, verify, on_corrupt: self.on_corrupt, faults: &self.faults };
        let mut from = rows.start;
        while from < rows.end {
            let group = self.group(from..rows.end);
            let places = self.places.get(group.clone()).unwrap_or_default();
            if let Output::Records(records) = &self.output
                && !pays_to_copy(places)
            {
                records.read(&rules, places, from).map_err(|(i, e)| (from + i, e))?;
                from = group.end;
                continue;
            }
            let found =
                frames::read(&rules, places, from, &mut space.frames).map_err(|(i, e)| (from + i, e))?;
            let mut at = 0;
            for stop in found.left_out.into_iter().chain([found.payloads.len()]) {
                let payloads = found.payloads.get(at..stop).unwrap_or_default();
                self.fill_in_turn(&rules, from + at, payloads, &mut space.scratch)?;
                at = stop + 1;
            }
            if space.frames.capacity() > KEEP_BYTES {
                space.frames = Vec::new();
            }
            from = group.end;
        }
        Ok(())
    }

    /// Fill the rows from `first` on; those whose images are to agree with the first one wait until it is decoded.
    fn fill_in_turn(
        &self,
        rules: &Rules<'_>,
        mut first: usize,
        mut payloads: &[&[u8]],
        scratch: &mut Scratch,
    ) -> std::result::Result<(), (usize, Error)> {
        if let Some(lead) = &self.lead
            && lead.wait(self.chunk_of(first))
        {
            while let Some((one, rest)) = payloads.split_at_checked(1)
                && self.output.lacks_frame()
            {
                self.fill_rows(rules, first, one, scratch)?;
                (first, payloads) = (first + 1, rest);
            }
            if !self.output.lacks_frame() {
                lead.settle();
            }
        }
        self.fill_rows(rules, first, payloads, scratch)
    }

    /// Fill the rows from `first` on; a row that cannot be parsed is left out if the rules say so.
    fn fill_rows(
        &self,
        rules: &Rules<'_>,
        mut first: usize,
        mut payloads: &[&[u8]],
        scratch: &mut Scratch,
    ) -> std::result::Result<(), (usize, Error)> {
        while let Err(e) = self.output.fill(first, payloads, scratch) {
            let row = e.row;
            let error = Error::from(e);
            let place = self.places.get(row).ok_or_else(|| (row, error.clone()))?;
            rules.skip(row, place, error).map_err(|e| (row, e))?;
            payloads = payloads.get(row + 1 - first..).unwrap_or_default();
            first = row + 1;
        }
        Ok(())
    }

    /// As many rows from the start of `rows` as fit a group; at least one.
    fn group(&self, rows: Range<usize>) -> Range<usize> {
        let mut bytes = 0;
        let places = self.places.get(rows.clone()).unwrap_or_default();
        let fit = places.iter().take_while(|place| {
            bytes += place.frame_bytes();
            bytes <= GROUP_BYTES
        });
        rows.start..rows.start + fit.count().max(1)
    }
}
