//! Properties of a dataset: shape, type, filters, fill value and layout, of every version of HDF5.

use crate::format::cursor::{Cursor, Known, NotKnown};
use crate::format::dataspace::{MOST_DIMENSIONS, extent};
use crate::format::datatype::value_type;
use crate::format::object_header::kind;
use crate::salvage::header::Header;
use crate::salvage::reader::Reader;

const FILL: u16 = 0x05;
const EXTERNAL: u16 = 0x07;

/// A filter of chunks, in the order of writing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    pub id: u16,
    pub flags: u16,
    pub name: Vec<u8>,
    pub values: Vec<u32>,
}

/// Storage of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    Compact(Vec<u8>),
    /// `offset` is None if nothing was written. The size is None in versions 1 and 2, which derive it from the shape.
    Contiguous {
        offset: Option<u64>,
        size: Option<u64>,
    },
    Chunked(Chunked),
    /// Address of the global heap of the mappings, and the index in it.
    Virtual(Option<u64>, u32),
    /// The values are in other files.
    External,
}

/// Storage in chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunked {
    /// Shape of a chunk, in elements.
    pub chunk: Vec<u64>,
    pub element_bytes: u64,
    pub index: Index,
    /// Address of the index, or of the only chunk, or of the first one; None if there are no chunks.
    pub address: Option<u64>,
    /// Whether chunks that the shape cuts are stored without filters.
    pub edges_unfiltered: bool,
    /// Whether an array stores the sizes of chunks in eight bytes, as HDF5 2.0 does.
    pub(crate) is_wide: bool,
}

/// Kind of an index, with the parameters that the layout has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Index {
    BTree1,
    /// Size and filter mask, if the chunk is filtered.
    Single(Option<(u64, u32)>),
    Implicit,
    FixedArray {
        page_bits: u8,
    },
    ExtensibleArray {
        bits: u8,
        in_index: u8,
        least: u8,
        least_pointers: u8,
        page_bits: u8,
    },
    BTree2 {
        node_bytes: u32,
    },
}

/// A dataset whose shape, type and layout are known.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// None for the null dataspace.
    pub shape: Option<Vec<u64>>,
    /// None for an axis without a limit.
    pub limits: Vec<Option<u64>>,
    /// The datatype message, also where it is a named type.
    pub datatype: Vec<u8>,
    pub value_bytes: u64,
    /// None if the filters are not known.
    pub filters: Option<Vec<Filter>>,
    /// The bytes of the fill value; None for zeros.
    pub fill_value: Option<Vec<u8>>,
    pub layout: Layout,
}

impl Dataset {
    /// Parse the messages of a dataset.
    pub(crate) fn new(reader: &Reader<'_>, header: &Header) -> Option<Self> {
        let (shape, limits) = extent(&header.first(reader, kind::DATASPACE)?, reader.length_width).ok()?;
        let datatype = header.first(reader, kind::DATATYPE)?;
        let value_bytes = value_type(&datatype).ok()?.size as u64;
        let mut layout = parse_layout(reader, &header.first(reader, kind::LAYOUT)?).ok()?;
        if header.has(EXTERNAL) && matches!(layout, Layout::Contiguous { .. }) {
            layout = Layout::External;
        }
        let filters = if header.has(kind::FILTERS) {
            header.first(reader, kind::FILTERS).and_then(|message| parse_filters(&message).ok())
        } else if header.is_whole {
            Some(Vec::new())
        } else {
            None
        };
        let fill_value = header.first(reader, FILL).and_then(|message| parse_fill(&message).ok()).flatten();
        let found = Self { shape, limits, datatype, value_bytes, filters, fill_value, layout };
        found.agrees().then_some(found)
    }

    /// Return the number of elements; None if it is too large.
    pub(crate) fn elements(&self) -> Option<u64> {
        let Some(shape) = &self.shape else { return Some(0) };
        shape.iter().try_fold(1_u64, |all, one| all.checked_mul(*one))
    }

    /// Return true if the layout is one of the shape and the type.
    fn agrees(&self) -> bool {
        let rank = self.shape.as_ref().map_or(0, Vec::len);
        let bytes = self.elements().and_then(|elements| elements.checked_mul(self.value_bytes));
        match &self.layout {
            Layout::Compact(value) => bytes == Some(value.len() as u64),
            Layout::Contiguous { offset: None, .. } | Layout::Virtual(..) | Layout::External => true,
            Layout::Contiguous { size, .. } => bytes.is_some() && size.is_none_or(|size| Some(size) == bytes),
            Layout::Chunked(chunked) => {
                chunked.chunk.len() == rank && chunked.element_bytes == self.value_bytes
            }
        }
    }
}

impl Chunked {
    /// Return the bytes of a chunk before filters; None if it is too large.
    pub(crate) fn chunk_bytes(&self) -> Option<u64> {
        self.chunk.iter().try_fold(self.element_bytes, |size, one| size.checked_mul(*one))
    }
}

