//! The superblock, also where it is damaged.

use crate::format::cursor::Cursor;
use crate::format::object_header::kind;
use crate::salvage::header::Header;
use crate::salvage::links::dense_place;
use crate::salvage::reader::{Reader, flip, is_right};

const SIGNATURE: &[u8; 8] = b"\x89HDF\r\n\x1a\n";
const WHAT: &str = "superblock";
/// Bytes of a superblock with addresses and lengths of eight bytes: versions 0, 1, and 2 or 3.
const OLD_BYTES: [u64; 2] = [96, 100];
const NEW_BYTES: u64 = 48;
const ENTRY_OF_TABLE: u32 = 1;

/// The superblock as it is in the file, after the correction of a flipped bit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Offset of the superblock, from which all addresses count.
    pub base: u64,
    pub version: u8,
    pub offset_width: usize,
    pub length_width: usize,
    /// None for versions without a checksum.
    pub checksum_is_right: Option<bool>,
    pub flags: u32,
    /// Address after the last byte of the file, as it is stored.
    pub end: u64,
    pub extension: Option<u64>,
    pub root: Option<u64>,
    pub size_bytes: u64,
    /// Addresses of the tree and the heap of the root, which versions 0 and 1 repeat here.
    pub(crate) table: Option<(u64, u64)>,
}

/// The source of the address of the root group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootSource {
    Superblock,
    /// The superblock is damaged, and a group header follows it, as HDF5 writes it.
    UsualPlace,
    /// The superblock is damaged, and no link leads to this group.
    OnlyCandidate,
}

/// Offsets at which a superblock may be.
fn bases(length: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(0_u64), |base| if *base == 0 { Some(512) } else { base.checked_mul(2) })
        .take_while(move |base| *base < length)
}

/// Find the superblock, and set base and widths of the reader.
///
/// Where none can be read, the base is that with a group in the usual place, and the widths are those that all writers use.
pub(crate) fn find(reader: &mut Reader<'_>) -> Option<Superblock> {
    for base in bases(reader.length) {
        reader.base = base;
        let start = reader.read_some(0, 256).unwrap_or_default();
        let wrong: u32 = start.iter().zip(SIGNATURE).map(|(one, other)| (one ^ other).count_ones()).sum();
        if start.len() < 48 || wrong > 1 {
            continue;
        }
        if let Some(found) = parse(reader, &start) {
            if wrong > 0 && found.checksum_is_right != Some(true) {
                reader.note(WHAT, 0, found.size_bytes, None);
            }
            if found.checksum_is_right != Some(false) {
                (reader.offset_width, reader.length_width) = (found.offset_width, found.length_width);
            }
            return Some(found);
        }
    }
    let found = bases(reader.length).find(|base| {
        reader.base = *base;
        root_in_usual_place(reader).is_some()
    });
    reader.base = found.unwrap_or(0);
    reader.note(WHAT, 0, NEW_BYTES, None);
    None
}

fn parse(reader: &Reader<'_>, start: &[u8]) -> Option<Superblock> {
    let found = parse_any(reader.base, start);
    if let Some(found) = found.as_ref().filter(|found| found.checksum_is_right != Some(false)) {
        reader.use_bytes(0, found.size_bytes);
        return Some(found.clone());
    }
    // A flip in the widths changes the size, so each bit is tried with all that depends on it.
    let mut changed = start.get(..NEW_BYTES as usize)?.to_vec();
    let mut corrected = None;
    for bit in 0..8 * changed.len() {
        flip(&mut changed, bit);
        let flipped = parse_any(reader.base, &changed).filter(|found| found.checksum_is_right == Some(true));
        if let Some(flipped) = flipped
            && corrected.replace((bit, flipped)).is_some()
        {
            return found.inspect(|found| reader.note(WHAT, 0, found.size_bytes, None));
        }
        flip(&mut changed, bit);
    }
    if let Some((bit, corrected)) = corrected {
        reader.note(WHAT, 0, corrected.size_bytes, Some(bit as u64));
        reader.use_bytes(0, corrected.size_bytes);
        return Some(corrected);
    }
    found.inspect(|found| reader.note(WHAT, 0, found.size_bytes, None))
}

