//! What a merge has to know about a file: its objects, what they look like, where the bytes of datasets are.
//!
//! Types, filters, fill values and attributes are not taken apart. They come as the bytes that they are, the *form* of an
//! object: objects of the same form look the same to HDF5, so one of them is looked at through it and stands for all.
//! What a form does not tell, since it points to somewhere else, is not known, and neither is a file in which
//! anything else is: soft links, second names, named types, virtual or external datasets, attributes in a heap.

use std::collections::HashSet;

use crate::chunk::index::{Chunks, Layout};
use crate::format::cursor::{Cursor, Known, NotKnown};
use crate::format::file::{File, Storage};
use crate::format::messages::MOST_DIMENSIONS;
use crate::format::object_header::{Message, ObjectHeader, kind};
use crate::format::superblock_check::is_whole;
use crate::inspect::attribute_form::add_attribute;
use shardkeep_core::crc::crc32c;

/// Groups in groups; HDF5 would go on.
const DEEPEST: usize = 64;
const MOST_OBJECTS: usize = 4096;
/// Of a value, or of rows that are hashed.
const MOST_BYTES: u64 = 4 << 20;
const COMMIT: &[u8] = b"_commit";
const STRING: u8 = 3;

/// A file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// The root, whose name is empty, and all others in the order of HDF5.
    pub objects: Vec<Object>,
    /// The text of `_commit`.
    pub commit: Option<Vec<u8>>,
}

/// An object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// From the root, without a "/" before it.
    pub name: Vec<u8>,
    /// What objects that look alike have alike.
    pub form: Vec<u8>,
    pub dataset: Option<Dataset>,
}

/// What the form of a dataset does not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataset {
    /// None for the null dataspace.
    pub shape: Option<Vec<u64>>,
    pub stored_bytes: u64,
    pub place: Place,
    /// CRC32C of the rows that lie one after another, if it was asked for.
    pub crc32c: Option<u32>,
}

/// Where the bytes of a dataset are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// No rows, or none to be found by address.
    Nowhere,
    /// Rows one after another.
    At(u64),
    /// By the order of their places, as `Chunks::put_in_order` checks them.
    Chunks(Chunks),
    /// The bytes of a value without rows.
    Value(Vec<u8>),
}

impl Look {
    /// Look at a file; with `rows` also at the bytes of all rows.
    ///
    /// # Errors
    /// Something in it is not known.
    pub fn new<S: Storage + ?Sized>(storage: &S, rows: bool) -> Known<Self> {
        let file = File::open(storage)?;
        is_whole(&file)?;
        let mut walk = Walk {
            file: &file,
            rows,
            seen: HashSet::from([file.root_address()]),
            found: vec![],
            commit: None,
        };
        let root = file.root()?;
        walk.group(&root, b"", 0)?;
        Ok(Self { objects: walk.found, commit: walk.commit })
    }
}

struct Walk<'a, 'b, S: Storage + ?Sized> {
    file: &'a File<'b, S>,
    rows: bool,
    seen: HashSet<u64>,
    found: Vec<Object>,
    commit: Option<Vec<u8>>,
}

impl<S: Storage + ?Sized> Walk<'_, '_, S> {
    fn group(&mut self, header: &ObjectHeader, path: &[u8], depth: usize) -> Known<()> {
        if depth > DEEPEST {
            return Err(NotKnown("groups too deep in each other"));
        }
        let form = self.form(header, &GROUP_KINDS)?;
        self.found.push(Object { name: path.to_vec(), form, dataset: None });
        for link in header.links(self.file, MOST_OBJECTS)? {
            if link.name.is_empty() || link.name == b"." || link.name.contains(&b'/') {
                return Err(NotKnown("a name that HDF5 reads as a path"));
            }
            let address = link.object.ok_or(NotKnown("a soft link"))?;
            if !self.seen.insert(address) || self.seen.len() > MOST_OBJECTS {
                return Err(NotKnown("an object with two names, or too many"));
            }
            let header = ObjectHeader::read(self.file, address)?;
            if path.is_empty() && link.name.starts_with(b"_") {
                self.own(&header, &link.name)?;
                continue;
            }
            let name = if path.is_empty() { link.name } else { [path, b"/", &link.name].concat() };
            if header.is_group() {
                self.group(&header, &name, depth + 1)?;
                continue;
            }
            let (mut form, dataset) = (self.form(&header, &DATASET_KINDS)?, self.dataset(&header)?);
            form.extend(layout_form(&header)?);
            self.found.push(Object { name, form, dataset: Some(dataset) });
        }
        Ok(())
    }

