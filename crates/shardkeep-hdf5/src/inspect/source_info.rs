//! Objects, forms and row locations of a source of a merge.
//!
//! Types, filters, fill values and attributes are not parsed. They are part of the [form](crate::inspect::form) of an object. A
//! file is "not known" if a form does not describe all of an object because it points elsewhere, or if the file has soft
//! links, objects with two names, named types, virtual or external datasets, or attributes in a heap.

use std::collections::HashSet;

use shardkeep_core::crc::crc32c;

use crate::chunk::layout::Layout;
use crate::chunk::list::Chunks;
use crate::format::cursor::{Cursor, Known, NotKnown};
use crate::format::dataspace::extent;
use crate::format::file::{File, Storage};
use crate::format::object_header::{ObjectHeader, kind};
use crate::format::superblock_check::is_whole;
use crate::inspect::form::{DATASET_KINDS, GROUP_KINDS, form, layout_form};

/// Largest depth of nested groups; HDF5 has no limit.
const DEEPEST: usize = 64;
const MOST_OBJECTS: usize = 4096;
/// Largest size of a value, or of rows that are hashed.
const MOST_BYTES: u64 = 4 << 20;
const COMMIT: &[u8] = b"_commit";
const STRING: u8 = 3;

/// The contents of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceInfo {
    /// The root, whose name is empty, and all other objects in the order of HDF5.
    pub objects: Vec<Object>,
    /// The text of `_commit`.
    pub commit: Option<Vec<u8>>,
}

/// A group or a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Path from the root, without a leading "/".
    pub name: Vec<u8>,
    /// Bytes that are equal for objects of equal properties.
    pub form: Vec<u8>,
    pub dataset: Option<Dataset>,
}

/// Properties of a dataset that its form does not contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataset {
    /// None for the null dataspace.
    pub shape: Option<Vec<u64>>,
    pub stored_bytes: u64,
    pub rows: RowLocation,
    /// CRC32C of contiguous rows, if requested.
    pub crc32c: Option<u32>,
}

/// Location of the rows of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowLocation {
    /// The dataset has no rows, or they have no address.
    None,
    /// Address of contiguous rows.
    Contiguous(u64),
    /// Chunks in the order of their offsets.
    Chunks(Chunks),
    /// The bytes of a scalar or null dataset.
    Value(Vec<u8>),
}

impl SourceInfo {
    /// Inspect a file; with `hash_rows` also hash all rows.
    ///
    /// # Errors
    /// Something in the file is not known.
    pub fn new<S: Storage + ?Sized>(storage: &S, hash_rows: bool) -> Known<Self> {
        let file = File::open(storage)?;
        is_whole(&file)?;
        let mut inspection = Inspection {
            file: &file,
            hash_rows,
            seen: HashSet::from([file.root_address()]),
            found: vec![],
            commit: None,
        };
        let root = file.root()?;
        inspection.group(&root, b"", 0)?;
        Ok(Self { objects: inspection.found, commit: inspection.commit })
    }
}

struct Inspection<'a, 'b, S: Storage + ?Sized> {
    file: &'a File<'b, S>,
    hash_rows: bool,
    seen: HashSet<u64>,
    found: Vec<Object>,
    commit: Option<Vec<u8>>,
}

impl<S: Storage + ?Sized> Inspection<'_, '_, S> {
    fn group(&mut self, header: &ObjectHeader, path: &[u8], depth: usize) -> Known<()> {
        if depth > DEEPEST {
            return Err(NotKnown("groups that are nested too deep"));
        }
        let own_form = form(self.file, header, &GROUP_KINDS)?;
        self.found.push(Object { name: path.to_vec(), form: own_form, dataset: None });
        let links = header.links(self.file, MOST_OBJECTS)?;
        if links.windows(2).any(|pair| matches!(pair, [one, two] if one.name == two.name)) {
            return Err(NotKnown("two objects of one name"));
        }
        for link in links {
            if link.name.is_empty() || link.name == b"." || link.name.contains(&b'/') {
                return Err(NotKnown("a name that HDF5 reads as a path"));
            }
            let address = link.object.ok_or(NotKnown("a soft link"))?;
            if !self.seen.insert(address) || self.seen.len() > MOST_OBJECTS {
                return Err(NotKnown("an object with two names, or too many"));
            }
            let header = ObjectHeader::read(self.file, address)?;
            if path.is_empty() && link.name.starts_with(b"_") {
                self.commit_record(&header, &link.name)?;
                continue;
            }
            let name = if path.is_empty() { link.name } else { [path, b"/", &link.name].concat() };
            if header.is_group() {
                self.group(&header, &name, depth + 1)?;
                continue;
            }
            let (mut bytes, dataset) = (form(self.file, &header, &DATASET_KINDS)?, self.dataset(&header)?);
            bytes.extend(layout_form(&header, self.file.length_width)?);
            self.found.push(Object { name, form: bytes, dataset: Some(dataset) });
        }
        Ok(())
    }

