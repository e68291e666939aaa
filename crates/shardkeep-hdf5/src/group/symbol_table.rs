//! Symbol tables, the links of old groups: a version 1 B-tree of nodes of entries, with their names in a local heap.

use std::cmp::Ordering;

use crate::format::cursor::{Cursor, Known, NotKnown, Unread};
use crate::format::file::{File, Storage};
use crate::group::links::Link;

const SOFT_LINK: u32 = 2;
/// End of the list of free parts of a heap.
const NO_FREE: u64 = 1;
const NOWHERE: u64 = u64::MAX;

/// The symbol table of a group.
pub struct SymbolTable<'a, 'b, S: Storage + ?Sized> {
    file: &'a File<'b, S>,
    tree: u64,
    names: Vec<u8>,
}

/// A node of the tree.
struct Node {
    level: u8,
    siblings: (Option<u64>, Option<u64>),
    /// Offset of a name that is less than all names in the node.
    first: u64,
    /// Offset of the last name in each child, and address of the child.
    children: Vec<(u64, u64)>,
}

/// The links found so far.
struct Walk {
    most: usize,
    found: Vec<Link>,
    /// The last node of each level and its right neighbour.
    siblings: Vec<(u64, Option<u64>)>,
}

impl Walk {
    fn check_siblings(&mut self, address: u64, node: &Node) -> Known<()> {
        siblings_agree(&mut self.siblings, node.level, address, node.siblings)
    }
}

/// Check that the nodes of a version 1 B-tree name each other as neighbours; they are visited from left to right.
///
/// # Errors
/// A node names another neighbour.
pub(crate) fn siblings_agree(
    last: &mut Vec<(u64, Option<u64>)>,
    level: u8,
    address: u64,
    (left, right): (Option<u64>, Option<u64>),
) -> Known<()> {
    let level = usize::from(level);
    let before = last.get(level).copied().filter(|(address, _)| *address != NOWHERE);
    if left != before.map(|(address, _)| address) || before.is_some_and(|(_, right)| right != Some(address)) {
        return Err(NotKnown("a tree whose nodes are not neighbours"));
    }
    if last.len() <= level {
        last.resize(level + 1, (NOWHERE, None));
    }
    if let Some(last) = last.get_mut(level) {
        *last = (address, right);
    }
    Ok(())
}

/// Read the data of a local heap.
fn read_heap<S: Storage + ?Sized>(file: &File<'_, S>, heap: u64) -> Known<Vec<u8>> {
    let start = file.start(heap)?;
    let mut cursor = Cursor::new(&start);
    cursor.expect(b"HEAP\0", "not a local heap").map_err(Unread::as_damage)?;
    cursor.take(3)?;
    let length = cursor.length(file.length_width)?;
    let free = cursor.number(file.length_width)?;
    let data = cursor.address(file.offset_width)?.ok_or(NotKnown("a heap without data"))?;
    let names = file.read(data, length)?;
    check_free(&names, free, file.length_width)?;
    Ok(names)
}

/// Check that the free parts of a heap are a list within it; HDF5 follows the list before it reads a name.
fn check_free(heap: &[u8], mut free: u64, width: usize) -> Known<()> {
    // A free part has at least two numbers.
    for _ in 0..=heap.len() / (2 * width) {
        if free == NO_FREE {
            return Ok(());
        }
        let rest = usize::try_from(free).ok().and_then(|at| heap.get(at..));
        let mut cursor = Cursor::new(rest.ok_or(Unread::damaged("a free part outside its heap"))?);
        let next = cursor.number(width).map_err(Unread::as_damage)?;
        let size = cursor.length(width).map_err(Unread::as_damage)?;
        if next == 0 || rest.is_none_or(|rest| size > rest.len()) {
            return Err(Unread::damaged("a free part outside its heap"));
        }
        free = next;
    }
    Err(Unread::damaged("free parts in a circle"))
}

impl<S: Storage + ?Sized> std::fmt::Debug for SymbolTable<'_, '_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SymbolTable").field("tree", &self.tree).finish_non_exhaustive()
    }
}

impl<'a, 'b, S: Storage + ?Sized> SymbolTable<'a, 'b, S> {
    /// Read the names of a symbol table.
    ///
    /// # Errors
    /// The message or the heap is not known, or damaged.
    pub fn new(file: &'a File<'b, S>, message: &[u8]) -> Known<Self> {
        let mut cursor = Cursor::new(message);
        let tree = cursor.address(file.offset_width)?.ok_or(NotKnown("a group without a tree"))?;
        let heap = cursor.address(file.offset_width)?.ok_or(NotKnown("a group without a heap"))?;
        let names = read_heap(file, heap).map_err(|error| error.at(file.offset_of(heap)))?;
        Ok(Self { file, tree, names })
    }

    /// Return the first links in the order of their names.
    ///
    /// # Errors
    /// The tree is not known, or damaged.
    pub fn links(&self, most: usize) -> Known<Vec<Link>> {
        let mut walk = Walk { most, found: Vec::new(), siblings: Vec::new() };
        self.collect(self.tree, None, &mut walk)?;
        // After an incomplete walk the last nodes may have right neighbours.
        if walk.found.len() < most && walk.siblings.iter().any(|(_, right)| right.is_some()) {
            return Err(NotKnown("a tree with an unreachable node"));
        }
        walk.found.truncate(most);
        Ok(walk.found)
    }

