//! Deflate, block by block (RFC 1951), with the position of every bit.
//!
//! The decoder of the reader (`zlib-rs`) does not report where a block starts and cannot start at one. After damage
//! both are needed: a block that begins at any bit, with an unknown window before it.
#![deny(clippy::indexing_slicing)]

use super::bits::Bits;

/// Largest distance of a match.
pub(super) const WINDOW_BYTES: usize = 32 << 10;
/// More than the largest header of a block takes: 19 code lengths and 316 lengths with extra bits.
const HEADER_BYTES: usize = 640;
/// More than one symbol takes: 48 bits.
const SYMBOL_BYTES: usize = 8;

const END_OF_BLOCK: u16 = 256;
const FAST_BITS: u32 = 10;
const LONGEST: usize = 15;

/// State of a decoder after some input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// More input is needed.
    Input,
    /// Enough bytes were decoded.
    Full,
    /// A block ended.
    BlockEnd,
    /// The last block ended.
    StreamEnd,
    /// The input cannot be deflate.
    Fault(&'static str),
    /// The input ends within a block.
    Truncated,
}

#[derive(Debug, Clone, Copy)]
enum Block {
    Header,
    Stored(usize),
    Codes,
}

/// A decoder at some bit of a stream.
#[derive(Debug)]
pub(super) struct Inflate {
    block: Block,
    is_last: bool,
    is_strong: bool,
    literals: Code,
    distances: Code,
    out: Vec<u8>,
    /// `out[fresh..]` was decoded since the last [`take`](Self::take).
    fresh: usize,
}

impl Inflate {
    /// Create a decoder at the start of a stream, or of a block with an unknown window, which is filled with NULs: bytes that
    /// refer to it are wrong, and so are the checksums of their records.
    pub(super) fn new(is_window_known: bool) -> Self {
        let out = if is_window_known { Vec::new() } else { vec![0; WINDOW_BYTES] };
        Self {
            block: Block::Header,
            is_last: false,
            is_strong: false,
            literals: Code::default(),
            distances: Code::default(),
            fresh: out.len(),
            out,
        }
    }

    /// Return true at the start of a block.
    pub(super) fn is_at_block(&self) -> bool {
        matches!(self.block, Block::Header)
    }

    /// Return true within a block of which the header could hardly be anything else: dynamic codes, which are complete.
    pub(super) fn is_strong(&self) -> bool {
        self.is_strong
    }

    /// Return true within a stored block.
    pub(super) fn is_stored(&self) -> bool {
        matches!(self.block, Block::Stored(_))
    }

    /// Return the bytes since the last [`take`](Self::take).
    pub(super) fn fresh(&self) -> &[u8] {
        self.out.get(self.fresh..).unwrap_or_default()
    }

    /// Forget the decoded bytes, except those that a match can refer to.
    pub(super) fn take(&mut self) {
        let excess = self.out.len().saturating_sub(WINDOW_BYTES);
        if excess > WINDOW_BYTES {
            self.out.drain(..excess);
        }
        self.fresh = self.out.len();
    }

    /// Decode from `bits` until about `step` bytes are fresh or the block ends. `is_end` is true if no input follows.
    pub(super) fn advance(&mut self, bits: &mut Bits<'_>, is_end: bool, step: usize) -> Step {
        let until = self.fresh + step;
        match self.block {
            Block::Header if !is_end && bits.left_bytes() < HEADER_BYTES => Step::Input,
            Block::Header => {
                if let Err(fault) = self.header(bits) {
                    return if bits.is_past_end() { Step::Truncated } else { Step::Fault(fault) };
                }
                if bits.is_past_end() { Step::Truncated } else { Step::Full }
            }
            Block::Stored(left) => {
                let have = bits.whole_bytes(left.min(until.saturating_sub(self.out.len())));
                self.out.extend_from_slice(have);
                let left = left - have.len();
                self.block = Block::Stored(left);
                if left == 0 {
                    self.end_block()
                } else if self.out.len() >= until {
                    Step::Full
                } else if is_end {
                    Step::Truncated
                } else {
                    Step::Input
                }
            }
            Block::Codes => self.codes(bits, is_end, until),
        }
    }

