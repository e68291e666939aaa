//! Object headers of which parts may be damaged.

use std::collections::HashSet;

use crate::format::cursor::{Cursor, Known, NotKnown};
use crate::format::object_header::{Message, kind};
use crate::salvage::correction::LARGEST_BYTES;
use crate::salvage::reader::{Reader, flip, is_right};

const WHAT: &str = "object header";
const CONTINUATION: &str = "continuation of an object header";
const MOST_CONTINUATIONS: usize = 1 << 16;
/// Bytes before the messages of a header of version 1.
pub(crate) const OLD_PREFIX_BYTES: usize = 16;
/// Most bytes before the messages of a header of version 2.
const PREFIX_BYTES: usize = 38;

/// The messages of an object.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    /// Version 2 has checksums.
    pub(crate) version: u8,
    pub(crate) messages: Vec<Message>,
    /// Offset and size of each part.
    pub(crate) extents: Vec<(u64, u64)>,
    /// False if a continuation is lost, or a header of version 1 states another number of messages.
    pub(crate) is_whole: bool,
}

/// What precedes the messages of a header of version 2.
struct Prefix {
    bytes: usize,
    /// Bytes of the messages.
    length: usize,
    numbered: bool,
}

impl Prefix {
    fn parse(start: &[u8]) -> Known<Self> {
        let mut cursor = Cursor::new(start);
        cursor.expect(b"OHDR\x02", "not an object header")?;
        let flags = cursor.u8()?;
        if flags & 0xc0 != 0 {
            return Err(NotKnown("flags that do not exist"));
        }
        let times = if flags & 0x20 != 0 { 4 * 4 } else { 0 };
        cursor.take(times + if flags & 0x10 != 0 { 2 * 2 } else { 0 })?;
        let length = cursor.length(1 << (flags & 3))?;
        Ok(Self { bytes: start.len() - cursor.rest().len(), length, numbered: flags & 4 != 0 })
    }

    fn all_bytes(&self) -> usize {
        self.length.saturating_add(self.bytes + 4)
    }
}

impl Header {
    /// Read the header at an address; None if it is damaged, which is noted.
    pub(crate) fn read(reader: &Reader<'_>, address: u64) -> Option<Self> {
        let found = Self::read_start(reader, address);
        match &found {
            Some(header) => {
                header.use_extents(reader);
                if header.version == 1 && !header.is_whole {
                    reader.note(WHAT, address, header.extents.first().map_or(0, |(_, size)| *size), None);
                }
            }
            None => reader.note(WHAT, address, OLD_PREFIX_BYTES as u64, None),
        }
        found
    }

    /// Note that the bytes of the header are metadata.
    pub(crate) fn use_extents(&self, reader: &Reader<'_>) {
        for (offset, size) in &self.extents {
            reader.use_bytes(offset.saturating_sub(reader.base), *size);
        }
    }

    /// Read a header that may not be one: nothing is noted if it is not.
    pub(crate) fn read_if_whole(reader: &Reader<'_>, address: u64) -> Option<Self> {
        let start = reader.read_some(address, PREFIX_BYTES)?;
        let is_one = match Prefix::parse(&start) {
            Ok(prefix) => is_right(&reader.read(address, prefix.all_bytes())?),
            Err(_) => start.first() == Some(&1),
        };
        if is_one { Self::read_start(reader, address) } else { None }
    }

    fn read_start(reader: &Reader<'_>, address: u64) -> Option<Self> {
        let start = reader.read_some(address, PREFIX_BYTES)?;
        match start.first_chunk::<2>()? {
            [1, 0] => Self::read_old(reader, address, &start),
            _ => Self::read_new(reader, address, start),
        }
    }

    fn read_new(reader: &Reader<'_>, address: u64, mut start: Vec<u8>) -> Option<Self> {
        let wrong: u32 = start.iter().zip(b"OHDR\x02").map(|(one, other)| (one ^ other).count_ones()).sum();
        if wrong > 1 {
            return None;
        }
        if !Self::is_right_from(reader, address, &start) {
            let bit = Self::flipped_bit(reader, address, &start)?;
            flip(&mut start, bit);
            let length = Prefix::parse(&start).ok()?.all_bytes();
            reader.note(WHAT, address, length as u64, Some(bit as u64));
            let mut all = reader.read(address, length)?;
            flip(&mut all, bit);
            return Self::of_new(reader, address, &all);
        }
        let all = reader.read(address, Prefix::parse(&start).ok()?.all_bytes())?;
        Self::of_new(reader, address, &all)
    }

    /// Return true if the header has its checksum; `start` replaces its first bytes.
    fn is_right_from(reader: &Reader<'_>, address: u64, start: &[u8]) -> bool {
        let Ok(prefix) = Prefix::parse(start) else { return false };
        let Some(mut all) = reader.read(address, prefix.all_bytes()) else { return false };
        for (byte, changed) in all.iter_mut().zip(start) {
            *byte = *changed;
        }
        is_right(&all)
    }

    /// Return the only bit whose flip makes the checksum right; a flip in the prefix may change the length.
    fn flipped_bit(reader: &Reader<'_>, address: u64, start: &[u8]) -> Option<usize> {
        let bytes = Prefix::parse(start).map_or(PREFIX_BYTES, |prefix| prefix.bytes);
        let mut found = None;
        let mut changed = start.to_vec();
        for bit in 0..8 * bytes {
            flip(&mut changed, bit);
            let short = Prefix::parse(&changed).is_ok_and(|prefix| prefix.all_bytes() <= LARGEST_BYTES);
            if short && Self::is_right_from(reader, address, &changed) && found.replace(bit).is_some() {
                return None;
            }
            flip(&mut changed, bit);
        }
        if let Ok(prefix) = Prefix::parse(start)
            && prefix.all_bytes() <= LARGEST_BYTES
            && let Some(bit) = reader.flipped_bit(&reader.read(address, prefix.all_bytes())?)
            && found.replace(bit).is_some_and(|other| other != bit)
        {
            return None;
        }
        found
    }

