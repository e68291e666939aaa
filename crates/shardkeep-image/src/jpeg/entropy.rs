//! Sequential decoding of Huffman-coded data to coefficients (T.81, annex F.2.2).
//!
//! The data between two markers are first copied without their stuffed zeros. Then bits can be read eight bytes at a
//! time, with one check for the end of the data per row of MCUs.

#![deny(clippy::indexing_slicing)]

use super::Damage;
use super::huffman::{self, AcTable, DcTable, extend};

/// Positions of the coefficients of a block, in the order of coding. A damaged block may have positions after the
/// last one; it is refused at its end.
#[rustfmt::skip]
pub(super) const ZIGZAG: [u8; 128] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28,
    35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
    63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
    63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
];

/// The coefficients of a block, in row order.
pub(super) type Block = [i16; 64];

const EARLY: Damage = "its data end before its last row";

/// The bits of the piece of data between two markers.
#[derive(Debug, Clone, Copy, Default)]
struct Bits {
    /// The next bits, from the highest down. Below `count` bits of it there may be more of the same data.
    hand: u64,
    count: u32,
    /// Position of the byte after the counted ones.
    at: usize,
}

impl Bits {
    /// Refill to at least 56 bits; return false after the end of the data.
    #[inline(always)]
    fn refill(&mut self, data: &[u8]) -> bool {
        let Some(word) = data.get(self.at..).and_then(<[u8]>::first_chunk::<8>) else { return false };
        self.hand |= u64::from_be_bytes(*word).wrapping_shr(self.count);
        self.at += ((63 ^ self.count) >> 3) as usize;
        self.count |= 56;
        true
    }

    #[inline(always)]
    fn skip(&mut self, bits: u32) {
        self.hand = self.hand.wrapping_shl(bits);
        self.count = self.count.wrapping_sub(bits);
    }

    /// Return the number of bits that were taken since the start.
    fn taken(&self) -> usize {
        (8 * self.at).saturating_sub(self.count as usize)
    }
}

/// Tables and block count of one component of a scan.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'a> {
    pub dc: &'a DcTable,
    pub ac: &'a AcTable,
    /// Blocks in an MCU.
    pub blocks: usize,
}

/// The entropy-coded data of a scan.
#[derive(Debug)]
pub(super) struct Scan<'a, 's> {
    rest: &'a [u8],
    /// The current piece without stuffed zeros, followed by at least eight zeros.
    piece: &'s mut Vec<u8>,
    piece_bytes: usize,
    bits: Bits,
    predictions: [i32; 4],
    /// MCUs up to the next restart marker, of so many; 0: there are none.
    restart_interval: usize,
    until_restart: usize,
    next_marker: u8,
}

/// Number of zeros after a piece: a refill may begin at its end.
const PADDING: usize = 16;

impl<'a, 's> Scan<'a, 's> {
    /// Start a scan; `spare` is the buffer of the previous one.
    pub(super) fn new(data: &'a [u8], restart_interval: usize, spare: &'s mut Vec<u8>) -> Self {
        let mut scan = Self {
            rest: data,
            piece: spare,
            piece_bytes: 0,
            bits: Bits::default(),
            predictions: [0; 4],
            restart_interval,
            until_restart: restart_interval,
            next_marker: 0xd0,
        };
        if scan.piece.len() < data.len() + PADDING {
            scan.piece.resize(data.len() + PADDING, 0);
        }
        scan.load();
        scan
    }

    /// Take the data up to the next marker.
    fn load(&mut self) {
        let (bytes, rest) = unstuff(self.rest, self.piece);
        if let Some(padding) = self.piece.get_mut(bytes..bytes + PADDING) {
            padding.fill(0);
        }
        (self.rest, self.piece_bytes) = (rest, bytes);
        self.bits = Bits::default();
        self.predictions = [0; 4];
    }

    /// Return an error if more bits were taken than the piece has.
    pub(super) fn check(&self) -> Result<(), Damage> {
        if self.bits.taken() > 8 * self.piece_bytes { Err(EARLY) } else { Ok(()) }
    }

    /// Continue after the restart marker, which must be the next in order and follow the MCUs directly.
    fn restart(&mut self) -> Result<(), Damage> {
        self.check()?;
        if self.bits.taken().div_ceil(8) != self.piece_bytes {
            return Err("there are data before a restart marker that belong to no pixel");
        }
        let (&marker, rest) = self.rest.split_first().ok_or(EARLY)?;
        if marker != self.next_marker {
            return Err("a restart marker is missing or out of its order");
        }
        self.next_marker = 0xd0 | (marker + 1) & 7;
        self.rest = rest;
        self.until_restart = self.restart_interval;
        self.load();
        Ok(())
    }