fn parse_layout(reader: &Reader<'_>, message: &[u8]) -> Known<Layout> {
    let mut at = Cursor::new(message);
    let (offset_width, length_width) = (reader.offset_width, reader.length_width);
    let offset = |address: Option<u64>| address.map(|address| reader.offset_of(address));
    match at.u8()? {
        1 | 2 => {
            let (axes, class) = (usize::from(at.u8()?), at.u8()?);
            at.take(5)?;
            let address = if class == 0 { None } else { at.address(offset_width)? };
            let mut sizes = (0..axes).map(|_| at.u32().map(u64::from)).collect::<Known<Vec<_>>>()?;
            match class {
                0 => {
                    let size = at.length(4)?;
                    Ok(Layout::Compact(at.take(size)?.to_vec()))
                }
                1 => Ok(Layout::Contiguous { offset: offset(address), size: None }),
                2 => chunked(&mut sizes, Index::BTree1, address, false, false),
                _ => Err(NotKnown("another layout")),
            }
        }
        version @ 3..=5 => match at.u8()? {
            0 => {
                let size = at.u16()?;
                Ok(Layout::Compact(at.take(size.into())?.to_vec()))
            }
            1 => {
                let address = at.address(offset_width)?;
                Ok(Layout::Contiguous { offset: offset(address), size: Some(at.number(length_width)?) })
            }
            2 if version == 3 => {
                let axes = usize::from(at.u8()?);
                let address = at.address(offset_width)?;
                let mut sizes = (0..axes).map(|_| at.u32().map(u64::from)).collect::<Known<Vec<_>>>()?;
                chunked(&mut sizes, Index::BTree1, address, false, false)
            }
            2 => {
                let (flags, axes, width) = (at.u8()?, usize::from(at.u8()?), usize::from(at.u8()?));
                let mut sizes = (0..axes).map(|_| at.number(width)).collect::<Known<Vec<_>>>()?;
                let index = match at.u8()? {
                    1 if flags & 2 != 0 => Index::Single(Some((at.number(length_width)?, at.u32()?))),
                    1 => Index::Single(None),
                    2 => Index::Implicit,
                    3 => Index::FixedArray { page_bits: at.u8()? },
                    4 => {
                        let [bits, in_index, least, least_pointers, page_bits] = *at.take(5)? else {
                            return Err(NotKnown("it ends too early"));
                        };
                        // The order of the message differs from that of the header of the array.
                        let (least_pointers, least) = (least, least_pointers);
                        Index::ExtensibleArray { bits, in_index, least, least_pointers, page_bits }
                    }
                    5 => {
                        let node_bytes = at.u32()?;
                        at.take(2)?;
                        Index::BTree2 { node_bytes }
                    }
                    _ => return Err(NotKnown("another index of chunks")),
                };
                chunked(&mut sizes, index, at.address(offset_width)?, flags & 1 != 0, version == 5)
            }
            3 => Ok(Layout::Virtual(at.address(offset_width)?, at.u32()?)),
            _ => Err(NotKnown("another layout")),
        },
        _ => Err(NotKnown("another layout")),
    }
}

fn chunked(
    sizes: &mut Vec<u64>,
    index: Index,
    address: Option<u64>,
    edges_unfiltered: bool,
    is_wide: bool,
) -> Known<Layout> {
    let element_bytes = sizes.pop().unwrap_or(0);
    if element_bytes == 0 || sizes.is_empty() || sizes.len() > MOST_DIMENSIONS || sizes.contains(&0) {
        return Err(NotKnown("chunks of another kind"));
    }
    let chunk = std::mem::take(sizes);
    let chunked = Chunked { chunk, element_bytes, index, address, edges_unfiltered, is_wide };
    chunked.chunk_bytes().ok_or(NotKnown("chunks that are too large"))?;
    Ok(Layout::Chunked(chunked))
}

fn parse_filters(message: &[u8]) -> Known<Vec<Filter>> {
    let mut at = Cursor::new(message);
    let version = at.u8()?;
    let count = at.u8()?;
    match version {
        1 => drop(at.take(6)?),
        2 => {}
        _ => return Err(NotKnown("another version of filters")),
    }
    let filter = |_| {
        let id = at.u16()?;
        let name = if version == 1 || id >= 256 { usize::from(at.u16()?) } else { 0 };
        let (flags, values) = (at.u16()?, usize::from(at.u16()?));
        let name = at.take(if version == 1 { name.next_multiple_of(8) } else { name })?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
        let values = (0..values).map(|_| at.u32()).collect::<Known<Vec<u32>>>()?;
        if version == 1 && values.len() % 2 != 0 {
            at.take(4)?;
        }
        Ok(Filter { id, flags, name, values })
    };
    (0..count).map(filter).collect()
}

fn parse_fill(message: &[u8]) -> Known<Option<Vec<u8>>> {
    let mut at = Cursor::new(message);
    let is_defined = match at.u8()? {
        version @ (1 | 2) => {
            at.take(2)?;
            at.u8()? != 0 || version == 1
        }
        3 => at.u8()? & 0x20 != 0,
        _ => return Err(NotKnown("another version of fill value")),
    };
    if !is_defined {
        return Ok(None);
    }
    let size = at.u32()?;
    let value = if size == u32::MAX { &[] } else { at.take(size as usize)? };
    Ok(Some(value.to_vec()).filter(|value| !value.is_empty()))
}
