//! Decoding tables for the Huffman codes of JPEG.
//!
//! The next [`BITS`] bits of the data are the index of an entry. It decodes as much as these bits contain: a code *and*
//! the value after it, and for AC codes two coefficients, or a coefficient and the end of the block. An entry of the
//! AC table is a `u32`:
//!
//! ```text
//! bits 0..6    number of bits of the entry; 0: the code is longer than the index, or does not exist
//! bits 6..11   distance of the first coefficient from the previous one; 0: only a code, with its symbol in bits 18..26
//! bits 11..16  distance of the second coefficient from the first; 0: it is the first again
//! bit  16      the block ends here
//! bits 18..25  the second coefficient, signed
//! bits 25..32  the first coefficient, signed
//! ```
//!
//! and an entry of the DC table, with the difference or its number of bits:
//!
//! ```text
//! bits 0..6    number of bits of the entry; 0 as above
//! bits 8..13   number of bits of the difference that follow; 0: it is in the entry
//! bits 16..32  the difference, signed
//! ```

#![deny(clippy::indexing_slicing)]

use super::Damage;
use super::markers::HuffmanSpec;

/// Number of index bits of a table of AC codes.
const AC_BITS: u32 = 11;
const DC_BITS: u32 = 9;

/// Bits of a coefficient that an entry can hold.
const PAIRED_SIZE: u32 = 6;

const DISTANCE: u32 = 31 << 6;
const END: u32 = 1 << 16;

/// Return the number of bits of an entry.
#[inline(always)]
pub(super) fn taken(entry: u32) -> u32 {
    entry & 63
}

/// Return the value of the `size` bits at the front of `hand` (T.81, F.2.2.1); `size` is 1 to 16.
#[inline(always)]
pub(super) fn extend(hand: u64, size: u32) -> i32 {
    let bits = hand.wrapping_shr(64 - size) as i32;
    let negative = !((hand.cast_signed() >> 63) as i32);
    bits + (negative & (1 - (1i32 << (size & 31))))
}

/// All codes, to find those that are longer than an index.
#[derive(Debug)]
struct Codes {
    /// For each length, the least 16 bits after all codes of at most this length.
    limits: [u32; 17],
    /// For each length, the difference between a code and the position of its symbol.
    offsets: [i32; 17],
    symbols: Vec<u8>,
}

impl Codes {
    /// Parse `spec` and call `each` with every code of at most `bits` bits: the indexes that start with it, their
    /// remaining bits, and its symbol.
    fn new(
        spec: &HuffmanSpec<'_>,
        bits: u32,
        mut each: impl FnMut(std::ops::Range<usize>, u32, u8),
    ) -> Result<Self, Damage> {
        let mut codes = Self { limits: [0; 17], offsets: [0; 17], symbols: spec.symbols.to_vec() };
        let (mut code, mut symbols) = (0u32, spec.symbols);
        let rows = codes.limits.iter_mut().zip(&mut codes.offsets).skip(1).zip(spec.counts);
        for (length, ((limit, offset), &count)) in (1u32..).zip(rows) {
            let first = spec.symbols.len() - symbols.len();
            *offset = first as i32 - code.cast_signed();
            let (these, rest) = symbols.split_at_checked(usize::from(count)).unwrap_or_default();
            symbols = rest;
            if code + u32::from(count) > 1 << length {
                return Err("a Huffman table has more codes than there can be");
            }
            for &symbol in these {
                if let Some(spare) = bits.checked_sub(length) {
                    each((code as usize) << spare..(code as usize + 1) << spare, spare, symbol);
                }
                code += 1;
            }
            *limit = code << (16 - length);
            code <<= 1;
        }
        Ok(codes)
    }

    /// Return length and symbol of the code at the front of `hand`.
    fn find(&self, hand: u64) -> Option<(u32, u8)> {
        let front = (hand >> 48) as u32;
        let (length, _) = (1u32..).zip(self.limits.iter().skip(1)).find(|&(_, &limit)| front < limit)?;
        let code = (front >> (16 - length)).cast_signed();
        let at = usize::try_from(code + self.offsets.get(length as usize)?).ok()?;
        Some((length, *self.symbols.get(at)?))
    }
}

/// Iterate over the indexes of a code with `spare` remaining bits: the index, and its bits aligned to the front.
fn behind(places: std::ops::Range<usize>, spare: u32) -> impl Iterator<Item = (usize, u64)> {
    let start = places.start;
    places.map(move |place| (place, ((place - start) as u64).wrapping_shl(64 - spare)))
}

pub(super) type AcEntries = [u32; 1 << AC_BITS];

/// Return the entry for the next bits.
#[inline(always)]
pub(super) fn look_up(entries: &AcEntries, hand: u64) -> u32 {
    entries.get((hand >> (64 - AC_BITS)) as usize).copied().unwrap_or(0)
}

/// The codes of AC coefficients.
#[derive(Debug)]
pub(super) struct AcTable {
    entries: Box<AcEntries>,
    codes: Codes,
}

