//! Damage in what HDF5 follows without a checksum, found before HDF5 is asked.
//!
//! HDF5 (1.14, 2.0) walks for ever, or until the stack ends, over structures that lead back to themselves: a free part of
//! size 0 in a global heap, a list of free parts in a local heap, a header that continues in itself, a node of a version 1
//! B-tree that is its own child. It holds the interpreter's lock meanwhile. So all objects that a path leads to are read here
//! first, and the global heaps that their attributes (and, if asked, their rows) point to.
//!
//! *Damage* is only what no writer leaves and HDF5 refuses or does not survive. What is merely not known ends the walk at
//! that place, and HDF5 is asked.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use crate::damage::heap_pointers::{Collections, value_type};
use crate::damage::variable_rows::check_rows;
use crate::format::cursor::{Cursor, Known, NotKnown, Unread};
use crate::format::file::{File, Storage};
use crate::format::global_heap::read_object;
use crate::format::lookup3::checked;
use crate::format::object_header::{Message, ObjectHeader, kind};
use crate::group::dense_storage::messages;
use crate::group::links::Link;
use crate::group::symbol_table::SymbolTable;
use crate::inspect::attribute_form::type_and_values;
use shardkeep_core::io::descriptor_pool::TransientFile;

const SHARED: u8 = 0x02;
const ATTRIBUTE: u16 = 0x0c;
const ATTRIBUTE_INFO: u16 = 0x15;
/// The number of this index in a layout message of version 4.
const VERSION_2_TREE: u8 = 5;
/// Kind, level and number of children of a node, and its neighbours.
const NODE_HEAD_BYTES: usize = 24;

/// What is damaged, and where, counted from the first byte of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    pub what: &'static str,
    pub offset_bytes: Option<u64>,
}

/// How much of a file is read.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// Objects and nodes of trees.
    pub most_structures: usize,
    /// Whether to check what the rows of datasets point to as well.
    pub rows: bool,
}

/// Find damage in the file of a path.
///
/// With `lock` it is locked while it is read, as HDF5 does it.
///
/// # Errors
/// It was not read: it cannot be opened, is not a regular file, or is locked by a writer.
pub fn find_in(path: &Path, lock: bool, extent: Extent) -> io::Result<Option<Damage>> {
    let file = TransientFile::open(path)?;
    if file.status()?.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    match if lock { file.lock_shared() } else { Ok(()) } {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
        // Without locks HDF5 reads it all the same.
        _ => Ok(find(&file, extent)),
    }
}

/// Find damage in a file that is not being written.
#[must_use]
pub fn find<S: Storage + ?Sized>(storage: &S, extent: Extent) -> Option<Damage> {
    match File::open_marked(storage).and_then(|file| Walk::new(&file, extent).run()) {
        Err(Unread::Damaged { what, offset_bytes }) => Some(Damage { what, offset_bytes }),
        Err(NotKnown(_)) | Ok(()) => None,
    }
}

struct Walk<'a, 'b, S: Storage + ?Sized> {
    file: &'a File<'b, S>,
    extent: Extent,
    left: usize,
    seen: HashSet<u64>,
    objects: Vec<u64>,
    collections: Collections,
}

/// Pass damage on; what is not known ends the reading of this part only.
fn or_skip<T>(found: Known<T>, here: u64) -> Known<Option<T>> {
    match found.map_err(|error| error.at(here)) {
        Ok(found) => Ok(Some(found)),
        Err(NotKnown(_)) => Ok(None),
        damaged => damaged.map(Some),
    }
}

impl<'a, 'b, S: Storage + ?Sized> Walk<'a, 'b, S> {
    fn new(file: &'a File<'b, S>, extent: Extent) -> Self {
        let root = file.root_address();
        Self {
            file,
            extent,
            left: extent.most_structures,
            seen: HashSet::from([root]),
            objects: vec![root],
            collections: Collections::default(),
        }
    }

    fn run(&mut self) -> Known<()> {
        if self.file.is_cut_off() {
            return Ok(()); // HDF5 refuses it, and says by how much
        }
        while let Some(address) = self.objects.pop() {
            let here = self.file.offset_of(address);
            self.count()?;
            if let Some((header, _)) = or_skip(ObjectHeader::read_any(self.file, address), here)? {
                self.object(&header, here)?;
            }
        }
        Ok(())
    }

    /// Count a structure.
    fn count(&mut self) -> Known<()> {
        self.left = self.left.checked_sub(1).ok_or(NotKnown("many objects"))?;
        Ok(())
    }

    fn object(&mut self, header: &ObjectHeader, here: u64) -> Known<()> {
        for message in header.messages().iter().filter(|message| message.flags & SHARED == 0) {
            let found = match message.kind {
                ATTRIBUTE => self.attribute(&message.data),
                kind::SYMBOL_TABLE => self.symbol_table(&message.data),
                kind::LINK => self.link(&message.data),
                kind::LINK_INFO | ATTRIBUTE_INFO => self.dense(message),
                kind::LAYOUT => self.layout(&message.data),
                _ => Ok(()),
            };
            or_skip(found, here)?;
        }
        if self.extent.rows {
            let found = check_rows(self.file, header, &mut self.collections);
            or_skip(found, here)?;
        }
        Ok(())
    }

    fn visit(&mut self, object: u64) {
        if self.seen.insert(object) {
            self.objects.push(object);
        }
    }

    fn symbol_table(&mut self, message: &[u8]) -> Known<()> {
        for object in SymbolTable::new(self.file, message)?.objects()? {
            self.visit(object);
        }
        Ok(())
    }

