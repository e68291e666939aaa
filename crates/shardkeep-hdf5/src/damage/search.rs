//! Search for damage in structures that HDF5 follows without a checksum.
//!
//! HDF5 (1.14, 2.0) loops forever, or until its stack overflows, over structures that refer to themselves: a free part of
//! size 0 in a global heap, a list of free parts in a local heap, a header that continues in itself, a node of a version 1
//! B-tree that is its own child. It holds the interpreter's lock during that time. So all objects with a path are read here
//! first, and the global heaps to which their attributes (and, on request, their rows) point.
//!
//! *Damage* is a state that no writer leaves and that HDF5 refuses or does not survive. A structure that is not known ends the
//! search in that place, and HDF5 reads the file.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use crate::damage::heap_pointers::Collections;
use crate::damage::variable_rows::check_rows;
use crate::format::attribute::type_and_values;
use crate::format::cursor::{Cursor, Known, NotKnown, Unread};
use crate::format::datatype::value_type;
use crate::format::file::{File, Storage};
use crate::format::global_heap::read_object;
use crate::format::lookup3::checked;
use crate::format::object_header::{Message, ObjectHeader, kind};
use crate::group::dense_storage::messages;
use crate::group::links::Link;
use crate::group::symbol_table::SymbolTable;
use shardkeep_core::io::descriptor_pool::TransientFile;

/// The number of this index in a layout message of version 4.
const VERSION_2_TREE: u8 = 5;
/// Bytes of kind, level, number of children and neighbours of a node.
const NODE_HEAD_BYTES: usize = 24;

/// A damaged structure, and its offset from the first byte of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    pub what: &'static str,
    pub offset_bytes: Option<u64>,
}

/// The part of a file that is read.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// Largest number of objects and nodes of trees.
    pub most_structures: usize,
    /// True to check the global heaps of the rows of datasets as well.
    pub rows: bool,
}

/// Find damage in the file of a path.
///
/// With `lock` the file is locked while it is read, as HDF5 locks it.
///
/// # Errors
/// The file was not read: it cannot be opened, is not a regular file, or is locked by a writer.
pub fn find_in(path: &Path, lock: bool, extent: Extent) -> io::Result<Option<Damage>> {
    let file = TransientFile::open(path)?;
    if !file.is_regular()? {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    match if lock { file.lock_shared() } else { Ok(()) } {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
        // HDF5 reads a file on a file system without locks as well.
        _ => Ok(find(&file, extent)),
    }
}

/// Find damage in a file that is not being written.
#[must_use]
pub fn find<S: Storage + ?Sized>(storage: &S, extent: Extent) -> Option<Damage> {
    match File::open_marked(storage).and_then(|file| Search::new(&file, extent).run()) {
        Err(Unread::Damaged { what, offset_bytes }) => Some(Damage { what, offset_bytes }),
        Err(NotKnown(_)) | Ok(()) => None,
    }
}

struct Search<'a, 'b, S: Storage + ?Sized> {
    file: &'a File<'b, S>,
    extent: Extent,
    left: usize,
    seen: HashSet<u64>,
    objects: Vec<u64>,
    collections: Collections,
}

/// Return damage as an error; "not known" ends the reading of this part only.
fn or_skip<T>(found: Known<T>, here: u64) -> Known<Option<T>> {
    match found.map_err(|error| error.at(here)) {
        Ok(found) => Ok(Some(found)),
        Err(NotKnown(_)) => Ok(None),
        damaged => damaged.map(Some),
    }
}

impl<'a, 'b, S: Storage + ?Sized> Search<'a, 'b, S> {
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
            return Ok(()); // HDF5 refuses it with a good message
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
        for message in header.messages().iter().filter(|message| !message.is_shared()) {
            let found = match message.kind {
                kind::DATATYPE => value_type(&message.data).map(drop),
                kind::ATTRIBUTE => self.attribute(&message.data),
                kind::SYMBOL_TABLE => self.symbol_table(&message.data),
                kind::LINK => self.link(&message.data),
                kind::LINK_INFO | kind::ATTRIBUTE_INFO => self.dense(message),
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

    /// Check links or attributes in a fractal heap; there is none if the header has them.
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

    /// Check the tree of the chunks, or the mappings of a virtual dataset.
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
        // Size and filter mask of a chunk, and its offset on each axis.
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
