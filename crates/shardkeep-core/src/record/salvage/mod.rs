//! Salvage of a damaged file: every whole record, and those that can be corrected.
//!
//! From the start of the file, or the end of the last record, the first offset counts at which a whole frame starts: right
//! checksums of its length and its payload. Frames inside of it are its payload. Where a record should start and none is whole:
//!
//! 1. one flipped bit is corrected in the header, and one in the payload with its checksum ([`bit_flip`]);
//! 2. otherwise every following offset is tried, until a frame is whole or has one flipped bit;
//! 3. at the offsets where a damaged frame of this range claims to end, 1. is tried as well;
//! 4. a payload that is whole from a destroyed header up to the next frame gets its header back.
//!
//! At last frames are joined that two writers have cut into blocks ([`interleaved`]).
//! Nothing else is kept, so every record of the result has a payload with a right checksum. All of this takes time in proportion
//! to the size of the file, whatever the lengths in it are ([`source`]).
#![deny(clippy::indexing_slicing)]

mod interleaved;
mod numbering;
mod output;
mod source;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::crc;
use crate::error::Result;
use crate::io::descriptor_pool::VirtualFile;
use crate::record::bit_flip::{self, Flip};
use crate::record::frame_repair::describe;
use crate::record::framing;

use interleaved::Joins;
use numbering::{Extent, Numbering, corrected_length, is_frame, next_header};
pub use numbering::{extent_of, index_around_damage};
use source::Source;

/// Ends of damaged frames that are remembered in one range.
const MOST_ENDS: usize = 1 << 16;
/// Destroyed headers that are remembered in one range.
const MOST_HEADLESS: usize = 64;
/// In longer payloads other damage looks like a flipped bit so often that another header must follow (1 in 8,192 here).
const MOST_ALONE_BYTES: u64 = 64 << 10;
/// Damaged frames that may continue after bytes of another writer.
const MOST_TORN: usize = 1 << 17;

/// Part of a damaged file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub start: u64,
    pub end: u64,
    /// Number of the first record, as in [`index_around_damage`].
    pub record: u64,
    /// Number of records.
    pub items: u64,
    pub content: Content,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    Whole,
    /// Whole records in the range of a damaged record that may contain them.
    Nested,
    Corrected(Correction),
    /// The start of a frame that continues after bytes of another writer.
    Joined {
        pieces: usize,
    },
    /// Another piece of the frame that starts at `frame`.
    Continued {
        frame: u64,
    },
    Lost(Loss),
}

/// Correction of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Correction {
    header: Header,
    payload: Option<Flip>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Header {
    Right,
    Flipped(Flip),
    /// Its length follows from the start of the next frame.
    Destroyed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// A record with a wrong payload.
    Payload,
    /// A record that the file ends in, or that claims more bytes than there are.
    Cut,
    Nul,
    Unknown,
}

impl Content {
    /// Return "kept", "repaired" or "lost".
    #[must_use]
    pub fn outcome(&self) -> &'static str {
        match self {
            Self::Whole | Self::Nested => "kept",
            Self::Corrected(_) | Self::Joined { .. } | Self::Continued { .. } => "repaired",
            Self::Lost(_) => "lost",
        }
    }

    /// Return the description for a report.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Whole => "whole records".to_string(),
            Self::Nested => {
                "whole records inside a damaged record, which may be part of its payload".to_string()
            }
            Self::Corrected(correction) => correction.describe(),
            Self::Joined { pieces } => {
                format!("put together from {pieces} pieces, as its checksum proves: two writers, or a hole")
            }
            Self::Continued { frame } => format!("a piece of the record at byte {frame}"),
            Self::Lost(Loss::Payload) => {
                "the checksum of the payload is wrong by more than a flipped bit".to_string()
            }
            Self::Lost(Loss::Cut) => "the file does not have all bytes of the record".to_string(),
            Self::Lost(Loss::Nul) => "NUL bytes".to_string(),
            Self::Lost(Loss::Unknown) => "bytes without a recognisable record".to_string(),
        }
    }
}

impl Correction {
    fn describe(&self) -> String {
        let header = match self.header {
            Header::Right => None,
            Header::Flipped(flip) => Some(describe(flip, "length")),
            Header::Destroyed => {
                Some("the header was made again from the start of the next record".to_string())
            }
        };
        let payload = self.payload.map(|flip| describe(flip, "payload"));
        header.into_iter().chain(payload).collect::<Vec<_>>().join("; ")
    }
}

