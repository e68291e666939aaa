//! One zstd frame, block by block (RFC 8878).
#![deny(clippy::indexing_slicing)]

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::file_bytes::FileBytes;
use super::member::{Event, Trailer};
use super::places;
use crate::error::Result;

/// A block, and the fields around it, take less.
const INPUT_BYTES: usize = (128 << 10) + 64;
const HEADER_BYTES: usize = 3;
const CHECKSUM_BYTES: u64 = 4;
/// Blocks with valid headers after a damaged one that prove its length.
const CHAIN: usize = 8;
/// A last block without content, and any checksum.
const LAST_BLOCK: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];
/// A block that repeats a NUL 128 KiB times: the size of all blocks but the last.
const NUL_BLOCK: [u8; 4] = [0x02, 0x00, 0x10, 0];

/// A decoder of a frame, with its place in the file.
pub(super) struct ZstdMember {
    decoder: FrameDecoder,
    at: u64,
    out: Vec<u8>,
    has_lost: bool,
    ended: Option<Event>,
}

impl std::fmt::Debug for ZstdMember {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ZstdMember").field("at", &self.at).finish_non_exhaustive()
    }
}

impl ZstdMember {
    /// Begin at a frame; None if its header is damaged.
    pub(super) fn begin(file: &mut FileBytes, at: u64) -> Result<Option<Self>> {
        let mut decoder = FrameDecoder::new();
        let mut input = file.ahead(at, 64)?;
        let before = input.len();
        if decoder.reset(&mut input).is_err() {
            return Ok(None);
        }
        let at = at + (before - input.len()) as u64;
        Ok(Some(Self { decoder, at, out: Vec::new(), has_lost: false, ended: None }))
    }

    pub(super) fn fresh(&self) -> &[u8] {
        &self.out
    }

    pub(super) fn position(&self) -> u64 {
        self.at
    }

    pub(super) fn take(&mut self) {
        self.out.clear();
    }

    /// Decode until bytes are fresh, a block is lost, or the frame ends.
    pub(super) fn advance(&mut self, file: &mut FileBytes) -> Result<Event> {
        loop {
            if !self.out.is_empty() {
                return Ok(Event::Data);
            }
            if let Some(event) = self.ended.take() {
                return Ok(event);
            }
            let begin = self.at;
            let mut input = file.ahead(begin, INPUT_BYTES)?;
            let before = input.len();
            let decoded = self.decoder.decode_blocks(&mut input, BlockDecodingStrategy::UptoBlocks(1));
            self.at += (before - input.len()) as u64;
            match decoded {
                Ok(false) => self.collect(),
                Ok(true) => {
                    self.collect();
                    self.ended = Some(self.end());
                }
                Err(_) => {
                    if let Some(lost) = self.skip_block(file, begin)? {
                        return Ok(lost);
                    }
                }
            }
        }
    }

    fn collect(&mut self) {
        // Writing to a Vec cannot fail.
        let _ = self.decoder.collect_to_writer(&mut self.out);
    }

    fn end(&self) -> Event {
        let stored = self.decoder.get_checksum_from_data();
        let is_wrong = !self.has_lost && stored.is_some() && stored != self.decoder.get_calculated_checksum();
        let trailer = is_wrong.then(|| Trailer {
            start: self.at - 4,
            stop: self.at,
            reason: "the checksum of the zstd frame is wrong".to_string(),
            is_lossy: false,
        });
        Event::Ended { next: self.at, trailer }
    }

    /// Step over a damaged block, if its length is certain; otherwise end the frame.
    fn skip_block(&mut self, file: &mut FileBytes, begin: u64) -> Result<Option<Event>> {
        let next = match block(file, begin)? {
            Some((next, is_last)) if is_last || is_chain(file, next)? => Some(next).filter(|_| !is_last),
            _ => None,
        };
        if let Some(next) = next {
            // The next blocks refer to bytes before the lost ones, by their distance.
            let _ = self.decoder.decode_blocks(&NUL_BLOCK[..], BlockDecodingStrategy::UptoBlocks(1));
            self.collect();
            self.at = next;
            self.has_lost = true;
            let reason = "a block of the zstd frame is damaged".to_string();
            return Ok(Some(Event::Lost { start: begin, stop: next, reason }));
        }
        // The decoder holds the bytes of its window back until the last block.
        let _ = self.decoder.decode_blocks(&LAST_BLOCK[..], BlockDecodingStrategy::UptoBlocks(1));
        self.collect();
        let reason = if self.at >= file.size() {
            "the file ends before the end of the frame"
        } else {
            "a block of the zstd frame is damaged"
        };
        // Without its checksum the frame is an error, although the last block was decoded: its bytes are not searched again.
        let searched = match block(file, begin)? {
            Some((next, true)) if next + CHECKSUM_BYTES > file.size() => next,
            _ => begin + 1,
        };
        self.at = begin;
        self.ended = Some(Event::Broken { search_bit: searched * 8, reason: reason.to_string() });
        Ok(None)
    }
}

/// Return the end of the block at a place, and true for the last one; None for an invalid header.
fn block(file: &mut FileBytes, at: u64) -> Result<Option<(u64, bool)>> {
    let Some([a, b, c]) = file.ahead(at, HEADER_BYTES)?.first_chunk().copied() else {
        return Ok(None);
    };
    let header = u32::from_le_bytes([a, b, c, 0]);
    let size = header >> 3;
    let stored = match header >> 1 & 3 {
        1 => 1,
        3 => return Ok(None),
        _ => size,
    };
    let end = at + HEADER_BYTES as u64 + u64::from(stored);
    Ok((size <= 128 << 10 && end <= file.size()).then_some((end, header & 1 == 1)))
}

/// Return true if blocks follow each other from here on.
fn is_chain(file: &mut FileBytes, mut at: u64) -> Result<bool> {
    for _ in 0..CHAIN {
        match block(file, at)? {
            None => return Ok(false),
            Some((end, true)) => {
                for next in [end, end + 4] {
                    if next == file.size() || places::at(file, next)?.is_some() {
                        return Ok(true);
                    }
                }
                return Ok(false);
            }
            Some((end, false)) => at = end,
        }
    }
    Ok(true)
}
