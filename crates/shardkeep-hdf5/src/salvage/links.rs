//! Links of groups and attributes of objects, of which some may be lost.

use std::collections::HashSet;

use crate::format::cursor::{Cursor, Known, NotKnown};
use crate::format::dataspace::extent;
use crate::format::datatype::value_type;
use crate::format::object_header::kind;
use crate::group::links::kind_and_name;
use crate::salvage::header::{Header, shared};
use crate::salvage::heap::Heap;
use crate::salvage::reader::Reader;
use crate::salvage::scan::Scan;
use crate::salvage::tree2::Tree;

const MOST_NODES: usize = 1 << 20;

/// The object of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Address of the header of the object.
    Object(u64),
    /// Path of a soft link.
    Soft(Vec<u8>),
    /// File and path.
    External(Vec<u8>, Vec<u8>),
}

/// A link of a group; None as a name that is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub name: Option<Vec<u8>>,
    pub target: Target,
}

/// An attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    pub name: Vec<u8>,
    /// The datatype message, also where it is a named type.
    pub datatype: Vec<u8>,
    /// None for the null dataspace.
    pub shape: Option<Vec<u64>>,
    pub values: Vec<u8>,
    /// Whether a checksum was right.
    pub is_checked: bool,
}

/// Things of an object, and whether they are all.
#[derive(Debug, Clone)]
pub(crate) struct Part<T> {
    pub(crate) found: Vec<T>,
    pub(crate) is_whole: bool,
}

/// Address of the heap and of the tree of links or attributes outside the header.
pub(crate) fn dense_place(reader: &Reader<'_>, message: &[u8], of_links: bool) -> Known<Option<(u64, u64)>> {
    let mut cursor = Cursor::new(message);
    cursor.expect(&[0], "another version")?;
    if cursor.u8()? & 1 != 0 {
        cursor.take(if of_links { 8 } else { 2 })?;
    }
    let heap = cursor.address(reader.offset_width)?;
    Ok(heap.zip(cursor.address(reader.offset_width)?))
}

/// Return the messages outside the header of an object; None instead of one that is lost.
fn dense(reader: &Reader<'_>, heap: u64, tree: u64, scanned: &Scan<'_>) -> Part<Vec<u8>> {
    let heap = Heap::read(reader, heap, scanned);
    let tree = Tree::read(reader, tree).filter(|tree| matches!(tree.kind, 5 | 8));
    let (Some(heap), Some(tree)) = (heap, tree) else {
        return Part { found: Vec::new(), is_whole: false };
    };
    let walk = tree.walk(reader);
    let mut part = Part { found: Vec::new(), is_whole: walk.lost.is_empty() };
    for record in walk.records {
        let id = if tree.kind == 5 { record.get(4..11) } else { record.get(..8) };
        match id.and_then(|id| heap.object(reader, id)) {
            Some(object) => part.found.push(object),
            None => part.is_whole = false,
        }
    }
    part
}

/// Return the links of a group.
pub(crate) fn links(reader: &Reader<'_>, header: &Header, scanned: &Scan<'_>) -> Part<Link> {
    let mut part = Part { found: Vec::new(), is_whole: header.is_whole };
    if header.has(kind::SYMBOL_TABLE) {
        let table = header.first(reader, kind::SYMBOL_TABLE);
        let mut cursor = Cursor::new(table.as_deref().unwrap_or_default());
        let (tree, heap) = (reader.address(&mut cursor), reader.address(&mut cursor));
        let found = symbol_table(reader, tree, heap);
        part.is_whole &= found.is_whole;
        part.found.extend(found.found);
        return part;
    }
    for message in header.messages.iter().filter(|message| message.kind == kind::LINK) {
        match link(reader, &message.data) {
            Ok(link) => part.found.push(link),
            Err(_) => part.is_whole = false,
        }
    }
    let info = header.first(reader, kind::LINK_INFO);
    match info.as_deref().map(|info| dense_place(reader, info, true)) {
        Some(Ok(Some((heap, tree)))) => {
            let found = dense(reader, heap, tree, scanned);
            part.is_whole &= found.is_whole;
            for message in found.found {
                match link(reader, &message) {
                    Ok(link) => part.found.push(link),
                    Err(_) => part.is_whole = false,
                }
            }
        }
        Some(Ok(None)) => {}
        Some(Err(_)) | None => part.is_whole = false,
    }
    part
}