    /// Parse a header of version 2 whose checksum is right.
    fn of_new(reader: &Reader<'_>, address: u64, all: &[u8]) -> Option<Self> {
        let prefix = Prefix::parse(all).ok()?;
        let mut found = Self { version: 2, messages: Vec::new(), extents: Vec::new(), is_whole: true };
        found.extend_by(reader, address, all.len());
        found.add(all.get(prefix.bytes..prefix.bytes + prefix.length)?, prefix.numbered);
        let numbered = prefix.numbered;
        found.follow(reader, address, |found, at, length| {
            let part = reader.read_checked(CONTINUATION, b"OCHK", at, length);
            if let Some(part) = &part {
                found.add(part.get(4..).unwrap_or_default(), numbered);
            }
            part.is_some()
        });
        Some(found)
    }

    fn read_old(reader: &Reader<'_>, address: u64, start: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(start.get(2..)?);
        let expected = usize::from(cursor.u16().ok()?);
        cursor.take(4).ok()?;
        let length = cursor.length(4).ok()?;
        let all = reader.read(address, length.checked_add(OLD_PREFIX_BYTES)?)?;
        let mut found = Self { version: 1, messages: Vec::new(), extents: Vec::new(), is_whole: true };
        found.extend_by(reader, address, all.len());
        found.add_old(all.get(OLD_PREFIX_BYTES..)?);
        found.follow(reader, address, |found, at, length| {
            let part = reader.read(at, length);
            if let Some(part) = &part {
                found.extend_by(reader, at, length);
                found.add_old(part);
            }
            part.is_some()
        });
        found.is_whole &= found.messages.len() == expected;
        Some(found)
    }

    /// Read the continuations.
    fn follow(
        &mut self,
        reader: &Reader<'_>,
        address: u64,
        mut add: impl FnMut(&mut Self, u64, usize) -> bool,
    ) {
        let mut seen = HashSet::from([address]);
        let mut done = 0;
        while let Some(message) = self.messages.get(done) {
            done += 1;
            if message.kind != kind::CONTINUATION {
                continue;
            }
            let mut cursor = Cursor::new(&message.data);
            let place = reader.address(&mut cursor).zip(cursor.length(reader.length_width).ok());
            let is_read = place.is_some_and(|(at, length)| {
                seen.len() < MOST_CONTINUATIONS && seen.insert(at) && add(self, at, length)
            });
            self.is_whole &= is_read;
        }
    }

    fn extend_by(&mut self, reader: &Reader<'_>, address: u64, length: usize) {
        self.extents.push((reader.offset_of(address), length as u64));
    }

    fn add_old(&mut self, bytes: &[u8]) {
        let mut cursor = Cursor::new(bytes);
        while !cursor.rest().is_empty() {
            let message = (|| {
                let (kind, length, flags) = (cursor.u16()?, cursor.u16()?, cursor.u8()?);
                cursor.take(3)?;
                Known::Ok(Message { kind, flags, data: cursor.take(length.into())?.to_vec() })
            })();
            let Ok(message) = message else {
                self.is_whole = false;
                return;
            };
            self.messages.push(message);
        }
    }

    fn add(&mut self, bytes: &[u8], numbered: bool) {
        let mut cursor = Cursor::new(bytes);
        let head = if numbered { 6 } else { 4 };
        // A rest that is shorter than the head of a message is a gap.
        while cursor.rest().len() >= head {
            let message = (|| {
                let (kind, length, flags) = (cursor.u8()?.into(), cursor.u16()?, cursor.u8()?);
                cursor.take(head - 4)?;
                Known::Ok(Message { kind, flags, data: cursor.take(length.into())?.to_vec() })
            })();
            let Ok(message) = message else {
                self.is_whole = false;
                return;
            };
            self.messages.push(message);
        }
    }

    pub(crate) fn has(&self, kind: u16) -> bool {
        self.messages.iter().any(|message| message.kind == kind)
    }

    /// Return the data of the first message of a kind, also where it is shared by a named type.
    pub(crate) fn first(&self, reader: &Reader<'_>, kind: u16) -> Option<Vec<u8>> {
        let message = self.messages.iter().find(|message| message.kind == kind)?;
        if message.is_shared() { shared(reader, &message.data, kind) } else { Some(message.data.clone()) }
    }
}

/// Return the data of a message that another object header has.
pub(crate) fn shared(reader: &Reader<'_>, data: &[u8], kind: u16) -> Option<Vec<u8>> {
    const IN_HEADER: u8 = 2;
    let mut cursor = Cursor::new(data);
    let (version, place) = (cursor.u8().ok()?, cursor.u8().ok()?);
    match version {
        1 => drop(cursor.take(6).ok()?),
        2 => {}
        3 if place == IN_HEADER => {}
        _ => return None,
    }
    let header = Header::read(reader, reader.address(&mut cursor)?)?;
    let message = header.messages.into_iter().find(|message| message.kind == kind)?;
    if message.is_shared() { None } else { Some(message.data) }
}