    fn end_block(&mut self) -> Step {
        self.block = Block::Header;
        if self.is_last { Step::StreamEnd } else { Step::BlockEnd }
    }

    fn header(&mut self, bits: &mut Bits<'_>) -> Result<(), &'static str> {
        self.is_last = bits.read(1) == 1;
        self.is_strong = false;
        self.block = match bits.read(2) {
            0 => Block::Stored(stored_bytes(bits).ok_or("a stored block with a wrong length")?),
            1 => {
                self.literals = Code::new(&fixed_literals()).ok_or("no code")?;
                self.distances = Code::new(&[5; 32]).ok_or("no code")?;
                Block::Codes
            }
            2 => {
                (self.literals, self.distances) = dynamic_codes(bits).ok_or("invalid codes of a block")?;
                self.is_strong = true;
                Block::Codes
            }
            _ => return Err("an invalid type of a block"),
        };
        Ok(())
    }

    fn codes(&mut self, bits: &mut Bits<'_>, is_end: bool, until: usize) -> Step {
        while self.out.len() < until {
            if !is_end && bits.left_bytes() < SYMBOL_BYTES {
                return Step::Input;
            }
            let Some((symbol, used)) = self.literals.decode(bits.peek()) else {
                return fault(bits, "an invalid literal or length");
            };
            if symbol < END_OF_BLOCK {
                bits.skip(used);
                if is_end && bits.is_past_end() {
                    return Step::Truncated;
                }
                self.out.push(symbol as u8);
            } else if symbol == END_OF_BLOCK {
                bits.skip(used);
                return if bits.is_past_end() { Step::Truncated } else { self.end_block() };
            } else {
                let word = bits.peek() >> used;
                let Some((length, more)) = extra(LENGTHS.get(usize::from(symbol) - 257), word) else {
                    return fault(bits, "an invalid length");
                };
                let word = word >> more;
                let Some((symbol, coded)) = self.distances.decode(word) else {
                    return fault(bits, "an invalid distance");
                };
                let found = extra(DISTANCES.get(usize::from(symbol)), word >> coded);
                let Some((distance, last)) = found else {
                    return fault(bits, "an invalid distance");
                };
                bits.skip(used + more + coded + last);
                if is_end && bits.is_past_end() {
                    return Step::Truncated;
                }
                if !self.copy(distance, length) {
                    return fault(bits, "a distance before the start");
                }
            }
        }
        Step::Full
    }

    fn copy(&mut self, distance: usize, length: usize) -> bool {
        let Some(from) = self.out.len().checked_sub(distance) else {
            return false;
        };
        if distance >= length {
            self.out.extend_from_within(from..from + length);
        } else {
            for at in from..from + length {
                let byte = self.out.get(at).copied().unwrap_or_default();
                self.out.push(byte);
            }
        }
        true
    }
}

#[cold]
fn fault(bits: &Bits<'_>, what: &'static str) -> Step {
    // After the end come zero bits, which may be invalid.
    if bits.left_bytes() < SYMBOL_BYTES { Step::Truncated } else { Step::Fault(what) }
}

/// Return true if a block with dynamic codes, or a stored one, may begin here; random bits have such codes once in
/// about 10^10 places, and such a stored block once in 2^18 or more.
pub(super) fn may_begin(bits: &mut Bits<'_>) -> Option<Beginning> {
    bits.skip(1);
    match bits.read(2) {
        0 => stored_bytes(bits).filter(|bytes| *bytes > 0).map(Beginning::Stored),
        2 => dynamic_codes(bits).map(|_| Beginning::Dynamic),
        _ => None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beginning {
    Stored(usize),
    Dynamic,
}

fn stored_bytes(bits: &mut Bits<'_>) -> Option<usize> {
    if bits.align() != 0 {
        return None;
    }
    let (length, complement) = (bits.read(16), bits.read(16));
    (length ^ complement == 0xffff).then_some(length as usize)
}

fn fixed_literals() -> [u8; 288] {
    let mut lengths = [8; 288];
    for (symbol, length) in lengths.iter_mut().enumerate() {
        *length = match symbol {
            144..256 => 9,
            256..280 => 7,
            _ => 8,
        };
    }
    lengths
}

const ORDER: [u8; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

fn dynamic_codes(bits: &mut Bits<'_>) -> Option<(Code, Code)> {
    let literals = bits.read(5) as usize + 257;
    let distances = bits.read(5) as usize + 1;
    if literals > 286 || distances > 30 {
        return None;
    }
    let mut lengths = [0_u8; 19];
    let mut space = 0_u32;
    for place in ORDER.iter().take(bits.read(4) as usize + 4) {
        let length = bits.read(3) as u8;
        *lengths.get_mut(usize::from(*place))? = length;
        space += if length == 0 { 0 } else { 128 >> length };
    }
    // Before the table is built: nearly all bits that are searched fail here.
    if space != 128 {
        return None;
    }
    let code = Code::new(&lengths)?;
    let mut all = [0_u8; 286 + 30];
    let all = all.get_mut(..literals + distances)?;
    let mut at = 0;
    while at < all.len() {
        let (symbol, used) = code.decode(bits.peek())?;
        bits.skip(used);
        let (value, times) = match symbol {
            0..16 => (symbol as u8, 1),
            16 => (*all.get(at.checked_sub(1)?)?, 3 + bits.read(2) as usize),
            17 => (0, 3 + bits.read(3) as usize),
            _ => (0, 11 + bits.read(7) as usize),
        };
        all.get_mut(at..at + times)?.fill(value);
        at += times;
    }
    let (literals, distances) = all.split_at_checked(literals)?;
    if literals.get(usize::from(END_OF_BLOCK)) == Some(&0) {
        return None;
    }
    Some((Code::new(literals)?, Code::new(distances)?))
}

/// A canonical prefix code.
#[derive(Debug, Default)]
struct Code {
    /// By the next bits: symbol and length, for codes of up to `FAST_BITS` bits; 0 for longer ones.
    fast: Vec<u16>,
    counts: [u16; LONGEST + 1],
    /// Ordered by their codes.
    symbols: Vec<u16>,
}

impl Code {
    /// Return None for lengths that form no code. As for zlib, one code of one bit, and none at all, are valid.
    fn new(lengths: &[u8]) -> Option<Self> {
        let mut counts = [0_u16; LONGEST + 1];
        for length in lengths {
            *counts.get_mut(usize::from(*length))? += 1;
        }
        *counts.first_mut()? = 0;
        let mut space = 1_i32;
        let mut starts = [0_u16; LONGEST + 2];
        let mut codes = [0_u32; LONGEST + 2];
        for (length, count) in counts.iter().enumerate().skip(1) {
            space = 2 * space - i32::from(*count);
            if space < 0 {
                return None;
            }
            *starts.get_mut(length + 1)? = starts.get(length)? + count;
            *codes.get_mut(length + 1)? = (codes.get(length)? + u32::from(*count)) << 1;
        }
        let longest = counts.iter().rposition(|count| *count > 0).unwrap_or(0);
        if space > 0 && longest > 1 {
            return None;
        }
        let mut symbols = vec![0; usize::from(*starts.last()?)];
        let mut fast = vec![0; 1 << FAST_BITS];
        for (symbol, length) in lengths.iter().enumerate().filter(|(_, length)| **length > 0) {
            let start = starts.get_mut(usize::from(*length))?;
            *symbols.get_mut(usize::from(*start))? = symbol as u16;
            *start += 1;
            let code = codes.get_mut(usize::from(*length))?;
            let bits = u32::from(*length);
            if bits <= FAST_BITS {
                let first = (*code << (32 - bits)).reverse_bits() as usize;
                for entry in fast.iter_mut().skip(first).step_by(1 << bits) {
                    *entry = (symbol as u16) << 4 | u16::from(*length);
                }
            }
            *code += 1;
        }
        Some(Self { fast, counts, symbols })
    }

    /// Return the symbol at the lowest bits, and its length.
    #[inline]
    fn decode(&self, bits: u64) -> Option<(u16, u32)> {
        match self.fast.get(bits as usize & ((1 << FAST_BITS) - 1)) {
            Some(entry) if *entry != 0 => Some((entry >> 4, u32::from(entry & 15))),
            _ => self.decode_long(bits),
        }
    }

    fn decode_long(&self, bits: u64) -> Option<(u16, u32)> {
        let (mut code, mut first, mut index) = (0_u32, 0_u32, 0_u32);
        for (length, count) in self.counts.iter().enumerate().skip(1) {
            let count = u32::from(*count);
            code |= (bits >> (length - 1) & 1) as u32;
            if code < first + count {
                let symbol = self.symbols.get((index + code - first) as usize)?;
                return Some((*symbol, length as u32));
            }
            index += count;
            first = (first + count) << 1;
            code <<= 1;
        }
        None
    }
}

/// Return a base and the value of the extra bits together, and the number of these bits.
#[inline]
fn extra(entry: Option<&(u16, u8)>, bits: u64) -> Option<(usize, u32)> {
    let (base, count) = entry?;
    Some((usize::from(*base) + (bits & ((1 << count) - 1)) as usize, u32::from(*count)))
}

#[rustfmt::skip]
const LENGTHS: [(u16, u8); 29] = [
    (3, 0), (4, 0), (5, 0), (6, 0), (7, 0), (8, 0), (9, 0), (10, 0), (11, 1), (13, 1), (15, 1), (17, 1), (19, 2), (23, 2),
    (27, 2), (31, 2), (35, 3), (43, 3), (51, 3), (59, 3), (67, 4), (83, 4), (99, 4), (115, 4), (131, 5), (163, 5),
    (195, 5), (227, 5), (258, 0),
];

#[rustfmt::skip]
const DISTANCES: [(u16, u8); 30] = [
    (1, 0), (2, 0), (3, 0), (4, 0), (5, 1), (7, 1), (9, 2), (13, 2), (17, 3), (25, 3), (33, 4), (49, 4), (65, 5), (97, 5),
    (129, 6), (193, 6), (257, 7), (385, 7), (513, 8), (769, 8), (1025, 9), (1537, 9), (2049, 10), (3073, 10),
    (4097, 11), (6145, 11), (8193, 12), (12289, 12), (16385, 13), (24577, 13),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn inflate(packed: &[u8], step: usize) -> (Vec<u8>, Step) {
        let mut decoder = Inflate::new(true);
        let mut bits = Bits::new(packed, 0);
        let mut out = Vec::new();
        loop {
            let step = decoder.advance(&mut bits, true, step);
            out.extend_from_slice(decoder.fresh());
            decoder.take();
            if !matches!(step, Step::Full | Step::BlockEnd) {
                return (out, step);
            }
        }
    }

    fn deflate(bytes: &[u8], level: u32) -> Vec<u8> {
        let mut e = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::new(level));
        e.write_all(bytes).unwrap();
        e.finish().unwrap()
    }

    fn samples() -> Vec<Vec<u8>> {
        let mut seed = 7_u32;
        let mut random = move || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        };
        let text: Vec<u8> = (0..400_000).map(|i| (i % 251) as u8 ^ (random() & 3)).collect();
        vec![Vec::new(), b"a".to_vec(), vec![0; 100_000], (0..300_000).map(|_| random()).collect(), text]
    }

    #[test]
    fn every_level_gives_the_bytes_back() {
        for bytes in samples() {
            for level in 0..=9 {
                let packed = deflate(&bytes, level);
                for step in [1000, 1 << 16] {
                    let (out, end) = inflate(&packed, step);
                    assert_eq!(end, Step::StreamEnd);
                    assert!(out == bytes);
                }
            }
        }
    }

    #[test]
    fn a_cut_stream_is_a_prefix() {
        for bytes in samples() {
            let packed = deflate(&bytes, 6);
            for cut in (0..packed.len()).step_by(packed.len() / 50 + 1) {
                let (out, end) = inflate(packed.get(..cut).unwrap(), 1 << 16);
                assert_eq!(end, Step::Truncated);
                assert!(bytes.starts_with(&out));
            }
        }
    }
}
