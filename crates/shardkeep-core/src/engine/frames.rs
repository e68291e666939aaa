//! Reading the frames of rows: into a buffer to be parsed, or straight to where their payloads belong.
//!
//! Frames that follow each other in a file are read with one call.
#![deny(clippy::indexing_slicing)]

use std::io::IoSliceMut;

use super::corrupt::{Frame, Rules, locate};
use super::dataset::{Dataset, Place};
use crate::error::{Error, Kind, try_resize};
use crate::framing::{FOOTER_BYTES, HEADER_BYTES};

/// An error, and which of the given rows it is about.
pub(super) type AtRow<T> = std::result::Result<T, (usize, Error)>;

/// The kernel takes 1,024 buffers a call; a frame needs two and its run one more.
const RUN_FRAMES: usize = 500;
const BETWEEN_BYTES: usize = FOOTER_BYTES + HEADER_BYTES;

/// Payloads in the order of their rows; those at `left_out` stand for rows that are not to be filled.
#[derive(Debug)]
pub(super) struct Payloads<'a> {
    pub(super) payloads: Vec<&'a [u8]>,
    pub(super) left_out: Vec<usize>,
}

/// Read whole frames end to end into `out`, and return their payloads. The first of the rows is `first`.
pub(super) fn read<'a>(
    rules: &Rules<'_>,
    places: &[Place],
    first: usize,
    out: &'a mut Vec<u8>,
) -> AtRow<Payloads<'a>> {
    let bytes: u64 = places.iter().map(Place::frame_bytes).sum();
    let bytes = usize::try_from(bytes).map_err(|_| (0, too_large()))?;
    try_resize(out, bytes).map_err(|e| (0, e))?;
    let mut room = out.as_mut_slice();
    for (row, run) in runs(places) {
        let (buf, rest) =
            std::mem::take(&mut room).split_at_mut_checked(run_bytes(run)).ok_or_else(|| (row, lost()))?;
        room = rest;
        read_run(rules.data, run, &mut [IoSliceMut::new(buf)]).map_err(|(i, e)| (row + i, e))?;
    }
    let mut rest = out.as_mut_slice();
    let mut found = Payloads { payloads: Vec::with_capacity(places.len()), left_out: Vec::new() };
    for (row, place) in places.iter().enumerate() {
        let (frame, behind) = std::mem::take(&mut rest)
            .split_at_mut_checked(place.frame_bytes() as usize)
            .ok_or_else(|| (row, lost()))?;
        rest = behind;
        let (admitted, payload): (bool, &[u8]) = if place.hole {
            rules.skip(first + row, place, Rules::hole(place)).map_err(|e| (row, e))?;
            (false, &[])
        } else {
            let (header, body) = frame.split_first_chunk_mut().ok_or_else(|| (row, lost()))?;
            let (payload, footer) = body.split_last_chunk_mut().ok_or_else(|| (row, lost()))?;
            let frame = Frame { header, payload, footer };
            (rules.admits(first + row, place, frame).map_err(|e| (row, e))?, payload)
        };
        found.payloads.push(payload);
        if !admitted {
            found.left_out.push(row);
        }
    }
    Ok(found)
}

/// Read the payloads end to end into `slots`, which is exactly as long as they are together. The first of the rows is
/// `first`; those that are left out have any content.
pub(super) fn read_payloads(
    rules: &Rules<'_>,
    places: &[Place],
    first: usize,
    slots: &mut [u8],
) -> AtRow<()> {
    let mut room = slots;
    let mut between: Vec<[u8; BETWEEN_BYTES]> = Vec::new();
    for (row, place) in places.iter().enumerate().filter(|(_, place)| place.hole) {
        rules.skip(first + row, place, Rules::hole(place)).map_err(|e| (row, e))?;
    }
    for (row, run) in runs(places) {
        let mut payloads = Vec::with_capacity(run.len());
        for (i, place) in run.iter().enumerate() {
            let (slot, rest) = std::mem::take(&mut room)
                .split_at_mut_checked(place.payload_bytes() as usize)
                .ok_or_else(|| (row + i, lost()))?;
            room = rest;
            payloads.push(slot);
        }
        // Before, between and behind the payloads: a footer and a header each, but no footer at first and no
        // header at last.
        between.clear();
        between.resize(run.len() + 1, [0; BETWEEN_BYTES]);
        let mut bufs = Vec::with_capacity(run.len() * 2 + 1);
        let (last, before) = between.split_last_mut().ok_or_else(|| (row, lost()))?;
        for (i, (gap, payload)) in before.iter_mut().zip(&mut payloads).enumerate() {
            let skip = if i == 0 { FOOTER_BYTES } else { 0 };
            bufs.push(IoSliceMut::new(gap.get_mut(skip..).unwrap_or_default()));
            bufs.push(IoSliceMut::new(payload));
        }
        bufs.push(IoSliceMut::new(last.get_mut(..FOOTER_BYTES).unwrap_or_default()));
        read_run(rules.data, run, &mut bufs).map_err(|(i, e)| (row + i, e))?;
        let gaps = between.iter().zip(between.iter().skip(1));
        for (i, ((payload, place), (gap, next))) in payloads.into_iter().zip(run).zip(gaps).enumerate() {
            let (mut header, mut footer) = (
                *gap.last_chunk().ok_or_else(|| (row + i, lost()))?,
                *next.first_chunk().ok_or_else(|| (row + i, lost()))?,
            );
            let frame = Frame { header: &mut header, payload, footer: &mut footer };
            rules.admits(first + row + i, place, frame).map_err(|e| (row + i, e))?;
        }
    }
    Ok(())
}

/// Runs of frames that follow each other in a file, each with its first row; holes are in none.
fn runs(places: &[Place]) -> impl Iterator<Item = (usize, &[Place])> {
    let adjacent = places.chunk_by(|a, b| a.shard == b.shard && a.end == b.start && !a.hole && !b.hole);
    let cut = adjacent.flat_map(|run| run.chunks(RUN_FRAMES)).scan(0, |row, run| {
        let first = *row;
        *row += run.len();
        Some((first, run))
    });
    cut.filter(|(_, run)| run.first().is_some_and(|place| !place.hole))
}

fn run_bytes(run: &[Place]) -> usize {
    run.iter().map(|place| place.frame_bytes() as usize).sum()
}

fn read_run(data: &Dataset, run: &[Place], bufs: &mut [IoSliceMut<'_>]) -> AtRow<()> {
    let Some(first) = run.first() else { return Ok(()) };
    let shard = data.shard(first.shard).ok_or_else(|| (0, lost()))?;
    let got = shard.file.read_whole_at(bufs, first.start).map_err(|e| (0, e))?;
    if got == run_bytes(run) {
        return Ok(());
    }
    let size = first.start + got as u64;
    let cut = run.iter().position(|place| place.end > size).unwrap_or(0);
    let when = shard.file.written_since_opened().map_or(String::new(), |when| format!(" (written {when})"));
    let error = Error::new(
        Kind::Truncated,
        format!("the file is only {size} bytes long now{when}: it became shorter after it was indexed"),
    );
    Err((cut, run.get(cut).map_or(error.clone(), |place| locate(error, data, place))))
}

#[cold]
fn lost() -> Error {
    Error::internal("rows and buffers of a batch do not fit each other")
}

#[cold]
fn too_large() -> Error {
    Error::internal("a batch larger than the address space")
}
