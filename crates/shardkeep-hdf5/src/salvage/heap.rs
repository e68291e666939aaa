//! Fractal heaps, of which blocks may be damaged: links and attributes that do not fit into an object header.

use std::collections::{BTreeMap, HashSet};

use crate::format::cursor::Cursor;
use crate::format::lookup3::lookup3;
use crate::salvage::reader::Reader;
use crate::salvage::scan::{Scan, Signature};
use crate::salvage::tree2::{Tree, width_of};

const MOST_CHILDREN: u64 = 1 << 20;
const BLOCK: &str = "block of a fractal heap";

/// A fractal heap.
pub(crate) struct Heap {
    width: u64,
    start: u64,
    most_direct: u64,
    offset_bytes: usize,
    length_bytes: usize,
    huge_tree: Option<u64>,
    /// Direct blocks by their offset in the heap.
    blocks: BTreeMap<u64, Vec<u8>>,
    /// False if a block is lost.
    pub(crate) is_whole: bool,
}

impl Heap {
    /// Read a heap with all its blocks; None if its header is damaged.
    pub(crate) fn read(reader: &Reader<'_>, address: u64, scanned: &Scan<'_>) -> Option<Self> {
        let (wide, long) = (reader.offset_width, reader.length_width);
        let length = 26 + 12 * long + 3 * wide;
        let all = reader.read_checked("header of a fractal heap", b"FRHP\0", address, length)?;
        let mut at = Cursor::new(all.get(5..)?);
        at.take(2).ok()?;
        if at.u16().ok()? != 0 {
            return None; // the blocks are filtered
        }
        let flags = at.u8().ok()?;
        let most_managed = u64::from(at.u32().ok()?);
        at.take(long).ok()?;
        let huge_tree = reader.address(&mut at);
        at.take(long + wide + 8 * long).ok()?;
        let width = u64::from(at.u16().ok()?);
        let (start, most_direct) = (at.number(long).ok()?, at.number(long).ok()?);
        let bits = at.u16().ok()?;
        at.take(2).ok()?;
        let root = reader.address(&mut at);
        let rows = u64::from(at.u16().ok()?);
        let powers = width.is_power_of_two() && start.is_power_of_two() && most_direct.is_power_of_two();
        if !powers || bits > 64 {
            return None;
        }
        let mut heap = Self {
            width,
            start,
            most_direct,
            offset_bytes: usize::from(bits).div_ceil(8),
            length_bytes: width_of(most_direct).min(width_of(most_managed)),
            huge_tree,
            blocks: BTreeMap::new(),
            is_whole: true,
        };
        let has_checksums = flags & 2 != 0;
        if let Some(root) = root {
            let mut seen = HashSet::new();
            if rows == 0 {
                heap.direct(reader, root, (0, start), address, has_checksums);
            } else {
                heap.indirect(reader, root, rows, 0, (address, has_checksums), &mut seen);
            }
        }
        if !heap.is_whole && has_checksums {
            heap.search(reader, address, scanned);
        }
        Some(heap)
    }

    /// Add the blocks of this heap whose parent is lost: each has the address of the heap, and a checksum.
    fn search(&mut self, reader: &Reader<'_>, heap: u64, scanned: &Scan<'_>) {
        for offset in scanned.of(Signature::HeapBlock) {
            let Some(address) = offset.checked_sub(reader.base) else { continue };
            let head = 5 + reader.offset_width + self.offset_bytes;
            let Some(start) = reader.read(address, head) else { continue };
            let mut at = Cursor::new(start.get(5..).unwrap_or_default());
            if reader.address(&mut at) != Some(heap) {
                continue;
            }
            let Ok(place) = at.number(self.offset_bytes) else { continue };
            if let Some(size) = self.block_at(place)
                && !self.blocks.contains_key(&place)
            {
                self.direct(reader, address, (place, size), heap, true);
            }
        }
    }

    /// Return the size of the direct block that begins at an offset of the heap.
    fn block_at(&self, mut place: u64) -> Option<u64> {
        let unit = self.start.checked_mul(self.width)?;
        loop {
            if place < unit {
                return Some(self.start);
            }
            // Blocks double from row to row; a row begins where all rows before it end.
            let doubled = (place / unit).ilog2();
            let size = self.start.checked_shl(doubled).filter(|size| size >> doubled == self.start)?;
            if size <= self.most_direct {
                return Some(size);
            }
            // In the indirect block that is there.
            place = (place - (unit << doubled)) % size;
        }
    }

