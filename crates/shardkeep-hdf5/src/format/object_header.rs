//! The messages of an object: header versions 1 and 2, with their continuations.

use std::collections::HashSet;

use crate::format::cursor::{Cursor, Known, NotKnown, Unread};
use crate::format::file::{File, Storage};
use crate::format::lookup3::checked;

/// Kinds of messages that this reader uses.
pub mod kind {
    pub const DATASPACE: u16 = 0x01;
    pub const LINK_INFO: u16 = 0x02;
    pub const DATATYPE: u16 = 0x03;
    pub const LINK: u16 = 0x06;
    pub const LAYOUT: u16 = 0x08;
    pub const FILTERS: u16 = 0x0b;
    pub const ATTRIBUTE: u16 = 0x0c;
    pub const CONTINUATION: u16 = 0x10;
    pub const SYMBOL_TABLE: u16 = 0x11;
    pub const ATTRIBUTE_INFO: u16 = 0x15;
    /// The last kind of HDF5 2.0.
    pub const LAST: u16 = 0x18;
}

/// Largest size of a header; only objects with thousands of attributes have more.
const MOST_BYTES: usize = 16 << 20;
const OLD_PREFIX_BYTES: usize = 16;

/// A message of an object header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub kind: u16,
    pub flags: u8,
    pub data: Vec<u8>,
}

/// The messages of an object.
#[derive(Debug, Clone)]
pub struct ObjectHeader {
    messages: Vec<Message>,
}

impl Message {
    /// Return true if the message is stored elsewhere, for several objects.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        const SHARED: u8 = 0x02;
        self.flags & SHARED != 0
    }
}

impl ObjectHeader {
    /// Read a header whose messages are all of known kinds.
    ///
    /// # Errors
    /// The header is damaged, or its version or a message is not known.
    pub fn read<S: Storage + ?Sized>(file: &File<'_, S>, address: u64) -> Known<Self> {
        let (found, expected) = Self::read_any(file, address)?;
        if found.messages.iter().any(|message| message.kind > kind::LAST) {
            return Err(NotKnown("a message of an unknown kind"));
        }
        if expected.is_some_and(|expected| expected != found.messages.len()) {
            return Err(NotKnown("another number of messages than the header says"));
        }
        Ok(found)
    }

    /// Read a header whose messages may be of unknown kinds, and the number of messages that it states (version 1).
    ///
    /// # Errors
    /// As `read`, except for unknown kinds.
    pub fn read_any<S: Storage + ?Sized>(file: &File<'_, S>, address: u64) -> Known<(Self, Option<usize>)> {
        Self::read_chunks(file, address).map_err(|error| error.at(file.offset_of(address)))
    }

    fn read_chunks<S: Storage + ?Sized>(file: &File<'_, S>, address: u64) -> Known<(Self, Option<usize>)> {
        let start = file.start(address)?;
        let mut found = if start.starts_with(b"OHDR") {
            Chunks::new(file, start, address)?
        } else {
            Chunks::old(file, start, address)?
        };
        let mut done = 0;
        let mut seen = HashSet::from([address]);
        while let Some((address, length)) = found.continuations.get(done).copied() {
            done += 1;
            if !seen.insert(address) {
                return Err(Unread::damaged("a header that continues in a circle"));
            }
            found.continuation(address, length).map_err(|error| error.at(file.offset_of(address)))?;
        }
        Ok((Self { messages: found.messages }, found.expected))
    }

    /// Return the messages in their order.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Return the data of the first message of a kind, which HDF5 uses; None if there is none.
    ///
    /// # Errors
    /// The message is shared with other objects.
    pub fn first(&self, kind: u16) -> Known<Option<&[u8]>> {
        match self.messages.iter().find(|message| message.kind == kind) {
            Some(message) if message.is_shared() => Err(NotKnown("a shared message")),
            found => Ok(found.map(|message| message.data.as_slice())),
        }
    }

    /// Return the data of the first message of a kind, which must exist.
    ///
    /// # Errors
    /// There is none, or it is shared.
    pub fn need(&self, kind: u16) -> Known<&[u8]> {
        self.first(kind)?.ok_or(NotKnown("a message is missing"))
    }

    /// Return true if there is a message of a kind, shared or not.
    #[must_use]
    pub fn has(&self, kind: u16) -> bool {
        self.messages.iter().any(|message| message.kind == kind)
    }
}

/// A header whose chunks are being read.
struct Chunks<'a, 'b, S: Storage + ?Sized> {
    file: &'a File<'b, S>,
    messages: Vec<Message>,
    /// Address and length of all continuations so far.
    continuations: Vec<(u64, usize)>,
    bytes: usize,
    /// Number of messages that a header of version 1 states.
    expected: Option<usize>,
    /// True if each message has a number (version 2).
    numbered: bool,
}

