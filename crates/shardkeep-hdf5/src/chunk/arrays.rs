//! Fixed and extensible arrays: indexes of datasets that cannot grow, or only along their first axis.
//!
//! Format: HDF5 File Format Specification 3.0, VII.C and VII.D.

use crate::chunk::list::{ARRAY, ChunkList, FAR, product};
use crate::format::cursor::{Cursor, Known};
use crate::format::file::{File, Storage};
use crate::format::lookup3::checked;

/// Read bytes that a checksum follows; the result does not contain it.
fn read_checked<S: Storage + ?Sized>(file: &File<'_, S>, address: u64, length: usize) -> Known<Vec<u8>> {
    let mut bytes = file.read(address, length)?;
    let kept = checked(&bytes)?.len();
    bytes.truncate(kept);
    Ok(bytes)
}

/// Skip the start of a block: its signature, version 0, and the kind of chunks (filtered or not).
fn skip_start(at: &mut Cursor<'_>, name: &[u8; 4], filtered: bool) -> Known<()> {
    let same = at.take(4)? == name && at.u8()? == 0 && at.u8()? == u8::from(filtered);
    if same { Ok(()) } else { Err(ARRAY) }
}

/// Skip the start of the header of an array.
fn skip_header_start(at: &mut Cursor<'_>, name: &[u8; 4], filtered: bool, width: usize) -> Known<()> {
    skip_start(at, name, filtered)?;
    if at.u8()? as usize == width { Ok(()) } else { Err(ARRAY) }
}

/// Skip the start of another block, with the address of the header.
fn skip_block_start(at: &mut Cursor<'_>, name: &[u8; 4], filtered: bool, header: u64) -> Known<()> {
    skip_start(at, name, filtered)?;
    if at.number(8)? == header { Ok(()) } else { Err(ARRAY) }
}

/// Return true if bit `number` is set; bit 0 is the highest of the first byte.
fn bit(map: &[u8], number: usize) -> Known<bool> {
    map.get(number / 8).map(|byte| byte & (0x80 >> (number % 8)) != 0).ok_or(ARRAY)
}

pub(crate) fn fixed_array<S: Storage + ?Sized>(
    file: &File<'_, S>,
    header: u64,
    filtered: bool,
    found: &mut ChunkList<'_>,
) -> Known<()> {
    let width = found.element_bytes(filtered);
    let head = read_checked(file, header, 28)?;
    let mut at = Cursor::new(&head);
    skip_header_start(&mut at, b"FAHD", filtered, width)?;
    let page_bits = at.u8()?;
    let (count, block) = (at.number(8)?, at.address(8)?);
    let all = product(found.counts);
    let Some(block) = block else { return Ok(()) };
    if count != all || page_bits >= 32 {
        return Err(ARRAY);
    }
    let count = usize::try_from(count).map_err(|_| FAR)?;
    let page = 1_usize << page_bits;
    let pages = if count > page { count.div_ceil(page) } else { 0 };
    let map_bytes = pages.div_ceil(8);
    let inside = if pages == 0 { count.saturating_mul(width) } else { map_bytes };
    let prefix = read_checked(file, block, inside.saturating_add(18))?;
    let mut at = Cursor::new(&prefix);
    skip_block_start(&mut at, b"FADB", filtered, header)?;
    let content = at.take(inside)?;
    if pages == 0 {
        return found.elements(content, 0, filtered);
    }
    let first_page = block.saturating_add(prefix.len() as u64 + 4);
    for number in 0..pages {
        if !bit(content, number)? {
            continue;
        }
        let first = number * page;
        let page_at = first_page.saturating_add((number * (page * width + 4)) as u64);
        let elements = read_checked(file, page_at, page.min(count - first) * width + 4)?;
        found.elements(&elements, first as u64, filtered)?;
    }
    Ok(())
}

/// Parameters of an extensible array.
struct Extensible {
    header: u64,
    filtered: bool,
    width: usize,
    /// Bytes of an element number.
    offset_bytes: usize,
    page: u64,
    least: u64,
    /// End of the elements that were ever set.
    end: u64,
}