    /// What may be Shardkeep's own.
    fn own(&mut self, header: &ObjectHeader, name: &[u8]) -> Known<()> {
        let is_text = header.need(kind::DATATYPE)?.first().is_some_and(|class| class & 15 == STRING);
        if name != COMMIT || !is_text {
            return Err(NotKnown("a name that may be our own"));
        }
        self.form(header, &DATASET_KINDS)?;
        let dataset = self.dataset(header)?;
        match dataset.place {
            Place::Value(text) if dataset.shape.is_some_and(|shape| shape.is_empty()) => {
                self.commit = Some(text)
            }
            _ => return Err(NotKnown("a commit that is no text")),
        }
        Ok(())
    }

    /// The bytes of everything that is not looked at here.
    fn form(&self, header: &ObjectHeader, kinds: &Kinds) -> Known<Vec<u8>> {
        let mut form = Vec::new();
        for message in header.messages() {
            if kinds.harmless.contains(&message.kind) {
                continue;
            }
            if message.flags & SHARED != 0 {
                return Err(NotKnown("a shared message"));
            }
            match message.kind {
                ATTRIBUTE => add_attribute(self.file, &message.data, &mut form)?,
                ATTRIBUTE_INFO => attributes_are_here(message)?,
                kind if kinds.kept.contains(&kind) => add(&mut form, kind, &message.data),
                _ => return Err(NotKnown("a message of another kind")),
            }
        }
        Ok(form)
    }

    fn dataset(&self, header: &ObjectHeader) -> Known<Dataset> {
        let (shape, limits) = extent(header.need(kind::DATASPACE)?)?;
        let type_bytes = datatype_bytes(header.need(kind::DATATYPE)?)?;
        let elements =
            shape.as_ref().map_or(0, |shape| shape.iter().fold(1_u64, |all, one| all.saturating_mul(*one)));
        let size = elements.saturating_mul(type_bytes);
        let is_value = shape.as_ref().is_none_or(Vec::is_empty);
        let filters = header.first(FILTERS)?.and_then(|filters| filters.get(1)).copied().unwrap_or(0);
        let (stored_bytes, place) = match Layout::parse(header.need(kind::LAYOUT)?)? {
            Layout::Compact(bytes) => {
                if bytes.len() as u64 != size {
                    return Err(NotKnown("rows of another size"));
                }
                (size, if is_value { Place::Value(bytes) } else { Place::Nowhere })
            }
            Layout::Contiguous { address, size: there } => match address {
                None => (0, if is_value { Place::Value(vec![]) } else { Place::Nowhere }),
                Some(_) if there != size => return Err(NotKnown("rows of another size")),
                Some(address) if is_value => (size, Place::Value(self.few(address, size)?)),
                Some(address) if address.saturating_add(size) > self.file.length() => {
                    return Err(NotKnown("rows beyond the file"));
                }
                Some(address) => (size, Place::At(address)),
            },
            Layout::Chunked(chunked) => {
                let shape = shape.as_deref().filter(|shape| !shape.is_empty());
                let shape = shape.ok_or(NotKnown("a value in chunks"))?;
                if chunked.element_bytes != type_bytes {
                    return Err(NotKnown("elements of another size"));
                }
                let mut chunks = chunked.chunks(self.file, shape, &limits, filters > 0)?;
                let stored = chunks.sizes.iter().fold(0_u64, |all, size| all.saturating_add(*size));
                chunks.put_in_order(shape, &chunked.chunk)?;
                (stored, Place::Chunks(chunks))
            }
        };
        let crc32c = match place {
            Place::At(address) if self.rows => Some(crc32c(&self.few(address, size)?)),
            Place::Nowhere | Place::Chunks(_) if self.rows && elements > 0 => {
                return Err(NotKnown("rows that are not one after another"));
            }
            _ => None,
        };
        Ok(Dataset { shape, stored_bytes, place, crc32c })
    }

    /// Bytes that are read at once.
    fn few(&self, address: u64, size: u64) -> Known<Vec<u8>> {
        if size > MOST_BYTES {
            return Err(NotKnown("many bytes"));
        }
        self.file.read(address, size as usize)
    }
}

