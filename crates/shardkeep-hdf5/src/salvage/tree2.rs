//! B-trees of version 2, of which nodes may be damaged.

use crate::format::cursor::Cursor;
use crate::salvage::reader::Reader;

const DEEPEST: usize = 8;

/// A version 2 B-tree.
pub(crate) struct Tree {
    pub(crate) kind: u8,
    node_bytes: usize,
    pub(crate) record_bytes: usize,
    depth: usize,
    root: Option<u64>,
    root_records: u64,
    /// Bytes of a pointer to a child of a node, for each depth.
    pointers: Vec<usize>,
    /// Bytes of the number of records of a node.
    count_bytes: usize,
}

/// The contents of a tree that were found.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    pub(crate) records: Vec<Vec<u8>>,
    /// Lost nodes; None instead of a record at the ends.
    pub(crate) lost: Vec<LostNode>,
    /// Offsets of all nodes that were found.
    pub(crate) nodes: Vec<u64>,
}

/// Offset of a node, and the records before and after it.
pub(crate) type LostNode = (u64, Option<Vec<u8>>, Option<Vec<u8>>);

/// Return the bytes of a number of at most `most` (`H5VM_limit_enc_size`).
pub(crate) fn width_of(most: u64) -> usize {
    (most.max(1).ilog2() / 8 + 1) as usize
}

impl Tree {
    /// Read the header of a tree; None if it is damaged.
    pub(crate) fn read(reader: &Reader<'_>, address: u64) -> Option<Self> {
        let length = 22 + reader.offset_width + reader.length_width;
        let all = reader.read_checked("header of a B-tree of version 2", b"BTHD\0", address, length)?;
        let mut at = Cursor::new(all.get(5..)?);
        let kind = at.u8().ok()?;
        let node_bytes = at.length(4).ok()?;
        let record_bytes = usize::from(at.u16().ok()?);
        let depth = usize::from(at.u16().ok()?);
        at.take(2).ok()?;
        let root = reader.address(&mut at);
        let root_records = at.u16().ok()?.into();
        Self::new(reader, kind, node_bytes, record_bytes, depth, (root, root_records))
    }

    /// Return a tree of given parameters; for each depth: largest number of records of a node, and of its subtree.
    fn new(
        reader: &Reader<'_>,
        kind: u8,
        node_bytes: usize,
        record_bytes: usize,
        depth: usize,
        (root, root_records): (Option<u64>, u64),
    ) -> Option<Self> {
        if record_bytes == 0 || node_bytes < 10 + record_bytes || depth > DEEPEST {
            return None;
        }
        let leaf = ((node_bytes - 10) / record_bytes) as u64;
        let count_bytes = width_of(leaf);
        let mut below = leaf;
        let mut pointers = vec![0];
        for level in 1..=depth {
            let subtree = if level > 1 { width_of(below) } else { 0 };
            let pointer = reader.offset_width + count_bytes + subtree;
            let records = (node_bytes.checked_sub(10 + pointer)? / (record_bytes + pointer)) as u64;
            below = (records + 1).saturating_mul(below).saturating_add(records);
            pointers.push(pointer);
        }
        Some(Self { kind, node_bytes, record_bytes, depth, root, root_records, pointers, count_bytes })
    }

    /// Read all nodes that are not damaged, in the order of their records.
    pub(crate) fn walk(&self, reader: &Reader<'_>) -> Walk {
        let mut walk = Walk::default();
        if let Some(root) = self.root {
            self.node(reader, root, self.root_records, self.depth, (None, None), &mut walk);
        }
        walk
    }

    fn node(
        &self,
        reader: &Reader<'_>,
        address: u64,
        count: u64,
        depth: usize,
        bounds: (Option<&[u8]>, Option<&[u8]>),
        walk: &mut Walk,
    ) {
        let read = || {
            let count = usize::try_from(count).ok()?;
            let pointer = *self.pointers.get(depth)?;
            let pointers = if depth > 0 { (count + 1).saturating_mul(pointer) } else { 0 };
            let length = count.saturating_mul(self.record_bytes).saturating_add(pointers).saturating_add(10);
            let signature: &[u8] = if depth > 0 { b"BTIN\0" } else { b"BTLF\0" };
            if length > self.node_bytes {
                return None;
            }
            let all = reader.read_checked("node of a B-tree of version 2", signature, address, length)?;
            let mut at = Cursor::new(all.get(5..)?);
            (at.u8().ok()? == self.kind).then_some(())?;
            let records: Vec<Vec<u8>> = (0..count)
                .map(|_| at.take(self.record_bytes).map(<[u8]>::to_vec))
                .collect::<Result<_, _>>()
                .ok()?;
            let mut children = Vec::new();
            for _ in 0..if depth > 0 { count + 1 } else { 0 } {
                let child = at.address(reader.offset_width).ok()?;
                let below = at.number(self.count_bytes).ok()?;
                at.take(pointer - reader.offset_width - self.count_bytes).ok()?;
                children.push((child, below));
            }
            Some((records, children))
        };
        let Some((records, children)) = read() else {
            reader.note("node of a B-tree of version 2", address, self.node_bytes as u64, None);
            walk.lost.push((
                reader.offset_of(address),
                bounds.0.map(<[u8]>::to_vec),
                bounds.1.map(<[u8]>::to_vec),
            ));
            return;
        };
        walk.nodes.push(reader.offset_of(address));
        if depth == 0 {
            walk.records.extend(records);
            return;
        }
        let mut left = bounds.0;
        let mut next = records.iter();
        for (child, below) in children {
            let record = next.next();
            let right = record.map(Vec::as_slice).or(bounds.1);
            if let Some(child) = child {
                self.node(reader, child, below, depth - 1, (left, right), walk);
            }
            if let Some(record) = record {
                walk.records.push(record.clone());
                left = Some(record);
            }
        }
    }
}

/// Return the records of a node that no tree names, whose number nothing tells: the checksum behind them does.
pub(crate) fn records_of_lone_node(
    reader: &Reader<'_>,
    address: u64,
    kind: u8,
    node_bytes: usize,
    record_bytes: usize,
) -> Option<Vec<Vec<u8>>> {
    let all = reader.read_some(address, node_bytes)?;
    let is_leaf = all.starts_with(b"BTLF\0");
    if !(is_leaf || all.starts_with(b"BTIN\0")) || all.get(5) != Some(&kind) {
        return None;
    }
    let depths = if is_leaf { 0..=0 } else { 1..=3 };
    for depth in depths {
        let tree = Tree::new(reader, kind, node_bytes, record_bytes, depth, (None, 0))?;
        let pointer = *tree.pointers.last()?;
        for count in 1.. {
            let pointers = if depth > 0 { (count + 1) * pointer } else { 0 };
            let Some(node) = all.get(..10 + count * record_bytes + pointers) else { break };
            if crate::salvage::reader::is_right(node) {
                reader.use_bytes(address, node.len() as u64);
                let records = node.get(6..6 + count * record_bytes)?;
                return Some(records.chunks_exact(record_bytes).map(<[u8]>::to_vec).collect());
            }
        }
    }
    None
}