    fn direct(
        &mut self,
        reader: &Reader<'_>,
        address: u64,
        (place, size): (u64, u64),
        heap: u64,
        has_checksums: bool,
    ) {
        let read = || {
            let mut bytes = reader.read(address, usize::try_from(size).ok()?)?;
            let mut at = Cursor::new(&bytes);
            at.expect(b"FHDB\0", "not a block").ok()?;
            let same = reader.address(&mut at) == Some(heap) && at.number(self.offset_bytes).ok()? == place;
            if has_checksums {
                let sum = at.u32().ok()?;
                let begin = bytes.len() - at.rest().len() - 4;
                // The checksum is that of the block with zeros in its place.
                bytes.get_mut(begin..begin + 4)?.fill(0);
                (lookup3(&bytes) == sum).then_some(())?;
            }
            reader.use_bytes(address, size);
            same.then_some(bytes)
        };
        match read() {
            Some(bytes) => drop(self.blocks.insert(place, bytes)),
            None => {
                self.is_whole = false;
                reader.note(BLOCK, address, size, None);
            }
        }
    }

    fn indirect(
        &mut self,
        reader: &Reader<'_>,
        address: u64,
        rows: u64,
        mut place: u64,
        (heap, has_checksums): (u64, bool),
        seen: &mut HashSet<u64>,
    ) {
        let read = || {
            let count = rows.checked_mul(self.width).filter(|count| *count <= MOST_CHILDREN)?;
            let head = 5 + reader.offset_width + self.offset_bytes;
            let length = head + reader.offset_width * count as usize + 4;
            let all = reader.read_checked(BLOCK, b"FHIB\0", address, length)?;
            let mut at = Cursor::new(all.get(head..)?);
            (0..count).map(|_| at.address(reader.offset_width)).collect::<Result<Vec<_>, _>>().ok()
        };
        let children = if seen.insert(address) { read() } else { None };
        let Some(children) = children else {
            self.is_whole = false;
            return;
        };
        for (number, child) in (0..).zip(children) {
            let row: u64 = number / self.width;
            let Some(size) =
                u32::try_from(row.saturating_sub(1)).ok().and_then(|row| self.start.checked_shl(row))
            else {
                return;
            };
            if let Some(child) = child {
                if size <= self.most_direct {
                    self.direct(reader, child, (place, size), heap, has_checksums);
                } else if size != 0 {
                    let rows =
                        u64::from(size.ilog2() - (self.start * self.width).ilog2().min(size.ilog2()) + 1);
                    self.indirect(reader, child, rows, place, (heap, has_checksums), seen);
                }
            }
            place = place.saturating_add(size);
        }
    }

    /// Return the object of an id; None if its block is lost.
    pub(crate) fn object(&self, reader: &Reader<'_>, id: &[u8]) -> Option<Vec<u8>> {
        const MANAGED: u8 = 0;
        const HUGE: u8 = 1;
        const TINY: u8 = 2;
        let mut at = Cursor::new(id);
        let first = at.u8().ok()?;
        match first >> 4 {
            MANAGED => {
                let offset = at.number(self.offset_bytes).ok()?;
                let length = at.length(self.length_bytes).ok()?;
                let (place, block) = self.blocks.range(..=offset).next_back()?;
                let begin = usize::try_from(offset - place).ok()?;
                Some(block.get(begin..begin.checked_add(length)?)?.to_vec())
            }
            HUGE => self.huge(reader, at.rest()),
            TINY => Some(at.take(usize::from(first & 15) + 1).ok()?.to_vec()),
            _ => None,
        }
    }

    /// Return an object that has its own place in the file, without a checksum.
    fn huge(&self, reader: &Reader<'_>, id: &[u8]) -> Option<Vec<u8>> {
        let tree = Tree::read(reader, self.huge_tree?).filter(|tree| tree.kind == 1)?;
        for record in tree.walk(reader).records {
            let mut at = Cursor::new(&record);
            let address = reader.address(&mut at);
            let length = at.length(reader.length_width).ok()?;
            let same = at.rest().iter().zip(id).all(|(one, other)| one == other);
            if same && let Some(address) = address {
                return reader.read(address, length);
            }
        }
        None
    }
}
