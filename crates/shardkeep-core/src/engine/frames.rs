//! Reading the frames of rows: into a buffer to be parsed, or straight to where their payloads belong.
//!
//! Frames that follow each other in a file are read with one call.
#![deny(clippy::indexing_slicing)]

use std::io::IoSliceMut;

use super::dataset::{Dataset, Place};
use crate::error::{Error, Kind, Result, try_resize};
use crate::framing::{self, FOOTER_BYTES, HEADER_BYTES};

/// An error, and which of the given rows it is about.
pub(super) type AtRow<T> = std::result::Result<T, (usize, Error)>;

/// The kernel takes 1,024 buffers a call; a frame needs two and its run one more.
const RUN_FRAMES: usize = 500;
const BETWEEN_BYTES: usize = FOOTER_BYTES + HEADER_BYTES;

/// Read whole frames end to end into `out`, and return their payloads.
pub(super) fn read<'a>(
    data: &Dataset,
    places: &[Place],
    verify: bool,
    out: &'a mut Vec<u8>,
) -> AtRow<Vec<&'a [u8]>> {
    let bytes: u64 = places.iter().map(|place| place.end - place.start).sum();
    let bytes = usize::try_from(bytes).map_err(|_| (0, too_large()))?;
    try_resize(out, bytes).map_err(|e| (0, e))?;
    let mut room = out.as_mut_slice();
    for (row, run) in runs(places) {
        let (buf, rest) =
            std::mem::take(&mut room).split_at_mut_checked(run_bytes(run)).ok_or((row, lost()))?;
        room = rest;
        read_run(data, run, &mut [IoSliceMut::new(buf)]).map_err(|(i, e)| (row + i, e))?;
    }
    let mut rest = out.as_slice();
    let mut payloads = Vec::with_capacity(places.len());
    for (row, place) in places.iter().enumerate() {
        let (frame, behind) =
            rest.split_at_checked((place.end - place.start) as usize).ok_or((row, lost()))?;
        rest = behind;
        payloads.push(open_frame(frame, verify).map_err(|e| (row, locate(e, data, place)))?);
    }
    Ok(payloads)
}

/// Read the payloads end to end into `slots`, which is exactly as long as they are together.
pub(super) fn read_payloads(data: &Dataset, places: &[Place], verify: bool, slots: &mut [u8]) -> AtRow<()> {
    let mut room = slots;
    let mut between: Vec<[u8; BETWEEN_BYTES]> = Vec::new();
    for (row, run) in runs(places) {
        let mut payloads = Vec::with_capacity(run.len());
        for (i, place) in run.iter().enumerate() {
            let (slot, rest) = std::mem::take(&mut room)
                .split_at_mut_checked(place.payload_bytes() as usize)
                .ok_or((row + i, lost()))?;
            room = rest;
            payloads.push(slot);
        }
        // Before, between and behind the payloads: a footer and a header each, but no footer at first and no
        // header at last.
        between.clear();
        between.resize(run.len() + 1, [0; BETWEEN_BYTES]);
        let mut bufs = Vec::with_capacity(run.len() * 2 + 1);
        let (last, before) = between.split_last_mut().ok_or((row, lost()))?;
        for (i, (gap, payload)) in before.iter_mut().zip(&mut payloads).enumerate() {
            let skip = if i == 0 { FOOTER_BYTES } else { 0 };
            bufs.push(IoSliceMut::new(gap.get_mut(skip..).unwrap_or_default()));
            bufs.push(IoSliceMut::new(payload));
        }
        bufs.push(IoSliceMut::new(last.get_mut(..FOOTER_BYTES).unwrap_or_default()));
        read_run(data, run, &mut bufs).map_err(|(i, e)| (row + i, e))?;
        let gaps = between.iter().zip(between.iter().skip(1));
        for (i, ((payload, place), (gap, next))) in payloads.iter().zip(run).zip(gaps).enumerate() {
            check(gap, payload, next, verify).map_err(|e| (row + i, locate(e, data, place)))?;
        }
    }
    Ok(())
}

/// Runs of frames that follow each other in a file, each with its first row.
fn runs(places: &[Place]) -> impl Iterator<Item = (usize, &[Place])> {
    let adjacent = places.chunk_by(|a, b| a.shard == b.shard && a.end == b.start);
    adjacent.flat_map(|run| run.chunks(RUN_FRAMES)).scan(0, |row, run| {
        let first = *row;
        *row += run.len();
        Some((first, run))
    })
}

fn run_bytes(run: &[Place]) -> usize {
    run.iter().map(|place| (place.end - place.start) as usize).sum()
}

fn read_run(data: &Dataset, run: &[Place], bufs: &mut [IoSliceMut<'_>]) -> AtRow<()> {
    let Some(first) = run.first() else { return Ok(()) };
    let shard = data.shard(first.shard).ok_or((0, lost()))?;
    let got = shard.file.read_vectored_at(bufs, first.start).map_err(|e| (0, e))?;
    if got == run_bytes(run) {
        return Ok(());
    }
    let size = first.start + got as u64;
    let cut = run.iter().position(|place| place.end > size).unwrap_or(0);
    let error = Error::new(
        Kind::Truncated,
        format!("the file is only {size} bytes long now: it became shorter after it was indexed"),
    );
    Err((cut, run.get(cut).map_or(error.clone(), |place| locate(error, data, place))))
}

/// The payload of a frame whose length the index knows.
fn open_frame(frame: &[u8], verify: bool) -> Result<&[u8]> {
    let (header, rest) = frame.split_first_chunk().ok_or_else(lost)?;
    let (payload, footer) = rest.split_last_chunk().ok_or_else(lost)?;
    check_parts(header, payload, *footer, verify)?;
    Ok(payload)
}

fn check(
    before: &[u8; BETWEEN_BYTES],
    payload: &[u8],
    behind: &[u8; BETWEEN_BYTES],
    verify: bool,
) -> Result<()> {
    let header = before.last_chunk().ok_or_else(lost)?;
    let footer = behind.first_chunk().ok_or_else(lost)?;
    check_parts(header, payload, *footer, verify)
}

fn check_parts(
    header: &[u8; HEADER_BYTES],
    payload: &[u8],
    footer: [u8; FOOTER_BYTES],
    verify: bool,
) -> Result<()> {
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
    if verify { framing::check_payload(payload, footer) } else { Ok(()) }
}

#[cold]
fn lost() -> Error {
    Error::internal("rows and buffers of a batch do not fit each other")
}

#[cold]
fn too_large() -> Error {
    Error::internal("a batch larger than the address space")
}

#[cold]
pub(super) fn locate(error: Error, data: &Dataset, place: &Place) -> Error {
    let error = error.record(place.index).offset(place.start);
    match data.shard(place.shard) {
        Some(shard) => error.at(shard.file.path()),
        None => error,
    }
}
