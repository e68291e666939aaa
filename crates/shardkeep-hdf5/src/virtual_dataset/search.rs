//! The virtual datasets of a file.

use std::collections::HashSet;

use crate::format::cursor::{Known, NotKnown};
use crate::format::file::{File, Storage};
use crate::format::global_heap::read_object;
use crate::format::messages::Layout;
use crate::format::object_header::{ObjectHeader, kind};
use crate::virtual_dataset::mapping::VirtualMapping;

/// Groups in groups; HDF5 would go on.
const DEEPEST: usize = 64;

/// A virtual dataset, as HDF5 would tell.
#[derive(Debug)]
pub struct VirtualDataset {
    pub shape: Vec<u64>,
    /// The datatype message.
    pub datatype: Vec<u8>,
    pub mapping: VirtualMapping,
}

impl<S: Storage + ?Sized> File<'_, S> {
    /// The paths, from the root, of the virtual datasets among the first objects that `H5Ovisit` comes to by name.
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

    /// The virtual dataset of a path.
    ///
    /// # Errors
    /// It is none, or has something that is not known.
    pub fn virtual_dataset(&self, path: &[u8]) -> Known<VirtualDataset> {
        let header = self.object(path)?;
        let Layout::Virtual(heap) = header.layout(self)? else { return Err(NotKnown("not virtual")) };
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

struct Walk<'a, 'b, S: Storage + ?Sized> {
    file: &'a File<'b, S>,
    /// An object with several names is met once.
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
            return Err(NotKnown("groups too deep in each other"));
        }
        // Soft links, and links to objects that were met already, do not count.
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
                if header.layout(self.file)? != Layout::Other {
                    self.found.push(path);
                }
            } else if !header.has(kind::DATATYPE) {
                return Err(NotKnown("an object of another kind"));
            }
        }
        if are_all || self.is_full() { Ok(()) } else { Err(NotKnown("many links to few objects")) }
    }
}
