//! Inflate (RFC 1951) of a zlib stream (RFC 1950) into a buffer of known size, made for many small streams.
//!
//! A 32x32 PNG is 1.5 KB of deflate data: what a decoder does before the first symbol counts as much as the symbols. This
//! one keeps its tables between streams, builds them by doubling, and avoids branches that data decide at random.
//!
//! The Adler-32 at the end of the stream is verified. A stream that holds more than the buffer is read to its end by the
//! inflater of zlib-rs, which keeps nothing of it: rare, and its checksum covers the rest too. Damage gives an error, never a
//! read or write outside the two slices: there is no unsafe code here.

#![deny(clippy::indexing_slicing)]

use flate2::{Decompress, FlushDecompress, Status};
use zlib_rs::adler32::adler32;

mod huffman;

use huffman::Table;

/// Codes of the literal/length alphabet, of the distance alphabet, and of both with the padding of the fixed code.
const LITERALS: usize = 286;
const DISTANCES: usize = 30;
const LENGTHS: usize = 288 + 32;

/// Where the lengths of the code-length code stand in a block's header.
const CODE_ORDER: [u8; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/// A block of fewer bytes is decoded before pairs of literals would have been found.
const PAIRS_PAY: usize = 1024;

/// How a stream is broken.
pub type Damage = &'static str;

const SHORT: Damage = "it ends early";
const BAD_CODE: Damage = "it uses a code that was not defined";

/// The tables of the inflater, kept between streams.
#[derive(Debug, Default)]
pub struct Inflater {
    literals: Table<1024>,
    distances: Table<256>,
    codes: Table<128>,
    /// The two tables hold the code of fixed blocks.
    fixed: bool,
}

/// The input: up to 63 bits in hand and the bytes behind them.
#[derive(Clone, Copy)]
struct Bits<'a> {
    rest: &'a [u8],
    hand: u64,
    count: u32,
}

impl<'a> Bits<'a> {
    /// Takes bits in hand until there are at least 56 or the input ends.
    #[inline(always)]
    fn refill(&mut self) {
        if let Some(next) = self.rest.first_chunk::<8>() {
            self.hand |= u64::from_le_bytes(*next) << self.count;
            let taken = (63 - self.count) >> 3;
            self.rest = self.rest.get(taken as usize..).unwrap_or_default();
            self.count |= 56;
        } else {
            *self = self.refilled_slowly();
        }
    }

    // By value, as nothing may take the address of what the hot loop keeps in registers.
    #[cold]
    #[inline(never)]
    fn refilled_slowly(mut self) -> Self {
        while self.count <= 55
            && let Some((&byte, rest)) = self.rest.split_first()
        {
            self.hand |= u64::from(byte) << self.count;
            self.count += 8;
            self.rest = rest;
        }
        self
    }

    /// Drops bits of which there are enough.
    #[inline(always)]
    fn skip(&mut self, count: u32) {
        self.count = self.count.wrapping_sub(count);
        self.hand >>= count & 63;
    }

    /// Drops bits that were looked at. An error if the input did not have them.
    #[inline(always)]
    fn drop(&mut self, count: u32) -> Result<(), Damage> {
        self.count = self.count.checked_sub(count).ok_or(SHORT)?;
        self.hand >>= count & 63;
        Ok(())
    }

    /// Takes up to 16 bits; those in hand must suffice unless the input ends.
    #[inline(always)]
    fn take(&mut self, count: u32) -> Result<usize, Damage> {
        let value = self.hand & ((1 << count) - 1);
        self.drop(count)?;
        Ok(value as usize)
    }

