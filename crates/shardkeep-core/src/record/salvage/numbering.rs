//! Record numbers of a damaged file: those of its index, in which unreadable bytes count too.
//!
//! The index continues at the end of each frame with a right header, whatever the payload. After another header it continues
//! at the next whole frame, and the bytes between are one record:
//!
//! * the damaged record itself where its extent is certain: its length has one flipped bit, or its payload, cut where the
//!   next whole frame starts, has the right checksum;
//! * a *hole* otherwise.
//!
//! A payload is read only where this decides. The same bytes have the same numbers everywhere.
#![deny(clippy::indexing_slicing)]

use crate::error::Result;
use crate::io::descriptor_pool::VirtualFile;
use crate::record::bit_flip;
use crate::record::framing::{self, HEADER_BYTES, OVERHEAD_BYTES};

use super::source::Source;

/// A hole may be as large as the file; a payload that is larger than this is not checked.
const LARGEST_BYTES: u64 = 256 << 20;

/// Record of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    Record,
    /// A right header, of a payload that the file does not have.
    Cut,
    Hole,
}

/// Position in the index.
#[derive(Debug, Default)]
pub(super) struct Numbering {
    pub(super) start: u64,
    pub(super) record: u64,
    found: Option<(u64, Extent)>,
}

impl Numbering {
    /// End and extent of the record here. No whole frame starts in `clear`.
    pub(super) fn extent(&mut self, source: &mut Source, clear: (u64, u64)) -> Result<(u64, Extent)> {
        if let Some(found) = self.found {
            return Ok(found);
        }
        let found = extent(source, self.start, clear)?;
        self.found = Some(found);
        Ok(found)
    }

    /// Continue after the record here, which ends at `end`.
    pub(super) fn pass(&mut self, end: u64) {
        (self.start, self.record, self.found) = (end, self.record + 1, None);
    }

    /// Continue to the record of the byte at `at`.
    pub(super) fn seek(&mut self, source: &mut Source, at: u64, clear: (u64, u64)) -> Result<()> {
        while self.start < at {
            let (end, _) = self.extent(source, clear)?;
            if end > at {
                break;
            }
            self.pass(end);
        }
        Ok(())
    }
}

fn extent(source: &mut Source, at: u64, clear: (u64, u64)) -> Result<(u64, Extent)> {
    let header = source.header(at)?;
    let length = header.as_ref().and_then(framing::length_of);
    if let Some(end) = length.and_then(|length| source.frame_end(at, length)) {
        return Ok((end, Extent::Record));
    }
    if length.is_none()
        && let Some(end) = header.and_then(corrected_length).and_then(|length| source.frame_end(at, length))
        && (end == source.size || source.is_header(end)? || is_frame(source, at, end)?)
    {
        return Ok((end, Extent::Record));
    }
    let from = if (clear.0..clear.1).contains(&at) { clear.1 } else { at + 1 };
    let next = next_whole(source, from, source.size)?;
    let end = next.unwrap_or(source.size);
    Ok(match length {
        // The checksum of the rest does not belong to its record.
        Some(_) => (end, Extent::Cut),
        None if is_frame(source, at, end)? => (end, Extent::Record),
        None => (end, Extent::Hole),
    })
}

/// Return the payload length of a header with one flipped bit.
pub(super) fn corrected_length(mut header: [u8; HEADER_BYTES]) -> Option<u64> {
    bit_flip::correct_header(&mut header)?;
    framing::length_of(&header)
}

/// Return true if the bytes would be a whole frame with a correct header.
pub(super) fn is_frame(source: &mut Source, start: u64, end: u64) -> Result<bool> {
    let size = end.saturating_sub(start);
    Ok((OVERHEAD_BYTES..=LARGEST_BYTES).contains(&size) && source.is_payload(start, end)?)
}

/// Return the start of the first whole frame that starts in a range.
fn next_whole(source: &mut Source, from: u64, until: u64) -> Result<Option<u64>> {
    let mut at = from;
    while let Some((start, length)) = next_header(source, at, until)? {
        if let Some(end) = source.frame_end(start, length)
            && source.is_payload(start, end)?
        {
            return Ok(Some(start));
        }
        at = start + 1;
    }
    Ok(None)
}

/// Return the first header in a range with a right checksum whose frame fits into the file, and its length.
///
/// Most offsets have a length beyond the end of the file; in a hole it is 0 with a wrong checksum.
pub(super) fn next_header(source: &mut Source, from: u64, until: u64) -> Result<Option<(u64, u64)>> {
    let empty = framing::fields(&framing::header(0)).1;
    let last = source.size.saturating_sub(OVERHEAD_BYTES - 1).min(until);
    let mut at = from;
    while at < last {
        let largest = source.size - OVERHEAD_BYTES - at;
        let block = source.bytes_from(at, HEADER_BYTES)?;
        let places = (block.len() + 1 - HEADER_BYTES) as u64;
        for (place, window) in (0..last - at).zip(block.windows(HEADER_BYTES)) {
            let Some(header) = window.first_chunk() else { break };
            let (length, sum) = framing::fields(header);
            if length <= largest
                && (length != 0 || sum == empty)
                && framing::length_of(header).is_some()
                && length <= largest - place
            {
                return Ok(Some((at + place, length)));
            }
        }
        at += places;
    }
    Ok(None)
}

/// Index of a damaged file: the start of each record, last the size of the file, and the records that are holes.
///
/// # Errors
/// The file cannot be read, or becomes shorter.
pub fn index_around_damage(file: VirtualFile) -> Result<(Vec<u64>, Vec<u64>)> {
    let mut source = Source::new(file)?;
    let mut here = Numbering::default();
    let (mut starts, mut holes) = (vec![0], Vec::new());
    while here.start < source.size {
        source.forget_before(here.start);
        let (end, extent) = here.extent(&mut source, (0, 0))?;
        if extent != Extent::Record {
            holes.push(here.record);
        }
        here.pass(end);
        starts.push(end);
    }
    Ok((starts, holes))
}

/// Return the end of the record at an offset, and true if it is a hole.
///
/// # Errors
/// As [`index_around_damage`].
pub fn extent_of(file: VirtualFile, at: u64) -> Result<(u64, bool)> {
    let (end, extent) = extent(&mut Source::new(file)?, at, (0, 0))?;
    Ok((end, extent != Extent::Record))
}
