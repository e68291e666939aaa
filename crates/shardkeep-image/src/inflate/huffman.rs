//! Decoding tables for deflate's prefix codes.
//!
//! A table is looked up by the next bits of the input; codes that are longer lead to a second table. An entry is a `u32`:
//!
//! ```text
//! bits 0..8    how many bits the entry takes (of a second table: all of the code)
//! bits 8..12   how many extra bits follow (lengths, distances); the size in bits of a second table; of a pair, how
//!              many bits its first literal takes
//! bit  12      end of block; of a literal: a pair
//! bit  13      leads to a second table
//! bit  14      any valid entry: 0 is a code that was not defined
//! bit  15      literal
//! bits 16..32  literal or two, base value or symbol; where a second table starts
//! ```

#![deny(clippy::indexing_slicing)]

use super::Damage;

const MAX_BITS: usize = 15;

const LITERAL: u32 = 1 << 15;
const END: u32 = 1 << 12;
const PAIR: u32 = 1 << 12;
const SECOND: u32 = 1 << 13;
const VALID: u32 = 1 << 14;
/// Where the value stands.
const VALUE: u32 = 16;

/// Bits that the entry takes.
#[inline(always)]
pub(crate) fn bits(entry: u32) -> u32 {
    entry & 0xff
}

/// Extra bits behind a length or distance.
#[inline(always)]
pub(crate) fn extra(entry: u32) -> u32 {
    (entry >> 8) & 15
}

/// The value that extra bits are added to.
#[inline(always)]
pub(crate) fn base(entry: u32) -> usize {
    symbol(entry)
}

/// The symbol of a plain code.
#[inline(always)]
pub(crate) fn symbol(entry: u32) -> usize {
    (entry >> VALUE) as usize
}

#[inline(always)]
pub(crate) fn is_literal(entry: u32) -> bool {
    entry & LITERAL != 0
}

/// How many bits the literals of a literal entry have: 8 or 16.
#[inline(always)]
pub(crate) fn literal_bits(entry: u32) -> u32 {
    8 + ((entry & PAIR) >> 9)
}

/// The entry of the first literal alone.
#[inline(always)]
pub(crate) fn first_literal(entry: u32) -> u32 {
    let pair = entry & (LITERAL | PAIR) == LITERAL | PAIR;
    if pair { VALID | LITERAL | (entry & 0xff << VALUE) | extra(entry) } else { entry }
}

/// Whether an entry that is no literal ends the block.
#[inline(always)]
pub(crate) fn is_end(entry: u32) -> bool {
    entry & END != 0
}

/// The entry of a symbol whose meaning is the symbol.
pub(crate) fn plain(symbol: usize) -> u32 {
    VALID | (symbol as u32) << VALUE
}

/// The entry of a symbol of the literal/length alphabet; 0 for those that must not occur.
pub(crate) fn literal(symbol: usize) -> u32 {
    match symbol {
        0..=255 => VALID | LITERAL | (symbol as u32) << VALUE,
        256 => VALID | END,
        257..=264 => VALID | (symbol as u32 - 254) << VALUE,
        265..=284 => {
            let extra = (symbol as u32 - 261) / 4;
            let base = (((symbol as u32 - 265) % 4 + 4) << extra) + 3;
            VALID | base << VALUE | extra << 8
        }
        285 => VALID | 258 << VALUE,
        _ => 0,
    }
}

/// The entry of a symbol of the distance alphabet; 0 for those that must not occur.
pub(crate) fn distance(symbol: usize) -> u32 {
    match symbol {
        0..=3 => VALID | (symbol as u32 + 1) << VALUE,
        4..=29 => {
            let extra = symbol as u32 / 2 - 1;
            let base = ((symbol as u32 % 2 + 2) << extra) + 1;
            VALID | base << VALUE | extra << 8
        }
        _ => 0,
    }
}

/// The codes of literals, reversed, with the literals: by length, those of `length` bits from `starts[length]` on.
struct Literals {
    codes: [(u16, u8); 256],
    starts: [usize; MAX_BITS + 2],
}

/// A decoding table whose first part has `SIZE` entries, a power of two.
#[derive(Debug)]
pub(crate) struct Table<const SIZE: usize> {
    root: Box<[u32; SIZE]>,
    second: Vec<u32>,
}

impl<const SIZE: usize> Default for Table<SIZE> {
    fn default() -> Self {
        Self { root: Box::new([0; SIZE]), second: Vec::new() }
    }
}

impl<const SIZE: usize> Table<SIZE> {
    const BITS: usize = SIZE.trailing_zeros() as usize;

    /// The entry for the next bits of the input; 0 if there is no such code.
    #[inline(always)]
    pub(crate) fn look_up(&self, hand: u64) -> u32 {
        let entry = self.glance(hand);
        if entry & SECOND == 0 { entry } else { self.look_further(hand, entry) }
    }

    /// The entry of the first table, which may lead to the second; a literal here is a literal.
    #[inline(always)]
    pub(crate) fn glance(&self, hand: u64) -> u32 {
        self.root.get(hand as usize % SIZE).copied().unwrap_or(0)
    }

    /// What [`Table::look_up`] gives where [`Table::glance`] gave `entry`.
    #[inline(always)]
    pub(crate) fn settle(&self, hand: u64, entry: u32) -> u32 {
        if entry & SECOND == 0 { entry } else { self.look_further(hand, entry) }
    }

