//! Records of two writers that appended to one file in blocks, so that a frame continues after blocks of the other writer.
//!
//! A frame with a right header and a wrong payload is completed by a later lost range, or by several. Tried are the places where
//! blocks can begin and end: the ends of the lost ranges, other headers in them, multiples of usual block sizes, and multiples
//! of the distances that were found before. A result counts only if the checksum of its payload is right. Each frame found
//! makes the lost ranges smaller, so that the next one has fewer places to continue. The number of checks is bounded.
#![deny(clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};

use crate::crc;
use crate::error::Result;
use crate::record::framing::{self, FOOTER_BYTES, HEADER_BYTES, OVERHEAD_BYTES};

use super::source::Source;
use super::{Content, Loss, Part};

/// Checksums that are computed without a result, for the whole file.
const MOST_CHECKS: u32 = 100_000;
/// Places that are tried without a result.
const MOST_TRIES: u32 = 4_000_000;
/// Lost ranges after a header in which its frame may continue.
const MOST_RANGES: usize = 16;
/// Headers in a range that may end a block.
const MOST_HEADERS: usize = 4;
/// Blocks of another writer between two blocks.
const MOST_BLOCKS: u64 = 3;
/// Block sizes that are remembered.
const MOST_GRIDS: usize = 4;
const BLOCK_SIZES: [u64; 13] =
    [4096, 8192, 512, 1024, 2048, 16_384, 32_768, 65_536, 131_072, 262_144, 524_288, 1_048_576, 1000];

type Range = (u64, u64);

/// Frames that were joined: the pieces of each, by the start of the first.
pub(super) type Joins = BTreeMap<u64, Vec<Range>>;

/// Distance and position of block boundaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Grid {
    block: u64,
    origin: u64,
}

impl Grid {
    fn after(&self, at: u64) -> u64 {
        at + self.block - (at + self.block - self.origin % self.block) % self.block
    }
}

struct Joiner<'a> {
    source: &'a mut Source,
    /// Lost ranges, by start.
    lost: BTreeMap<u64, u64>,
    torn: BTreeSet<u64>,
    grids: Vec<Grid>,
    joins: Joins,
    tries: u32,
    checks: u32,
}

/// Join the frames whose headers are at `torn`, and return the parts with them.
pub(super) fn join(source: &mut Source, parts: &mut Vec<Part>, torn: &[u64]) -> Result<Joins> {
    let Some(first) = torn.first() else { return Ok(Joins::new()) };
    source.restart(*first);
    let lost = lost_ranges(parts);
    let torn = torn.iter().copied().collect();
    let (grids, joins) = Default::default();
    let mut joiner = Joiner { source, lost, torn, grids, joins, tries: MOST_TRIES, checks: MOST_CHECKS };
    joiner.pass(joiner.torn.clone())?;
    let mut found = 0;
    while found < joiner.joins.len() {
        found = joiner.joins.len();
        let starts = joiner.lost.keys().copied();
        joiner.pass(starts.chain(joiner.torn.iter().copied()).collect())?;
    }
    let joins = joiner.joins;
    if !joins.is_empty() {
        *parts = with_joins(parts, &joins);
    }
    Ok(joins)
}

fn lost_ranges(parts: &[Part]) -> BTreeMap<u64, u64> {
    let mut lost: BTreeMap<u64, u64> = BTreeMap::new();
    for part in parts.iter().filter(|part| matches!(part.content, Content::Lost(_))) {
        match lost.last_entry() {
            Some(mut last) if *last.get() == part.start => *last.get_mut() = part.end,
            _ => {
                lost.insert(part.start, part.end);
            }
        }
    }
    lost
}