impl<'a, 'b, S: Storage + ?Sized> Chunks<'a, 'b, S> {
    fn old(file: &'a File<'b, S>, start: Vec<u8>, address: u64) -> Known<Self> {
        let mut cursor = Cursor::new(&start);
        cursor.expect(&[1], "not an object header").map_err(Unread::as_damage)?;
        cursor.take(1)?;
        let expected = cursor.u16()?.into();
        cursor.take(4)?;
        let length = cursor.length(4)?;
        let mut chunks = Self {
            file,
            messages: Vec::new(),
            continuations: Vec::new(),
            bytes: 0,
            expected: Some(expected),
            numbered: false,
        };
        chunks.count(length)?;
        let all = file.whole(start, address, OLD_PREFIX_BYTES + length)?;
        chunks.add_old(all.get(OLD_PREFIX_BYTES..).unwrap_or_default())?;
        Ok(chunks)
    }

    fn new(file: &'a File<'b, S>, start: Vec<u8>, address: u64) -> Known<Self> {
        let mut cursor = Cursor::new(&start);
        cursor.take(4)?;
        if cursor.u8()? != 2 {
            return Err(NotKnown("another version of object header"));
        }
        let flags = cursor.u8()?;
        if flags & 0xc0 != 0 {
            return Err(Unread::damaged("flags of an object header that do not exist"));
        }
        if flags & 0x20 != 0 {
            cursor.take(4 * 4)?; // times
        }
        if flags & 0x10 != 0 {
            cursor.take(2 * 2)?; // number of attributes from which they are stored in a heap
        }
        let length = cursor.length(1 << (flags & 3))?;
        let prefix = start.len() - cursor.rest().len();
        let mut chunks = Self {
            file,
            messages: Vec::new(),
            continuations: Vec::new(),
            bytes: 0,
            expected: None,
            numbered: flags & 4 != 0,
        };
        chunks.count(length)?;
        let all = file.whole(start, address, prefix + length + 4)?;
        chunks.add(checked(&all)?.get(prefix..).unwrap_or_default())?;
        Ok(chunks)
    }

    fn continuation(&mut self, address: u64, length: usize) -> Known<()> {
        self.count(length)?;
        let bytes = self.file.read(address, length)?;
        if self.expected.is_some() {
            return self.add_old(&bytes);
        }
        let mut cursor = Cursor::new(checked(&bytes)?);
        cursor.expect(b"OCHK", "not a continuation of an object header").map_err(Unread::as_damage)?;
        self.add(cursor.rest())
    }

    /// Limit the size of the whole header: continuations may form a circle.
    fn count(&mut self, length: usize) -> Known<()> {
        self.bytes = self.bytes.saturating_add(length).saturating_add(1);
        if self.bytes > MOST_BYTES || self.continuations.len() > 1 + MOST_BYTES / 64 {
            return Err(NotKnown("a very large object header"));
        }
        Ok(())
    }

    fn add_old(&mut self, bytes: &[u8]) -> Known<()> {
        let mut cursor = Cursor::new(bytes);
        while !cursor.rest().is_empty() {
            let kind = cursor.u16()?;
            let length = cursor.u16()?.into();
            let flags = cursor.u8()?;
            cursor.take(3)?;
            self.message(kind, flags, cursor.take(length).map_err(Unread::as_damage)?)?;
        }
        Ok(())
    }

    fn add(&mut self, bytes: &[u8]) -> Known<()> {
        let mut cursor = Cursor::new(bytes);
        let head = if self.numbered { 6 } else { 4 };
        // A rest that is shorter than the head of a message is a gap.
        while cursor.rest().len() >= head {
            let kind = cursor.u8()?.into();
            let length = cursor.u16()?.into();
            let flags = cursor.u8()?;
            cursor.take(head - 4)?;
            self.message(kind, flags, cursor.take(length).map_err(Unread::as_damage)?)?;
        }
        Ok(())
    }

    fn message(&mut self, kind: u16, flags: u8, data: &[u8]) -> Known<()> {
        if kind == kind::CONTINUATION {
            let mut cursor = Cursor::new(data);
            let address = cursor.address(self.file.offset_width).map_err(Unread::as_damage)?;
            let address = address.ok_or(Unread::damaged("a continuation nowhere"))?;
            let length = cursor.length(self.file.length_width).map_err(Unread::as_damage)?;
            self.continuations.push((address, length));
        }
        self.messages.push(Message { kind, flags, data: data.to_vec() });
        Ok(())
    }
}