/// Parse a superblock whose signature may be wrong.
fn parse_any(base: u64, start: &[u8]) -> Option<Superblock> {
    let mut at = Cursor::new(start.get(8..)?);
    let version = at.u8().ok()?;
    if version > 3 {
        return None;
    }
    if version < 2 {
        at.take(4).ok()?;
    }
    let (offset_width, length_width) = (usize::from(at.u8().ok()?), usize::from(at.u8().ok()?));
    if !matches!((offset_width, length_width), (2 | 4 | 8, 2 | 4 | 8)) {
        return None;
    }
    let mut found = Superblock {
        base,
        version,
        offset_width,
        length_width,
        checksum_is_right: None,
        flags: 0,
        end: 0,
        extension: None,
        root: None,
        size_bytes: 0,
        table: None,
    };
    if version < 2 {
        at.take(1 + 4).ok()?;
        found.flags = at.u32().ok()?;
        at.take(if version == 1 { 4 } else { 0 }).ok()?;
        at.take(2 * offset_width).ok()?;
        found.end = at.number(offset_width).ok()?;
        at.take(2 * offset_width).ok()?; // the driver, and the name of the root
        found.root = at.address(offset_width).ok()?;
        let kind = at.u32().ok()?;
        at.take(4).ok()?;
        let mut scratch = Cursor::new(at.take(16).ok()?);
        if kind == ENTRY_OF_TABLE {
            let tree = scratch.address(offset_width).ok()?;
            found.table = tree.zip(scratch.address(offset_width).ok()?);
        }
    } else {
        found.flags = at.u8().ok()?.into();
        at.take(offset_width).ok()?;
        found.extension = at.address(offset_width).ok()?;
        found.end = at.number(offset_width).ok()?;
        found.root = at.address(offset_width).ok()?;
        at.take(4).ok()?;
    }
    let size = start.len() - at.rest().len();
    found.size_bytes = size as u64;
    if version >= 2 {
        let is_signed = start.starts_with(SIGNATURE);
        found.checksum_is_right = Some(is_signed && is_right(start.get(..size)?));
    }
    Some(found)
}

/// Return the address of a group header where HDF5 writes the root group: directly after the superblock.
pub(crate) fn root_in_usual_place(reader: &Reader<'_>) -> Option<u64> {
    [NEW_BYTES].into_iter().chain(OLD_BYTES).find(|address| {
        Header::read_if_whole(reader, *address).is_some_and(|header| is_group(reader, &header))
    })
}

/// Return true for a header of a group; an old one, which has no checksum, must lead to its tree and heap.
pub(crate) fn is_group(reader: &Reader<'_>, header: &Header) -> bool {
    if header.version == 2 {
        return header.has(kind::LINK_INFO) || header.has(kind::SYMBOL_TABLE);
    }
    if !header.is_whole {
        return false;
    }
    let starts = |address: Option<u64>, signature: &[u8]| {
        address
            .and_then(|address| reader.read(address, signature.len()))
            .is_some_and(|start| start == signature)
    };
    if let Some(table) = header.first(reader, kind::SYMBOL_TABLE) {
        let mut cursor = Cursor::new(&table);
        return starts(reader.address(&mut cursor), b"TREE\0")
            && starts(reader.address(&mut cursor), b"HEAP\0");
    }
    // A group of newer links, in a file of older headers.
    let info = header.first(reader, kind::LINK_INFO);
    match info.and_then(|info| dense_place(reader, &info, true).ok()) {
        Some(Some((heap, tree))) => starts(Some(heap), b"FRHP\0") && starts(Some(tree), b"BTHD\0"),
        Some(None) => header.has(kind::LINK),
        None => false,
    }
}
