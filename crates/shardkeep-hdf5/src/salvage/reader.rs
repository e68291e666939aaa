//! Structures of a damaged file by address: their checksums, flipped bits that are corrected, and a list of what is damaged.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use crate::format::cursor::Cursor;
use crate::format::file::Storage;
use crate::format::lookup3::lookup3;
use crate::salvage::correction::{LARGEST_BYTES, correct_flipped_bit};

/// Bytes that may be read besides the length of the file, for structures that refer to each other many times.
const MORE_BYTES: u64 = 64 << 20;
/// Bytes that may be hashed in search of flipped bits: about one second.
const MOST_HASHED_BYTES: u64 = 1 << 30;

/// A structure that is not as its writer left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    pub what: &'static str,
    pub size_bytes: u64,
    /// Number of the only bit whose flip makes the checksum right, from bit 0 of the first byte. The structure was used with that
    /// bit corrected.
    pub flipped_bit: Option<u64>,
}

/// A damaged file. Addresses count from its base; offsets count from the first byte of the file.
pub(crate) struct Reader<'a> {
    pub(crate) storage: &'a dyn Storage,
    pub(crate) length: u64,
    pub(crate) base: u64,
    pub(crate) offset_width: usize,
    pub(crate) length_width: usize,
    left_bytes: Cell<u64>,
    left_hashed: Cell<u64>,
    damage: RefCell<BTreeMap<u64, Damage>>,
    /// Offset and size of the metadata that was used.
    used: RefCell<BTreeMap<u64, u64>>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(storage: &'a dyn Storage, length: u64) -> Self {
        Self {
            storage,
            length,
            base: 0,
            offset_width: 8,
            length_width: 8,
            left_bytes: Cell::new(length.saturating_add(MORE_BYTES)),
            left_hashed: Cell::new(MOST_HASHED_BYTES),
            damage: RefCell::default(),
            used: RefCell::default(),
        }
    }

    /// Return false if structures were not read because the file refers to too many bytes.
    pub(crate) fn is_complete(&self) -> bool {
        self.left_bytes.get() > 0
    }

    pub(crate) fn offset_of(&self, address: u64) -> u64 {
        self.base.saturating_add(address)
    }

    /// Return true if a range of addresses lies within the file.
    pub(crate) fn has(&self, address: u64, size: u64) -> bool {
        let end = self.base.checked_add(address).and_then(|offset| offset.checked_add(size));
        end.is_some_and(|end| end <= self.length)
    }

    /// Read all of a range.
    pub(crate) fn read(&self, address: u64, length: usize) -> Option<Vec<u8>> {
        if !self.has(address, length as u64) {
            return None;
        }
        let Some(left) = self.left_bytes.get().checked_sub(length as u64) else {
            self.left_bytes.set(0);
            return None;
        };
        self.left_bytes.set(left);
        let mut bytes = vec![0; length];
        self.storage.read_at(&mut bytes, self.base + address).ok()?;
        Some(bytes)
    }

    /// Read up to `most` bytes, fewer at the end of the file.
    pub(crate) fn read_some(&self, address: u64, most: usize) -> Option<Vec<u8>> {
        let there = self.length.checked_sub(self.base.checked_add(address)?)?;
        self.read(address, usize::try_from(there).unwrap_or(most).min(most))
    }

    /// Read a structure that ends with its checksum; the result does not contain it.
    ///
    /// Return None if the checksum is wrong, after an attempt to correct a flipped bit, or if `signature` is not at its start.
    pub(crate) fn read_checked(
        &self,
        what: &'static str,
        signature: &[u8],
        address: u64,
        length: usize,
    ) -> Option<Vec<u8>> {
        let found = self.read(address, length).and_then(|bytes| self.check(what, signature, address, bytes));
        if found.is_none() {
            self.note(what, address, length as u64, None);
        }
        found
    }

    /// Check a structure that was read, as `read_checked`, but without noting damage that is not corrected.
    pub(crate) fn check(
        &self,
        what: &'static str,
        signature: &[u8],
        address: u64,
        mut bytes: Vec<u8>,
    ) -> Option<Vec<u8>> {
        if !is_right(&bytes) {
            // Another structure, or none, has more than one wrong bit in the signature.
            let wrong: u32 = bytes.iter().zip(signature).map(|(one, other)| (one ^ other).count_ones()).sum();
            if wrong > 1 {
                return None;
            }
            let bit = self.flipped_bit(&bytes)?;
            flip(&mut bytes, bit);
            self.note(what, address, bytes.len() as u64, Some(bit as u64));
        }
        if !bytes.starts_with(signature) {
            return None;
        }
        self.use_bytes(address, bytes.len() as u64);
        bytes.truncate(bytes.len() - 4);
        Some(bytes)
    }

    /// Return the only bit whose flip makes the checksum at the end right.
    pub(crate) fn flipped_bit(&self, bytes: &[u8]) -> Option<usize> {
        if bytes.len() > LARGEST_BYTES {
            return None;
        }
        let cost = 8 * (bytes.len() as u64).pow(2);
        self.left_hashed.set(self.left_hashed.get().checked_sub(cost)?);
        correct_flipped_bit(bytes)
    }

    /// Note damage; a structure is noted once, and a correction replaces what was noted before.
    pub(crate) fn note(&self, what: &'static str, address: u64, size_bytes: u64, flipped_bit: Option<u64>) {
        let offset = self.offset_of(address);
        let mut damage = self.damage.borrow_mut();
        let known =
            damage.get(&offset).is_some_and(|known| known.flipped_bit.is_some() || flipped_bit.is_none());
        if !known {
            damage.insert(offset, Damage { what, size_bytes, flipped_bit });
        }
    }

    /// Note that a range is metadata.
    pub(crate) fn use_bytes(&self, address: u64, size: u64) {
        let mut used = self.used.borrow_mut();
        let known = used.entry(self.offset_of(address)).or_default();
        *known = size.max(*known);
    }

    /// Return offset and damage of all structures that are damaged.
    pub(crate) fn damage(&self) -> Vec<(u64, Damage)> {
        self.damage.borrow().iter().map(|(offset, damage)| (*offset, *damage)).collect()
    }

    /// Return offset and size of all metadata that was used.
    pub(crate) fn used(&self) -> Vec<(u64, u64)> {
        self.used.borrow().iter().map(|(offset, size)| (*offset, *size)).collect()
    }

    /// Take an address from a cursor; None if it is undefined, or the bytes end.
    pub(crate) fn address(&self, cursor: &mut Cursor<'_>) -> Option<u64> {
        cursor.address(self.offset_width).ok().flatten()
    }
}

/// Return true if the checksum at the end is right.
pub(crate) fn is_right(bytes: &[u8]) -> bool {
    bytes.split_last_chunk::<4>().is_some_and(|(body, sum)| lookup3(body) == u32::from_le_bytes(*sum))
}

/// Flip a bit.
pub(crate) fn flip(bytes: &mut [u8], bit: usize) {
    if let Some(byte) = bytes.get_mut(bit / 8) {
        *byte ^= 1 << (bit % 8);
    }
}
