//! A file: where HDF5's part of it begins, how wide its numbers are, where its root is; and reading from it.

use std::cell::Cell;
use std::io;
use std::os::unix::fs::FileExt;

use crate::format::cursor::{Cursor, Known, NotKnown, Unread};
use crate::format::lookup3::checked;
use crate::format::object_header::ObjectHeader;

const SIGNATURE: &[u8; 8] = b"\x89HDF\r\n\x1a\n";
/// What is read at once from where a structure begins: most are not longer.
const FIRST_BYTES: usize = 1024;
/// All that is read for one [`File`]. 4,000 mappings take a third of a megabyte.
pub const MOST_READ_BYTES: u64 = 256 << 20;

// Messages of a superblock's extension that change nothing here; see `object_header::kind`.
const HARMLESS: [u16; 6] = [0x00, 0x0f, 0x10, 0x13, 0x16, 0x17];

const BEYOND: Unread = Unread::damaged("an address beyond the end of the file");

/// Where bytes come from.
pub trait Storage {
    /// # Errors
    /// What the operating system says.
    fn length(&self) -> io::Result<u64>;

    /// Fill all of `buffer` from `offset`.
    ///
    /// # Errors
    /// What the operating system says; `UnexpectedEof` if it ends before.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

impl Storage for std::fs::File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }
}

