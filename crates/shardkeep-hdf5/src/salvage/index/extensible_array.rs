//! Extensible arrays of chunks, of which blocks may be damaged.

use std::collections::HashSet;

use crate::format::cursor::Cursor;
use crate::salvage::dataset::Index;
use crate::salvage::index::arrays::{Array, BLOCK};
use crate::salvage::index::chunks::{Collection, Numbering, Proof};
use crate::salvage::scan::{Scan, Signature};

impl Collection<'_> {
    pub(crate) fn extensible_array(&mut self, header: u64, scanned: &Scan<'_>) {
        let Index::ExtensibleArray { bits, in_index, least, least_pointers, page_bits } = self.chunked.index
        else {
            return;
        };
        let (width, _) = self.stored_widths();
        let powers = least.is_power_of_two() && least_pointers.is_power_of_two();
        let unlimited = self.limits.iter().position(Option::is_none);
        let Some(numbering) = Numbering::new(self, unlimited) else { return };
        if !powers || bits > 64 || page_bits >= 32 || u32::from(bits) < least.ilog2() {
            return;
        }
        let mut array = Array {
            header,
            width,
            page: 1 << page_bits,
            offset_bytes: usize::from(bits).div_ceil(8),
            numbering,
            read: Vec::new(),
            known: HashSet::new(),
            lost: Vec::new(),
        };
        let super_blocks = SuperBlock::all(bits, least, in_index);
        let here = self.reader.offset_of(header);
        let (wide, long) = (self.reader.offset_width, self.reader.length_width);
        let head =
            self.reader.read_checked("header of an array of chunks", b"EAHD", header, 16 + 6 * long + wide);
        let mut end = u64::MAX;
        let index = match &head {
            Some(head) => {
                let mut at = Cursor::new(head.get(12 + 4 * long..).unwrap_or_default());
                end = at.number(long).unwrap_or(u64::MAX);
                let _ = at.take(long);
                match self.reader.address(&mut at) {
                    Some(index) => Some(index),
                    None => return,
                }
            }
            None => match self.scanned_blocks(Signature::ExtensibleIndexBlock, header, scanned).as_slice() {
                [index] => Some(*index),
                _ => None,
            },
        };
        let direct = 2 * least_pointers.ilog2() as usize;
        let blocks = 2 * (usize::from(least_pointers) - 1);
        let Some(others) = super_blocks.len().checked_sub(direct) else { return };
        let elements = usize::from(in_index) * width;
        let length = 10 + wide + elements + wide * (blocks + others);
        let mut seen = HashSet::new();
        match index.and_then(|index| self.block(b"EAIB", header, index, length)) {
            Some(block) => {
                let mut at = Cursor::new(&block);
                self.elements(&mut array, at.take(elements).unwrap_or_default(), 0, Proof::Checked);
                for (number, super_block) in super_blocks.iter().enumerate() {
                    if super_block.first.saturating_add(super_block.in_index) >= end {
                        break;
                    }
                    if number >= direct {
                        let address = self.reader.address(&mut at);
                        self.super_block(&mut array, address, super_block, &mut seen);
                        continue;
                    }
                    for block in super_block.data_blocks(true) {
                        let address = self.reader.address(&mut at);
                        self.data_block(&mut array, address, block, None, &mut seen);
                    }
                }
            }
            None => array.lost.push((0, u64::MAX, index.map_or(here, |index| self.reader.offset_of(index)))),
        }
        if !array.lost.is_empty() {
            self.search_blocks(&mut array, &super_blocks, direct, scanned, &mut seen);
        }
        self.finish(array, end);
    }

    /// Add the blocks of an array whose parent is lost.
    fn search_blocks(
        &mut self,
        array: &mut Array<'_>,
        super_blocks: &[SuperBlock],
        direct: usize,
        scanned: &Scan<'_>,
        seen: &mut HashSet<u64>,
    ) {
        for address in self.scanned_blocks(Signature::ExtensibleSuperBlock, array.header, scanned) {
            let place = self.stored_place(array, address);
            let super_block = super_blocks.iter().skip(direct).find(|block| Some(block.first) == place);
            if let Some(super_block) = super_block {
                self.super_block(array, Some(address), super_block, seen);
            }
        }
        for address in self.scanned_blocks(Signature::ExtensibleBlock, array.header, scanned) {
            let place = self.stored_place(array, address);
            let blocks = super_blocks.iter().enumerate();
            let blocks = blocks.filter_map(|(number, block)| block.data_block_at(number < direct, place?));
            // A few blocks below the index block have the place of a block of the same size below a super block.
            let possible = blocks.filter(|block| {
                !array.known.contains(&block.first) && self.read_data_block(array, address, block).is_some()
            });
            let possible: Vec<DataBlock> = possible.collect();
            if let [block] = possible.as_slice() {
                self.data_block(array, Some(address), *block, None, seen);
            }
        }
    }

    /// Return the place in the array that a block has stored.
    fn stored_place(&self, array: &Array<'_>, address: u64) -> Option<u64> {
        let head = self.reader.read(address, 6 + self.reader.offset_width + array.offset_bytes)?;
        Cursor::new(head.get(6 + self.reader.offset_width..)?).number(array.offset_bytes).ok()
    }

    fn super_block(
        &mut self,
        array: &mut Array<'_>,
        address: Option<u64>,
        super_block: &SuperBlock,
        seen: &mut HashSet<u64>,
    ) {
        let first = super_block.first.saturating_add(super_block.in_index);
        let behind = first.saturating_add(super_block.blocks.saturating_mul(super_block.elements));
        let Some(address) = address else {
            array.read.push((first, behind));
            return;
        };
        if !seen.insert(address) {
            return;
        }
        let pages = if super_block.elements > array.page { super_block.elements / array.page } else { 0 };
        let map_bytes = super_block.blocks.saturating_mul(pages.div_ceil(8));
        let wide = self.reader.offset_width as u64;
        let length = super_block.blocks.saturating_mul(wide).saturating_add(map_bytes);
        let length = length.saturating_add(10 + wide + array.offset_bytes as u64);
        let block = usize::try_from(length)
            .ok()
            .filter(|_| self.reader.has(address, length))
            .and_then(|length| self.block(b"EASB", array.header, address, length));
        let mut at = Cursor::new(block.as_deref().unwrap_or_default());
        if at.number(array.offset_bytes) != Ok(super_block.first) {
            array.lost.push((first, behind, self.reader.offset_of(address)));
            return;
        }
        let map = at.take(map_bytes as usize).unwrap_or_default();
        for (number, block) in (0..).zip(super_block.data_blocks(false)) {
            let pages = (pages > 0).then_some((map, number * pages));
            let address = self.reader.address(&mut at);
            self.data_block(array, address, block, pages, seen);
        }
    }

    /// Return what follows the head of a data block, whose elements may be in pages.
    fn read_data_block(&self, array: &Array<'_>, address: u64, block: &DataBlock) -> Option<Vec<u8>> {
        let inside =
            if block.elements > array.page { 0 } else { block.elements.checked_mul(array.width as u64)? };
        let head = 10 + self.reader.offset_width + array.offset_bytes;
        let length = inside.checked_add(head as u64).filter(|length| self.reader.has(address, *length))?;
        let all = self.reader.read(address, usize::try_from(length).ok()?)?;
        let all = self.reader.check(BLOCK, b"EADB", address, all)?;
        let mut at = Cursor::new(all.get(6..)?);
        let same = self.reader.address(&mut at) == Some(array.header)
            && at.number(array.offset_bytes) == Ok(block.place);
        same.then(|| at.rest().to_vec())
    }

    fn data_block(
        &mut self,
        array: &mut Array<'_>,
        address: Option<u64>,
        block: DataBlock,
        map: Option<(&[u8], u64)>,
        seen: &mut HashSet<u64>,
    ) {
        let DataBlock { first, elements, .. } = block;
        let Some(address) = address else {
            array.known.insert(first);
            array.read.push((first, first.saturating_add(elements)));
            return;
        };
        if !seen.insert(address) {
            return;
        }
        let is_paged = elements > array.page;
        let head = 10 + self.reader.offset_width as u64 + array.offset_bytes as u64;
        match self.read_data_block(array, address, &block) {
            Some(content) => {
                array.known.insert(first);
                self.elements(array, &content, first, Proof::Checked);
            }
            None => {
                self.reader.note(BLOCK, address, head, None);
                array.lost.push((first, first.saturating_add(elements), self.reader.offset_of(address)));
            }
        }
        if !is_paged {
            return;
        }
        let page_bytes = array.page.saturating_mul(array.width as u64).saturating_add(4);
        for number in 0..elements / array.page {
            let at = address.saturating_add(head).saturating_add(number.saturating_mul(page_bytes));
            let first = first.saturating_add(number * array.page);
            if !self.reader.has(at, 1) {
                array.lost.push((
                    first,
                    block.first.saturating_add(elements),
                    self.reader.offset_of(address),
                ));
                return;
            }
            self.page(array, at, (first, array.page), map.map(|(map, bit)| (map, bit + number)));
        }
    }
}