    /// Goes to the next whole byte and gives back the bytes in hand.
    fn align(&mut self, all: &'a [u8]) -> &'a [u8] {
        let left = self.rest.len() + self.count as usize / 8;
        (self.hand, self.count) = (0, 0);
        all.get(all.len().saturating_sub(left)..).unwrap_or_default()
    }
}

impl Inflater {
    /// Fills `out` from the zlib stream `data`.
    pub fn zlib(&mut self, data: &[u8], out: &mut [u8]) -> Result<(), Damage> {
        let [method, flags, ..] = data else { return Err(SHORT) };
        let header = u16::from_be_bytes([*method, *flags]);
        if method & 0x0f != 8 || method >> 4 > 7 || header % 31 != 0 || flags & 0x20 != 0 {
            return Err("it is not a zlib stream");
        }
        let end = self.deflate(data.get(2..).unwrap_or_default(), out)?;
        match end.map(<[u8]>::first_chunk::<4>) {
            Some(Some(adler)) if u32::from_be_bytes(*adler) == adler32(1, out) => Ok(()),
            Some(None) => Err(SHORT),
            // A copy over the end of `out` is cut off, so its stream seems to have another Adler-32.
            Some(Some(_)) | None => read_to_end(data),
        }
    }

    /// Fills `out` from raw deflate data. Returns the bytes after them; None if they hold more than fits.
    fn deflate<'a>(&mut self, data: &'a [u8], out: &mut [u8]) -> Result<Option<&'a [u8]>, Damage> {
        let mut bits = Bits { rest: data, hand: 0, count: 0 };
        let mut at = 0usize;
        loop {
            bits.refill();
            let last = bits.take(1)? == 1;
            let Some(end) = (match bits.take(2)? {
                0 => stored(&mut bits, data, out, at)?,
                1 => {
                    self.fixed_code();
                    self.block(&mut bits, out, at)?
                }
                2 => {
                    self.dynamic_code(&mut bits, out.len() - at.min(out.len()))?;
                    self.block(&mut bits, out, at)?
                }
                _ => return Err("it has a block of a type that does not exist"),
            }) else {
                return Ok(None);
            };
            at = end;
            if last {
                return if at >= out.len() { Ok(Some(bits.align(data))) } else { Err(SHORT) };
            }
        }
    }

    fn fixed_code(&mut self) {
        if self.fixed {
            return;
        }
        let lengths: [u8; LENGTHS] = std::array::from_fn(|symbol| match symbol {
            0..=143 => 8,
            144..=255 => 9,
            256..=279 => 7,
            280..=287 => 8,
            _ => 5,
        });
        let (literals, distances) = lengths.split_at(288);
        self.fixed = self.literals.build(literals, huffman::literal, false).is_ok()
            && self.distances.build(distances, huffman::distance, false).is_ok();
    }

    /// Reads the two codes of a dynamic block, of which at most `room` bytes are wanted.
    fn dynamic_code(&mut self, bits: &mut Bits<'_>, room: usize) -> Result<(), Damage> {
        self.fixed = false;
        bits.refill();
        let literals = bits.take(5)? + 257;
        let distances = bits.take(5)? + 1;
        let codes = bits.take(4)? + 4;
        if literals > LITERALS || distances > DISTANCES {
            return Err("a block has more codes than exist");
        }
        let mut order = [0u8; 19];
        for &symbol in CODE_ORDER.iter().take(codes) {
            bits.refill();
            if let Some(length) = order.get_mut(usize::from(symbol)) {
                *length = bits.take(3)? as u8;
            }
        }
        self.codes.build(&order, huffman::plain, false)?;
        let mut lengths = [0u8; LENGTHS];
        let total = literals + distances;
        let mut at = 0usize;
        while at < total {
            bits.refill();
            let entry = self.codes.look_up(bits.hand);
            if entry == 0 {
                return Err(BAD_CODE);
            }
            bits.drop(huffman::bits(entry))?;
            let (value, repeat) = match huffman::symbol(entry) {
                length @ 0..=15 => {
                    // By far the most frequent case.
                    if let Some(slot) = lengths.get_mut(at) {
                        *slot = length as u8;
                    }
                    at += 1;
                    continue;
                }
                16 => {
                    let before = at.checked_sub(1).and_then(|before| lengths.get(before).copied());
                    (before.ok_or(BAD_CODE)?, 3 + bits.take(2)?)
                }
                17 => (0, 3 + bits.take(3)?),
                _ => (0, 11 + bits.take(7)?),
            };
            let run = lengths.get_mut(at..at + repeat).filter(|_| at + repeat <= total);
            run.ok_or("a block's code lengths run over")?.fill(value);
            at += repeat;
        }
        let (literal_lengths, rest) = lengths.split_at(literals);
        if literal_lengths.get(256) == Some(&0) {
            return Err("a block has no code for its end");
        }
        let pairs = room >= PAIRS_PAY && mostly_short(literal_lengths);
        self.literals.build(literal_lengths, huffman::literal, pairs)?;
        self.distances.build(rest.get(..distances).unwrap_or_default(), huffman::distance, false)?;
        Ok(())
    }

    /// Decodes the symbols of a block; returns where it ends in `out`, None if it holds more than fits.
    fn block(&self, bits: &mut Bits<'_>, out: &mut [u8], at: usize) -> Result<Option<usize>, Damage> {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("bmi2") {
            // SAFETY: the processor has the instructions that the function was compiled for.
            return unsafe { self.block_bmi2(bits, out, at) };
        }
        self.symbols(bits, out, at)
    }

    /// The same code with shifts that do not go through one register.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "bmi2")]
    fn block_bmi2(&self, bits: &mut Bits<'_>, out: &mut [u8], at: usize) -> Result<Option<usize>, Damage> {
        self.symbols(bits, out, at)
    }

    #[inline(always)]
    fn symbols(&self, input: &mut Bits<'_>, out: &mut [u8], mut at: usize) -> Result<Option<usize>, Damage> {
        let mut bits = *input;
        loop {
            bits.refill();
            let mut entry = self.literals.glance(bits.hand);
            // Of 56 bits four entries of the first table (10 bits, one or two literals) can be taken unseen.
            if huffman::is_literal(entry) && bits.count >= 56 && at + 8 <= out.len() {
                let (mut eight, mut filled) = (0u64, 0u32);
                for _ in 0..4 {
                    eight |= (huffman::symbol(entry) as u64) << (filled & 63);
                    filled += huffman::literal_bits(entry);
                    bits.skip(huffman::bits(entry));
                    entry = self.literals.glance(bits.hand);
                    if !huffman::is_literal(entry) {
                        break;
                    }
                }
                put8(out, at, eight);
                at += filled as usize / 8;
                if huffman::is_literal(entry) {
                    continue;
                }
                // A length takes up to 15 + 5 bits, a distance up to 15 + 13.
                bits.refill();
            }
            let entry = huffman::first_literal(self.literals.settle(bits.hand, entry));
            bits.drop(huffman::bits(entry))?;
            if !huffman::is_literal(entry) && huffman::is_end(entry) {
                *input = bits;
                return Ok(Some(at));
            }
            let Some(slot) = out.get_mut(at) else { return Ok(None) };
            if huffman::is_literal(entry) {
                *slot = huffman::symbol(entry) as u8;
                at += 1;
                continue;
            }
            let length = huffman::base(entry) + bits.take(huffman::extra(entry))?;
            let far = self.distances.look_up(bits.hand);
            if entry == 0 || far == 0 {
                return Err(BAD_CODE);
            }
            bits.drop(huffman::bits(far))?;
            let distance = huffman::base(far) + bits.take(huffman::extra(far))?;
            at = copy(out, at, distance, length)?;
        }
    }
}

