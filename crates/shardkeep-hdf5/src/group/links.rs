//! Links of a group, in a symbol table, in messages of its header or in a fractal heap, and objects by path.

use crate::format::cursor::{Cursor, Known, NotKnown};
use crate::format::file::{File, Storage};
use crate::format::object_header::{ObjectHeader, kind};
use crate::group::dense_storage::messages;
use crate::group::symbol_table::SymbolTable;

/// A link of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub name: Vec<u8>,
    /// Address of the header of the object; None for a soft or external link.
    pub object: Option<u64>,
}

impl ObjectHeader {
    /// Return true if the object is a group.
    #[must_use]
    pub fn is_group(&self) -> bool {
        self.has(kind::SYMBOL_TABLE) || self.has(kind::LINK_INFO)
    }

    /// Return the first links of a group in the order of their names, at most `most`.
    ///
    /// # Errors
    /// The object is not a group, or is damaged.
    pub fn links<S: Storage + ?Sized>(&self, file: &File<'_, S>, most: usize) -> Known<Vec<Link>> {
        if let Some(table) = self.first(kind::SYMBOL_TABLE)? {
            return SymbolTable::new(file, table)?.links(most);
        }
        let mut found = self.link_messages(file)?;
        found.sort_by(|one, other| one.name.cmp(&other.name));
        found.truncate(most);
        Ok(found)
    }

    /// Return the address of the object of a name.
    ///
    /// # Errors
    /// The group has no such hard link; or as `links`.
    pub fn link<S: Storage + ?Sized>(&self, file: &File<'_, S>, name: &[u8]) -> Known<u64> {
        let found = if let Some(table) = self.first(kind::SYMBOL_TABLE)? {
            SymbolTable::new(file, table)?.link(name)?
        } else {
            self.link_messages(file)?.into_iter().find(|link| link.name == name)
        };
        found.and_then(|link| link.object).ok_or(NotKnown("no hard link of that name"))
    }

    /// Return the links in any order. From the ninth one on HDF5 stores them in a fractal heap.
    fn link_messages<S: Storage + ?Sized>(&self, file: &File<'_, S>) -> Known<Vec<Link>> {
        let mut cursor = Cursor::new(self.need(kind::LINK_INFO)?);
        cursor.expect(&[0], "another version of link info")?;
        if cursor.u8()? & 1 != 0 {
            cursor.take(8)?;
        }
        if let Some(heap) = cursor.address(file.offset_width)? {
            let tree = cursor.address(file.offset_width)?.ok_or(NotKnown("links without an index"))?;
            let found = messages(file, heap, tree)?;
            return found.iter().map(|message| Link::read(message, file.offset_width)).collect();
        }
        let messages = self.messages().iter().filter(|message| message.kind == kind::LINK);
        messages.map(|message| Link::read(&message.data, file.offset_width)).collect()
    }
}

impl<S: Storage + ?Sized> File<'_, S> {
    /// Read the object of an absolute path of hard links.
    ///
    /// # Errors
    /// A name is not a hard link, or an object is not known.
    pub fn object(&self, path: &[u8]) -> Known<ObjectHeader> {
        let mut found = self.root()?;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            if name == b"." {
                continue;
            }
            found = ObjectHeader::read(self, found.link(self, name)?)?;
        }
        Ok(found)
    }
}

/// Return the kind and the name of a link message, and step over both.
pub(crate) fn kind_and_name(cursor: &mut Cursor<'_>) -> Known<(u8, Vec<u8>)> {
    cursor.expect(&[1], "another version of link")?;
    let flags = cursor.u8()?;
    if flags & 0xe0 != 0 {
        return Err(NotKnown("another kind of link"));
    }
    let kind = if flags & 8 != 0 { cursor.u8()? } else { 0 };
    if flags & 4 != 0 {
        cursor.take(8)?; // time of its creation
    }
    if flags & 16 != 0 {
        cursor.take(1)?; // ASCII or UTF-8
    }
    let length = cursor.length(1 << (flags & 3))?;
    Ok((kind, cursor.take(length)?.to_vec()))
}

impl Link {
    pub(crate) fn read(data: &[u8], offset_width: usize) -> Known<Self> {
        let mut cursor = Cursor::new(data);
        let (kind, name) = kind_and_name(&mut cursor)?;
        let object = match kind {
            0 => Some(cursor.address(offset_width)?.ok_or(NotKnown("a link to nowhere"))?),
            1 | 64.. => None,
            _ => return Err(NotKnown("another kind of link")),
        };
        Ok(Self { name, object })
    }
}