    fn link(&mut self, message: &[u8]) -> Known<()> {
        if let Some(object) = Link::read(message, self.file.offset_width)?.object {
            self.visit(object);
        }
        Ok(())
    }

    /// Links or attributes that are in a heap; nothing to do if the header has them.
    fn dense(&mut self, message: &Message) -> Known<()> {
        let of_links = message.kind == kind::LINK_INFO;
        let mut cursor = Cursor::new(&message.data);
        cursor.expect(&[0], "another version")?;
        if cursor.u8()? & 1 != 0 {
            cursor.take(if of_links { 8 } else { 2 })?;
        }
        let heap = cursor.address(self.file.offset_width)?;
        let (Some(heap), Some(tree)) = (heap, cursor.address(self.file.offset_width)?) else {
            return Ok(());
        };
        for one in messages(self.file, heap, tree)? {
            let found = if of_links { self.link(&one) } else { self.attribute(&one) };
            or_skip(found, self.file.offset_of(heap))?;
        }
        Ok(())
    }

    /// Check the global heaps that the values of an attribute point to.
    fn attribute(&mut self, message: &[u8]) -> Known<()> {
        let (datatype, values) = type_and_values(message)?;
        self.collections.check(self.file, &value_type(datatype)?, values)
    }

    /// Check what leads to the rows: the tree of the chunks, or the mappings of a virtual dataset.
    fn layout(&mut self, message: &[u8]) -> Known<()> {
        let mut cursor = Cursor::new(message);
        match (cursor.u8()?, cursor.u8()?) {
            (4 | 5, 3) => {}
            (4 | 5, 2) => return self.chunk_index(&mut cursor),
            _ => return self.chunk_tree(message),
        }
        let (heap, index) = (cursor.address(self.file.offset_width)?, cursor.u32()?);
        let Some(heap) = heap else { return Ok(()) };
        self.count()?;
        let here = self.file.offset_of(heap);
        // HDF5 (2.0) crashes on mappings that do not have their checksum.
        let mappings = read_object(self.file, heap, index).and_then(|object| checked(&object).map(drop));
        mappings.map_err(|error| error.at(here))
    }

    /// Check the header of a version 2 B-tree of the chunks of a dataset; HDF5 checks its nodes and the other indexes.
    ///
    /// HDF5 (2.0) finds a wrong checksum in this header and then crashes: it closes an index that it has not opened.
    fn chunk_index(&mut self, layout: &mut Cursor<'_>) -> Known<()> {
        layout.take(1)?;
        let (axes, size_bytes) = (usize::from(layout.u8()?), usize::from(layout.u8()?));
        layout.take(axes * size_bytes)?;
        if layout.u8()? != VERSION_2_TREE {
            return Ok(());
        }
        layout.take(6)?;
        let Some(address) = layout.address(self.file.offset_width)? else { return Ok(()) };
        self.count()?;
        let length_bytes = 22 + self.file.offset_width + self.file.length_width;
        let header = self.file.read(address, length_bytes).and_then(|bytes| {
            Cursor::new(&bytes).expect(b"BTHD\0", "not a tree of chunks").map_err(Unread::as_damage)?;
            checked(&bytes).map(drop)
        });
        header.map_err(|error| error.at(self.file.offset_of(address)))
    }

    /// Check the version 1 B-tree of the chunks of a dataset: that each node is one level below its parent.
    fn chunk_tree(&mut self, layout: &[u8]) -> Known<()> {
        let mut cursor = Cursor::new(layout);
        let (axes, address) = match (cursor.u8()?, cursor.u8()?) {
            (1 | 2, axes) if cursor.u8()? == 2 => {
                cursor.take(5)?;
                (axes, cursor.address(self.file.offset_width)?)
            }
            (3, 2) => (cursor.u8()?, cursor.address(self.file.offset_width)?),
            _ => return Ok(()),
        };
        let Some(root) = address else { return Ok(()) };
        // Size and filter mask of a chunk, and where it begins on each axis.
        let key_bytes = 8 + 8 * usize::from(axes);
        let mut nodes = vec![(root, None)];
        while let Some((address, expected)) = nodes.pop() {
            self.count()?;
            let here = self.file.offset_of(address);
            self.chunk_node(address, expected, key_bytes, &mut nodes).map_err(|error| error.at(here))?;
        }
        Ok(())
    }

    fn chunk_node(
        &self,
        address: u64,
        expected: Option<u8>,
        key_bytes: usize,
        nodes: &mut Vec<(u64, Option<u8>)>,
    ) -> Known<()> {
        let width = self.file.offset_width;
        let head = self.file.read(address, NODE_HEAD_BYTES.min(8 + 2 * width))?;
        let mut cursor = Cursor::new(&head);
        cursor.expect(b"TREE\x01", "not a tree of chunks").map_err(Unread::as_damage)?;
        let level = cursor.u8()?;
        if expected.is_some_and(|expected| expected != level) {
            return Err(Unread::damaged("a tree with another height"));
        }
        let Some(below) = level.checked_sub(1) else { return Ok(()) };
        let count = usize::from(cursor.u16()?);
        let first = address.checked_add(8 + 2 * width as u64).ok_or(NotKnown("an address too far"))?;
        let all = self.file.read(first, count * (key_bytes + width))?;
        for entry in all.chunks_exact(key_bytes + width) {
            let mut cursor = Cursor::new(entry.get(key_bytes..).unwrap_or_default());
            let child = cursor.address(width)?.ok_or(Unread::damaged("a tree without a child"))?;
            nodes.push((child, Some(below)));
        }
        Ok(())
    }
}
