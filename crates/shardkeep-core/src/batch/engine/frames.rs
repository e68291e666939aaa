//! Reads of the frames of rows, into a buffer for parsing or directly into the batch.
//!
//! Adjacent frames of a file are read with one call.
#![deny(clippy::indexing_slicing)]

use std::io::IoSliceMut;

use super::damage::{Frame, ReadPolicy, locate};
use super::dataset::{Dataset, RecordSpan};
use crate::error::{Error, Kind, try_resize};
use crate::record::framing::{FOOTER_BYTES, HEADER_BYTES};

/// A result whose error has the index of its row.
pub(super) type RowResult<T> = std::result::Result<T, (usize, Error)>;

/// The kernel accepts 1,024 buffers per call; a frame needs two, and a run one more.
const RUN_FRAMES: usize = 500;
const BETWEEN_BYTES: usize = FOOTER_BYTES + HEADER_BYTES;

/// Payloads in the order of their rows; the rows at the indices `skipped` must not be filled.
#[derive(Debug)]
pub(super) struct Payloads<'a> {
    pub(super) payloads: Vec<&'a [u8]>,
    pub(super) skipped: Vec<usize>,
}

/// Read frames one after the other into `out`, and return their payloads. The first row is `first`.
pub(super) fn read<'a>(
    policy: &ReadPolicy<'_>,
    spans: &[RecordSpan],
    first: usize,
    out: &'a mut Vec<u8>,
) -> RowResult<Payloads<'a>> {
    let bytes: u64 = spans.iter().map(RecordSpan::frame_bytes).sum();
    let bytes = usize::try_from(bytes).map_err(|_| (0, too_large()))?;
    try_resize(out, bytes).map_err(|e| (0, e))?;
    let mut room = out.as_mut_slice();
    for (row, run) in runs(spans) {
        let (buf, rest) = std::mem::take(&mut room)
            .split_at_mut_checked(run_bytes(run))
            .ok_or_else(|| (row, inconsistent()))?;
        room = rest;
        read_run(policy.data, run, &mut [IoSliceMut::new(buf)]).map_err(|(i, e)| (row + i, e))?;
    }
    let mut rest = out.as_mut_slice();
    let mut found = Payloads { payloads: Vec::with_capacity(spans.len()), skipped: Vec::new() };
    for (row, span) in spans.iter().enumerate() {
        let (frame, next_frames) = std::mem::take(&mut rest)
            .split_at_mut_checked(span.frame_bytes() as usize)
            .ok_or_else(|| (row, inconsistent()))?;
        rest = next_frames;
        let (accepted, payload): (bool, &[u8]) = if span.hole {
            policy.skip(first + row, span, ReadPolicy::hole(span)).map_err(|e| (row, e))?;
            (false, &[])
        } else {
            let (header, body) = frame.split_first_chunk_mut().ok_or_else(|| (row, inconsistent()))?;
            let (payload, footer) = body.split_last_chunk_mut().ok_or_else(|| (row, inconsistent()))?;
            let frame = Frame { header, payload, footer };
            (policy.accept(first + row, span, frame).map_err(|e| (row, e))?, payload)
        };
        found.payloads.push(payload);
        if !accepted {
            found.skipped.push(row);
        }
    }
    Ok(found)
}

/// Read the payloads one after the other into `slots`, whose length is the sum of theirs. The first row is `first`;
/// skipped rows may have any content.
pub(super) fn read_payloads(
    policy: &ReadPolicy<'_>,
    spans: &[RecordSpan],
    first: usize,
    slots: &mut [u8],
) -> RowResult<()> {
    let mut room = slots;
    let mut between: Vec<[u8; BETWEEN_BYTES]> = Vec::new();
    for (row, span) in spans.iter().enumerate().filter(|(_, span)| span.hole) {
        policy.skip(first + row, span, ReadPolicy::hole(span)).map_err(|e| (row, e))?;
    }
    for (row, run) in runs(spans) {
        let mut payloads = Vec::with_capacity(run.len());
        for (i, span) in run.iter().enumerate() {
            let (slot, rest) = std::mem::take(&mut room)
                .split_at_mut_checked(span.payload_bytes() as usize)
                .ok_or_else(|| (row + i, inconsistent()))?;
            room = rest;
            payloads.push(slot);
        }
        // Gaps around the payloads: a footer and a header each, but no footer in the first gap and no header in the
        // last one.
        between.clear();
        between.resize(run.len() + 1, [0; BETWEEN_BYTES]);
        let mut bufs = Vec::with_capacity(run.len() * 2 + 1);
        let (last, before) = between.split_last_mut().ok_or_else(|| (row, inconsistent()))?;
        for (i, (gap, payload)) in before.iter_mut().zip(&mut payloads).enumerate() {
            let skip = if i == 0 { FOOTER_BYTES } else { 0 };
            bufs.push(IoSliceMut::new(gap.get_mut(skip..).unwrap_or_default()));
            bufs.push(IoSliceMut::new(payload));
        }
        bufs.push(IoSliceMut::new(last.get_mut(..FOOTER_BYTES).unwrap_or_default()));
        read_run(policy.data, run, &mut bufs).map_err(|(i, e)| (row + i, e))?;
        let gaps = between.iter().zip(between.iter().skip(1));
        for (i, ((payload, span), (gap, next))) in payloads.into_iter().zip(run).zip(gaps).enumerate() {
            let (mut header, mut footer) = (
                *gap.last_chunk().ok_or_else(|| (row + i, inconsistent()))?,
                *next.first_chunk().ok_or_else(|| (row + i, inconsistent()))?,
            );
            let frame = Frame { header: &mut header, payload, footer: &mut footer };
            policy.accept(first + row + i, span, frame).map_err(|e| (row + i, e))?;
        }
    }
    Ok(())
}

/// Yield runs of adjacent frames of a file, each with its first row; holes are left out.
fn runs(spans: &[RecordSpan]) -> impl Iterator<Item = (usize, &[RecordSpan])> {
    let adjacent = spans.chunk_by(|a, b| a.shard == b.shard && a.end == b.start && !a.hole && !b.hole);
    let cut = adjacent.flat_map(|run| run.chunks(RUN_FRAMES)).scan(0, |row, run| {
        let first = *row;
        *row += run.len();
        Some((first, run))
    });
    cut.filter(|(_, run)| run.first().is_some_and(|span| !span.hole))
}

fn run_bytes(run: &[RecordSpan]) -> usize {
    run.iter().map(|span| span.frame_bytes() as usize).sum()
}

fn read_run(data: &Dataset, run: &[RecordSpan], bufs: &mut [IoSliceMut<'_>]) -> RowResult<()> {
    let Some(first) = run.first() else { return Ok(()) };
    let shard = data.shard(first.shard).ok_or_else(|| (0, inconsistent()))?;
    let got = data.read(shard, bufs, first.start).map_err(|e| (0, e))?;
    if got == run_bytes(run) {
        return Ok(());
    }
    let size = first.start + got as u64;
    let cut = run.iter().position(|span| span.end > size).unwrap_or(0);
    let when = shard.file.written_since_opened().map_or(String::new(), |when| format!(" (written {when})"));
    let error = Error::new(
        Kind::Truncated,
        format!("the file has only {size} bytes now{when}: it was truncated after it was indexed"),
    );
    Err((cut, run.get(cut).map_or(error.clone(), |span| locate(error, data, span))))
}

#[cold]
fn inconsistent() -> Error {
    Error::internal("rows and buffers of a batch are inconsistent")
}

#[cold]
fn too_large() -> Error {
    Error::internal("a batch is larger than the address space")
}