impl AcTable {
    pub(super) fn new(spec: &HuffmanSpec<'_>) -> Result<Self, Damage> {
        let mut singles = [0u32; 1 << AC_BITS];
        let codes = Codes::new(spec, AC_BITS, |places, spare, symbol| {
            let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
            let length = AC_BITS - spare;
            for (place, bits) in behind(places, spare) {
                let Some(entry) = singles.get_mut(place) else { continue };
                *entry = if (1..=spare.min(PAIRED_SIZE)).contains(&size) {
                    (extend(bits, size).cast_unsigned()) << 25 | (run + 1) << 6 | (length + size)
                } else {
                    u32::from(symbol) << 18 | length
                };
            }
        })?;
        let mut entries = Box::new([0; 1 << AC_BITS]);
        for ((place, entry), &single) in entries.iter_mut().enumerate().zip(&singles) {
            *entry = single;
            if single & DISTANCE == 0 {
                continue;
            }
            *entry |= single >> 25 << 18;
            let next = singles.get(place << taken(single) & (singles.len() - 1)).copied().unwrap_or(0);
            if taken(next) == 0 || taken(single) + taken(next) > AC_BITS {
                continue;
            }
            if next & DISTANCE != 0 {
                *entry = (single + taken(next)) | (next & DISTANCE) << 5 | next >> 25 << 18;
            } else if ends_block((next >> 18) as u8) {
                *entry = (*entry + taken(next)) | END;
            }
        }
        Ok(Self { entries, codes })
    }

    pub(super) fn entries(&self) -> &AcEntries {
        &self.entries
    }

    /// Return length and symbol of a code of any length.
    #[cold]
    #[inline(never)]
    pub(super) fn search(&self, hand: u64) -> Option<(u32, u8)> {
        self.codes.find(hand)
    }
}

/// Return length and symbol of an entry of only a code.
#[inline(always)]
pub(super) fn lone_symbol(entry: u32) -> Option<(u32, u8)> {
    (entry & DISTANCE == 0 && taken(entry) != 0).then_some((taken(entry), (entry >> 18) as u8))
}

/// Return the distances of the first coefficient from the previous one, and of the second from the first.
#[inline(always)]
pub(super) fn distances(entry: u32) -> (u32, u32) {
    ((entry >> 6) & 31, (entry >> 11) & 31)
}

/// Return the first and the second coefficient.
#[inline(always)]
pub(super) fn coefficients(entry: u32) -> (i16, i16) {
    ((entry.cast_signed() >> 25) as i16, ((entry << 7).cast_signed() >> 25) as i16)
}

/// Return 128 if the block ends after the entry, else 0.
#[inline(always)]
pub(super) fn end(entry: u32) -> u32 {
    (entry & END) >> 9
}

/// Return true if an AC symbol ends the block: any symbol of size 0 except the run of 16 zeros, as in libjpeg.
#[inline(always)]
pub(super) fn ends_block(symbol: u8) -> bool {
    symbol & 15 == 0 && symbol != 0xf0
}

/// The codes of DC differences.
#[derive(Debug)]
pub(super) struct DcTable {
    entries: [u32; 1 << DC_BITS],
    codes: Codes,
}

impl DcTable {
    pub(super) fn new(spec: &HuffmanSpec<'_>) -> Result<Self, Damage> {
        if spec.symbols.iter().any(|&size| size > 15) {
            return Err("a Huffman table has a DC difference of too many bits");
        }
        let mut entries = [0u32; 1 << DC_BITS];
        let codes = Codes::new(spec, DC_BITS, |places, spare, symbol| {
            let (size, length) = (u32::from(symbol), DC_BITS - spare);
            for (place, bits) in behind(places, spare) {
                let Some(entry) = entries.get_mut(place) else { continue };
                *entry = match size {
                    0 => length,
                    _ if size <= spare => extend(bits, size).cast_unsigned() << 16 | (length + size),
                    _ => size << 8 | length,
                };
            }
        })?;
        Ok(Self { entries, codes })
    }

    /// Return the number of bits (at most 31) of the next difference, and the difference; None for an invalid code.
    #[inline(always)]
    pub(super) fn difference(&self, hand: u64) -> Option<(u32, i32)> {
        let entry = self.entries.get((hand >> (64 - DC_BITS)) as usize).copied().unwrap_or(0);
        let size = (entry >> 8) & 31;
        if taken(entry) != 0 && size == 0 {
            return Some((taken(entry), entry.cast_signed() >> 16));
        }
        self.long_difference(hand, entry)
    }

    #[inline(never)]
    fn long_difference(&self, hand: u64, entry: u32) -> Option<(u32, i32)> {
        let (length, size) = match taken(entry) {
            0 => self.codes.find(hand).map(|(length, symbol)| (length, u32::from(symbol)))?,
            length => (length, (entry >> 8) & 31),
        };
        if size == 0 {
            return Some((length, 0));
        }
        Some((length + size, extend(hand << length, size)))
    }
}