/// Return the attributes of an object.
pub(crate) fn attributes(reader: &Reader<'_>, header: &Header, scanned: &Scan<'_>) -> Part<Attribute> {
    let mut part = Part { found: Vec::new(), is_whole: header.is_whole };
    let checked = header.version == 2;
    let add = |part: &mut Part<Attribute>, found: Known<Attribute>| match found {
        Ok(found) => part.found.push(found),
        Err(_) => part.is_whole = false,
    };
    for message in header.messages.iter().filter(|message| message.kind == kind::ATTRIBUTE) {
        let found = if message.is_shared() {
            Err(NotKnown("a shared attribute"))
        } else {
            attribute(reader, &message.data, checked)
        };
        add(&mut part, found);
    }
    if let Some(info) = header.first(reader, kind::ATTRIBUTE_INFO) {
        match dense_place(reader, &info, false) {
            Ok(Some((heap, tree))) => {
                let found = dense(reader, heap, tree, scanned);
                part.is_whole &= found.is_whole;
                for message in found.found {
                    add(&mut part, attribute(reader, &message, true));
                }
            }
            Ok(None) => {}
            Err(_) => part.is_whole = false,
        }
    }
    part
}

fn attribute(reader: &Reader<'_>, message: &[u8], is_checked: bool) -> Known<Attribute> {
    let mut cursor = Cursor::new(message);
    let version = cursor.u8()?;
    let flags = cursor.u8()?;
    if !(1..=3).contains(&version) {
        return Err(NotKnown("another version of attribute"));
    }
    let sizes = [cursor.u16()?, cursor.u16()?, cursor.u16()?].map(usize::from);
    if version == 3 {
        cursor.take(1)?; // ASCII or UTF-8
    }
    let [name, datatype, dataspace] =
        sizes.map(|size| if version == 1 { size.next_multiple_of(8) } else { size });
    let name = Cursor::new(cursor.take(name)?).text()?.to_vec();
    let (datatype, dataspace) = (cursor.take(datatype)?, cursor.take(dataspace)?);
    let is_shared = |bit: u8| version > 1 && flags & bit != 0;
    let datatype = if is_shared(1) {
        shared(reader, datatype, kind::DATATYPE).ok_or(NotKnown("a type that is lost"))?
    } else {
        datatype.to_vec()
    };
    if is_shared(2) {
        return Err(NotKnown("a shared dataspace"));
    }
    let shape = extent(dataspace, reader.length_width)?.0;
    let elements = shape
        .as_ref()
        .map_or(Some(0), |shape| shape.iter().try_fold(1_u64, |all, one| all.checked_mul(*one)));
    let bytes = elements.and_then(|elements| elements.checked_mul(value_type(&datatype).ok()?.size as u64));
    let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok()).ok_or(NotKnown("a large attribute"))?;
    let values = cursor.take(bytes)?.to_vec();
    Ok(Attribute { name, datatype, shape, values, is_checked })
}

fn link(reader: &Reader<'_>, data: &[u8]) -> Known<Link> {
    let mut cursor = Cursor::new(data);
    let (kind, name) = kind_and_name(&mut cursor)?;
    let target = match kind {
        0 => Target::Object(cursor.address(reader.offset_width)?.ok_or(NotKnown("a link to nowhere"))?),
        1 => {
            let length = cursor.u16()?;
            Target::Soft(cursor.take(length.into())?.to_vec())
        }
        64 => {
            cursor.take(2 + 1)?;
            Target::External(cursor.text()?.to_vec(), cursor.text()?.to_vec())
        }
        _ => return Err(NotKnown("another kind of link")),
    };
    Ok(Link { name: Some(name), target })
}

/// Return the links of a symbol table: names are lost with its heap, links with a node.
pub(crate) fn symbol_table(reader: &Reader<'_>, tree: Option<u64>, heap: Option<u64>) -> Part<Link> {
    let names = heap.and_then(|heap| local_heap(reader, heap));
    let mut part = Part { found: Vec::new(), is_whole: names.is_some() && tree.is_some() };
    let mut nodes: Vec<(u64, Option<u8>)> = tree.iter().map(|tree| (*tree, None)).collect();
    let mut seen = HashSet::new();
    while let Some((address, above)) = nodes.pop() {
        if !seen.insert(address) || seen.len() > MOST_NODES {
            part.is_whole = false;
            continue;
        }
        let is_leaf = above == Some(0);
        let whole = if is_leaf {
            entries(reader, address, names.as_deref(), &mut part.found)
        } else {
            children(reader, address, above, &mut nodes)
        };
        if whole != Ok(true) {
            part.is_whole = false;
            let what = if is_leaf { "node of links" } else { "B-tree of links" };
            reader.note(what, address, 8, None);
        }
    }
    part
}