impl Joiner<'_> {
    fn pass(&mut self, mut starts: BTreeSet<u64>) -> Result<()> {
        while let Some(start) = starts.pop_first()
            && self.checks > 0
            && self.tries > 0
        {
            let before = (self.tries, self.checks);
            if let Some(pieces) = self.continued(start)? {
                (self.tries, self.checks) = before;
                starts.extend(pieces.last().map(|piece| piece.1));
                for (start, end) in &pieces {
                    self.take(*start, *end);
                }
                self.joins.insert(start, pieces);
            }
        }
        Ok(())
    }

    /// Return the pieces of the frame that starts here.
    fn continued(&mut self, start: u64) -> Result<Option<Vec<Range>>> {
        let Some((_, end)) = self.range_of(start) else { return Ok(None) };
        for stop in self.ends(start, end) {
            for next in self.continuations(stop) {
                if let Some(pieces) = self.joined(start, stop, next)? {
                    self.learn(&pieces);
                    return Ok(Some(pieces));
                }
            }
        }
        Ok(None)
    }

    /// Return the lost range that contains a byte.
    fn range_of(&self, at: u64) -> Option<Range> {
        let (start, end) = self.lost.range(..=at).next_back()?;
        (at < *end).then_some((*start, *end))
    }

    /// Return where the first piece may end, the most likely place first.
    fn ends(&self, start: u64, end: u64) -> Vec<u64> {
        let headers = self.torn.range(start + 1..).take(MOST_HEADERS).copied();
        let grids = self.grids.iter().map(|grid| grid.after(start));
        let usual = BLOCK_SIZES.map(|block| Grid { block, origin: 0 }.after(start));
        let mut ends = vec![end];
        for stop in headers.chain(grids).chain(usual) {
            if stop < end && !ends.contains(&stop) {
                ends.push(stop);
            }
        }
        ends
    }

    /// Return where the frame may continue after `stop`: start, and size of a block if more than one follows.
    fn continuations(&self, stop: u64) -> Vec<Next> {
        let mut nexts = Vec::new();
        let first = self.lost.range(..=stop).next_back().filter(|(_, end)| **end > stop);
        let inner = first.map(|(_, end)| (stop, *end));
        let later = self.lost.range(stop + 1..).map(|(start, end)| (*start, *end));
        for range in inner.into_iter().chain(later).take(MOST_RANGES) {
            nexts.push(Next::EndingAt(range.1));
            nexts.push(Next::At(range.0));
            nexts.extend(self.grids.iter().map(|grid| Next::At(grid.after(range.0))));
        }
        for block in self.grids.iter().map(|grid| grid.block).chain(BLOCK_SIZES) {
            nexts.extend((1..=MOST_BLOCKS).map(|blocks| Next::Blocks { block, gap: block * blocks }));
        }
        nexts
    }

    /// Return the pieces if they are a whole frame.
    fn joined(&mut self, start: u64, stop: u64, next: Next) -> Result<Option<Vec<Range>>> {
        self.tries = self.tries.saturating_sub(1);
        let Some(size) = self.frame_size(start, stop, next)? else { return Ok(None) };
        let Some(mut rest) = size.checked_sub(stop - start).filter(|rest| *rest > 0) else { return Ok(None) };
        let mut pieces = vec![(start, stop)];
        let (mut at, block, gap) = match next {
            Next::EndingAt(end) => match end.checked_sub(rest) {
                Some(at) => (at, rest, 0),
                None => return Ok(None),
            },
            Next::At(at) => (at, rest, 0),
            Next::Blocks { block, gap } => (stop.saturating_add(gap), block, gap),
        };
        while rest > 0 {
            let piece = (at, at.saturating_add(rest.min(block)));
            if at <= stop || self.range_of(at).is_none_or(|range| piece.1 > range.1) {
                return Ok(None);
            }
            pieces.push(piece);
            rest -= piece.1 - piece.0;
            at = piece.1.saturating_add(gap);
        }
        if self.checks == 0 {
            return Ok(None);
        }
        self.checks -= 1;
        Ok(self.is_whole(&pieces, size)?.then_some(pieces))
    }

    /// Return the size of the frame; its header may continue in the next piece.
    fn frame_size(&mut self, start: u64, stop: u64, next: Next) -> Result<Option<u64>> {
        let have = (stop - start).min(HEADER_BYTES as u64);
        let missing = HEADER_BYTES as u64 - have;
        let at = match next {
            _ if missing == 0 => stop,
            Next::EndingAt(_) => return Ok(None),
            Next::At(at) => at,
            Next::Blocks { gap, .. } => stop.saturating_add(gap),
        };
        if at.checked_add(missing).is_none_or(|end| end > self.source.size) {
            return Ok(None);
        }
        let pieces = [(start, start + have), (at, at + missing)];
        let header = self.bytes(&pieces)?;
        let length = header.first_chunk().and_then(framing::length_of);
        Ok(length
            .and_then(|length| length.checked_add(OVERHEAD_BYTES))
            .filter(|size| *size <= self.source.size))
    }

    fn bytes(&mut self, pieces: &[Range]) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for (start, end) in pieces.iter().filter(|piece| piece.0 < piece.1) {
            bytes.extend_from_slice(self.source.far_bytes(*start, (end - start) as usize)?);
        }
        Ok(bytes)
    }

    fn is_whole(&mut self, pieces: &[Range], size: u64) -> Result<bool> {
        let stored = self.bytes(&part_of(pieces, size - FOOTER_BYTES as u64, size))?;
        let mut sum = 0;
        for (start, end) in part_of(pieces, HEADER_BYTES as u64, size - FOOTER_BYTES as u64) {
            sum = crc::crc32c_shifted(sum, end - start) ^ self.source.crc(start, end)?;
        }
        Ok(stored == crc::mask(sum).to_le_bytes())
    }

    /// Remember the distances between the pieces.
    fn learn(&mut self, pieces: &[Range]) {
        for pair in pieces.windows(2) {
            if let [(_, stop), (next, _)] = pair
                && let Some(block) = next.checked_sub(*stop).filter(|block| *block > 0)
            {
                let grid = Grid { block, origin: stop % block };
                self.grids.retain(|other| *other != grid);
                self.grids.insert(0, grid);
                self.grids.truncate(MOST_GRIDS);
            }
        }
    }

    /// Remove a piece from the lost ranges.
    fn take(&mut self, start: u64, end: u64) {
        let Some((from, until)) = self.range_of(start) else { return };
        self.lost.remove(&from);
        for (start, end) in [(from, start), (end, until)] {
            if start < end {
                self.lost.insert(start, end);
            }
        }
    }
}