/// Whether at least half of the symbols that a code is made for are literals of few bits.
fn mostly_short(lengths: &[u8]) -> bool {
    const BITS: u8 = 5;
    let literals = lengths.iter().take(256).filter(|&&length| (1..=BITS).contains(&length));
    literals.map(|&length| 1 << BITS >> length).sum::<u32>() >= 1 << (BITS - 1)
}

/// Read a whole zlib stream for its checksum alone.
#[cold]
fn read_to_end(data: &[u8]) -> Result<(), Damage> {
    let mut inflater = Decompress::new(true);
    let mut scratch = [0; 16 << 10];
    loop {
        let before = (inflater.total_in(), inflater.total_out());
        let rest = data.get(usize::try_from(before.0).unwrap_or(usize::MAX)..).unwrap_or_default();
        match inflater.decompress(rest, &mut scratch, FlushDecompress::None) {
            Ok(Status::StreamEnd) => return Ok(()),
            Ok(_) if (inflater.total_in(), inflater.total_out()) == before => return Err(SHORT),
            Ok(_) => {}
            Err(_) => return Err("its Adler-32 is not that of its data"),
        }
    }
}

/// Copies a stored block; returns where it ends in `out`, None if it holds more than fits.
fn stored<'a>(
    bits: &mut Bits<'a>,
    all: &'a [u8],
    out: &mut [u8],
    at: usize,
) -> Result<Option<usize>, Damage> {
    let rest = bits.align(all);
    let (&[l0, l1, n0, n1], rest) = rest.split_first_chunk::<4>().ok_or(SHORT)?;
    let length = u16::from_le_bytes([l0, l1]);
    if length != !u16::from_le_bytes([n0, n1]) {
        return Err("a stored block's length is damaged");
    }
    let length = usize::from(length);
    let (source, rest) = rest.split_at_checked(length).ok_or(SHORT)?;
    let room = out.get_mut(at..).unwrap_or_default();
    let count = length.min(room.len());
    room.get_mut(..count).ok_or(SHORT)?.copy_from_slice(source.get(..count).ok_or(SHORT)?);
    bits.rest = rest;
    Ok((count == length).then_some(at + length))
}