impl Storage for [u8] {
    fn length(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let begin = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let there = self.get(begin..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(there.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// An HDF5 file in a state in which nobody changes it.
#[derive(Debug)]
pub struct File<'a, S: Storage + ?Sized> {
    storage: &'a S,
    length: u64,
    /// Where address 0 is: behind the user block.
    base: u64,
    /// Bytes of an address and of a length.
    pub(crate) offset_width: usize,
    pub(crate) length_width: usize,
    root: u64,
    /// Where the file ends as its superblock has it.
    end: u64,
    is_marked: bool,
    left_bytes: Cell<u64>,
}

impl<'a, S: Storage + ?Sized> File<'a, S> {
    /// # Errors
    /// It is none, or one in a state that is not known.
    pub fn open(storage: &'a S) -> Known<Self> {
        let file = Self::open_marked(storage)?;
        if file.is_marked {
            Err(NotKnown("a file that is being written, or that was not closed"))
        } else {
            Ok(file)
        }
    }

    /// Open a file that may be marked as one that is being written: HDF5 leaves the mark in version 2 and ignores it there.
    ///
    /// # Errors
    /// As of `open`, except for the mark.
    pub fn open_marked(storage: &'a S) -> Known<Self> {
        let length = storage.length().map_err(|_| NotKnown("its length cannot be had"))?;
        let mut file = Self {
            storage,
            length,
            base: 0,
            offset_width: 8,
            length_width: 8,
            root: 0,
            end: 0,
            is_marked: false,
            left_bytes: Cell::new(MOST_READ_BYTES),
        };
        let none = |_| NotKnown("not an HDF5 file");
        let mut bytes = file.start(0).map_err(none)?;
        while !bytes.starts_with(SIGNATURE) {
            file.base = if file.base == 0 { 512 } else { 2 * file.base };
            bytes = file.start(0).map_err(none)?;
        }
        match bytes.get(SIGNATURE.len()) {
            Some(0 | 1) => file.superblock_of_old(&bytes),
            Some(2 | 3) => file.superblock(&bytes),
            _ => Err(NotKnown("another superblock")),
        }
        .map_err(|error| error.at(file.base))?;
        Ok(file)
    }

    /// Bytes of the whole file.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The header of the root group.
    ///
    /// # Errors
    /// Something about it is not known; as of all that follows.
    pub fn root(&self) -> Known<ObjectHeader> {
        ObjectHeader::read(self, self.root)
    }

    /// Whether its superblock promises more bytes than there are; HDF5 refuses it as cut off.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        self.base.checked_add(self.end).is_none_or(|end| end > self.length)
    }

    /// Where an address is, counted from the first byte of the file.
    #[must_use]
    pub fn offset_of(&self, address: u64) -> u64 {
        self.base.saturating_add(address)
    }

    #[must_use]
    pub fn root_address(&self) -> u64 {
        self.root
    }

    /// The object of an absolute path, by hard links alone.
    pub fn object(&self, path: &[u8]) -> Known<ObjectHeader> {
        let mut found = self.root()?;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            if name == b"." {
                continue;
            }
            found = ObjectHeader::read(self, found.link(self, name)?)?;
        }
        Ok(found)
    }

    /// So many bytes from an address on.
    pub fn read(&self, address: u64, length: usize) -> Known<Vec<u8>> {
        let offset = self.base.checked_add(address).ok_or(BEYOND)?;
        let end = offset.checked_add(length as u64).ok_or(BEYOND)?;
        if end > self.length {
            return Err(BEYOND);
        }
        let left = self.left_bytes.get().checked_sub(length as u64).ok_or(NotKnown("too much to read"))?;
        self.left_bytes.set(left);
        let mut bytes = vec![0; length];
        self.storage.read_at(&mut bytes, offset).map_err(|_| NotKnown("it cannot be read"))?;
        Ok(bytes)
    }

    /// What is at an address, a kilobyte at most.
    pub fn start(&self, address: u64) -> Known<Vec<u8>> {
        let offset = self.base.checked_add(address).ok_or(BEYOND)?;
        let there = self.length.checked_sub(offset).filter(|there| *there > 0).ok_or(BEYOND)?;
        self.read(address, usize::try_from(there).unwrap_or(FIRST_BYTES).min(FIRST_BYTES))
    }

    /// All of something whose start was read.
    pub fn whole(&self, mut start: Vec<u8>, address: u64, length: usize) -> Known<Vec<u8>> {
        if let Some(missing) = length.checked_sub(start.len()).filter(|missing| *missing > 0) {
            let behind = address.checked_add(start.len() as u64).ok_or(BEYOND)?;
            start.append(&mut self.read(behind, missing)?);
        }
        start.truncate(length);
        Ok(start)
    }

    fn widths(&mut self, cursor: &mut Cursor<'_>) -> Known<()> {
        self.offset_width = cursor.u8()?.into();
        self.length_width = cursor.u8()?.into();
        match (self.offset_width, self.length_width) {
            (2 | 4 | 8, 2 | 4 | 8) => Ok(()),
            _ => Err(NotKnown("numbers of another width")),
        }
    }

    /// Versions 0 and 1.
    fn superblock_of_old(&mut self, bytes: &[u8]) -> Known<()> {
        let mut cursor = Cursor::new(bytes);
        cursor.take(SIGNATURE.len())?;
        let version = cursor.u8()?;
        if [cursor.u8()?, cursor.u8()?, cursor.u8()?, cursor.u8()?] != [0; 4] {
            return Err(NotKnown("other versions in the superblock"));
        }
        self.widths(&mut cursor)?;
        // One byte, the sizes of B-tree nodes, the flags.
        cursor.take(1 + 4 + 4)?;
        if version == 1 {
            cursor.take(4)?;
        }
        cursor.take(2 * self.offset_width)?; // base and free space: HDF5 takes the place of the superblock for the base
        self.end = cursor.number(self.offset_width)?;
        if cursor.address(self.offset_width)?.is_some() {
            return Err(NotKnown("a file of another driver"));
        }
        cursor.take(self.offset_width)?;
        self.root = cursor.address(self.offset_width)?.ok_or(NotKnown("no root group"))?;
        Ok(())
    }

    /// Versions 2 and 3.
    fn superblock(&mut self, bytes: &[u8]) -> Known<()> {
        let mut cursor = Cursor::new(bytes);
        cursor.take(SIGNATURE.len() + 1)?;
        self.widths(&mut cursor)?;
        self.is_marked = cursor.u8()? != 0;
        cursor.take(self.offset_width)?;
        let extension = cursor.address(self.offset_width)?;
        self.end = cursor.number(self.offset_width)?;
        self.root = cursor.address(self.offset_width)?.ok_or(NotKnown("no root group"))?;
        let length = bytes.len() - cursor.rest().len() + 4;
        checked(bytes.get(..length).ok_or(NotKnown("it ends too early"))?)?;
        if let Some(address) = extension {
            self.look_at_extension(address)?;
        }
        Ok(())
    }

    /// An image of the metadata cache, or another driver, would mean that the metadata is somewhere else.
    fn look_at_extension(&self, address: u64) -> Known<()> {
        for message in ObjectHeader::read(self, address)?.messages() {
            if !HARMLESS.contains(&message.kind) {
                return Err(NotKnown("something new in the superblock's extension"));
            }
        }
        Ok(())
    }
}