/// Where a frame may continue.
#[derive(Debug, Clone, Copy)]
enum Next {
    /// With its last piece, which ends there.
    EndingAt(u64),
    /// With its last piece.
    At(u64),
    /// With blocks, after each gap.
    Blocks { block: u64, gap: u64 },
}

/// Return the pieces of the bytes `from..to` of a frame.
fn part_of(pieces: &[Range], from: u64, to: u64) -> Vec<Range> {
    let mut before = 0;
    let mut part = Vec::new();
    for (start, end) in pieces {
        let size = end - start;
        let (first, last) = (from.max(before), to.min(before + size));
        if first < last {
            part.push((start + first - before, start + last - before));
        }
        before += size;
    }
    part
}

/// Return the parts of a file, of which some lost ranges are pieces of frames.
fn with_joins(parts: &[Part], joins: &Joins) -> Vec<Part> {
    let mut pieces: BTreeMap<u64, (u64, Content)> = BTreeMap::new();
    for (frame, ranges) in joins {
        for (start, end) in ranges {
            let content = match start == frame {
                true => Content::Joined { pieces: ranges.len() },
                false => Content::Continued { frame: *frame },
            };
            pieces.insert(*start, (*end, content));
        }
    }
    let mut result = Vec::with_capacity(parts.len() + pieces.len());
    for part in parts {
        if !matches!(part.content, Content::Lost(_)) {
            result.push(*part);
            continue;
        }
        // A piece may have begun in the part before.
        let mut at = result.last().map_or(part.start, |last: &Part| last.end).max(part.start);
        let here = || pieces.range(part.start..part.end);
        let joined = here().filter(|(start, _)| joins.contains_key(start)).count();
        let mut items = part.items.saturating_sub(joined as u64);
        for (start, (end, content)) in here() {
            if at < *start {
                result.push(lost(part, at, *start, std::mem::take(&mut items)));
            }
            let items = u64::from(joins.contains_key(start));
            result.push(Part { start: *start, end: *end, record: part.record, items, content: *content });
            at = *end;
        }
        if at < part.end {
            result.push(lost(part, at, part.end, items));
        }
    }
    result
}

/// Return a range of a part of which other bytes are pieces of frames.
fn lost(part: &Part, start: u64, end: u64, items: u64) -> Part {
    let content = match part.content {
        Content::Lost(Loss::Payload | Loss::Cut) if items == 0 => Content::Lost(Loss::Unknown),
        content => content,
    };
    Part { start, end, items, content, ..*part }
}
