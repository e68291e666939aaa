//! One gzip member or zlib stream, or the rest of one from a block on.
#![deny(clippy::indexing_slicing)]

use super::bits::Bits;
use super::file_bytes::FileBytes;
use super::inflate::{Inflate, Step};
use super::member::{Event, Trailer};
use super::places;
use crate::error::Result;
use crate::record::stream::Compression;

const STEP_BYTES: usize = 32 << 10;
/// More than a block takes for `STEP_BYTES`, and more than the largest header of a block.
const INPUT_BYTES: usize = 96 << 10;
/// A beginning that is not certain is given up after so many bytes without a whole record.
const TRIAL_BYTES: u64 = 256 << 10;

/// A decoder of a member, with its place in the file.
#[derive(Debug)]
pub(super) struct DeflateMember {
    inflate: Inflate,
    kind: Compression,
    begin_bit: u64,
    bit: u64,
    /// None after an unknown beginning.
    check: Option<Check>,
    size: u64,
    /// The last place at which a block certainly begins.
    anchor_bit: Option<u64>,
    ended: Option<Step>,
}

impl DeflateMember {
    /// Begin at a member whose content begins at `content`.
    pub(super) fn whole(kind: Compression, begin: u64, content: u64) -> Self {
        Self { check: Some(Check::new(kind)), begin_bit: begin * 8, ..Self::at(kind, content * 8, true) }
    }

    /// Begin at a block in the middle of a member.
    pub(super) fn rest(kind: Compression, bit: u64) -> Self {
        Self::at(kind, bit, false)
    }

    /// Return true for a small zlib stream with a right checksum; its header is found by chance too often.
    pub(super) fn is_whole_zlib(file: &mut FileBytes, at: u64) -> Result<bool> {
        let mut member = Self::whole(Compression::Zlib, at, at + 2);
        while member.size <= TRIAL_BYTES {
            match member.advance(file, true)? {
                Event::Data => member.take(),
                event => return Ok(matches!(event, Event::Ended { trailer: None, .. })),
            }
        }
        Ok(false)
    }

    fn at(kind: Compression, bit: u64, is_window_known: bool) -> Self {
        Self {
            inflate: Inflate::new(is_window_known),
            kind,
            begin_bit: bit,
            bit,
            check: None,
            size: 0,
            anchor_bit: None,
            ended: None,
        }
    }

    pub(super) fn fresh(&self) -> &[u8] {
        self.inflate.fresh()
    }

    /// Return the next bit to be decoded, and true if it is one of a stored block, in which bytes are stored as they are.
    pub(super) fn position(&self) -> (u64, bool) {
        (self.bit, self.inflate.is_stored())
    }

    pub(super) fn take(&mut self) {
        let fresh = self.inflate.fresh();
        self.size += fresh.len() as u64;
        if let Some(check) = &mut self.check {
            check.update(fresh);
        }
        self.inflate.take();
    }

    /// Decode until bytes are fresh, or the member ends. `has_records` is true once a whole record was found in it.
    pub(super) fn advance(&mut self, file: &mut FileBytes, has_records: bool) -> Result<Event> {
        if self.anchor_bit.is_none() && self.check.is_none() && !has_records && self.size > TRIAL_BYTES {
            self.ended = Some(Step::Fault("no record"));
        }
        while self.ended.is_none() {
            let at = self.bit / 8;
            let size = file.size();
            let bytes = file.ahead(at, INPUT_BYTES)?;
            let is_end = at + bytes.len() as u64 >= size;
            let mut bits = Bits::new(bytes, (self.bit % 8) as usize);
            let was_at_block = self.inflate.is_at_block();
            let step = self.inflate.advance(&mut bits, is_end, STEP_BYTES);
            if was_at_block && self.inflate.is_strong() {
                self.anchor_bit = Some(self.bit);
            }
            self.bit = at * 8 + bits.at() as u64;
            match step {
                Step::Input | Step::Full | Step::BlockEnd => {}
                end => self.ended = Some(end),
            }
            // After the header of a block too, so that its position is known.
            if was_at_block || !self.inflate.fresh().is_empty() {
                return Ok(Event::Data);
            }
        }
        if !self.inflate.fresh().is_empty() {
            return Ok(Event::Data);
        }
        let search_bit = self.anchor_bit.unwrap_or(self.begin_bit) + 1;
        Ok(match self.ended {
            Some(Step::Fault(what)) => Event::Broken { search_bit, reason: what.to_string() },
            Some(Step::StreamEnd) => self.end(file)?,
            _ => {
                Event::Broken { search_bit, reason: "the file ends before the end of the stream".to_string() }
            }
        })
    }