    #[inline(always)]
    fn look_further(&self, hand: u64, entry: u32) -> u32 {
        let index = (hand >> Self::BITS) as usize & ((1 << extra(entry)) - 1);
        self.second.get(symbol(entry) + index).copied().unwrap_or(0)
    }

    /// Builds the table of the canonical code with these lengths (0: no code). As zlib does, a code must be complete,
    /// except that it may be a single code of one bit or (distances) none at all. With `pairs` the entry of a literal
    /// holds the literal behind too, where the index has room for both codes.
    pub(crate) fn build(
        &mut self,
        lengths: &[u8],
        entry: impl Fn(usize) -> u32,
        pairs: bool,
    ) -> Result<(), Damage> {
        let mut counts = [0usize; MAX_BITS + 1];
        for &length in lengths {
            if let Some(count) = counts.get_mut(usize::from(length)) {
                *count += 1;
            }
        }
        counts[0] = 0;
        let longest = counts.iter().rposition(|&count| count > 0).unwrap_or(0);
        let filled: usize =
            counts.iter().enumerate().map(|(length, count)| (count << MAX_BITS) >> length).sum();
        if filled > 1 << MAX_BITS {
            return Err("a code has more symbols than room");
        }
        if filled < 1 << MAX_BITS && longest > 1 {
            return Err("a code is incomplete");
        }
        // The symbols by length, and among equals by value: the order in which codes are given out.
        let mut starts = [0usize; MAX_BITS + 1];
        let mut used = 0usize;
        for (start, &count) in starts.iter_mut().zip(&counts) {
            *start = used;
            used += count;
        }
        let mut sorted = [0u16; 320];
        for (symbol, &length) in lengths.iter().enumerate() {
            if length > 0
                && let Some(start) = starts.get_mut(usize::from(length))
            {
                if let Some(slot) = sorted.get_mut(*start) {
                    *slot = symbol as u16;
                }
                *start += 1;
            }
        }
        // The table for codes of one more bit is the table so far twice, with the new codes in the places left.
        self.second.clear();
        if let Some(cell) = self.root.get_mut(0) {
            *cell = 0;
        }
        let mut sorted = sorted.iter().take(used);
        let mut code = 0usize;
        let mut literals = Literals { codes: [(0, 0); 256], starts: [0; MAX_BITS + 2] };
        let mut known = 0usize;
        for (length, &count) in counts.iter().enumerate().skip(1) {
            code <<= 1;
            if length <= Self::BITS {
                let half = 1 << (length - 1);
                if let Some((low, high)) =
                    self.root.get_mut(..2 * half).and_then(|part| part.split_at_mut_checked(half))
                {
                    high.copy_from_slice(low);
                }
            } else if length > longest {
                break;
            }
            for &symbol in sorted.by_ref().take(count) {
                let reversed = usize::from((code as u16).reverse_bits() >> (16 - length));
                let value = entry(usize::from(symbol));
                let value = if value == 0 { 0 } else { value | length as u32 };
                if pairs
                    && is_literal(value)
                    && let Some(slot) = literals.codes.get_mut(known)
                {
                    *slot = (reversed as u16, symbol as u8);
                    known += 1;
                }
                if length > Self::BITS {
                    self.put_second(reversed, length, value, longest);
                } else if let Some(cell) = self.root.get_mut(reversed) {
                    *cell = value;
                }
                code += 1;
            }
            if pairs && length <= Self::BITS {
                if let Some(start) = literals.starts.get_mut(length + 1) {
                    *start = known;
                }
                self.put_pairs(&literals, length);
            }
        }
        Ok(())
    }

    /// Puts the pairs of literals that take `total` bits together into their places.
    fn put_pairs(&mut self, literals: &Literals, total: usize) {
        let part = |length: usize| {
            let from = literals.starts.get(length).copied().unwrap_or(0);
            let to = literals.starts.get(length + 1).copied().unwrap_or(0);
            literals.codes.get(from..to).unwrap_or_default()
        };
        for length in 1..total {
            for &(code, first) in part(length) {
                let both = VALID | LITERAL | PAIR | u32::from(first) << VALUE | (length << 8 | total) as u32;
                for &(behind, second) in part(total - length) {
                    let index = usize::from(code) | usize::from(behind) << length;
                    if let Some(cell) = self.root.get_mut(index % SIZE) {
                        *cell = both | u32::from(second) << (VALUE + 8);
                    }
                }
            }
        }
    }

    /// Puts a code that is longer than the first table's index into a second table, which is made when needed.
    fn put_second(&mut self, reversed: usize, length: usize, value: u32, longest: usize) {
        let Some(pointer) = self.root.get_mut(reversed % SIZE) else { return };
        if *pointer & SECOND == 0 {
            let size = longest - Self::BITS;
            *pointer = VALID | SECOND | (self.second.len() as u32) << VALUE | (size as u32) << 8;
            self.second.resize(self.second.len() + (1 << size), 0);
        }
        let (start, size) = (symbol(*pointer), extra(*pointer));
        let step = 1 << (length - Self::BITS);
        let cells = self.second.get_mut(start..start + (1 << size)).unwrap_or_default();
        let cells = cells.iter_mut().skip(reversed >> Self::BITS).step_by(step);
        cells.for_each(|cell| *cell = value);
    }
}
