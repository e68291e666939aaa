//! The superblock (versions 0 to 3): the place of the root group, and the widths of numbers.

use std::cell::Cell;

use crate::format::cursor::{Cursor, Known, NotKnown};
use crate::format::file::{File, MOST_READ_BYTES, Storage};
use crate::format::lookup3::checked;
use crate::format::object_header::ObjectHeader;

const SIGNATURE: &[u8; 8] = b"\x89HDF\r\n\x1a\n";
/// Kinds of messages of a superblock's extension that this reader can ignore.
const HARMLESS: [u16; 6] = [0x00, 0x0f, 0x10, 0x13, 0x16, 0x17];

impl<'a, S: Storage + ?Sized> File<'a, S> {
    /// Open a file that is not marked as being written.
    ///
    /// # Errors
    /// The file is not an HDF5 file, or its state is not known.
    pub fn open(storage: &'a S) -> Known<Self> {
        let file = Self::open_marked(storage)?;
        if file.is_marked {
            Err(NotKnown("a file that is being written, or that was not closed"))
        } else {
            Ok(file)
        }
    }

    /// Open a file that may be marked as being written: HDF5 leaves the mark in version 2 and ignores it there.
    ///
    /// # Errors
    /// As `open`, except for the mark.
    pub fn open_marked(storage: &'a S) -> Known<Self> {
        let length = storage.length().map_err(|_| NotKnown("its length is not available"))?;
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
            Some(0 | 1) => file.old_superblock(&bytes),
            Some(2 | 3) => file.superblock(&bytes),
            _ => Err(NotKnown("another superblock")),
        }
        .map_err(|error| error.at(file.base))?;
        Ok(file)
    }

    /// Read the header of the root group.
    ///
    /// # Errors
    /// The header is not known.
    pub fn root(&self) -> Known<ObjectHeader> {
        ObjectHeader::read(self, self.root)
    }

    fn widths(&mut self, cursor: &mut Cursor<'_>) -> Known<()> {
        self.offset_width = cursor.u8()?.into();
        self.length_width = cursor.u8()?.into();
        match (self.offset_width, self.length_width) {
            (2 | 4 | 8, 2 | 4 | 8) => Ok(()),
            _ => Err(NotKnown("numbers of another width")),
        }
    }

    /// Read a superblock of version 0 or 1.
    fn old_superblock(&mut self, bytes: &[u8]) -> Known<()> {
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

    /// Read a superblock of version 2 or 3.
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
            self.check_extension(address)?;
        }
        Ok(())
    }

    /// Refuse an image of the metadata cache and other drivers: the metadata would be elsewhere.
    fn check_extension(&self, address: u64) -> Known<()> {
        for message in ObjectHeader::read(self, address)?.messages() {
            if !HARMLESS.contains(&message.kind) {
                return Err(NotKnown("something new in the superblock's extension"));
            }
        }
        Ok(())
    }
}
