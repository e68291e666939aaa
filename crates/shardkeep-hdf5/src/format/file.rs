//! A file: its bytes by address, within the limits of what may be read.

use std::cell::Cell;
use std::io;
use std::os::unix::fs::FileExt;

use shardkeep_core::io::descriptor_pool::TransientFile;
use shardkeep_core::io::known_files::FileVersion;

use crate::format::cursor::{Known, NotKnown, Unread};

/// Bytes that are read at once at the start of a structure; most structures are shorter.
const FIRST_BYTES: usize = 1024;
/// Largest number of bytes that are read for one [`File`]. 4,000 mappings take a third of a megabyte.
pub const MOST_READ_BYTES: u64 = 256 << 20;

const BEYOND: Unread = Unread::damaged("an address beyond the end of the file");

/// The source of the bytes of a file.
pub trait Storage {
    /// Return the length in bytes.
    ///
    /// # Errors
    /// The operating system cannot inspect the file.
    fn length(&self) -> io::Result<u64>;

    /// Fill all of `buffer` from `offset`.
    ///
    /// # Errors
    /// The operating system cannot read; `UnexpectedEof` if the file ends before.
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

impl Storage for TransientFile {
    fn length(&self) -> io::Result<u64> {
        Ok(FileVersion::of(self)?.size_bytes)
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

/// An HDF5 file that no process changes.
#[derive(Debug)]
pub struct File<'a, S: Storage + ?Sized> {
    pub(crate) storage: &'a S,
    pub(crate) length: u64,
    /// Offset of address 0: the end of the user block.
    pub(crate) base: u64,
    /// Bytes of an address and of a length.
    pub(crate) offset_width: usize,
    pub(crate) length_width: usize,
    pub(crate) root: u64,
    /// Address of the end of the file, as the superblock has it.
    pub(crate) end: u64,
    pub(crate) is_marked: bool,
    pub(crate) left_bytes: Cell<u64>,
}

impl<'a, S: Storage + ?Sized> File<'a, S> {
    /// Return the bytes of the whole file.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Return true if the file is shorter than its superblock says; HDF5 refuses it as truncated.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        self.base.checked_add(self.end).is_none_or(|end| end > self.length)
    }

    /// Return the offset of an address from the first byte of the file.
    #[must_use]
    pub fn offset_of(&self, address: u64) -> u64 {
        self.base.saturating_add(address)
    }

    #[must_use]
    pub fn root_address(&self) -> u64 {
        self.root
    }

    /// Read `length` bytes at an address.
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

    /// Read up to a kilobyte at an address.
    pub fn start(&self, address: u64) -> Known<Vec<u8>> {
        let offset = self.base.checked_add(address).ok_or(BEYOND)?;
        let there = self.length.checked_sub(offset).filter(|there| *there > 0).ok_or(BEYOND)?;
        self.read(address, usize::try_from(there).unwrap_or(FIRST_BYTES).min(FIRST_BYTES))
    }

    /// Read the rest of a structure whose start was read.
    pub fn whole(&self, mut start: Vec<u8>, address: u64, length: usize) -> Known<Vec<u8>> {
        if let Some(missing) = length.checked_sub(start.len()).filter(|missing| *missing > 0) {
            let behind = address.checked_add(start.len() as u64).ok_or(BEYOND)?;
            start.append(&mut self.read(behind, missing)?);
        }
        start.truncate(length);
        Ok(start)
    }
}