/// The kinds of messages of an object that are skipped, and those whose bytes are in its form.
struct Kinds {
    harmless: &'static [u16],
    kept: &'static [u16],
}

const SHARED: u8 = 0x02;
const FILL_OF_OLD: u16 = 0x04;
const FILL: u16 = 0x05;
const GROUP_INFO: u16 = 0x0a;
const FILTERS: u16 = 0x0b;
const ATTRIBUTE: u16 = 0x0c;
const ATTRIBUTE_INFO: u16 = 0x15;
const LAYOUT_FORM: u16 = 0xff;

// Nothing, times of changes, continuations, the number of names.
const DATASET_KINDS: Kinds = Kinds {
    harmless: &[0x00, 0x0e, 0x12, kind::CONTINUATION, 0x16, kind::DATASPACE, kind::LAYOUT],
    kept: &[kind::DATATYPE, FILL_OF_OLD, FILL, FILTERS],
};
const GROUP_KINDS: Kinds = Kinds {
    harmless: &[
        0x00,
        0x0e,
        0x12,
        kind::CONTINUATION,
        0x16,
        kind::LINK_INFO,
        kind::LINK,
        GROUP_INFO,
        kind::SYMBOL_TABLE,
    ],
    kept: &[],
};

pub(crate) fn add(form: &mut Vec<u8>, kind: u16, bytes: &[u8]) {
    form.extend(kind.to_le_bytes());
    form.extend((bytes.len() as u64).to_le_bytes());
    form.extend(bytes);
}

/// Chunks and their kind of index; and no address.
fn layout_form(header: &ObjectHeader) -> Known<Vec<u8>> {
    let mut told = Vec::new();
    match Layout::parse(header.need(kind::LAYOUT)?)? {
        Layout::Compact(_) => told.push(0),
        Layout::Contiguous { .. } => told.push(1),
        Layout::Chunked(chunked) => {
            told.push(2);
            told.extend(chunked.chunk.iter().flat_map(|size| size.to_le_bytes()));
        }
    }
    let mut form = Vec::new();
    add(&mut form, LAYOUT_FORM, &told);
    Ok(form)
}

fn attributes_are_here(message: &Message) -> Known<()> {
    let mut cursor = Cursor::new(&message.data);
    cursor.expect(&[0], "another version of attribute info")?;
    if cursor.u8()? & 1 != 0 {
        cursor.take(2)?;
    }
    match cursor.address(8)? {
        None => Ok(()),
        Some(_) => Err(NotKnown("attributes in a heap of their own")),
    }
}

/// Bytes of one value.
fn datatype_bytes(message: &[u8]) -> Known<u64> {
    let mut cursor = Cursor::new(message);
    cursor.take(4)?;
    Ok(cursor.u32()?.into())
}

/// A shape (None: null), and how far it may grow.
pub(crate) type Extent = (Option<Vec<u64>>, Vec<Option<u64>>);

pub(crate) fn extent(message: &[u8]) -> Known<Extent> {
    let mut cursor = Cursor::new(message);
    let version = cursor.u8()?;
    let dimensions = usize::from(cursor.u8()?);
    let flags = cursor.u8()?;
    let is_null = match (version, flags) {
        (1, 0 | 1) => {
            cursor.take(5)?;
            false
        }
        (2, 0 | 1) => match (cursor.u8()?, dimensions) {
            (0, 0) | (1, 1..) => false,
            (2, 0) => true,
            _ => return Err(NotKnown("a dataspace of another kind")),
        },
        _ => return Err(NotKnown("another version of dataspace")),
    };
    if dimensions > MOST_DIMENSIONS {
        return Err(NotKnown("too many dimensions"));
    }
    let shape = (0..dimensions).map(|_| cursor.number(8)).collect::<Known<Vec<u64>>>()?;
    let limits = if flags & 1 != 0 {
        (0..dimensions).map(|_| cursor.address(8)).collect::<Known<Vec<_>>>()?
    } else {
        shape.iter().copied().map(Some).collect()
    };
    if shape.iter().zip(&limits).any(|(size, limit)| limit.is_some_and(|limit| limit < *size)) {
        return Err(NotKnown("a shape beyond its limits"));
    }
    Ok((if is_null { None } else { Some(shape) }, limits))
}
