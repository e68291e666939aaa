//! A part of a file that is decoded from its beginning: a gzip member, a zlib stream, a zstd frame, plain records.
#![deny(clippy::indexing_slicing)]

use super::deflate_member::DeflateMember;
use super::file_bytes::FileBytes;
use super::places::{self, Place};
use super::zstd_member::ZstdMember;
use crate::error::Result;
use crate::record::stream::Compression;

/// The result of decoding for a while.
#[derive(Debug)]
pub(super) enum Event {
    /// Bytes are fresh.
    Data,
    /// Some bytes are lost, and the next ones may refer to them.
    Lost {
        start: u64,
        stop: u64,
        reason: String,
    },
    Ended {
        next: u64,
        trailer: Option<Trailer>,
    },
    /// Nothing more can be decoded. The next beginning is searched from a bit on.
    Broken {
        search_bit: u64,
        reason: String,
    },
}

/// A wrong or missing trailer.
#[derive(Debug)]
pub(super) struct Trailer {
    pub(super) start: u64,
    pub(super) stop: u64,
    pub(super) reason: String,
    /// True if more bytes may have been there.
    pub(super) is_lossy: bool,
}

#[derive(Debug)]
pub(super) enum Member {
    Deflate(Box<DeflateMember>),
    Zstd(Box<ZstdMember>),
    /// Whole records that are not compressed, `size` bytes of which are fresh.
    Plain {
        at: u64,
        fresh: Vec<u8>,
    },
    /// A skippable frame of zstd.
    Skipped {
        next: u64,
    },
}

impl Member {
    /// Begin at a place; `kind` is the compression of a block in the middle of a stream.
    pub(super) fn begin(file: &mut FileBytes, place: Place, kind: Compression) -> Result<Option<Self>> {
        Ok(Some(match place {
            Place::Gzip { at, content } => {
                Self::Deflate(Box::new(DeflateMember::whole(Compression::Gzip, at, content)))
            }
            Place::Zlib { at } => {
                Self::Deflate(Box::new(DeflateMember::whole(Compression::Zlib, at, at + 2)))
            }
            Place::Block { bit } => Self::Deflate(Box::new(DeflateMember::rest(kind, bit))),
            Place::Zstd { at } => match ZstdMember::begin(file, at)? {
                Some(member) => Self::Zstd(Box::new(member)),
                None => return Ok(None),
            },
            Place::Skippable { next, .. } => Self::Skipped { next },
            Place::Plain { at } => Self::Plain { at, fresh: Vec::new() },
        }))
    }

    pub(super) fn fresh(&self) -> &[u8] {
        match self {
            Self::Deflate(member) => member.fresh(),
            Self::Zstd(member) => member.fresh(),
            Self::Plain { fresh, .. } => fresh,
            Self::Skipped { .. } => &[],
        }
    }

    /// Forget the fresh bytes.
    pub(super) fn take(&mut self) {
        match self {
            Self::Deflate(member) => member.take(),
            Self::Zstd(member) => member.take(),
            Self::Plain { fresh, .. } => fresh.clear(),
            Self::Skipped { .. } => {}
        }
    }

    /// Return the next bit to be decoded, and true if bytes are stored there as they are.
    pub(super) fn position(&self) -> (u64, bool) {
        match self {
            Self::Deflate(member) => member.position(),
            Self::Zstd(member) => (member.position() * 8, false),
            Self::Plain { at, .. } => (at * 8, true),
            Self::Skipped { next } => (next * 8, false),
        }
    }

    pub(super) fn advance(&mut self, file: &mut FileBytes, has_records: bool) -> Result<Event> {
        match self {
            Self::Deflate(member) => member.advance(file, has_records),
            Self::Zstd(member) => member.advance(file),
            Self::Plain { at, fresh } => Ok(match places::whole_frame(file, *at)? {
                Some(size) => {
                    let ahead = file.ahead(*at, size)?;
                    fresh.extend_from_slice(ahead.get(..size).unwrap_or(ahead));
                    *at += size as u64;
                    Event::Data
                }
                None => Event::Ended { next: *at, trailer: None },
            }),
            Self::Skipped { next } => Ok(Event::Ended { next: *next, trailer: None }),
        }
    }
}
