//! Arrays of chunks, of which blocks may be damaged, and the fixed ones among them.
//!
//! Each block has a checksum, the address of the header of its array, and its own place in the array. So a block that no other one
//! names any more still belongs to its dataset.

use std::collections::HashSet;

use crate::format::cursor::Cursor;
use crate::salvage::index::chunks::{Collection, Numbering, Proof};
use crate::salvage::reader::is_right;
use crate::salvage::scan::{Scan, Signature};

pub(crate) const BLOCK: &str = "block of an array of chunks";

/// The part of an array that was not found: first element and element after the last, and the offset of the structure.
pub(crate) type Lost = (u64, u64, u64);

/// Parameters of an array.
pub(crate) struct Array<'a> {
    pub(crate) header: u64,
    pub(crate) width: usize,
    pub(crate) page: u64,
    pub(crate) offset_bytes: usize,
    pub(crate) numbering: Numbering<'a>,
    /// Ranges of elements that were read, in any order.
    pub(crate) read: Vec<(u64, u64)>,
    /// First elements of the data blocks of an extensible array that are known.
    pub(crate) known: HashSet<u64>,
    pub(crate) lost: Vec<Lost>,
}

impl Collection<'_> {
    /// Return the bytes of an element of an array, and of the size of a chunk in it.
    pub(crate) fn stored_widths(&self) -> (usize, usize) {
        // H5D__earray_crt_context: one byte more than the size of an unfiltered chunk needs, at most eight.
        let needed = 1 + (self.chunk_bytes.max(1).ilog2() as usize + 8) / 8;
        let size = if self.chunked.is_wide { 8 } else { needed.min(8) };
        let address = self.reader.offset_width;
        if self.is_filtered { (address + size + 4, size) } else { (address, 0) }
    }

    /// Add elements of an array, the first of which has the number `first`.
    pub(crate) fn elements(&mut self, array: &mut Array<'_>, elements: &[u8], first: u64, proof: Proof) {
        let (_, size_width) = self.stored_widths();
        let count = (elements.len() / array.width) as u64;
        array.read.push((first, first.saturating_add(count)));
        for (number, element) in (first..).zip(elements.chunks_exact(array.width)) {
            let mut at = Cursor::new(element);
            let Some(address) = self.reader.address(&mut at) else { continue };
            let (size, mask) = if self.is_filtered {
                (at.number(size_width).unwrap_or(0), at.u32().unwrap_or(0))
            } else {
                (self.chunk_bytes, 0)
            };
            self.add(&array.numbering.place(number), address, size, mask, proof);
        }
    }

    /// Read a block that begins with its signature, version, kind and the address of its array; return what follows.
    pub(crate) fn block(
        &self,
        signature: &[u8; 4],
        header: u64,
        address: u64,
        length: usize,
    ) -> Option<Vec<u8>> {
        let bytes = self.reader.read_checked(BLOCK, signature, address, length)?;
        let mut at = Cursor::new(bytes.get(6..)?);
        (self.reader.address(&mut at) == Some(header)).then(|| at.rest().to_vec())
    }

    /// Return the addresses of all blocks of an array that the scan has found.
    pub(crate) fn scanned_blocks(&self, kind: Signature, header: u64, scanned: &Scan<'_>) -> Vec<u64> {
        let addresses = scanned.of(kind).filter_map(|offset| offset.checked_sub(self.reader.base));
        addresses
            .filter(|address| {
                let head = self.reader.read(*address, 6 + self.reader.offset_width);
                head.and_then(|head| self.reader.address(&mut Cursor::new(head.get(6..)?))) == Some(header)
            })
            .collect()
    }

    /// Turn the elements that were not read into lost places.
    pub(crate) fn finish(&mut self, mut array: Array<'_>, end: u64) {
        array.read.sort_unstable();
        let mut read: Vec<(u64, u64)> = Vec::new();
        for (first, behind) in array.read {
            match read.last_mut() {
                Some((_, last)) if first <= *last => *last = behind.max(*last),
                _ => read.push((first, behind)),
            }
        }
        for (first, behind, offset) in array.lost {
            let mut at = first;
            let behind = behind.min(end);
            let next = read.partition_point(|(_, read_behind)| *read_behind <= first);
            for (read, read_behind) in read.iter().skip(next).take_while(|(read, _)| *read < behind) {
                if *read > at {
                    self.lose_numbers(&array.numbering, at, *read, offset);
                }
                at = *read_behind;
            }
            if at < behind {
                self.lose_numbers(&array.numbering, at, behind, offset);
            }
        }
    }

    fn lose_numbers(&mut self, numbering: &Numbering<'_>, first: u64, behind: u64, offset: u64) {
        if !numbering.is_row_major() {
            self.lose(offset, None, None);
            return;
        }
        let first = numbering.place(first);
        // Elements after the last row are not of the dataset.
        if first.first() < self.shape.first() {
            self.lose(offset, Some(first), Some(numbering.place(behind)));
        }
    }

    pub(crate) fn fixed_array(&mut self, header: u64, page_bits: u8, scanned: &Scan<'_>) {
        let (width, _) = self.stored_widths();
        let Some(numbering) = Numbering::new(self, None).filter(|_| page_bits < 32) else { return };
        let mut counts = self.limits.iter().zip(&self.chunked.chunk);
        let count = counts.try_fold(1_u64, |all, (limit, one)| all.checked_mul((*limit)?.div_ceil(*one)));
        let Some(count) = count else { return };
        let mut array = Array {
            header,
            width,
            page: 1 << page_bits,
            offset_bytes: 0,
            numbering,
            read: Vec::new(),
            known: HashSet::new(),
            lost: Vec::new(),
        };
        let length = 12 + self.reader.length_width + self.reader.offset_width;
        let head = self.reader.read_checked("header of an array of chunks", b"FAHD", header, length);
        let block = match &head {
            Some(head) => {
                let mut at = Cursor::new(head.get(8 + self.reader.length_width..).unwrap_or_default());
                match self.reader.address(&mut at) {
                    Some(block) => block,
                    None => return,
                }
            }
            None => match self.scanned_blocks(Signature::FixedBlock, header, scanned).as_slice() {
                [block] => *block,
                _ => {
                    array.lost.push((0, count, self.reader.offset_of(header)));
                    self.finish(array, count);
                    return;
                }
            },
        };
        self.fixed_block(&mut array, block, count);
        self.finish(array, count);
    }

    fn fixed_block(&mut self, array: &mut Array<'_>, block: u64, count: u64) {
        let pages = if count > array.page { count.div_ceil(array.page) } else { 0 };
        let offset = self.reader.offset_of(block);
        let inside = if pages == 0 { count.saturating_mul(array.width as u64) } else { pages.div_ceil(8) };
        let prefix = inside.saturating_add(10 + self.reader.offset_width as u64);
        // An array beyond the file is not read, as its size comes from the shape.
        let Some(length) = usize::try_from(prefix).ok().filter(|_| self.reader.has(block, prefix)) else {
            array.lost.push((0, count, offset));
            return;
        };
        let content = self.block(b"FADB", array.header, block, length);
        if pages == 0 {
            match content {
                Some(content) => self.elements(array, &content, 0, Proof::Checked),
                None => array.lost.push((0, count, offset)),
            }
            return;
        }
        for number in 0..pages {
            let first = number * array.page;
            let elements = array.page.min(count - first);
            // All pages but the last have the same size.
            let place = number.saturating_mul(array.page * array.width as u64 + 4);
            let at = block.saturating_add(prefix).saturating_add(place);
            if !self.reader.has(at, 1) {
                array.lost.push((first, count, self.reader.offset_of(at)));
                return;
            }
            self.page(array, at, (first, elements), content.as_deref().map(|map| (map, number)));
        }
    }

    /// Read a page of elements, which has its own checksum; without the bitmap, a page that was never written looks damaged.
    pub(crate) fn page(
        &mut self,
        array: &mut Array<'_>,
        at: u64,
        (first, elements): (u64, u64),
        map: Option<(&[u8], u64)>,
    ) {
        let length = elements.saturating_mul(array.width as u64).saturating_add(4);
        let Some(length) = usize::try_from(length).ok().filter(|_| self.reader.has(at, length)) else {
            array.lost.push((first, first.saturating_add(elements), self.reader.offset_of(at)));
            return;
        };
        let bit = map.map(|(map, number)| {
            // Bit 0 is the highest of the first byte.
            map.get((number / 8) as usize).is_some_and(|byte| byte & (0x80 >> (number % 8)) != 0)
        });
        let found = match bit {
            Some(false) => {
                array.read.push((first, first.saturating_add(elements)));
                return;
            }
            Some(true) => self.reader.read_checked(BLOCK, b"", at, length).map(|page| (page, Proof::Checked)),
            None => self.reader.read(at, length).filter(|page| is_right(page)).map(|mut page| {
                page.truncate(length - 4);
                (page, Proof::Unchecked)
            }),
        };
        match found {
            Some((page, proof)) => self.elements(array, &page, first, proof),
            None => array.lost.push((first, first.saturating_add(elements), self.reader.offset_of(at))),
        }
    }
}