pub(crate) fn extensible_array<S: Storage + ?Sized>(
    file: &File<'_, S>,
    header: u64,
    filtered: bool,
    found: &mut ChunkList<'_>,
) -> Known<()> {
    let width = found.element_bytes(filtered);
    let head = read_checked(file, header, 72)?;
    let mut at = Cursor::new(&head);
    skip_header_start(&mut at, b"EAHD", filtered, width)?;
    let [bits, in_index, least, least_pointers, page_bits] = *at.take(5)? else { return Err(ARRAY) };
    at.take(32)?;
    let end = at.number(8)?;
    at.take(8)?;
    let Some(index) = at.address(8)? else { return Ok(()) };
    let powers = least.is_power_of_two() && least_pointers.is_power_of_two();
    if !powers || bits > 64 || page_bits >= 32 || u32::from(bits) < least.ilog2() {
        return Err(ARRAY);
    }
    let array = Extensible {
        header,
        filtered,
        width,
        offset_bytes: usize::from(bits).div_ceil(8),
        page: 1 << page_bits,
        least: least.into(),
        end,
    };
    let super_blocks = 1 + u32::from(bits) - least.ilog2();
    // The index block itself has the addresses of the data blocks of the first super blocks.
    let direct = 2 * least_pointers.ilog2();
    let blocks = 2 * (usize::from(least_pointers) - 1);
    let others = super_blocks.checked_sub(direct).ok_or(ARRAY)? as usize;
    let size = 14 + usize::from(in_index) * width + 8 * (blocks + others) + 4;
    let block = read_checked(file, index, size)?;
    let mut at = Cursor::new(&block);
    skip_block_start(&mut at, b"EAIB", filtered, header)?;
    array.add(at.take(usize::from(in_index) * width)?, 0, found)?;
    let mut first = u64::from(in_index);
    for number in 0..super_blocks {
        let count = 1_u64 << (number / 2);
        let elements = array.least.saturating_mul(1_u64.checked_shl(number.div_ceil(2)).ok_or(FAR)?);
        if first >= array.end {
            break;
        }
        if number < direct {
            for _ in 0..count {
                let data = at.address(8)?;
                // HDF5 has pages only below super blocks.
                if elements > array.page {
                    return Err(ARRAY);
                }
                array.data_block(file, data, first, elements, None, found)?;
                first = first.saturating_add(elements);
            }
            continue;
        }
        array.super_block(file, at.address(8)?, first, count, elements, found)?;
        first = first.saturating_add(count.saturating_mul(elements));
    }
    Ok(())
}

impl Extensible {
    /// Add elements, except those after the last one that was set.
    fn add(&self, elements: &[u8], first: u64, found: &mut ChunkList<'_>) -> Known<()> {
        let most = usize::try_from(self.end.saturating_sub(first)).unwrap_or(usize::MAX);
        let kept = most.saturating_mul(self.width).min(elements.len());
        found.elements(elements.get(..kept).unwrap_or_default(), first, self.filtered)
    }

    fn super_block<S: Storage + ?Sized>(
        &self,
        file: &File<'_, S>,
        address: Option<u64>,
        first: u64,
        count: u64,
        elements: u64,
        found: &mut ChunkList<'_>,
    ) -> Known<()> {
        let Some(address) = address else { return Ok(()) };
        let pages = if elements > self.page { elements / self.page } else { 0 };
        let map_bytes = usize::try_from(count.saturating_mul(pages.div_ceil(8))).map_err(|_| FAR)?;
        let names = usize::try_from(count.saturating_mul(8)).map_err(|_| FAR)?;
        let size = 18_usize.saturating_add(self.offset_bytes).saturating_add(map_bytes).saturating_add(names);
        let block = read_checked(file, address, size)?;
        let mut at = Cursor::new(&block);
        skip_block_start(&mut at, b"EASB", self.filtered, self.header)?;
        at.take(self.offset_bytes)?;
        let map = at.take(map_bytes)?;
        for number in 0..count {
            let start = first.saturating_add(number.saturating_mul(elements));
            if start >= self.end {
                break;
            }
            let pages = (pages > 0).then_some((map, number.saturating_mul(pages)));
            self.data_block(file, at.address(8)?, start, elements, pages, found)?;
        }
        Ok(())
    }

    /// Read a block of elements; `pages` is the bitmap of written pages and the number of the first one.
    fn data_block<S: Storage + ?Sized>(
        &self,
        file: &File<'_, S>,
        address: Option<u64>,
        first: u64,
        elements: u64,
        pages: Option<(&[u8], u64)>,
        found: &mut ChunkList<'_>,
    ) -> Known<()> {
        let Some(address) = address else { return Ok(()) };
        let inside = usize::try_from(elements).map_err(|_| FAR)?.saturating_mul(self.width);
        let size = 14 + self.offset_bytes + 4;
        let block_bytes = if pages.is_some() { size } else { size.saturating_add(inside) };
        let block = read_checked(file, address, block_bytes)?;
        let mut at = Cursor::new(&block);
        skip_block_start(&mut at, b"EADB", self.filtered, self.header)?;
        at.take(self.offset_bytes)?;
        let Some((map, first_bit)) = pages else {
            return self.add(at.take(inside)?, first, found);
        };
        let page_bytes =
            usize::try_from(self.page).map_err(|_| FAR)?.saturating_mul(self.width).saturating_add(4);
        for number in 0..elements / self.page {
            let start = first.saturating_add(number * self.page);
            if start >= self.end {
                break;
            }
            if !bit(map, usize::try_from(first_bit.saturating_add(number)).map_err(|_| FAR)?)? {
                continue;
            }
            let place = number.saturating_mul(page_bytes as u64);
            let page_at = address.saturating_add(size as u64).saturating_add(place);
            let page = read_checked(file, page_at, page_bytes)?;
            self.add(&page, start, found)?;
        }
        Ok(())
    }
}
