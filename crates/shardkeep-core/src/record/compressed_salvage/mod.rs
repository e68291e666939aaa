//! Salvage of a damaged compressed file: every whole record that can be decoded, and those that can be corrected.
//!
//! The file is decoded from its beginning. Where that fails, decoding begins again at the next place that can be
//! recognised after the last whole record ([`places`]): a gzip member, a zlib stream, a zstd frame, a flush, any deflate block, or a
//! record that is not compressed. The bytes before a block are unknown then, and NULs in their place; a record that
//! needs them has a wrong checksum, and is lost.
//!
//! Nothing is kept without a right CRC32C, so a place that is taken for a beginning by mistake adds nothing. No bytes are decoded
//! twice after a whole record that was found in them. Memory is bounded by the largest record that a file may have.
#![deny(clippy::indexing_slicing)]

mod bits;
mod deflate_member;
mod file_bytes;
mod frames;
mod inflate;
mod member;
mod parts;
mod places;
#[cfg(test)]
mod tests;
mod zstd_member;

use std::collections::VecDeque;

use crate::error::Result;
use crate::io::descriptor_pool::VirtualFile;
use crate::record::stream::Compression;
use crate::record::writer::FrameWriter;
use file_bytes::FileBytes;
use frames::{Found, Frames};
use member::{Event, Member, Trailer};
use parts::Parts;
pub use parts::{Outcome, Part};
use places::Place;

const UNKNOWN: &str = "bytes that cannot be decoded";

/// Salvage of one file, in steps.
#[derive(Debug)]
pub struct CompressedSalvage {
    file: FileBytes,
    compression: Compression,
    member: Option<Member>,
    frames: Frames,
    /// Decoded bytes of the current stretch, and those at the beginning of the member.
    decoded: u64,
    member_from: u64,
    /// The first bit after the header of the member.
    member_bit: u64,
    marks: VecDeque<Mark>,
    /// Start and reason of the lost bytes before the next place.
    gap: Option<(u64, String)>,
    parts: Parts,
}

/// A position in the file, and the decoded bytes before it.
#[derive(Debug, Clone, Copy)]
struct Mark {
    decoded: u64,
    bit: u64,
    is_stored: bool,
}

