//! Places of a file at which decoding can begin.
#![deny(clippy::indexing_slicing)]

use super::bits::Bits;
use super::deflate_member::DeflateMember;
use super::file_bytes::FileBytes;
use super::inflate::{self, Beginning};
use crate::error::Result;
use crate::record::framing::{self, FOOTER_BYTES, HEADER_BYTES, OVERHEAD_BYTES};
use crate::record::stream::Compression;

/// More than the header of a block takes, and the largest stored block with the header after it.
const MARGIN_BYTES: usize = 1024;
const STORED_MARGIN_BYTES: usize = (64 << 10) + MARGIN_BYTES;
/// Largest header of a gzip member, with its name and comment.
const GZIP_HEADER_BYTES: usize = 256 << 10;
const LARGEST_FRAME_BYTES: u64 = 1 << 30;

/// A beginning of decodable bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Gzip {
        at: u64,
        content: u64,
    },
    Zlib {
        at: u64,
    },
    Zstd {
        at: u64,
    },
    Skippable {
        at: u64,
        next: u64,
    },
    /// A block of a deflate stream, after an unknown window.
    Block {
        bit: u64,
    },
    /// A record that is not compressed.
    Plain {
        at: u64,
    },
}

impl Place {
    pub(super) fn byte(self) -> u64 {
        match self {
            Self::Gzip { at, .. }
            | Self::Zlib { at }
            | Self::Zstd { at }
            | Self::Skippable { at, .. }
            | Self::Plain { at } => at,
            Self::Block { bit } => bit / 8,
        }
    }

    pub(super) fn kind(self) -> Option<Compression> {
        match self {
            Self::Gzip { .. } => Some(Compression::Gzip),
            Self::Zlib { .. } => Some(Compression::Zlib),
            Self::Zstd { .. } | Self::Skippable { .. } => Some(Compression::Zstd),
            Self::Plain { .. } => Some(Compression::None),
            Self::Block { .. } => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gzip { .. } => "a gzip member",
            Self::Zlib { .. } => "a zlib stream",
            Self::Zstd { .. } | Self::Skippable { .. } => "a zstd frame",
            Self::Plain { .. } => "records without compression",
            Self::Block { .. } => "a block of the stream, without the bytes before it",
        }
    }
}

/// Return the place that begins exactly at `at`; a block cannot be recognised there.
pub(super) fn at(file: &mut FileBytes, at: u64) -> Result<Option<Place>> {
    let size = file.size();
    // A record may begin as a magic number does.
    if whole_frame(file, at)?.is_some() {
        return Ok(Some(Place::Plain { at }));
    }
    let head = file.ahead(at, MARGIN_BYTES)?;
    Ok(match head {
        [0x1f, 0x8b, 8, ..] => {
            let head = file.ahead(at, GZIP_HEADER_BYTES)?;
            let content = gzip_header(head).filter(|bytes| *bytes as u64 <= size - at);
            content.map(|bytes| Place::Gzip { at, content: at + bytes as u64 })
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Place::Zstd { at }),
        [low, 0x2a, 0x4d, 0x18, a, b, c, d, ..] if low >> 4 == 5 => {
            let next = at + 8 + u64::from(u32::from_le_bytes([*a, *b, *c, *d]));
            (next <= size).then_some(Place::Skippable { at, next })
        }
        _ => (Compression::sniff(head) == Compression::Zlib).then_some(Place::Zlib { at }),
    })
}

/// Return the first place from a bit on; None to the end of the file. Blocks are searched if the file is deflated.
pub(super) fn search(file: &mut FileBytes, from_bit: u64, is_deflated: bool) -> Result<Option<Place>> {
    let mut at = from_bit / 8;
    let mut first_bit = from_bit % 8;
    while at < file.size() {
        let size = file.size();
        let ahead = file.ahead(at, 4 * STORED_MARGIN_BYTES)?;
        let is_end = at + ahead.len() as u64 >= size;
        let count = if is_end { ahead.len() } else { ahead.len() - STORED_MARGIN_BYTES };
        let mut candidate = None;
        for place in 0..count {
            let Some(rest) = ahead.get(place..) else {
                break;
            };
            let first_bit = if place == 0 { first_bit } else { 0 };
            let bit = (at + place as u64) * 8;
            if first_bit == 0 && is_likely(rest, size - at) {
                candidate = Some((place, None));
                break;
            }
            if is_deflated && let Some(found) = (first_bit..8).find(|offset| is_block(rest, *offset as usize))
            {
                candidate = Some((place, Some(Place::Block { bit: bit + found })));
                break;
            }
        }
        let Some((place, found)) = candidate else {
            at += count as u64;
            first_bit = 0;
            continue;
        };
        at += place as u64;
        let found = match found {
            None => certain(file, at, is_deflated)?,
            found => found,
        };
        if found.is_some() {
            return Ok(found);
        }
        // The bits of this byte were not searched.
        let rest = file.ahead(at, STORED_MARGIN_BYTES)?;
        if is_deflated && let Some(offset) = (0..8).find(|offset| is_block(rest, *offset)) {
            return Ok(Some(Place::Block { bit: at * 8 + offset as u64 }));
        }
        at += 1;
        first_bit = 0;
    }
    Ok(None)
}

