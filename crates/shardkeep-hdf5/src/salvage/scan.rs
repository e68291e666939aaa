//! Search for the signatures of metadata: in all bytes of a file, or only in those that are not values of a dataset.
//!
//! Metadata may begin at any byte. A header of version 1 has no signature, so bytes that could be one are collected too.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell};
use std::io;

use crate::format::file::Storage;

const BLOCK_BYTES: usize = 1 << 20;
/// Bytes after a position that decide whether something begins there.
const AHEAD_BYTES: usize = 24;
/// Positions that are tested at once.
const GROUP: usize = 64;
/// Values that are searched rather than skipped: a system call costs as much.
const LEAST_SKIPPED_BYTES: u64 = 1 << 16;
/// Largest number of positions that are kept: a file of 64 MiB of signatures.
const MOST_FOUND: usize = 1 << 24;

const SIGNATURES: [(&[u8; 4], Signature); 10] = [
    (b"OHDR", Signature::ObjectHeader),
    (b"TREE", Signature::Tree1),
    (b"SNOD", Signature::SymbolNode),
    (b"BTIN", Signature::Tree2Inner),
    (b"BTLF", Signature::Tree2Leaf),
    (b"FHDB", Signature::HeapBlock),
    (b"FADB", Signature::FixedBlock),
    (b"EAIB", Signature::ExtensibleIndexBlock),
    (b"EASB", Signature::ExtensibleSuperBlock),
    (b"EADB", Signature::ExtensibleBlock),
];

/// The kind of a structure that may begin at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Signature {
    ObjectHeader,
    OldObjectHeader,
    Tree1,
    SymbolNode,
    Tree2Inner,
    Tree2Leaf,
    HeapBlock,
    FixedBlock,
    ExtensibleIndexBlock,
    ExtensibleSuperBlock,
    ExtensibleBlock,
}

/// A position, and what may begin there.
type Position = (u64, Signature);

/// Signatures of a file, which is read only where they are asked for.
pub(crate) struct Scan<'a> {
    storage: &'a dyn Storage,
    length: u64,
    all: OnceCell<Vec<Position>>,
    /// False if there were too many.
    is_complete: Cell<bool>,
    /// The first error of the operating system.
    error: Cell<Option<io::Error>>,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(storage: &'a dyn Storage, length: u64) -> Self {
        Self { storage, length, all: OnceCell::new(), is_complete: Cell::new(true), error: Cell::new(None) }
    }

    /// Return the offsets of all structures of a kind; the first call reads the whole file.
    pub(crate) fn of(&self, kind: Signature) -> impl Iterator<Item = u64> {
        let all = self.all.get_or_init(|| self.search(&[]));
        all.iter().filter(move |(_, found)| *found == kind).map(|(offset, _)| *offset)
    }

    /// Return all positions outside of ranges, which are in order and disjoint, and perhaps some within them.
    pub(crate) fn outside(&self, ranges: &[(u64, u64)]) -> Cow<'_, [Position]> {
        match self.all.get() {
            Some(all) => Cow::Borrowed(all),
            None => Cow::Owned(self.search(ranges)),
        }
    }

    /// End the search; return false if it was not complete because there are too many signatures.
    ///
    /// # Errors
    /// The operating system could not read.
    pub(crate) fn finish(self) -> io::Result<bool> {
        self.error.into_inner().map_or(Ok(self.is_complete.get()), Err)
    }

    fn search(&self, skipped: &[(u64, u64)]) -> Vec<Position> {
        let mut found = Vec::new();
        let mut buffer = vec![0; BLOCK_BYTES + AHEAD_BYTES];
        let mut start = 0;
        let long = skipped.iter().filter(|(begin, end)| end.saturating_sub(*begin) >= LEAST_SKIPPED_BYTES);
        for (end, next) in long.copied().chain([(self.length, self.length)]) {
            match self.search_range(start, end.min(self.length), &mut buffer, &mut found) {
                Ok(true) => start = next,
                Ok(false) => {
                    self.is_complete.set(false);
                    break;
                }
                Err(error) => {
                    self.error.set(Some(error));
                    break;
                }
            }
        }
        found
    }

    /// Add the positions of a range; false if there are too many.
    fn search_range(
        &self,
        mut start: u64,
        end: u64,
        buffer: &mut [u8],
        found: &mut Vec<Position>,
    ) -> io::Result<bool> {
        while start < end {
            let next = end.min(start + BLOCK_BYTES as u64);
            // What begins at the last positions reaches beyond them; no structure fits in the last bytes of the file.
            let there = (next + AHEAD_BYTES as u64).min(self.length) - start;
            let block = buffer.get_mut(..usize::try_from(there).unwrap_or(0)).unwrap_or_default();
            self.storage.read_at(block, start)?;
            if !search(block, start, found) {
                return Ok(false);
            }
            start = next;
        }
        Ok(true)
    }
}

