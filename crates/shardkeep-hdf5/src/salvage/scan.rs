//! One pass over all bytes of a file, in search of the signatures of metadata.
//!
//! Metadata may begin at any byte. A header of version 1 has no signature, so bytes that could be one are collected too.

use std::io;

use crate::format::file::Storage;

const BLOCK_BYTES: usize = 1 << 20;
/// Bytes after a position that decide whether something begins there.
const AHEAD_BYTES: usize = 24;
/// Positions that are tested at once.
const GROUP: usize = 64;
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

/// Positions of signatures, in the order of offsets.
#[derive(Debug, Default)]
pub(crate) struct Found {
    positions: Vec<(u64, Signature)>,
    /// False if there were too many.
    pub(crate) is_complete: bool,
}

impl Found {
    /// Return the offsets of all structures of a kind.
    pub(crate) fn of(&self, kind: Signature) -> impl Iterator<Item = u64> {
        self.positions.iter().filter(move |(_, found)| *found == kind).map(|(offset, _)| *offset)
    }
}

/// Search all bytes of a file.
///
/// # Errors
/// The operating system cannot read.
pub(crate) fn scan(storage: &dyn Storage, length: u64) -> io::Result<Found> {
    let mut found = Found { positions: Vec::new(), is_complete: true };
    let mut buffer = vec![0; BLOCK_BYTES + AHEAD_BYTES];
    let mut start = 0;
    while start < length {
        let there = usize::try_from(length - start).unwrap_or(usize::MAX).min(buffer.len());
        let block = buffer.get_mut(..there).unwrap_or_default();
        storage.read_at(block, start)?;
        // No structure fits in the last bytes.
        search(block, start, &mut found);
        if !found.is_complete {
            break;
        }
        start += BLOCK_BYTES as u64;
    }
    Ok(found)
}

fn search(block: &[u8], start: u64, found: &mut Found) {
    let mut at = 0;
    while let Some(rest) = block.get(at..).filter(|rest| rest.len() > AHEAD_BYTES) {
        let positions = (rest.len() - AHEAD_BYTES).min(GROUP);
        if positions < GROUP || any_begins(rest) {
            for (place, bytes) in rest.windows(AHEAD_BYTES).take(positions).enumerate() {
                if let Some(kind) = begins(bytes) {
                    if found.positions.len() >= MOST_FOUND {
                        found.is_complete = false;
                        return;
                    }
                    found.positions.push((start + (at + place) as u64, kind));
                }
            }
        }
        at += positions;
    }
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
                let found = scan(&bytes, bytes.0.len() as u64).unwrap();
                assert_eq!(found.positions, [(at as u64, kind)]);
            }
        }
    }
}