/// Return true if more than chance says that one of the kinds of [`certain`] begins here.
#[inline]
fn is_likely(rest: &[u8], left: u64) -> bool {
    match rest {
        [0x1f, 0x8b, 8, ..] | [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x78, 0x01 | 0x5e | 0x9c | 0xda, ..] => true,
        [0x00, 0x00, 0xff, 0xff, ..] => true,
        [low, 0x2a, 0x4d, 0x18, ..] => low >> 4 == 5,
        [a, b, c, d, e, f, g, h, ..] => {
            u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]) <= left
                && rest.first_chunk().is_some_and(|header| framing::length_of(header).is_some())
        }
        _ => false,
    }
}

fn certain(file: &mut FileBytes, at: u64, is_deflated: bool) -> Result<Option<Place>> {
    let head = file.ahead(at, MARGIN_BYTES)?;
    if is_deflated && head.starts_with(&[0, 0, 0xff, 0xff]) {
        // The end of a flush; a block begins at the next byte.
        return Ok(Some(Place::Block { bit: (at + 4) * 8 }));
    }
    if head.first() == Some(&0x78) {
        let found = self::at(file, at)?;
        let rest = file.ahead(at, STORED_MARGIN_BYTES)?.get(2..).unwrap_or_default();
        let is_certain = found.is_some() && (is_block(rest, 0) || DeflateMember::is_whole_zlib(file, at)?);
        return Ok(found.filter(|_| is_certain));
    }
    self::at(file, at)
}

/// Return true if a block begins at a bit of `rest`.
#[inline]
fn is_block(rest: &[u8], offset: usize) -> bool {
    let Some(word) = rest.first_chunk::<4>().map(|word| u32::from_le_bytes(*word) >> offset) else {
        return false;
    };
    // The type, and for dynamic codes the numbers of lengths; most bits fail here.
    let may_be = match word >> 1 & 3 {
        0 => u32::from_le_bytes([rest.first().copied().unwrap_or(1), 0, 0, 0]) >> offset >> 3 == 0,
        2 => word >> 3 & 31 <= 29 && word >> 8 & 31 <= 29,
        _ => false,
    };
    if !may_be {
        return false;
    }
    let mut bits = Bits::new(rest, offset);
    match inflate::may_begin(&mut bits) {
        Some(Beginning::Dynamic) => !bits.is_past_end(),
        // A last one has no block after it, which would prove it.
        Some(Beginning::Stored(size)) if word & 1 == 0 => {
            bits.skip(8 * size as u32);
            !bits.is_past_end() && inflate::may_begin(&mut bits).is_some() && !bits.is_past_end()
        }
        _ => false,
    }
}

/// Return the size of a whole record that is not compressed.
pub(super) fn whole_frame(file: &mut FileBytes, at: u64) -> Result<Option<usize>> {
    let left = file.size() - at.min(file.size());
    let header = file.ahead(at, HEADER_BYTES)?;
    let Some(length) = header.first_chunk().and_then(framing::length_of) else {
        return Ok(None);
    };
    let size = length.saturating_add(OVERHEAD_BYTES);
    if size > left.min(LARGEST_FRAME_BYTES) {
        return Ok(None);
    }
    let size = size as usize;
    let ahead = file.ahead(at, size)?;
    let whole = ahead.get(HEADER_BYTES..size).and_then(|rest| rest.split_last_chunk::<FOOTER_BYTES>());
    Ok(whole.filter(|(payload, footer)| framing::check_payload(payload, **footer).is_ok()).map(|_| size))
}

/// Return the size of the header of a gzip member (RFC 1952); None for an invalid one.
fn gzip_header(head: &[u8]) -> Option<usize> {
    let [0x1f, 0x8b, 8, flags, _, _, _, _, _, _, rest @ ..] = head else {
        return None;
    };
    if flags & 0xe0 != 0 {
        return None;
    }
    let mut rest = rest;
    if flags & 4 != 0 {
        let (length, more) = rest.split_first_chunk()?;
        rest = more.get(usize::from(u16::from_le_bytes(*length))..)?;
    }
    for flag in [8, 16] {
        if flags & flag != 0 {
            let end = rest.iter().position(|byte| *byte == 0)?;
            rest = rest.get(end + 1..)?;
        }
    }
    if flags & 2 != 0 {
        rest = rest.get(2..)?;
    }
    Some(head.len() - rest.len())
}