    /// Decode MCUs into `blocks`, which are zero, and the position of the last coefficient of each block into `lasts`.
    pub(super) fn mcus(
        &mut self,
        parts: &[Part<'_>],
        blocks: &mut [Block],
        lasts: &mut [u8],
    ) -> Result<(), Damage> {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("bmi1")
            && std::arch::is_x86_feature_detected!("bmi2")
            && std::arch::is_x86_feature_detected!("movbe")
        {
            // SAFETY: the processor has the instructions that the function was compiled for.
            return unsafe { self.mcus_bmi2(parts, blocks, lasts) };
        }
        self.mcus_anywhere(parts, blocks, lasts)
    }

    /// The same code with shifts that do not go through one register.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "bmi1,bmi2,movbe")]
    fn mcus_bmi2(
        &mut self,
        parts: &[Part<'_>],
        blocks: &mut [Block],
        lasts: &mut [u8],
    ) -> Result<(), Damage> {
        self.mcus_anywhere(parts, blocks, lasts)
    }

    #[inline(always)]
    fn mcus_anywhere(
        &mut self,
        parts: &[Part<'_>],
        blocks: &mut [Block],
        lasts: &mut [u8],
    ) -> Result<(), Damage> {
        let size: usize = parts.iter().map(|part| part.blocks).sum();
        for (blocks, lasts) in blocks.chunks_exact_mut(size).zip(lasts.chunks_exact_mut(size)) {
            if self.restart_interval != 0 {
                if self.until_restart == 0 {
                    self.restart()?;
                }
                self.until_restart -= 1;
            }
            let mut bits = self.bits;
            let mut places = blocks.iter_mut().zip(lasts);
            for (part, prediction) in parts.iter().zip(&mut self.predictions) {
                for (block, last) in places.by_ref().take(part.blocks) {
                    *last = block_of(&mut bits, self.piece, part, prediction, block)?;
                }
            }
            self.bits = bits;
        }
        self.check()
    }
}

/// Decode one block; return the position of its last coefficient in the order of coding.
#[inline(always)]
fn block_of(
    input: &mut Bits,
    data: &[u8],
    part: &Part<'_>,
    prediction: &mut i32,
    block: &mut Block,
) -> Result<u8, Damage> {
    const NO_CODE: Damage = "its data hold a code that is not in the Huffman table";
    let mut bits = *input;
    if !bits.refill(data) {
        return Err(EARLY);
    }
    let (taken, difference) = part.dc.difference(bits.hand).ok_or(NO_CODE)?;
    bits.skip(taken);
    *prediction = prediction.wrapping_add(difference);
    block[0] = *prediction as i16;
    let mut put = |at: u32, value: i16| {
        let place = ZIGZAG.get(at as usize & 127).copied().unwrap_or(0);
        if let Some(cell) = block.get_mut(usize::from(place) & 63) {
            *cell = value;
        }
    };
    let entries = part.ac.entries();
    let mut at = 0;
    'block: while at < 63 {
        if !bits.refill(data) {
            return Err(EARLY);
        }
        // Of 56 bits two entries take 24 at most, and a code with its value 31.
        for _ in 0..3 {
            let entry = huffman::look_up(entries, bits.hand);
            let (first, second) = huffman::distances(entry);
            // No end-of-block code follows the last coefficient, so the rest of an entry belongs to the next block.
            if first == 0 || at + first >= 63 {
                let (taken, symbol) = match huffman::lone_symbol(entry) {
                    Some(found) => found,
                    None => part.ac.search(bits.hand).ok_or(NO_CODE)?,
                };
                bits.skip(taken);
                let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
                if size == 0 {
                    if huffman::ends_block(symbol) {
                        break 'block;
                    }
                    at += 16;
                    continue 'block;
                }
                at += run + 1;
                put(at, extend(bits.hand, size) as i16);
                bits.skip(size);
                continue 'block;
            }
            bits.skip(huffman::taken(entry));
            let (one, other) = huffman::coefficients(entry);
            at += first;
            put(at, one);
            at += second;
            put(at, other);
            at += huffman::end(entry);
            if at >= 63 {
                break 'block;
            }
        }
    }
    *input = bits;
    let last = at & 127;
    if last > 63 { Err("a block has more than 64 coefficients") } else { Ok(last as u8) }
}

/// Copy data up to a marker without stuffing into `out`, which is longer; return the number of bytes, and the data
/// after the 0xff of the marker.
fn unstuff<'a>(mut data: &'a [u8], out: &mut [u8]) -> (usize, &'a [u8]) {
    let mut at = 0;
    while let (Some(word), Some(place)) =
        (data.first_chunk::<8>(), out.get_mut(at..).and_then(<[u8]>::first_chunk_mut))
    {
        *place = *word;
        // The lowest byte that is marked here is the first 0xff.
        let inverted = !u64::from_le_bytes(*word);
        let marks = inverted.wrapping_sub(0x0101_0101_0101_0101) & !inverted & 0x8080_8080_8080_8080;
        if marks == 0 {
            data = data.get(8..).unwrap_or_default();
            at += 8;
            continue;
        }
        let plain = marks.trailing_zeros() as usize / 8;
        at += plain;
        data = data.get(plain..).unwrap_or_default();
        match after_ff(data) {
            Ok(rest) => data = rest,
            Err(rest) => return (at, rest),
        }
        at += 1;
    }
    while let Some((&byte, rest)) = data.split_first() {
        let Some(place) = out.get_mut(at) else { break };
        *place = byte;
        data = match byte {
            0xff => match after_ff(data) {
                Ok(rest) => rest,
                Err(rest) => return (at, rest),
            },
            _ => rest,
        };
        at += 1;
    }
    (at, &[])
}

/// Return the data after a stuffed 0xff at the start of `data`; the error is the marker if it is not stuffed.
fn after_ff(data: &[u8]) -> Result<&[u8], &[u8]> {
    let fill = data.iter().position(|&byte| byte != 0xff).unwrap_or(data.len());
    let rest = data.get(fill..).unwrap_or_default();
    match rest.split_first() {
        Some((0, rest)) => Ok(rest),
        _ => Err(rest),
    }
}