fn local_heap(reader: &Reader<'_>, address: u64) -> Option<Vec<u8>> {
    let read = || {
        let head = 8 + 2 * reader.length_width + reader.offset_width;
        let start = reader.read(address, head)?;
        let mut cursor = Cursor::new(&start);
        cursor.expect(b"HEAP\0", "not a local heap").ok()?;
        cursor.take(3).ok()?;
        let length = cursor.length(reader.length_width).ok()?;
        cursor.take(reader.length_width).ok()?;
        let data = reader.address(&mut cursor)?;
        // HDF5 begins each heap of a group with the empty name, to which the first key of the B-tree leads.
        let names = reader.read(data, length).filter(|names| names.first() == Some(&0))?;
        reader.use_bytes(address, head as u64);
        reader.use_bytes(data, length as u64);
        Some(names)
    };
    let found = read();
    if found.is_none() {
        reader.note("local heap of names", address, 8, None);
    }
    found
}

/// Read a node above the nodes of links; true if all of its children can be right.
fn children(
    reader: &Reader<'_>,
    address: u64,
    above: Option<u8>,
    nodes: &mut Vec<(u64, Option<u8>)>,
) -> Known<bool> {
    const ODD: crate::format::cursor::Unread = NotKnown("not a tree of links");
    let (wide, long) = (reader.offset_width, reader.length_width);
    let head = 8 + 2 * wide;
    let start = reader.read(address, head).ok_or(ODD)?;
    let mut cursor = Cursor::new(&start);
    cursor.expect(b"TREE\0", "not a tree of links")?;
    let here = cursor.u8()?;
    if above.is_some_and(|above| above.checked_sub(1) != Some(here)) {
        return Err(ODD);
    }
    let count = usize::from(cursor.u16()?);
    let all = reader.read(address, head + count * (wide + long) + long).ok_or(ODD)?;
    reader.use_bytes(address, all.len() as u64);
    let mut cursor = Cursor::new(&all);
    cursor.take(head)?;
    cursor.take(long)?;
    let mut whole = true;
    // The last of the stack is read first.
    let mut found = Vec::new();
    for _ in 0..count {
        match cursor.address(wide)? {
            Some(child) if reader.has(child, 8) => found.push((child, Some(here))),
            _ => whole = false,
        }
        cursor.take(long)?;
    }
    nodes.extend(found.into_iter().rev());
    Ok(whole)
}

/// Read a node of links; true if all of them can be right.
fn entries(reader: &Reader<'_>, address: u64, names: Option<&[u8]>, found: &mut Vec<Link>) -> Known<bool> {
    const ODD: crate::format::cursor::Unread = NotKnown("not a node of links");
    const SOFT: u32 = 2;
    let wide = reader.offset_width;
    let start = reader.read(address, 8).ok_or(ODD)?;
    let mut cursor = Cursor::new(&start);
    cursor.expect(b"SNOD\x01", "not a node of links")?;
    cursor.take(1)?;
    let count = usize::from(cursor.u16()?);
    let all = reader.read(address, 8 + count * (2 * wide + 24)).ok_or(ODD)?;
    reader.use_bytes(address, all.len() as u64);
    let mut cursor = Cursor::new(&all);
    cursor.take(8)?;
    let text = |at: u64| {
        let rest = names?.get(usize::try_from(at).ok()?..)?;
        let text = Cursor::new(rest).text().ok()?;
        if text.is_empty() { None } else { Some(text.to_vec()) }
    };
    let mut whole = true;
    for _ in 0..count {
        let (name, object, cached) = (cursor.number(wide)?, cursor.address(wide)?, cursor.u32()?);
        cursor.take(4)?;
        let mut scratch = Cursor::new(cursor.take(16)?);
        // No checksum covers a name: without an invalid one the object is still there.
        let name =
            text(name).filter(|name| !name.iter().any(|byte| *byte == b'/' || byte.is_ascii_control()));
        let target = match (cached, object) {
            (SOFT, _) => text(scratch.u32()?.into()).map(Target::Soft),
            (0 | 1, Some(object)) if reader.has(object, 16) => Some(Target::Object(object)),
            _ => None,
        };
        whole &= target.is_some() && (name.is_some() || names.is_none());
        if let Some(target) = target {
            found.push(Link { name, target });
        }
    }
    Ok(whole)
}
