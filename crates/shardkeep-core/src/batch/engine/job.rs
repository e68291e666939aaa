//! The work of one batch, divided into chunks of rows that threads claim one by one.
#![deny(clippy::indexing_slicing)]

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::damage::{Fault, OnCorrupt, ReadPolicy};
use super::dataset::{Dataset, RecordSpan};
use super::frames;
use super::output::Output;
use super::shape_election::ShapeElection;
use crate::batch::columns::Scratch;
use crate::error::{Error, Result};

/// Size of a group of frames that is read at a time. It stays in the L2 cache between the copy from the kernel, the
/// checksum and the parsing.
const GROUP_BYTES: u64 = 256 << 10;
/// See `pays_to_copy`.
const COPIED_BYTES: u64 = 4096;
/// A scratch buffer that grew beyond this size for a large record is freed after it.
const KEEP_BYTES: usize = 8 << 20;

#[derive(Debug)]
pub(super) struct Job {
    pub(super) spans: Vec<RecordSpan>,
    pub(super) output: Output,
    chunk_rows: usize,
    next: AtomicUsize,
    unfinished: AtomicUsize,
    on_corrupt: OnCorrupt,
    faults: Mutex<Vec<Fault>>,
    /// The error of the lowest row.
    error: Mutex<Option<(usize, Error)>>,
    /// Set if the first image determines the shape of all others.
    election: Option<ShapeElection>,
}

/// Buffers that a thread reuses for each chunk.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    frames: Vec<u8>,
    scratch: Scratch,
}

/// Return true if payloads should be read with their frames and then copied. The kernel takes 200 ns for each buffer that
/// it fills, in which two kilobytes can be copied.
fn pays_to_copy(spans: &[RecordSpan]) -> bool {
    let bytes: u64 = spans.iter().map(RecordSpan::frame_bytes).sum();
    bytes < COPIED_BYTES * spans.len() as u64
}

impl Job {
    pub(super) fn new(spans: Vec<RecordSpan>, output: Output, threads: usize, on_corrupt: OnCorrupt) -> Self {
        // Small batches are divided among the threads; the chunks of large ones are small, so that threads end together.
        let chunk_rows = spans.len().div_ceil(threads.max(1)).clamp(8, 256);
        let chunks = spans.len().div_ceil(chunk_rows);
        let election = output.needs_shape().then(ShapeElection::default);
        Self {
            spans,
            output,
            chunk_rows,
            next: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(chunks),
            on_corrupt,
            faults: Mutex::default(),
            error: Mutex::new(None),
            election,
        }
    }

    /// Claim rows that no other thread has, or return None if all are claimed. No row is claimed twice.
    pub(super) fn claim(&self) -> Option<Range<usize>> {
        let from = self.next.fetch_add(1, Ordering::Relaxed).checked_mul(self.chunk_rows)?;
        (from < self.spans.len()).then(|| from..(from + self.chunk_rows).min(self.spans.len()))
    }

    /// Return true if `rows` are the last rows of the batch.
    pub(super) fn ends_with(&self, rows: &Range<usize>) -> bool {
        rows.end == self.spans.len()
    }

    pub(super) fn is_done(&self) -> bool {
        self.unfinished.load(Ordering::Acquire) == 0
    }

    /// Fill the claimed rows. Returns true if the batch is complete.
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

    /// Mark a chunk whose thread panicked as finished with an error, so that no thread waits for it.
    pub(super) fn abandon(&self, row: usize) -> bool {
        if let Ok(mut error) = self.error.lock() {
            *error = Some((row, Error::internal("a reader thread panicked; please report this")));
        }
        self.end_chunk(row)
    }

    fn end_chunk(&self, first_row: usize) -> bool {
        if let Some(election) = &self.election {
            election.finish_chunk(self.chunk_of(first_row));
        }
        self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1
    }

    fn chunk_of(&self, row: usize) -> usize {
        row.checked_div(self.chunk_rows).unwrap_or_default()
    }

