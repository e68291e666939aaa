//! B-trees of chunks, of which nodes may be damaged.

use crate::format::cursor::Cursor;
use crate::salvage::dataset::Index;
use crate::salvage::index::chunks::{Collection, Proof};
use crate::salvage::reader::Reader;
use crate::salvage::tree2::{Tree, records_of_lone_node};

const NODE: &str = "node of a B-tree of chunks";
/// Kinds of version 2 B-trees: chunks without and with filters.
const UNFILTERED: u8 = 10;
const FILTERED: u8 = 11;
/// Largest number of children of a node (`H5F_CRT_BTREE_RANK`).
const MOST_CHILDREN: usize = 1 << 15;

/// An entry of a node of a version 1 B-tree.
struct Entry {
    size: u64,
    mask: u32,
    place: Vec<u64>,
    child: Option<u64>,
    /// Whether the entry can be right, and is in the order of its neighbours.
    is_plausible: bool,
}

/// A node of a version 1 B-tree.
pub(crate) struct Node {
    level: u8,
    left: Option<u64>,
    right: Option<u64>,
    entries: Vec<Entry>,
    /// The place before which all places of the node are; None for the last node, whose key is within the last chunk.
    end: Option<Vec<u64>>,
}

/// Of each node that was used: its address, its level, and the addresses of its neighbours.
type Used = Vec<(u64, u8, Option<u64>, Option<u64>)>;

/// Nodes to read: of each its address, its level, and the places between which its own must be.
type Open = Vec<(u64, Option<u8>, Option<Vec<u64>>, Option<Vec<u64>>)>;

impl Node {
    /// Read a node; None if it cannot be one of this dataset.
    fn read(collection: &Collection<'_>, address: u64, level: Option<u8>) -> Option<Self> {
        let reader = collection.reader;
        let head = 8 + 2 * reader.offset_width;
        let start = reader.read(address, head)?;
        let mut at = Cursor::new(&start);
        at.expect(b"TREE\x01", "not a tree of chunks").ok()?;
        let here = at.u8().ok()?;
        let count = usize::from(at.u16().ok()?);
        let (left, right) = (at.address(reader.offset_width).ok()?, at.address(reader.offset_width).ok()?);
        if level.is_some_and(|level| level != here) || count > MOST_CHILDREN {
            return None;
        }
        let axes = collection.shape.len();
        let key_bytes = 8 + 8 * (axes + 1);
        let rest = reader
            .read(address.checked_add(head as u64)?, count * (key_bytes + reader.offset_width) + key_bytes)?;
        let mut at = Cursor::new(&rest);
        let mut key = |with_child: bool| {
            let (size, mask) = (u64::from(at.u32().ok()?), at.u32().ok()?);
            let place = (0..axes).map(|_| at.number(8)).collect::<Result<Vec<_>, _>>().ok()?;
            let last = at.number(8).ok()?;
            let child = if with_child { reader.address(&mut at) } else { None };
            Some((Entry { size, mask, place, child, is_plausible: true }, last))
        };
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            let (mut entry, last) = key(true)?;
            entry.is_plausible = last == 0
                && collection.is_place(&entry.place)
                && entry.child.is_some_and(|child| {
                    if here == 0 { collection.is_storage(child, entry.size) } else { reader.has(child, 8) }
                });
            entries.push(entry);
        }
        let (end, last) = key(false)?;
        let end = (last == 0).then_some(end.place);
        let mut node = Self { level: here, left, right, entries, end };
        node.check_order();
        Some(node)
    }

    /// Take an entry that is not between its neighbours for damaged, as one of the two must be.
    fn check_order(&mut self) {
        let places: Vec<&Vec<u64>> = self.entries.iter().map(|entry| &entry.place).collect();
        let mut in_order: Vec<bool> =
            places.windows(2).map(|pair| matches!(pair, [one, other] if one < other)).collect();
        in_order.extend(places.last().map(|last| self.end.as_ref().is_none_or(|end| *last < end)));
        let before = std::iter::once(&true).chain(&in_order);
        for ((entry, before), after) in self.entries.iter_mut().zip(before).zip(&in_order) {
            entry.is_plausible &= before & after;
        }
    }
}