    fn end(&self, file: &mut FileBytes) -> Result<Event> {
        let at = self.bit.div_ceil(8);
        let want = if self.kind == Compression::Zlib { 4 } else { 8 };
        let left = (file.size() - at.min(file.size())).min(want);
        let next = at + left;
        let is_followed = next == file.size() || places::at(file, next)?.is_some();
        let Some(check) = &self.check else {
            return Ok(Event::Ended { next: if is_followed { next } else { at }, trailer: None });
        };
        let right = check.trailer(self.size);
        let ahead = file.ahead(at, right.len())?;
        let stored = ahead.get(..right.len()).unwrap_or(ahead);
        if stored == right {
            return Ok(Event::Ended { next, trailer: None });
        }
        let trailer = |what: String, is_lossy| {
            Some(Trailer {
                start: at,
                stop: next,
                reason: format!("the {} trailer {what}", self.name()),
                is_lossy,
            })
        };
        if stored.len() < right.len() && right.starts_with(stored) {
            let what = format!("is missing ({} of {want} bytes)", stored.len());
            return Ok(Event::Ended { next, trailer: trailer(what, false) });
        }
        if places::at(file, at)?.is_some() {
            return Ok(Event::Ended { next: at, trailer: trailer("is missing".to_string(), false) });
        }
        if !is_followed {
            return Ok(Event::Broken {
                search_bit: self.anchor_bit.unwrap_or(self.begin_bit) + 1,
                reason: "the stream ends within other data".to_string(),
            });
        }
        let ahead = file.ahead(at, right.len())?;
        let (sum, size) = right.split_at_checked(4).unwrap_or_default();
        let is_sum_right = ahead.starts_with(sum);
        let is_size_right = ahead.get(4..right.len()).is_none_or(|stored| stored == size);
        let what = match (is_sum_right, is_size_right) {
            (true, _) => "has a wrong size",
            (false, true) => "has a wrong checksum",
            (false, false) => "has a wrong checksum and a wrong size, so that records may be missing",
        };
        Ok(Event::Ended { next, trailer: trailer(what.to_string(), !is_sum_right && !is_size_right) })
    }

    fn name(&self) -> &'static str {
        if self.kind == Compression::Zlib { "zlib" } else { "gzip" }
    }
}

/// Checksum of the content of a member.
#[derive(Debug)]
enum Check {
    Gzip(Box<crc_fast::Digest>),
    Zlib(u32, u32),
}

impl Check {
    fn new(kind: Compression) -> Self {
        match kind {
            Compression::Zlib => Self::Zlib(1, 0),
            _ => Self::Gzip(Box::new(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32IsoHdlc))),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Gzip(digest) => digest.update(bytes),
            Self::Zlib(a, b) => {
                // Fewer bytes than 32-bit sums can hold (RFC 1950).
                for part in bytes.chunks(5552) {
                    for byte in part {
                        *a += u32::from(*byte);
                        *b += *a;
                    }
                    *a %= 65_521;
                    *b %= 65_521;
                }
            }
        }
    }

    /// Return the trailer of a content of `size` bytes.
    fn trailer(&self, size: u64) -> Vec<u8> {
        match self {
            Self::Gzip(digest) => {
                [(digest.finalize() as u32).to_le_bytes(), (size as u32).to_le_bytes()].concat()
            }
            Self::Zlib(a, b) => (b << 16 | a).to_be_bytes().to_vec(),
        }
    }
}