    /// Return the batch, and the faults that did not fail it in the order of the rows.
    pub(super) fn finish(self) -> Result<(super::Batch, Vec<Fault>)> {
        match self.error.into_inner() {
            Ok(None) => {
                let mut faults = self.faults.into_inner().unwrap_or_else(PoisonError::into_inner);
                faults.sort_by_key(|fault| fault.row);
                let skipped: Vec<usize> =
                    faults.iter().filter(|fault| !fault.repaired).map(|fault| fault.row).collect();
                Ok((self.output.finish(&skipped)?, faults))
            }
            Ok(Some((_, error))) => Err(error),
            Err(_) => Err(Error::internal("a reader thread panicked; please report this")),
        }
    }

    fn fill(
        &self,
        data: &Dataset,
        verify: bool,
        rows: Range<usize>,
        space: &mut Workspace,
    ) -> std::result::Result<(), (usize, Error)> {
        let policy = ReadPolicy { data, verify, on_corrupt: self.on_corrupt, faults: &self.faults };
        let mut from = rows.start;
        while from < rows.end {
            let group = self.group(from..rows.end);
            let spans = self.spans.get(group.clone()).unwrap_or_default();
            if let Output::Records(records) = &self.output
                && !pays_to_copy(spans)
            {
                records.read(&policy, spans, from).map_err(|(i, e)| (from + i, e))?;
                from = group.end;
                continue;
            }
            let found =
                frames::read(&policy, spans, from, &mut space.frames).map_err(|(i, e)| (from + i, e))?;
            let mut at = 0;
            for stop in found.skipped.into_iter().chain([found.payloads.len()]) {
                let payloads = found.payloads.get(at..stop).unwrap_or_default();
                self.fill_in_order(&policy, from + at, payloads, &mut space.scratch)?;
                at = stop + 1;
            }
            if space.frames.capacity() > KEEP_BYTES {
                space.frames = Vec::new();
            }
            from = group.end;
        }
        Ok(())
    }

    /// Fill the rows from `first` on. While the image shape is not decided, it waits for the chunks before.
    fn fill_in_order(
        &self,
        policy: &ReadPolicy<'_>,
        mut first: usize,
        mut payloads: &[&[u8]],
        scratch: &mut Scratch,
    ) -> std::result::Result<(), (usize, Error)> {
        if let Some(election) = &self.election
            && election.wait_for_turn(self.chunk_of(first))
        {
            while let Some((one, rest)) = payloads.split_at_checked(1)
                && self.output.needs_shape()
            {
                self.fill_rows(policy, first, one, scratch)?;
                (first, payloads) = (first + 1, rest);
            }
            if !self.output.needs_shape() {
                election.decide();
            }
        }
        self.fill_rows(policy, first, payloads, scratch)
    }

    /// Fill the rows from `first` on; the policy decides about a row that cannot be parsed.
    fn fill_rows(
        &self,
        policy: &ReadPolicy<'_>,
        mut first: usize,
        mut payloads: &[&[u8]],
        scratch: &mut Scratch,
    ) -> std::result::Result<(), (usize, Error)> {
        while let Err(e) = self.output.fill(first, payloads, scratch) {
            let row = e.row;
            let error = Error::from(e);
            let span = self.spans.get(row).ok_or_else(|| (row, error.clone()))?;
            policy.skip(row, span, error).map_err(|e| (row, e))?;
            payloads = payloads.get(row + 1 - first..).unwrap_or_default();
            first = row + 1;
        }
        Ok(())
    }

    /// Return as many rows from the start of `rows` as fit into a group, at least one.
    fn group(&self, rows: Range<usize>) -> Range<usize> {
        let mut bytes = 0;
        let spans = self.spans.get(rows.clone()).unwrap_or_default();
        let fit = spans.iter().take_while(|span| {
            bytes += span.frame_bytes();
            bytes <= GROUP_BYTES
        });
        rows.start..rows.start + fit.count().max(1)
    }
}
