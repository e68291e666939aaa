//! Links and attributes outside the header of their object: a fractal heap of messages, and a version 2 B-tree of
//! their heap ids.
//!
//! All blocks have checksums, which HDF5 verifies, so no damage is reported here: an unreadable structure is "not known". Only
//! the objects and global heaps to which these messages point have no checksums. Format: HDF5 File Format Specification 4.0, III.A.2, III.G.

use std::cell::RefCell;

use crate::format::cursor::{Cursor, Known, NotKnown, Unread};
use crate::format::file::{File, Storage};
use crate::format::lookup3::{checked, lookup3};

const MOST_MESSAGES: u64 = 1 << 20;
const FREE_SPACE_BYTES: usize = 82;
const ODD: Unread = NotKnown("a heap or tree of another kind");

/// Read the messages of a heap whose ids are in a tree.
///
/// # Errors
/// Something is not known, or its checksum is wrong.
pub fn messages<S: Storage + ?Sized>(file: &File<'_, S>, heap: u64, tree: u64) -> Known<Vec<Vec<u8>>> {
    read_messages(file, heap, tree).map_err(|_| ODD)
}

fn read_messages<S: Storage + ?Sized>(file: &File<'_, S>, heap: u64, tree: u64) -> Known<Vec<Vec<u8>>> {
    if file.offset_width != 8 || file.length_width != 8 {
        return Err(ODD);
    }
    let heap = Heap::read(file, heap)?;
    let mut records = Vec::new();
    Tree::read(file, tree, &mut records)?;
    records.iter().map(|id| heap.object(file, id)).collect()
}

/// Return the bytes of a number of at most `most` (`H5VM_limit_enc_size`).
fn width_of(most: u64) -> usize {
    (most.max(1).ilog2() / 8 + 1) as usize
}

/// Read a block of `length` bytes; the result does not contain its checksum.
fn block<S: Storage + ?Sized>(file: &File<'_, S>, address: u64, length: usize) -> Known<Vec<u8>> {
    let mut bytes = file.read(address, length)?;
    let kept = checked(&bytes)?.len();
    bytes.truncate(kept);
    Ok(bytes)
}

/// Parameters of a fractal heap, and the direct block that was read last.
struct Heap {
    has_checksums: bool,
    width: u64,
    start: u64,
    most_direct: u64,
    offset_bytes: usize,
    length_bytes: usize,
    root: u64,
    rows: u64,
    last: RefCell<(u64, Vec<u8>)>,
}

/// Child of an indirect block: its address, the offset of its first byte in the heap, the bytes of a direct block, and
/// the rows of an indirect one (0 for a direct one).
struct Child {
    address: u64,
    offset: u64,
    bytes: u64,
    rows: u64,
}

impl Heap {
    fn read<S: Storage + ?Sized>(file: &File<'_, S>, address: u64) -> Known<Self> {
        let all = block(file, address, 146)?;
        let mut at = Cursor::new(&all);
        at.expect(b"FRHP\0", "not a fractal heap")?;
        at.take(2)?;
        if at.u16()? != 0 {
            return Err(NotKnown("a heap with filters"));
        }
        let has_checksums = at.u8()? & 2 != 0;
        let most_managed = u64::from(at.u32()?);
        at.take(3 * 8)?;
        if let Some(free_space) = at.address(8)? {
            block(file, free_space, FREE_SPACE_BYTES)?; // HDF5 verifies its checksum when it closes the heap
        }
        at.take(8 * 8)?;
        let width = u64::from(at.u16()?);
        let (start, most_direct) = (at.number(8)?, at.number(8)?);
        let bits = at.u16()?;
        at.take(2)?;
        let root = at.address(8)?.ok_or(ODD)?;
        let rows = u64::from(at.u16()?);
        if !width.is_power_of_two() || !start.is_power_of_two() || !most_direct.is_power_of_two() || bits > 64
        {
            return Err(ODD);
        }
        let length_bytes = width_of(most_direct).min(width_of(most_managed));
        Ok(Self {
            has_checksums,
            width,
            start,
            most_direct,
            offset_bytes: usize::from(bits).div_ceil(8),
            length_bytes,
            root,
            rows,
            last: RefCell::default(),
        })
    }

    /// Return the bytes of each block of a row.
    fn block_bytes(&self, row: u64) -> Known<u64> {
        let doubled = u32::try_from(row.saturating_sub(1)).map_err(|_| ODD)?;
        self.start.checked_shl(doubled).filter(|bytes| bytes >> doubled == self.start).ok_or(ODD)
    }

    fn object<S: Storage + ?Sized>(&self, file: &File<'_, S>, id: &[u8]) -> Known<Vec<u8>> {
        let mut at = Cursor::new(id);
        if at.u8()? != 0 {
            return Err(NotKnown("an object that is not in a block of the heap"));
        }
        let mut offset = at.number(self.offset_bytes)?;
        let length = at.length(self.length_bytes)?;
        let mut child = Child { address: self.root, offset: 0, bytes: self.start, rows: self.rows };
        while child.rows > 0 {
            child = self.child(file, child.address, child.rows, offset)?;
            offset -= child.offset;
        }
        let mut last = self.last.borrow_mut();
        if last.0 != child.address || last.1.is_empty() {
            *last = (child.address, self.direct_block(file, &child)?);
        }
        let begin = usize::try_from(offset).map_err(|_| ODD)?;
        let end = begin.checked_add(length).ok_or(ODD)?;
        Ok(last.1.get(begin..end).ok_or(ODD)?.to_vec())
    }