    /// Read the commit record, the only object with a name that begins with "_".
    fn commit_record(&mut self, header: &ObjectHeader, name: &[u8]) -> Known<()> {
        let is_text = header.need(kind::DATATYPE)?.first().is_some_and(|class| class & 15 == STRING);
        if name != COMMIT || !is_text {
            return Err(NotKnown("a reserved name"));
        }
        form(self.file, header, &DATASET_KINDS)?;
        let dataset = self.dataset(header)?;
        match dataset.rows {
            RowLocation::Value(text) if dataset.shape.is_some_and(|shape| shape.is_empty()) => {
                self.commit = Some(text)
            }
            _ => return Err(NotKnown("a commit that is not text")),
        }
        Ok(())
    }

    fn dataset(&self, header: &ObjectHeader) -> Known<Dataset> {
        let (shape, limits) = extent(header.need(kind::DATASPACE)?, self.file.length_width)?;
        let type_bytes = datatype_bytes(header.need(kind::DATATYPE)?)?;
        let elements =
            shape.as_ref().map_or(0, |shape| shape.iter().fold(1_u64, |all, one| all.saturating_mul(*one)));
        let size = elements.saturating_mul(type_bytes);
        let is_value = shape.as_ref().is_none_or(Vec::is_empty);
        let filters = header.first(kind::FILTERS)?.and_then(|filters| filters.get(1)).copied().unwrap_or(0);
        let (stored_bytes, rows) = match Layout::parse(header.need(kind::LAYOUT)?)? {
            Layout::Compact(bytes) => {
                if bytes.len() as u64 != size {
                    return Err(NotKnown("rows of another size"));
                }
                (size, if is_value { RowLocation::Value(bytes) } else { RowLocation::None })
            }
            Layout::Contiguous { address, size: there } => match address {
                None => (0, if is_value { RowLocation::Value(vec![]) } else { RowLocation::None }),
                Some(_) if there != size => return Err(NotKnown("rows of another size")),
                Some(address) if is_value => (size, RowLocation::Value(self.read_few(address, size)?)),
                Some(address) if address.saturating_add(size) > self.file.length() => {
                    return Err(NotKnown("rows beyond the file"));
                }
                Some(address) => (size, RowLocation::Contiguous(address)),
            },
            Layout::Chunked(chunked) => {
                let shape = shape.as_deref().filter(|shape| !shape.is_empty());
                let shape = shape.ok_or(NotKnown("a value in chunks"))?;
                if chunked.element_bytes != type_bytes {
                    return Err(NotKnown("elements of another size"));
                }
                let mut chunks = chunked.chunks(self.file, shape, &limits, filters > 0)?;
                let stored = chunks.sizes.iter().fold(0_u64, |all, size| all.saturating_add(*size));
                chunks.sort_and_check(shape, &chunked.chunk)?;
                (stored, RowLocation::Chunks(chunks))
            }
        };
        let crc32c = match rows {
            RowLocation::Contiguous(address) if self.hash_rows => {
                Some(crc32c(&self.read_few(address, size)?))
            }
            RowLocation::None | RowLocation::Chunks(_) if self.hash_rows && elements > 0 => {
                return Err(NotKnown("rows that are not one after another"));
            }
            _ => None,
        };
        Ok(Dataset { shape, stored_bytes, rows, crc32c })
    }

    /// Read a few bytes.
    fn read_few(&self, address: u64, size: u64) -> Known<Vec<u8>> {
        if size > MOST_BYTES {
            return Err(NotKnown("many bytes"));
        }
        self.file.read(address, size as usize)
    }
}

/// Return the bytes of one value of a datatype.
fn datatype_bytes(message: &[u8]) -> Known<u64> {
    let mut cursor = Cursor::new(message);
    cursor.take(4)?;
    Ok(cursor.u32()?.into())
}