impl Collection<'_> {
    pub(crate) fn tree1(&mut self, root: u64) {
        let mut used = Used::new();
        self.walk1(vec![(root, None, None, None)], &mut used);
        if !self.lost.is_empty() {
            self.follow_neighbours(&mut used);
        }
    }

    /// Read nodes and all below them.
    fn walk1(&mut self, mut nodes: Open, used: &mut Used) {
        while let Some((address, level, first, end)) = nodes.pop() {
            let offset = self.reader.offset_of(address);
            let node = Node::read(self, address, level).filter(|node| {
                let begins = node.entries.first().is_none_or(|entry| Some(&entry.place) >= first.as_ref());
                let ends = end.as_ref().is_none_or(|end| node.end.as_ref().is_none_or(|last| last <= end));
                (begins || !node.entries.iter().any(|entry| entry.is_plausible))
                    && (ends || node.entries.is_empty())
            });
            let Some(node) = node.filter(|_| self.nodes.insert(offset)) else {
                self.reader.note(NODE, address, 8, None);
                self.lose(offset, first, end);
                continue;
            };
            self.add_node(address, &node, &mut nodes, used);
        }
    }

    fn add_node(&mut self, address: u64, node: &Node, nodes: &mut Open, used: &mut Used) {
        let offset = self.reader.offset_of(address);
        let entry_bytes = 8 + 8 * (self.shape.len() + 1) + self.reader.offset_width;
        self.reader.use_bytes(address, (24 + node.entries.len() * entry_bytes) as u64);
        used.push((address, node.level, node.left, node.right));
        let ends = node.entries.iter().skip(1).map(|entry| Some(&entry.place)).chain([node.end.as_ref()]);
        for (entry, end) in node.entries.iter().zip(ends) {
            let Some(child) = entry.child.filter(|_| entry.is_plausible) else {
                self.reader.note(NODE, address, 8, None);
                self.lose(offset, Some(entry.place.clone()), end.cloned());
                continue;
            };
            match node.level.checked_sub(1) {
                Some(below) => nodes.push((child, Some(below), Some(entry.place.clone()), end.cloned())),
                None => self.add(&entry.place, child, entry.size, entry.mask, Proof::Unchecked),
            }
        }
    }

    /// Read nodes whose parent is lost, if a node of this tree and they name each other as neighbours.
    fn follow_neighbours(&mut self, used: &mut Used) {
        let mut next = 0;
        while let Some((address, level, left, right)) = used.get(next).copied() {
            next += 1;
            for (other, is_right) in [(left, false), (right, true)] {
                let is_new = |other: &u64| !self.nodes.contains(&self.reader.offset_of(*other));
                let Some(other) = other.filter(is_new) else { continue };
                let Some(node) = Node::read(self, other, Some(level)) else { continue };
                if (if is_right { node.left } else { node.right }) != Some(address) {
                    continue;
                }
                self.nodes.insert(self.reader.offset_of(other));
                let mut below = Open::new();
                self.add_node(other, &node, &mut below, used);
                self.walk1(below, used);
            }
        }
    }

    /// Return kind, bytes of a record and of a node of the version 2 B-tree.
    fn tree2_form(&self) -> Option<(u8, usize, usize)> {
        let Index::BTree2 { node_bytes } = self.chunked.index else { return None };
        let (element, _) = self.stored_widths();
        let kind = if self.is_filtered { FILTERED } else { UNFILTERED };
        Some((kind, element + 8 * self.shape.len(), node_bytes as usize))
    }

    pub(crate) fn tree2(&mut self, address: u64) {
        let Some((kind, record_bytes, _)) = self.tree2_form() else { return };
        let tree = Tree::read(self.reader, address);
        let Some(tree) = tree.filter(|tree| tree.kind == kind && tree.record_bytes == record_bytes) else {
            self.lose(self.reader.offset_of(address), None, None);
            return;
        };
        let walk = tree.walk(self.reader);
        for record in walk.records {
            self.record(&record, Proof::Checked);
        }
        for (offset, before, after) in walk.lost {
            let place =
                |record: Option<Vec<u8>>| record.and_then(|record| self.parse(&record)).map(|chunk| chunk.0);
            let (first, end) = (place(before), place(after));
            self.lose(offset, first, end);
        }
        self.nodes.extend(walk.nodes);
    }

    /// Return place, address, size and filter mask of a record.
    fn parse(&self, record: &[u8]) -> Option<(Vec<u64>, u64, u64, u32)> {
        let mut at = Cursor::new(record);
        let address = self.reader.address(&mut at)?;
        let (_, size_width) = self.stored_widths();
        let (size, mask) = if self.is_filtered {
            (at.number(size_width).ok()?, at.u32().ok()?)
        } else {
            (self.chunk_bytes, 0)
        };
        let place = self.chunked.chunk.iter().map(|one| at.number(8).ok()?.checked_mul(*one));
        Some((place.collect::<Option<Vec<u64>>>()?, address, size, mask))
    }

    fn record(&mut self, record: &[u8], proof: Proof) {
        if let Some((place, address, size, mask)) = self.parse(record) {
            self.add(&place, address, size, mask, proof);
        }
    }

    /// Return the chunks of a node that no tree names, if the node can be one of this dataset.
    pub(crate) fn lone_node(&self, reader: &Reader<'_>, address: u64) -> Option<Vec<LoneChunk>> {
        if let Some((kind, record_bytes, node_bytes)) = self.tree2_form() {
            let records = records_of_lone_node(reader, address, kind, node_bytes, record_bytes)?;
            let chunks: Option<Vec<_>> = records.iter().map(|record| self.parse(record)).collect();
            return chunks.filter(|chunks| {
                chunks
                    .iter()
                    .all(|(place, address, size, _)| self.is_place(place) && self.is_storage(*address, *size))
            });
        }
        if self.chunked.index != Index::BTree1 {
            return None;
        }
        let node = Node::read(self, address, Some(0))?;
        if node.entries.is_empty() || !node.entries.iter().all(|entry| entry.is_plausible) {
            return None;
        }
        Some(
            node.entries
                .into_iter()
                .filter_map(|entry| Some((entry.place, entry.child?, entry.size, entry.mask)))
                .collect(),
        )
    }
}

/// Place, address, size and filter mask of a chunk.
pub(crate) type LoneChunk = (Vec<u64>, u64, u64, u32);
