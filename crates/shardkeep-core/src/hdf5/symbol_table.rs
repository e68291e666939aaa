//! The links of an old group: a B-tree (version 1) of nodes of entries, whose names are in a local heap.

use std::cmp::Ordering;

use super::cursor::{Cursor, Known, NotKnown};
use super::file::{File, Storage};
use super::links::Link;

const SOFT_LINK: u32 = 2;

/// The symbol table of a group.
pub struct SymbolTable<'a, 'b, S: Storage + ?Sized> {
    file: &'a File<'b, S>,
    tree: u64,
    names: Vec<u8>,
}

/// A node of the tree.
struct Node {
    level: u8,
    /// Of each child, with the place of the last name in it.
    children: Vec<(u64, u64)>,
}

impl<S: Storage + ?Sized> std::fmt::Debug for SymbolTable<'_, '_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SymbolTable").field("tree", &self.tree).finish_non_exhaustive()
    }
}

impl<'a, 'b, S: Storage + ?Sized> SymbolTable<'a, 'b, S> {
    /// # Errors
    /// The message or the heap is not as it should be.
    pub fn new(file: &'a File<'b, S>, message: &[u8]) -> Known<Self> {
        let mut cursor = Cursor::new(message);
        let tree = cursor.address(file.offset_width)?.ok_or(NotKnown("a group without a tree"))?;
        let heap = cursor.address(file.offset_width)?.ok_or(NotKnown("a group without a heap"))?;
        let start = file.start(heap)?;
        let mut cursor = Cursor::new(&start);
        cursor.expect(b"HEAP\0\0\0\0", "not a local heap")?;
        let length = cursor.length(file.length_width)?;
        cursor.take(file.length_width)?;
        let data = cursor.address(file.offset_width)?.ok_or(NotKnown("a heap without data"))?;
        Ok(Self { file, tree, names: file.read(data, length)? })
    }

    /// The first links, in the order of their names.
    ///
    /// # Errors
    /// The tree is not as it should be; as of what follows.
    pub fn links(&self, most: usize) -> Known<Vec<Link>> {
        let mut found = Vec::new();
        self.collect(self.tree, None, most, &mut found)?;
        found.truncate(most);
        Ok(found)
    }

    /// The link of a name.
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

    fn collect(&self, address: u64, above: Option<u8>, most: usize, found: &mut Vec<Link>) -> Known<()> {
        let node = self.node(address, above)?;
        for (_, child) in node.children {
            if found.len() >= most {
                break;
            }
            if node.level == 0 {
                found.append(&mut self.entries(child)?);
            } else {
                self.collect(child, Some(node.level), most, found)?;
            }
        }
        Ok(())
    }

    /// A node, which lies one below the one `above` it: so no path is longer than 256 of them.
    fn node(&self, address: u64, above: Option<u8>) -> Known<Node> {
        let (offset, length) = (self.file.offset_width, self.file.length_width);
        let start = self.file.start(address)?;
        let mut cursor = Cursor::new(&start);
        cursor.expect(b"TREE\0", "not a tree of links")?;
        let level = cursor.u8()?;
        if above.is_some_and(|above| above.checked_sub(1) != Some(level)) {
            return Err(NotKnown("a tree with another height"));
        }
        let count = usize::from(cursor.u16()?);
        let head = 8 + 2 * offset;
        let all = self.file.whole(start, address, head + count * (offset + length) + length)?;
        let mut cursor = Cursor::new(&all);
        cursor.take(head + length)?;
        let children = (0..count).map(|_| {
            let child = cursor.address(offset)?.ok_or(NotKnown("a tree without a child"))?;
            Ok((cursor.number(length)?, child))
        });
        Ok(Node { level, children: children.collect::<Known<_>>()? })
    }

    fn entries(&self, address: u64) -> Known<Vec<Link>> {
        let offset = self.file.offset_width;
        let start = self.file.start(address)?;
        let mut cursor = Cursor::new(&start);
        cursor.expect(b"SNOD\x01\0", "not a node of links")?;
        let count = usize::from(cursor.u16()?);
        let all = self.file.whole(start, address, 8 + count * (2 * offset + 24))?;
        let mut cursor = Cursor::new(&all);
        cursor.take(8)?;
        let mut links: Vec<Link> = Vec::with_capacity(count);
        for _ in 0..count {
            let name = self.name(cursor.number(offset)?)?.to_vec();
            let object = cursor.address(offset)?;
            let cached = cursor.u32()?;
            cursor.take(4 + 16)?;
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
        Cursor::new(rest.ok_or(NotKnown("a name outside its heap"))?).text()
    }
}