/// Blocks of the same size in an extensible array.
struct SuperBlock {
    /// Number of the first element, without those in the index block.
    first: u64,
    in_index: u64,
    /// Number of data blocks in all super blocks before.
    blocks_before: u64,
    blocks: u64,
    /// Elements of a block.
    elements: u64,
}

/// A block of elements.
#[derive(Debug, Clone, Copy)]
struct DataBlock {
    /// Number of the first element.
    first: u64,
    /// The place that the block has stored.
    place: u64,
    elements: u64,
}

impl SuperBlock {
    fn all(bits: u8, least: u8, in_index: u8) -> Vec<Self> {
        let (mut first, mut blocks_before) = (0_u64, 0);
        let mut all = Vec::new();
        for number in 0..=u32::from(bits) - least.ilog2() {
            let blocks = 1_u64 << (number / 2);
            let elements = u64::from(least).saturating_mul(1 << number.div_ceil(2));
            all.push(Self { first, in_index: in_index.into(), blocks_before, blocks, elements });
            first = first.saturating_add(blocks.saturating_mul(elements));
            blocks_before += blocks;
        }
        all
    }

    fn data_blocks(&self, direct: bool) -> impl Iterator<Item = DataBlock> {
        (0..self.blocks).map(move |number| self.data_block(direct, number))
    }

    fn data_block(&self, direct: bool, number: u64) -> DataBlock {
        // H5EA__lookup_elmt counts the blocks below the index block from the first one, and the others in their super block.
        let counted = number + if direct { self.blocks_before } else { 0 };
        DataBlock {
            first: (self.in_index + self.first).saturating_add(number.saturating_mul(self.elements)),
            place: self.first.saturating_add(counted.saturating_mul(self.elements)),
            elements: self.elements,
        }
    }

    /// Return the block that stores a place, if there is one.
    fn data_block_at(&self, direct: bool, place: u64) -> Option<DataBlock> {
        let before = if direct { self.blocks_before } else { 0 };
        let number = (place.checked_sub(self.first)? / self.elements).checked_sub(before)?;
        (number < self.blocks).then(|| self.data_block(direct, number)).filter(|block| block.place == place)
    }
}
