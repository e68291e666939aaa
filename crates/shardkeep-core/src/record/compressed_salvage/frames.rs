//! Whole records of decoded bytes, with damage between them.
#![deny(clippy::indexing_slicing)]

use crate::error::{Error, Result};
use crate::record::bit_flip;
use crate::record::frame_repair::correct_flipped_bits;
use crate::record::framing::{self, FOOTER_BYTES, HEADER_BYTES, OVERHEAD_BYTES};

/// Largest frame. Memory grows with the bytes that were decoded, up to about twice this.
const LARGEST_BYTES: usize = 1 << 30;
/// Most bytes of a hole that are held for a frame whose header is destroyed.
const HELD_BYTES: usize = 16 << 20;

/// A part of the decoded bytes.
#[derive(Debug)]
pub(super) enum Found<'a> {
    Whole(&'a [u8]),
    /// A payload after its correction, and the correction.
    Repaired(&'a [u8], String),
    /// A record that cannot be corrected.
    Damaged,
    /// Bytes without a recognisable record.
    Hole,
}

/// Decoded bytes that come in parts. Records that are not known to be whole wait for more bytes.
#[derive(Debug, Default)]
pub(super) struct Frames {
    buf: Vec<u8>,
    start: usize,
    /// Offset of `buf[0]`.
    base: u64,
    /// While the next whole frame is searched: the place to test, after `start`.
    searched: Option<usize>,
    /// Bytes of the hole before `start` that are not held.
    is_hole_cut: bool,
    /// Offset after the last whole or corrected record.
    good_end: u64,
    /// False if flipped bits must not be corrected, since most of the bytes are unknown.
    is_guessed: bool,
}

/// Judgement of the bytes at a place.
enum Frame {
    /// It cannot be judged without more bytes.
    Unknown,
    Whole(usize),
    Repaired {
        payload: Vec<u8>,
        size: usize,
        what: String,
    },
    Damaged(usize),
    None,
}

impl Frames {
    /// Do not correct flipped bits from here on, or do it again: after an unknown window, arbitrary damage is so frequent that
    /// some of it would look like one flipped bit.
    pub(super) fn guess(&mut self, is_guessed: bool) {
        self.is_guessed = is_guessed;
    }

    /// Return the offset after the last whole or corrected record.
    pub(super) fn good_end(&self) -> u64 {
        self.good_end
    }

    /// Add bytes, and pass on what is certain. `is_end` is true if no bytes follow.
    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        is_end: bool,
        emit: &mut dyn FnMut(Found<'_>) -> Result<()>,
    ) -> Result<()> {
        self.buf.drain(..self.start);
        self.base += self.start as u64;
        self.start = 0;
        self.buf.try_reserve(bytes.len()).map_err(|_| Error::memory(bytes.len()))?;
        self.buf.extend_from_slice(bytes);
        while self.start < self.buf.len() {
            let going = match self.searched {
                None => self.judge_next(is_end, emit)?,
                Some(at) => self.search(at, is_end, emit)?,
            };
            if !going {
                break;
            }
        }
        Ok(())
    }

    fn ahead(&self) -> &[u8] {
        self.buf.get(self.start..).unwrap_or_default()
    }

    fn judge_next(&mut self, is_end: bool, emit: &mut dyn FnMut(Found<'_>) -> Result<()>) -> Result<bool> {
        let at = self.base + self.start as u64;
        let size = match judge(self.ahead(), is_end, !self.is_guessed) {
            Frame::Unknown => return Ok(false),
            Frame::None => {
                self.searched = Some(1);
                return Ok(true);
            }
            Frame::Whole(size) => {
                emit(Found::Whole(payload_of(self.ahead(), size)))?;
                self.good_end = at + size as u64;
                size
            }
            Frame::Repaired { payload, size, what } => {
                emit(Found::Repaired(&payload, what))?;
                self.good_end = at + size as u64;
                size
            }
            Frame::Damaged(size) => {
                emit(Found::Damaged)?;
                size
            }
        };
        self.start += size;
        Ok(true)
    }

    /// Search a frame from `at` bytes after `start`, the start of the hole.
    fn search(
        &mut self,
        mut at: usize,
        is_end: bool,
        emit: &mut dyn FnMut(Found<'_>) -> Result<()>,
    ) -> Result<bool> {
        let begin = self.base + self.start as u64;
        let ahead = self.ahead();
        let is_found = loop {
            let Some(rest) = ahead.get(at..).filter(|rest| rest.len() >= HEADER_BYTES) else {
                break false;
            };
            if rest.first_chunk().is_some_and(|header| framing::length_of(header).is_some()) {
                // Not corrected here: a record after a hole is judged once more.
                match judge(rest, is_end, false) {
                    Frame::Unknown => {
                        self.searched = Some(at);
                        return Ok(self.cut_hole(at));
                    }
                    Frame::None => {}
                    _ => break true,
                }
            }
            at += 1;
        };
        if !is_found && !is_end {
            self.searched = Some(at);
            return Ok(self.cut_hole(at));
        }
        if !is_found {
            at = ahead.len();
        }
        let payload = payload_of(ahead, at);
        let footer = ahead.get(at.saturating_sub(FOOTER_BYTES)..at).and_then(|footer| footer.first_chunk());
        match footer {
            Some(footer)
                if !self.is_guessed
                    && !self.is_hole_cut
                    && at >= OVERHEAD_BYTES as usize
                    && framing::check_payload(payload, *footer).is_ok() =>
            {
                emit(Found::Repaired(payload, "its header was made again from its end".to_string()))?;
                self.good_end = begin + at as u64;
            }
            _ => emit(Found::Hole)?,
        }
        self.start += at;
        self.searched = None;
        self.is_hole_cut = false;
        Ok(true)
    }

    /// Forget most of a long hole; always returns false.
    fn cut_hole(&mut self, at: usize) -> bool {
        if at > HELD_BYTES {
            self.start += at;
            self.searched = Some(0);
            self.is_hole_cut = true;
        }
        false
    }
}

fn payload_of(frame: &[u8], size: usize) -> &[u8] {
    size.checked_sub(FOOTER_BYTES).and_then(|end| frame.get(HEADER_BYTES..end)).unwrap_or_default()
}

/// Judge the frame at the start of `ahead`.
fn judge(ahead: &[u8], is_end: bool, may_correct: bool) -> Frame {
    let short = if is_end { Frame::None } else { Frame::Unknown };
    let Some(header) = ahead.first_chunk::<HEADER_BYTES>() else {
        return short;
    };
    let mut corrected = *header;
    let length = framing::length_of(header).or_else(|| {
        bit_flip::correct_header(&mut corrected).filter(|_| may_correct)?;
        framing::length_of(&corrected)
    });
    let Some(size) = length
        .and_then(|length| usize::try_from(length).ok())
        .and_then(|length| length.checked_add(OVERHEAD_BYTES as usize))
        .filter(|size| *size <= LARGEST_BYTES)
    else {
        return Frame::None;
    };
    let Some(footer) =
        ahead.get(size - FOOTER_BYTES..size).and_then(|footer| footer.first_chunk::<FOOTER_BYTES>())
    else {
        return short;
    };
    let payload = payload_of(ahead, size);
    let is_whole = framing::check_payload(payload, *footer).is_ok();
    if is_whole && corrected == *header {
        return Frame::Whole(size);
    }
    // The extent of a damaged record is certain if a header follows.
    if !is_whole {
        match ahead.get(size..).unwrap_or_default().first_chunk() {
            None if !is_end => return Frame::Unknown,
            None if ahead.len() == size => {}
            Some(next) if framing::length_of(next).is_some() => {}
            Some(next) if may_correct && bit_flip::correct_header(&mut next.clone()).is_some() => {}
            _ => return Frame::None,
        }
    }
    let (mut header, mut footer) = (*header, *footer);
    if !may_correct {
        return Frame::Damaged(size);
    }
    let mut payload = payload.to_vec();
    match correct_flipped_bits(&mut header, &mut payload, &mut footer) {
        Some(what) => Frame::Repaired { payload, size, what },
        None => Frame::Damaged(size),
    }
}