impl CompressedSalvage {
    /// Begin at the first place that can be decoded. `compression` is that of the file, if it is known.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(file: VirtualFile, compression: Option<Compression>) -> Result<Self> {
        let mut file = FileBytes::open(file)?;
        let begin = match places::at(&mut file, 0)? {
            Some(place) => Some(place),
            None => places::search(&mut file, 0, compression != Some(Compression::Zstd))?,
        };
        let kind = begin.and_then(Place::kind).or(compression).unwrap_or(Compression::Gzip);
        let mut salvage = Self {
            file,
            compression: compression.unwrap_or(kind),
            member: None,
            frames: Frames::default(),
            decoded: 0,
            member_from: 0,
            member_bit: 0,
            marks: VecDeque::new(),
            gap: Some((0, UNKNOWN.to_string())),
            parts: Parts::default(),
        };
        salvage.begin(begin)?;
        Ok(salvage)
    }

    /// Return the compression of the file; of its first member, if none was passed.
    #[must_use]
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Return the number of compressed bytes that were decoded or stepped over.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.member.as_ref().map_or(self.file.size(), |member| member.position().0 / 8)
    }

    /// Return the parts of the file; complete at its end.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts.list
    }

    /// Return the number of records that were kept or corrected.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.parts.records
    }

    /// Decode about `bytes` more bytes, and write their records; return false at the end of the file.
    ///
    /// # Errors
    /// The file cannot be read, or the output cannot be written.
    pub fn advance(&mut self, bytes: u64, mut writer: Option<&mut FrameWriter>) -> Result<bool> {
        let mut done = 0;
        while done < bytes
            && let Some(member) = &mut self.member
        {
            let has_records = self.frames.good_end() > self.member_from;
            match member.advance(&mut self.file, has_records)? {
                Event::Data => {
                    let fresh = member.fresh();
                    let count = fresh.len() as u64;
                    let parts = &mut self.parts;
                    self.frames.push(fresh, false, &mut |found| parts.add(found, &mut writer))?;
                    member.take();
                    done += count;
                    self.decoded += count;
                    self.mark();
                }
                Event::Lost { start, stop, reason } => {
                    self.parts.blocks.push_back((start, stop, reason));
                    self.frames.guess(true);
                }
                Event::Ended { next, trailer } => {
                    done += 1;
                    let is_wrong_frame = trailer.is_some() && matches!(member, Member::Zstd(_));
                    let inner = match is_wrong_frame && !has_records {
                        true => places::search(&mut self.file, self.member_bit, false)?,
                        false => None,
                    };
                    // A block of which bytes are missing ran over the beginning of the next frame.
                    match inner.filter(|place| place.byte() < next) {
                        Some(_) => self.restart(
                            self.member_bit,
                            "the checksum of the zstd frame is wrong".to_string(),
                            &mut writer,
                        )?,
                        None => self.end(next, trailer)?,
                    }
                }
                Event::Broken { search_bit, reason } => {
                    done += 1;
                    self.restart(search_bit, reason, &mut writer)?;
                }
            }
        }
        if self.member.is_none() {
            let parts = &mut self.parts;
            self.frames.push(&[], true, &mut |found| match found {
                Found::Hole => {
                    parts.lost("the records end within a record");
                    Ok(())
                }
                found => parts.add(found, &mut writer),
            })?;
        }
        Ok(self.member.is_some())
    }

    /// Search the next place from a bit on, but after the last whole record.
    fn restart(
        &mut self,
        search_bit: u64,
        reason: String,
        writer: &mut Option<&mut FrameWriter>,
    ) -> Result<()> {
        let parts = &mut self.parts;
        self.frames.push(&[], true, &mut |found| match found {
            // These bytes are a part of the gap.
            Found::Hole => Ok(()),
            found => parts.add(found, writer),
        })?;
        let good_bit = self.good_bit();
        self.parts.close(good_bit.div_ceil(8));
        self.frames = Frames::default();
        self.decoded = 0;
        self.marks.clear();
        self.gap = Some((good_bit.div_ceil(8), reason));
        self.search(search_bit.max(good_bit))
    }

    /// End a member at `next`, and begin the one that follows.
    fn end(&mut self, next: u64, trailer: Option<Trailer>) -> Result<()> {
        self.parts.close(trailer.as_ref().map_or(next, |trailer| trailer.start));
        self.parts.flush_blocks();
        if let Some(trailer) = trailer {
            let outcome = if trailer.is_lossy { Outcome::Lost } else { Outcome::Repaired };
            self.parts.push_bytes(outcome, trailer.start, trailer.stop, trailer.reason);
        }
        let is_end = next >= self.file.size();
        let place = if is_end { None } else { places::at(&mut self.file, next)? };
        if is_end || place.is_some() {
            return self.begin(place);
        }
        self.gap = Some((next, UNKNOWN.to_string()));
        self.search(next * 8)
    }

    fn search(&mut self, from_bit: u64) -> Result<()> {
        let is_deflated = self.compression != Compression::Zstd;
        let place = places::search(&mut self.file, from_bit, is_deflated)?;
        self.begin(place)
    }

    /// Begin a member; without a place the file ends.
    fn begin(&mut self, mut place: Option<Place>) -> Result<()> {
        self.member = None;
        let is_deflated = self.compression != Compression::Zstd;
        while let Some(found) = place {
            self.member = Member::begin(&mut self.file, found, self.compression)?;
            if self.member.is_some() {
                break;
            }
            self.gap.get_or_insert((found.byte(), "a damaged header".to_string()));
            place = places::search(&mut self.file, (found.byte() + 1) * 8, is_deflated)?;
        }
        let stop = place.map_or(self.file.size(), Place::byte);
        if let Some((start, reason)) = self.gap.take().filter(|(start, _)| *start < stop || place.is_none()) {
            let next = place.map_or(String::new(), |place| format!("; the next part is {}", place.name()));
            self.parts.push_bytes(Outcome::Lost, start, stop, format!("{reason}{next}"));
            self.parts.next_record += 1;
        }
        if let Some(place) = place {
            if place.kind().is_some_and(|kind| kind != self.compression) {
                let reason = format!("{} in a file of another compression, packed as the rest", place.name());
                self.parts.push_bytes(Outcome::Repaired, place.byte(), place.byte(), reason);
            }
            self.parts.begin = Some(place.byte());
            self.frames.guess(matches!(place, Place::Block { .. }));
        }
        self.member_from = self.decoded;
        self.member_bit = self.member.as_ref().map_or(0, |member| member.position().0);
        self.mark();
        Ok(())
    }

    /// Remember the position in the file after the bytes that were decoded so far.
    fn mark(&mut self) {
        let Some(member) = &self.member else {
            return;
        };
        let (bit, is_stored) = member.position();
        let good = self.frames.good_end();
        while self.marks.get(1).is_some_and(|mark| mark.decoded <= good) {
            self.marks.pop_front();
        }
        self.marks.push_back(Mark { decoded: self.decoded, bit, is_stored });
    }

    /// Return a position at or before the end of the last whole record, and after the start of its last block.
    fn good_bit(&self) -> u64 {
        let good = self.frames.good_end();
        let mark = self.marks.iter().rev().find(|mark| mark.decoded <= good).copied();
        mark.map_or(0, |mark| mark.bit + if mark.is_stored { (good - mark.decoded) * 8 } else { 0 })
    }
}