/// What begins at an offset where a record should.
enum Found {
    Whole(u64),
    Corrected(u64, Correction),
    /// A right header and a wrong payload; or a header with a flipped bit, before another right header.
    Torn(u64),
    Headless,
}

/// Search of one damaged range.
#[derive(Debug)]
struct Search {
    start: u64,
    at: u64,
    /// Where damaged frames claim to end.
    ends: BinaryHeap<Reverse<u64>>,
    headless: Vec<u64>,
}

/// Salvage of one file, in steps.
#[derive(Debug)]
pub struct Salvage {
    source: Source,
    numbering: Numbering,
    at: u64,
    search: Option<Search>,
    /// End of the last damaged record whose length is confirmed by another header or the end of the file.
    enclosing: u64,
    parts: Vec<Part>,
    /// Starts of frames with a wrong payload, in order.
    torn: Vec<u64>,
    joins: Option<Joins>,
    copied: output::Position,
}

impl Salvage {
    /// Begin at the start of an uncompressed file.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn new(file: VirtualFile) -> Result<Self> {
        Ok(Self {
            source: Source::new(file)?,
            numbering: Numbering::default(),
            at: 0,
            search: None,
            enclosing: 0,
            parts: Vec::new(),
            torn: Vec::new(),
            joins: None,
            copied: output::Position::default(),
        })
    }

    /// Examine about `bytes` more bytes and return their number; 0 at the end of the file.
    ///
    /// # Errors
    /// The file cannot be read, or becomes shorter.
    pub fn advance(&mut self, bytes: u64) -> Result<u64> {
        let from = self.position();
        let until = from.saturating_add(bytes).min(self.source.size);
        while self.position() < until {
            if self.search.is_some() {
                self.search_until(until)?;
            } else {
                self.one_frame()?;
            }
        }
        if self.position() >= self.source.size && self.search.is_some() {
            self.end_search(self.source.size)?;
        }
        if self.at >= self.source.size && self.joins.is_none() {
            self.joins = Some(interleaved::join(&mut self.source, &mut self.parts, &self.torn)?);
        }
        Ok(self.position() - from)
    }

    fn position(&self) -> u64 {
        self.search.as_ref().map_or(self.at, |search| search.at)
    }

    /// Return the parts that are known so far.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn one_frame(&mut self) -> Result<()> {
        let at = self.at;
        self.source.forget_before(at.min(self.numbering.start));
        // A large block for the frames that follow.
        self.source.bytes_from(at, 1)?;
        match self.examine(at)? {
            Found::Whole(end) => self.keep(at, end, Content::Whole)?,
            Found::Corrected(end, correction) => self.keep(at, end, Content::Corrected(correction))?,
            other => {
                self.search =
                    Some(Search { start: at, at: at + 1, ends: BinaryHeap::new(), headless: Vec::new() });
                self.note(at, &other)?;
            }
        }
        Ok(())
    }

    /// Add a frame.
    fn keep(&mut self, at: u64, end: u64, content: Content) -> Result<()> {
        let content = match content {
            Content::Whole if end <= self.enclosing => Content::Nested,
            other => other,
        };
        self.numbering.seek(&mut self.source, at, (0, 0))?;
        let record = self.numbering.record;
        // The index ends a record with a destroyed header at the next whole frame, not at one that can be corrected.
        let is_destroyed = matches!(content, Content::Corrected(one) if one.header == Header::Destroyed);
        if self.numbering.start == at && !is_destroyed {
            self.numbering.pass(end);
        }
        self.add(Part { start: at, end, record, items: 1, content });
        self.at = end;
        Ok(())
    }

    fn add(&mut self, part: Part) {
        match self.parts.last_mut() {
            Some(last)
                if last.content == part.content
                    && last.end == part.start
                    && !matches!(part.content, Content::Corrected(_)) =>
            {
                last.end = part.end;
                last.items += part.items;
            }
            _ => self.parts.push(part),
        }
    }

    fn examine(&mut self, at: u64) -> Result<Found> {
        let Some(header) = self.source.header(at)? else { return Ok(Found::Headless) };
        let (length, right) = match framing::length_of(&header) {
            Some(length) => (length, Header::Right),
            None => {
                let mut corrected = header;
                let Some(flip) = bit_flip::correct_header(&mut corrected) else { return Ok(Found::Headless) };
                (framing::fields(&corrected).0, Header::Flipped(flip))
            }
        };
        let Some(end) = self.source.frame_end(at, length) else { return Ok(Found::Headless) };
        let (computed, stored) = self.source.sums(at, end)?;
        if crc::mask(computed) == stored {
            return Ok(match right {
                Header::Right => Found::Whole(end),
                header => Found::Corrected(end, Correction { header, payload: None }),
            });
        }
        if right != Header::Right && end != self.source.size && !self.source.is_header(end)? {
            return Ok(Found::Headless);
        }
        let flip = bit_flip::find(length, computed, stored);
        let is_likely = flip.is_some() && (length <= MOST_ALONE_BYTES || self.is_followed(end)?);
        Ok(match flip.filter(|_| is_likely) {
            Some(flip) => Found::Corrected(end, Correction { header: right, payload: Some(flip) }),
            None => Found::Torn(end),
        })
    }

    /// Return true if the file ends here, or has a header with at most one flipped bit.
    fn is_followed(&mut self, end: u64) -> Result<bool> {
        let header = self.source.header(end)?;
        Ok(end == self.source.size
            || header.is_some_and(|header| {
                framing::length_of(&header).or_else(|| corrected_length(header)).is_some()
            }))
    }

    /// Remember a damaged frame of the range that is searched.
    fn note(&mut self, at: u64, found: &Found) -> Result<()> {
        let Some(search) = self.search.as_mut() else { return Ok(()) };
        match found {
            Found::Torn(end) => {
                if self.torn.len() < MOST_TORN {
                    self.torn.push(at);
                }
                if search.ends.len() < MOST_ENDS {
                    search.ends.push(Reverse(*end));
                }
                if *end == self.source.size || self.source.is_header(*end)? {
                    self.enclosing = self.enclosing.max(*end);
                }
            }
            Found::Headless if search.headless.len() < MOST_HEADLESS => search.headless.push(at),
            _ => {}
        }
        Ok(())
    }

    fn search_until(&mut self, until: u64) -> Result<()> {
        while let Some(search) = self.search.as_mut()
            && search.at < until
        {
            while search.ends.peek().is_some_and(|end| end.0 < search.at) {
                search.ends.pop();
            }
            let at = search.at;
            let end = search.ends.peek().map_or(until, |end| end.0.min(until));
            let found = match next_header(&mut self.source, at, end)? {
                Some((start, _)) => start,
                None => end,
            };
            search.at = found + 1;
            if found >= until {
                search.at = until;
                break;
            }
            match self.examine(found)? {
                Found::Whole(_) | Found::Corrected(..) => return self.end_search(found),
                other => self.note(found, &other)?,
            }
        }
        Ok(())
    }

    /// End the search at the start of the next frame, or at the end of the file.
    fn end_search(&mut self, next: u64) -> Result<()> {
        let Some(search) = self.search.take() else { return Ok(()) };
        let mut lost = (search.start, next);
        let mut restored = None;
        for start in search.headless {
            let is_right = self.source.is_header(start)?;
            if !is_right && is_frame(&mut self.source, start, next)? {
                (lost.1, restored) = (start, Some(start));
                break;
            }
        }
        self.lose(lost.0, lost.1, next)?;
        self.at = next;
        if let Some(start) = restored {
            let content = Content::Corrected(Correction { header: Header::Destroyed, payload: None });
            self.keep(start, next, content)?;
        }
        Ok(())
    }

    /// Add a lost range, record by record of the index. No frame that starts after `start` and before `clear` is whole.
    fn lose(&mut self, start: u64, end: u64, clear: u64) -> Result<()> {
        let clear = (start, clear);
        let mut at = start;
        while at < end {
            self.numbering.seek(&mut self.source, at, clear)?;
            let (stop, extent) = self.numbering.extent(&mut self.source, clear)?;
            let stop = stop.min(end);
            let begins = self.numbering.start == at;
            let loss = match extent {
                Extent::Record if begins => Loss::Payload,
                Extent::Cut if begins => Loss::Cut,
                _ if self.is_nul(at, stop)? => Loss::Nul,
                _ => Loss::Unknown,
            };
            let items = u64::from(matches!(loss, Loss::Payload | Loss::Cut));
            let record = self.numbering.record;
            self.add(Part { start: at, end: stop, record, items, content: Content::Lost(loss) });
            at = stop;
        }
        Ok(())
    }

    fn is_nul(&mut self, start: u64, end: u64) -> Result<bool> {
        let mut at = start;
        while at < end {
            let bytes = self.source.bytes_from(at, 1)?;
            let bytes = bytes.get(..usize::try_from(end - at).unwrap_or(usize::MAX)).unwrap_or(bytes);
            if bytes.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += bytes.len() as u64;
        }
        Ok(true)
    }
}
