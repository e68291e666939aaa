//! The work of one batch, cut into chunks of rows that threads take one by one.
#![deny(clippy::indexing_slicing)]

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::dataset::{Dataset, Place};
use super::output::{Output, row_error};
use crate::columns::Scratch;
use crate::error::{Error, Kind, Result};
use crate::framing::{self, FOOTER_BYTES, HEADER_BYTES};

/// Frames are read in groups of about this many bytes: they stay in the L2 cache between the copy out of the
/// kernel, the checksum and the parsing.
const GROUP_BYTES: u64 = 256 << 10;
/// A scratch buffer that grew beyond this for a large record is given back after it.
const KEEP_BYTES: usize = 8 << 20;

#[derive(Debug)]
pub(super) struct Job {
    pub(super) places: Vec<Place>,
    pub(super) output: Output,
    chunk_rows: usize,
    next: AtomicUsize,
    unfinished: AtomicUsize,
    /// The error of the lowest row.
    error: Mutex<Option<(usize, Error)>>,
}

/// What a thread keeps from one chunk to the next.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    frames: Vec<u8>,
    scratch: Scratch,
}

impl Job {
    pub(super) fn new(places: Vec<Place>, output: Output, threads: usize) -> Self {
        // Small batches are shared among the threads, large ones cut finely enough to end together.
        let chunk_rows = places.len().div_ceil(threads.max(1)).clamp(8, 256);
        let chunks = places.len().div_ceil(chunk_rows);
        Self {
            places,
            output,
            chunk_rows,
            next: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(chunks),
            error: Mutex::new(None),
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
        if let Err((row, e)) = self.fill(data, verify, rows, space)
            && let Ok(mut error) = self.error.lock()
            && error.as_ref().is_none_or(|(first, _)| row < *first)
        {
            *error = Some((row, e));
        }
        self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Give up a claimed chunk whose thread panicked, so that nobody waits for it.
    pub(super) fn abandon(&self, row: usize) -> bool {
        if let Ok(mut error) = self.error.lock() {
            *error = Some((row, Error::internal("a reading thread died; please report this")));
        }
        self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1
    }

    pub(super) fn finish(self) -> Result<super::Batch> {
        match self.error.into_inner() {
            Ok(None) => self.output.finish(),
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
        let mut from = rows.start;
        while from < rows.end {
            let group = self.group(from..rows.end);
            let places = self.places.get(group.clone()).unwrap_or_default();
            read_frames(data, places, &mut space.frames).map_err(|(i, e)| (from + i, e))?;
            let mut payloads = Vec::with_capacity(places.len());
            let mut rest = space.frames.as_slice();
            for (i, place) in places.iter().enumerate() {
                let (frame, behind) =
                    rest.split_at_checked((place.end - place.start) as usize).unwrap_or_default();
                rest = behind;
                payloads.push(open_frame(frame, verify).map_err(|e| (from + i, locate(e, data, place)))?);
            }
            self.output.fill(from, &payloads, &mut space.scratch).map_err(|e| {
                let row = e.row;
                let error = row_error(e);
                (row, self.places.get(row).map_or(error.clone(), |place| locate(error, data, place)))
            })?;
            if space.frames.capacity() > KEEP_BYTES {
                space.frames = Vec::new();
            }
            from = group.end;
        }
        Ok(())
    }

    /// As many rows from the start of `rows` as fit a group; at least one.
    fn group(&self, rows: Range<usize>) -> Range<usize> {
        let mut bytes = 0;
        let places = self.places.get(rows.clone()).unwrap_or_default();
        let fit = places.iter().take_while(|place| {
            bytes += place.end - place.start;
            bytes <= GROUP_BYTES
        });
        rows.start..rows.start + fit.count().max(1)
    }
}

/// Read the frames end to end into `out`; frames that follow each other in a file with one call.
fn read_frames(
    data: &Dataset,
    places: &[Place],
    out: &mut Vec<u8>,
) -> std::result::Result<(), (usize, Error)> {
    let bytes: u64 = places.iter().map(|place| place.end - place.start).sum();
    out.resize(bytes as usize, 0);
    let mut room = out.as_mut_slice();
    let mut row = 0;
    for run in places.chunk_by(|a, b| a.shard == b.shard && a.end == b.start) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            continue;
        };
        let want = (last.end - first.start) as usize;
        let Some(shard) = data.shard(first.shard) else {
            return Err((row, Error::internal("a shard out of range")));
        };
        let (buf, rest) = std::mem::take(&mut room).split_at_mut_checked(want).unwrap_or_default();
        room = rest;
        let got = shard.file.read_at(buf, first.start).map_err(|e| (row, e))? as u64;
        if got < want as u64 {
            let at = first.start + got;
            let cut = run.iter().position(|place| place.end > at).unwrap_or(0);
            let error = Error::new(
                Kind::Truncated,
                format!("the file is only {at} bytes long now: it became shorter after it was indexed"),
            );
            return Err((row + cut, run.get(cut).map_or(error.clone(), |place| locate(error, data, place))));
        }
        row += run.len();
    }
    Ok(())
}

/// The payload of a frame whose length the index knows.
fn open_frame(frame: &[u8], verify: bool) -> Result<&[u8]> {
    let (header, rest) =
        frame.split_first_chunk().ok_or_else(|| Error::internal("a frame without a header"))?;
    let (payload, footer) =
        rest.split_last_chunk().ok_or_else(|| Error::internal("a frame without a footer"))?;
    let length = framing::parse_header(header)?;
    if length != payload.len() as u64 {
        return Err(Error::new(
            Kind::Changed,
            format!(
                "a record of {length} bytes where the index has one of {}: the file was rewritten after it was indexed",
                payload.len()
            ),
        ));
    }
    if verify {
        framing::check_payload(payload, *footer)?;
    }
    const { assert!(HEADER_BYTES + FOOTER_BYTES == framing::OVERHEAD_BYTES as usize) };
    Ok(payload)
}

#[cold]
fn locate(error: Error, data: &Dataset, place: &Place) -> Error {
    let error = error.record(place.index).offset(place.start);
    match data.shard(place.shard) {
        Some(shard) => error.at(shard.file.path()),
        None => error,
    }
}