/// Repeats `length` bytes from `distance` back, as far as there is room; returns the new end.
#[inline(always)]
fn copy(out: &mut [u8], at: usize, distance: usize, length: usize) -> Result<usize, Damage> {
    let start = at.checked_sub(distance).ok_or("it looks back beyond its start")?;
    // Most copies are short. They are made of two eights whether needed or not, as a loop's end cannot be predicted; what
    // goes too far is overwritten by what follows.
    if at + length.max(16) + 8 > out.len() {
        return Ok(copy_at_end(out, start, at, length));
    }
    if distance >= 8 {
        put8(out, at, get8(out, start));
        put8(out, at + 8, get8(out, start + 8));
        let mut done = 16;
        while done < length {
            put8(out, at + done, get8(out, start + done));
            done += 8;
        }
    } else {
        // The pattern of `distance` bytes, as often as it fits into eight.
        let width = 8 * distance as u32;
        let mut pattern = get8(out, start) & (u64::MAX >> (64 - width));
        pattern |= pattern << width;
        pattern |= pattern.checked_shl(2 * width).unwrap_or(0);
        pattern |= pattern.checked_shl(4 * width).unwrap_or(0);
        let step = 8 - 8 % distance;
        put8(out, at, pattern);
        put8(out, at + step, pattern);
        let mut done = 2 * step;
        while done < length {
            put8(out, at + done, pattern);
            done += step;
        }
    }
    Ok(at + length)
}

#[inline(always)]
fn get8(out: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(out.get(at..).and_then(|from| from.first_chunk::<8>()).copied().unwrap_or_default())
}

#[inline(always)]
fn put8(out: &mut [u8], at: usize, value: u64) {
    if let Some(to) = out.get_mut(at..).and_then(|to| to.first_chunk_mut::<8>()) {
        *to = value.to_le_bytes();
    }
}

#[inline(never)]
fn copy_at_end(out: &mut [u8], start: usize, at: usize, length: usize) -> usize {
    let end = (at + length).min(out.len());
    for (from, to) in (start..).zip(at..end) {
        let value = out.get(from).copied().unwrap_or_default();
        if let Some(slot) = out.get_mut(to) {
            *slot = value;
        }
    }
    end
}