    /// Return the link of a name.
    pub fn link(&self, name: &[u8]) -> Known<Option<Link>> {
        let (mut address, mut above) = (self.tree, None);
        loop {
            let node = self.node(address, above)?;
            let mut child = None;
            for (last, address) in node.children {
                if name <= self.name(last)? {
                    child = Some(address);
                    break;
                }
            }
            let Some(child) = child else { return Ok(None) };
            if node.level == 0 {
                return Ok(self.entries(child)?.into_iter().find(|link| link.name == name));
            }
            (address, above) = (child, Some(node.level));
        }
    }

    /// Return the header addresses of all objects, without a check of the order of names.
    ///
    /// # Errors
    /// A node is damaged. HDF5 loops forever over a child that is its own ancestor.
    pub fn objects(&self) -> Known<Vec<u64>> {
        let mut found = Vec::new();
        let mut nodes = vec![(self.tree, None)];
        while let Some((address, above)) = nodes.pop() {
            let here = self.file.offset_of(address);
            let node = self.node(address, above).map_err(|error| error.at(here))?;
            for (_, child) in node.children {
                if node.level > 0 {
                    nodes.push((child, Some(node.level)));
                    continue;
                }
                let here = self.file.offset_of(child);
                let entries = self.raw_entries(child).map_err(|error| error.at(here))?;
                for (name, object, cached) in entries {
                    self.name(name).map_err(|error| error.at(here))?;
                    found.extend(object.filter(|_| cached != SOFT_LINK));
                }
            }
        }
        Ok(found)
    }

    fn collect(&self, address: u64, above: Option<u8>, walk: &mut Walk) -> Known<()> {
        let node = self.node(address, above)?;
        walk.check_siblings(address, &node)?;
        let mut left = self.name(node.first)?;
        for (last, child) in node.children {
            if walk.found.len() >= walk.most {
                break;
            }
            // HDF5 searches by these names, and iterates without them.
            let right = self.name(last)?;
            if node.level == 0 {
                let mut entries = self.entries(child)?;
                if entries.iter().any(|link| link.name.as_slice() <= left || link.name.as_slice() > right) {
                    return Err(NotKnown("links outside the bounds of their node"));
                }
                walk.found.append(&mut entries);
            } else {
                self.collect(child, Some(node.level), walk)?;
            }
            left = right;
        }
        Ok(())
    }

    /// Read a node that is one level below the node `above`, so no path is longer than 256 nodes.
    fn node(&self, address: u64, above: Option<u8>) -> Known<Node> {
        let (offset, length) = (self.file.offset_width, self.file.length_width);
        let start = self.file.start(address)?;
        let mut cursor = Cursor::new(&start);
        cursor.expect(b"TREE\0", "not a tree of links").map_err(Unread::as_damage)?;
        let level = cursor.u8()?;
        if above.is_some_and(|above| above.checked_sub(1) != Some(level)) {
            return Err(Unread::damaged("a tree with another height"));
        }
        let count = usize::from(cursor.u16()?);
        let head = 8 + 2 * offset;
        let all = self.file.whole(start, address, head + count * (offset + length) + length)?;
        let mut cursor = Cursor::new(&all);
        cursor.take(8)?;
        let siblings = (cursor.address(offset)?, cursor.address(offset)?);
        let first = cursor.number(length)?;
        let children = (0..count).map(|_| {
            let child = cursor.address(offset)?.ok_or(Unread::damaged("a tree without a child"))?;
            Ok((cursor.number(length)?, child))
        });
        Ok(Node { level, siblings, first, children: children.collect::<Known<_>>()? })
    }

    /// Return offset of the name, header address, and kind of the cached data of each entry.
    fn raw_entries(&self, address: u64) -> Known<Vec<(u64, Option<u64>, u32)>> {
        let offset = self.file.offset_width;
        let start = self.file.start(address)?;
        let mut cursor = Cursor::new(&start);
        cursor.expect(b"SNOD\x01", "not a node of links").map_err(Unread::as_damage)?;
        cursor.take(1)?;
        let count = usize::from(cursor.u16()?);
        let all = self.file.whole(start, address, 8 + count * (2 * offset + 24))?;
        let mut cursor = Cursor::new(&all);
        cursor.take(8)?;
        let entries = (0..count).map(|_| {
            let entry = (cursor.number(offset)?, cursor.address(offset)?, cursor.u32()?);
            cursor.take(4 + 16)?;
            Ok(entry)
        });
        entries.collect()
    }

    fn entries(&self, address: u64) -> Known<Vec<Link>> {
        let entries = self.raw_entries(address)?;
        let mut links: Vec<Link> = Vec::with_capacity(entries.len());
        for (name, object, cached) in entries {
            let name = self.name(name)?.to_vec();
            if links.last().is_some_and(|last| last.name.cmp(&name) != Ordering::Less) {
                return Err(NotKnown("links out of their order"));
            }
            let object = match cached {
                0 | 1 => Some(object.ok_or(NotKnown("a link to nowhere"))?),
                SOFT_LINK => None,
                _ => return Err(NotKnown("another kind of link")),
            };
            links.push(Link { name, object });
        }
        Ok(links)
    }

    fn name(&self, at: u64) -> Known<&[u8]> {
        let rest = usize::try_from(at).ok().and_then(|at| self.names.get(at..));
        Cursor::new(rest.ok_or(Unread::damaged("a name outside its heap"))?).text().map_err(Unread::as_damage)
    }
}
