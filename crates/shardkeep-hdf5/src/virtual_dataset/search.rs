//! Search for virtual datasets, and their mappings.

use std::collections::HashSet;

use crate::format::cursor::{Cursor, Known, NotKnown};
use crate::format::file::{File, Storage};
use crate::format::global_heap::read_object;
use crate::format::object_header::{ObjectHeader, kind};
use crate::virtual_dataset::mapping::VirtualMapping;

/// Largest depth of nested groups; HDF5 has no limit.
const DEEPEST: usize = 64;

/// The layout of a dataset, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Address and index of the mappings in a global heap; None if there are none.
    Virtual(Option<(u64, u32)>),
    Other,
}

/// A virtual dataset, as HDF5 reads it.
#[derive(Debug)]
pub struct VirtualDataset {
    pub shape: Vec<u64>,
    /// The datatype message.
    pub datatype: Vec<u8>,
    pub mapping: VirtualMapping,
}

impl<S: Storage + ?Sized> File<'_, S> {
    /// Return the paths of the virtual datasets among the first objects in the order of `H5Ovisit` by name.
    ///
    /// # Errors
    /// Something in one of these objects, or in a group, is not known.
    pub fn virtual_datasets(&self, most_objects: usize) -> Known<Vec<Vec<u8>>> {
        let mut walk = Walk {
            file: self,
            seen: HashSet::from([self.root_address()]),
            most: most_objects,
            found: vec![],
        };
        walk.group(&self.root()?, b"", 0)?;
        Ok(walk.found)
    }

    /// Read the virtual dataset of a path.
    ///
    /// # Errors
    /// The dataset is not virtual, or something in it is not known.
    pub fn virtual_dataset(&self, path: &[u8]) -> Known<VirtualDataset> {
        let header = self.object(path)?;
        let Layout::Virtual(heap) = layout(self, &header)? else { return Err(NotKnown("not virtual")) };
        let shape = header.shape(self)?;
        let mapping = match heap {
            Some((address, index)) => {
                VirtualMapping::read(&read_object(self, address, index)?, &shape, self.length_width)?
            }
            None => VirtualMapping::default(),
        };
        Ok(VirtualDataset { shape, datatype: header.need(kind::DATATYPE)?.to_vec(), mapping })
    }
}

fn layout<S: Storage + ?Sized>(file: &File<'_, S>, header: &ObjectHeader) -> Known<Layout> {
    let mut cursor = Cursor::new(header.need(kind::LAYOUT)?);
    match (cursor.u8()?, cursor.u8()?) {
        // Versions 1 and 2 have the dimensions here.
        (1 | 2, _) | (3..=5, 0..=2) => Ok(Layout::Other),
        (4 | 5, 3) => {
            let heap = cursor.address(file.offset_width)?;
            let index = cursor.u32()?;
            Ok(Layout::Virtual(heap.map(|heap| (heap, index))))
        }
        _ => Err(NotKnown("another layout")),
    }
}

struct Walk<'a, 'b, S: Storage + ?Sized> {
    file: &'a File<'b, S>,
    /// Addresses of the objects so far: an object with several names counts once.
    seen: HashSet<u64>,
    most: usize,
    found: Vec<Vec<u8>>,
}

impl<S: Storage + ?Sized> Walk<'_, '_, S> {
    fn is_full(&self) -> bool {
        self.seen.len() > self.most // the root does not count
    }

    fn group(&mut self, header: &ObjectHeader, path: &[u8], depth: usize) -> Known<()> {
        if depth > DEEPEST {
            return Err(NotKnown("groups that are nested too deep"));
        }
        // Soft links, and links to objects that were counted before, do not count.
        let most_links = self.most.saturating_mul(4);
        let links = header.links(self.file, most_links)?;
        let are_all = links.len() < most_links;
        for link in links {
            if self.is_full() {
                return Ok(());
            }
            let Some(address) = link.object else { continue };
            if !self.seen.insert(address) {
                continue;
            }
            let path = [path, b"/", link.name.as_slice()].concat();
            let header = ObjectHeader::read(self.file, address)?;
            if header.is_group() {
                self.group(&header, &path, depth + 1)?;
            } else if header.has(kind::LAYOUT) {
                if layout(self.file, &header)? != Layout::Other {
                    self.found.push(path);
                }
            } else if !header.has(kind::DATATYPE) {
                return Err(NotKnown("an object of another kind"));
            }
        }
        if are_all || self.is_full() { Ok(()) } else { Err(NotKnown("many links to few objects")) }
    }
}