    /// Read a direct block, whose checksum is computed with zeros in its place.
    fn direct_block<S: Storage + ?Sized>(&self, file: &File<'_, S>, child: &Child) -> Known<Vec<u8>> {
        let bytes = file.read(child.address, usize::try_from(child.bytes).map_err(|_| ODD)?)?;
        let mut at = Cursor::new(&bytes);
        at.expect(b"FHDB\0", "not a direct block")?;
        at.take(8 + self.offset_bytes)?;
        if self.has_checksums {
            let begin = bytes.len() - at.rest().len();
            let sum = at.u32()?;
            let mut zeroed = bytes.clone();
            zeroed.get_mut(begin..begin + 4).ok_or(ODD)?.fill(0);
            if lookup3(&zeroed) != sum {
                return Err(ODD);
            }
        }
        Ok(bytes)
    }

    /// Return the child of an indirect block in which an offset is.
    fn child<S: Storage + ?Sized>(
        &self,
        file: &File<'_, S>,
        address: u64,
        rows: u64,
        offset: u64,
    ) -> Known<Child> {
        let count = rows.checked_mul(self.width).filter(|count| *count <= MOST_MESSAGES).ok_or(ODD)?;
        let entries = block(file, address, 13 + self.offset_bytes + 8 * count as usize + 4)?;
        let mut at = Cursor::new(&entries);
        at.expect(b"FHIB\0", "not an indirect block")?;
        at.take(8 + self.offset_bytes)?;
        let mut first = 0_u64;
        for row in 0..rows {
            let bytes = self.block_bytes(row)?;
            for _ in 0..self.width {
                let child = at.address(8)?;
                let end = first.checked_add(bytes).ok_or(ODD)?;
                if offset < end {
                    let rows = match bytes {
                        _ if bytes <= self.most_direct => 0,
                        _ => u64::from(bytes.ilog2() - (self.start * self.width).ilog2() + 1),
                    };
                    return Ok(Child { address: child.ok_or(ODD)?, offset: first, bytes, rows });
                }
                first = end;
            }
        }
        Err(ODD)
    }
}

/// Parameters of a version 2 B-tree.
struct Tree {
    node_bytes: usize,
    record_bytes: usize,
    /// Offset and length of the heap id in a record.
    id: (usize, usize),
}

impl Tree {
    fn read<S: Storage + ?Sized>(file: &File<'_, S>, address: u64, found: &mut Vec<Vec<u8>>) -> Known<()> {
        let all = block(file, address, 38)?;
        let mut at = Cursor::new(&all);
        at.expect(b"BTHD\0", "not a tree of version 2")?;
        let id = match at.u8()? {
            5 => (4, 7),
            8 => (0, 8),
            _ => return Err(ODD),
        };
        let node_bytes = at.length(4)?;
        let record_bytes = usize::from(at.u16()?);
        let depth = usize::from(at.u16()?);
        at.take(2)?;
        let (root, count, total) = (at.address(8)?, u64::from(at.u16()?), at.number(8)?);
        if record_bytes == 0 || node_bytes < 10 + record_bytes || depth > 8 || total > MOST_MESSAGES {
            return Err(ODD);
        }
        let tree = Self { node_bytes, record_bytes, id };
        // For each depth: largest number of records of a node, and of its subtree.
        let leaf = ((node_bytes - 10) / record_bytes) as u64;
        let mut most = vec![(leaf, leaf)];
        for depth in 1..=depth {
            let pointer = tree.pointer_bytes(&most, depth);
            let room = node_bytes.checked_sub(10 + pointer).ok_or(ODD)?;
            let records = (room / (record_bytes + pointer)) as u64;
            let below = most.last().map_or(0, |(_, below)| *below);
            most.push((records, (records + 1).saturating_mul(below).saturating_add(records)));
        }
        if let Some(root) = root {
            tree.node(file, root, count, depth, &most, found)?;
        }
        if found.len() as u64 == total { Ok(()) } else { Err(ODD) }
    }

    /// Return the bytes of a pointer to a child of a node at a depth.
    fn pointer_bytes(&self, most: &[(u64, u64)], depth: usize) -> usize {
        let records = most.first().map_or(0, |(records, _)| width_of(*records));
        let below = if depth > 1 { most.get(depth - 1).map_or(0, |(_, below)| width_of(*below)) } else { 0 };
        8 + records + below
    }

    fn node<S: Storage + ?Sized>(
        &self,
        file: &File<'_, S>,
        address: u64,
        count: u64,
        depth: usize,
        most: &[(u64, u64)],
        found: &mut Vec<Vec<u8>>,
    ) -> Known<()> {
        let count = usize::try_from(count).map_err(|_| ODD)?;
        let pointer = if depth > 0 { self.pointer_bytes(most, depth) } else { 0 };
        let pointers = if depth > 0 { (count + 1) * pointer } else { 0 };
        let length = 6 + count.saturating_mul(self.record_bytes) + pointers + 4;
        if length > self.node_bytes {
            return Err(ODD);
        }
        let all = block(file, address, length)?;
        let mut at = Cursor::new(&all);
        at.expect(if depth > 0 { b"BTIN\0" } else { b"BTLF\0" }, "not a node of the tree")?;
        at.take(1)?;
        for _ in 0..count {
            let record = at.take(self.record_bytes)?;
            let id = record.get(self.id.0..self.id.0 + self.id.1).ok_or(ODD)?;
            if found.len() as u64 >= MOST_MESSAGES {
                return Err(ODD);
            }
            found.push(id.to_vec());
        }
        if depth == 0 {
            return Ok(());
        }
        let records = most.first().map_or(0, |(records, _)| width_of(*records));
        for _ in 0..=count {
            let child = at.address(8)?.ok_or(ODD)?;
            let below = at.number(records)?;
            at.take(pointer - 8 - records)?;
            self.node(file, child, below, depth - 1, most, found)?;
        }
        Ok(())
    }
}