/// Add the positions in a block; false if there are too many.
fn search(block: &[u8], start: u64, found: &mut Vec<Position>) -> bool {
    let mut at = 0;
    while let Some(rest) = block.get(at..).filter(|rest| rest.len() > AHEAD_BYTES) {
        let positions = (rest.len() - AHEAD_BYTES).min(GROUP);
        if positions < GROUP || any_begins(rest) {
            for (place, bytes) in rest.windows(AHEAD_BYTES).take(positions).enumerate() {
                if let Some(kind) = begins(bytes) {
                    if found.len() >= MOST_FOUND {
                        return false;
                    }
                    found.push((start + (at + place) as u64, kind));
                }
            }
        }
        at += positions;
    }
    true
}

/// Return false if nothing begins at the first positions; the compiler turns the loop into vector instructions.
fn any_begins(bytes: &[u8]) -> bool {
    let Some(bytes) = bytes.first_chunk::<{ GROUP + AHEAD_BYTES }>() else { return true };
    let mut any = 0_u8;
    for window in bytes.windows(AHEAD_BYTES).take(GROUP) {
        let Some([a, b, c, d, _, _, e, f, _, _, _, g, h, i, j, k]) = window.first_chunk::<16>() else {
            return true;
        };
        let letter = |byte: &u8| u8::from(byte.wrapping_sub(b'A') < 26);
        let letters = letter(a) & letter(b) & letter(c) & letter(d);
        let old = u8::from(((a ^ 1) | b | e | f | g | h | i | j | k) == 0);
        any |= letters | old;
    }
    any != 0
}

fn begins(bytes: &[u8]) -> Option<Signature> {
    let start = bytes.first_chunk::<4>()?;
    if let [1, 0, ..] = start {
        return is_old_header(bytes).then_some(Signature::OldObjectHeader);
    }
    SIGNATURES.iter().find(|(signature, _)| *signature == start).map(|(_, kind)| *kind)
}

/// Return true for a number of messages, of references, of bytes, and a first message that can be right.
fn is_old_header(bytes: &[u8]) -> bool {
    let Some(bytes) = bytes.first_chunk::<AHEAD_BYTES>() else { return false };
    let [_, _, m0, m1, r0, r1, r2, r3, s0, s1, s2, s3, p0, p1, p2, p3, k0, k1, l0, _, flags, z0, z1, z2] =
        *bytes;
    let size = u32::from_le_bytes([s0, s1, s2, s3]);
    [m0, m1] != [0, 0]
        && [r0, r1, r2, r3] != [0; 4]
        && [r2, r3, p0, p1, p2, p3, k1, z0, z1, z2] == [0; 10]
        && (8..=1 << 20).contains(&size)
        && size % 8 == 0
        && k0 <= 0x18
        && l0 % 8 == 0
        && flags & 0x80 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bytes(Vec<u8>);

    impl Storage for Bytes {
        fn length(&self) -> io::Result<u64> {
            self.0.as_slice().length()
        }

        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
            self.0.as_slice().read_at(buffer, offset)
        }
    }

    #[test]
    fn signatures_at_any_position() {
        let old = [1, 0, 5, 0, 1, 0, 0, 0, 24, 1, 0, 0, 0, 0, 0, 0, 1, 0, 24, 0, 0, 0, 0, 0];
        for (begin, kind) in [(&b"EADB"[..], Signature::ExtensibleBlock), (&old, Signature::OldObjectHeader)]
        {
            for at in (0..200).chain(BLOCK_BYTES - 40..BLOCK_BYTES + 40) {
                let mut bytes = Bytes(vec![b'A'; BLOCK_BYTES + 300]);
                bytes.0[at..at + begin.len()].copy_from_slice(begin);
                let scan = Scan::new(&bytes, bytes.0.len() as u64);
                assert_eq!(*scan.outside(&[]), [(at as u64, kind)]);
                assert_eq!(scan.of(kind).collect::<Vec<_>>(), [at as u64]);
            }
        }
    }

    #[test]
    fn only_long_ranges_of_values_are_skipped() {
        let long = LEAST_SKIPPED_BYTES as usize;
        let mut bytes = Bytes(vec![0; 4 * long]);
        let starts = [0, long - 4, long, 2 * long - 4, 2 * long, 3 * long];
        for at in starts {
            bytes.0[at..at + 4].copy_from_slice(b"OHDR");
        }
        let offsets = |scan: &Scan<'_>, ranges: &[(u64, u64)]| -> Vec<usize> {
            scan.outside(ranges).iter().map(|(offset, _)| *offset as usize).collect()
        };
        let (one, end) = (long as u64, 4 * long as u64);
        let scan = Scan::new(&bytes, end);
        assert_eq!(offsets(&scan, &[(one, 2 * one)]), [0, long - 4, 2 * long, 3 * long]);
        assert_eq!(offsets(&scan, &[(one, 2 * one - 1)]), starts);
        assert_eq!(offsets(&scan, &[(0, one), (2 * one, u64::MAX)]), [long, 2 * long - 4]);
        assert_eq!(scan.of(Signature::ObjectHeader).count(), starts.len());
        assert_eq!(offsets(&scan, &[(0, end)]), starts);
    }
}
