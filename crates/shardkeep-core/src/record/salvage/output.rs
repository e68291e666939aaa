//! The records of a salvage, written in the order of their starts.
#![deny(clippy::indexing_slicing)]

use super::{Content, Correction, Header, Part, Salvage};
use crate::error::{Error, Kind, Result};
use crate::record::bit_flip::Flip;
use crate::record::framing::{self, FOOTER_BYTES, HEADER_BYTES, OVERHEAD_BYTES};

/// Position in the parts that are read.
#[derive(Debug, Default)]
pub(super) struct Position {
    part: usize,
    /// Bytes of the part.
    bytes: u64,
}

impl Salvage {
    /// Fill `room` with the next bytes of the result, and return their number: less than its length only at the end.
    ///
    /// # Errors
    /// The file cannot be read, or was written to since it was opened.
    pub fn read(&mut self, room: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while let Some(part) = self.parts.get(self.copied.part)
            && let Some(rest) = room.get_mut(done..).filter(|rest| !rest.is_empty())
        {
            let Some((from, end)) = self.next_bytes(part) else {
                self.copied = Position { part: self.copied.part + 1, bytes: 0 };
                continue;
            };
            let size = usize::try_from(end - from).unwrap_or(usize::MAX).min(rest.len());
            let block = rest.get_mut(..size).unwrap_or_default();
            if self.source.file().read_at(block, from)? < size {
                return Err(self.changed());
            }
            if let Content::Corrected(correction) = &part.content {
                correct(block, from, part, correction);
            }
            self.copied.bytes += size as u64;
            done += size;
        }
        if self.source.file().written_since_opened().is_some() { Err(self.changed()) } else { Ok(done) }
    }

    /// Return the next range of a part in the file; None after its last byte.
    fn next_bytes(&self, part: &Part) -> Option<(u64, u64)> {
        let joined = || self.joins.as_ref()?.get(&part.start);
        let whole = [(part.start, part.end)];
        let pieces = match part.content {
            Content::Lost(_) | Content::Continued { .. } => return None,
            Content::Joined { .. } => joined()?.as_slice(),
            _ => &whole,
        };
        let mut skip = self.copied.bytes;
        for (start, end) in pieces {
            match skip.checked_sub(end - start) {
                None => return Some((start + skip, *end)),
                Some(rest) => skip = rest,
            }
        }
        None
    }

    fn changed(&self) -> Error {
        let file = self.source.file();
        Error::new(Kind::Changed, "the file changes while it is repaired; wait for its writer")
            .at(file.path())
    }
}

/// Correct the bytes of a frame that are in `block`, which begins at `from`.
fn correct(block: &mut [u8], from: u64, part: &Part, correction: &Correction) {
    let mut edit = |at: u64, change: &dyn Fn(u8) -> u8| {
        let place = at.checked_sub(from).and_then(|place| block.get_mut(place as usize));
        if let Some(byte) = place {
            *byte = change(*byte);
        }
    };
    if correction.header != Header::Right {
        let header = framing::header(part.end - part.start - OVERHEAD_BYTES);
        for (at, byte) in (part.start..).zip(header) {
            edit(at, &|_| byte);
        }
    }
    let (field, bit) = match correction.payload {
        None => return,
        Some(Flip::Data(bit)) => (part.start + HEADER_BYTES as u64, bit),
        Some(Flip::Checksum(bit)) => (part.end - FOOTER_BYTES as u64, u64::from(bit)),
    };
    edit(field + bit / 8, &|byte| byte ^ 1 << (bit % 8));
}
